"""Fine-tuning of small Hugging Face models with gradient checkpointing and dropout, eager against tenon.

    PYTHONPATH=build/release/python .venv/bin/python benchmarks/finetune.py [--steps 50] [--rounds 3]

Both start from the same weights and the same state of the random generator. Losses of steps 1-10 are judged by the accuracy rule against
float64; later ones by eager's own spread over three seeds of dropout. Step times: medians of rounds that alternate. Exits with 1 when a
graph is not native, a loss is off, or the node of autograd was not used.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings

import torch
import torch_tenon
import transformers
from environment import machine, reexec_pinned
from torch_tenon.testing import compare

VOCAB, LENGTH = 1000, 64


def bert():
    return transformers.BertForMaskedLM(
        transformers.BertConfig(
            hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512, vocab_size=VOCAB,
            max_position_embeddings=128,
        )
    )


def gpt2():
    config = transformers.GPT2Config(
        n_embd=128, n_layer=2, n_head=2, vocab_size=VOCAB, n_positions=128, bos_token_id=0, eos_token_id=0, use_cache=False
    )
    return transformers.GPT2LMHeadModel(config)


class Run:
    """One model in training. step() is one step of AdamW; its loss is kept."""

    def __init__(self, make, compiled: bool, dtype=torch.float32, seed: int = 0):
        torch.manual_seed(0)
        model = make().to(dtype).train()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.model = torch.compile(model, backend="tenon") if compiled else model
        self.batches = torch.Generator().manual_seed(5)
        torch.manual_seed(100 + seed)
        self.random = torch.get_rng_state()
        self.losses: list[torch.Tensor] = []

    def step(self) -> float:
        ids = torch.randint(0, VOCAB, (8, LENGTH), generator=self.batches)
        torch.set_rng_state(self.random)
        begin = time.perf_counter()
        loss = self.model(input_ids=ids, labels=ids).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        seconds = time.perf_counter() - begin
        self.random = torch.get_rng_state()
        self.losses.append(loss.detach())
        return seconds


def finetune(name: str, make, steps: int, rounds: int) -> bool:
    torch._dynamo.reset()
    torch_tenon.reset_stats()
    eager, tenon = Run(make, False), Run(make, True)
    times: dict[str, list[float]] = {"eager": [], "tenon": []}
    for _ in range(steps):
        for label, run in (("eager", eager), ("tenon", tenon)):
            times[label].append(run.step())
    exact, others = Run(make, False, torch.float64), [Run(make, False, seed=seed) for seed in (1, 2)]
    for run in (exact, *others):
        for _ in range(steps):
            run.step()
    verdict = compare(torch.stack(tenon.losses[:10]), torch.stack(eager.losses[:10]), torch.stack(exact.losses[:10]))
    spread = max(float((a - b).abs()) for other in others for a, b in zip(other.losses[10:], eager.losses[10:]))
    drift = max(float((a - b).abs()) for a, b in zip(tenon.losses[10:], eager.losses[10:]))
    graphs = torch_tenon.stats()["graphs"]
    native = all(graph["tier"] == "native" for graph in graphs)
    own = all(graph["autograd"]["node"] == "own" for graph in graphs if graph["kind"] == "forward")
    ratios = []
    for _ in range(rounds):
        parts = {label: [run.step() for _ in range(15)] for label, run in (("eager", eager), ("tenon", tenon))}
        ratios.append(statistics.median(parts["tenon"]) / statistics.median(parts["eager"]))
    print(f"{name}: {steps} steps, {len(graphs)} graphs, native: {native}, own node: {own}")
    print(f"  losses {tenon.losses[0]:.4f} ... {tenon.losses[steps - 1]:.4f}; steps 1-10 by the rule: {'ok' if verdict.ok else verdict}")
    print(f"  later losses: {drift:.2e} from eager, eager's seeds {spread:.2e} apart")
    print(f"  step time: tenon/eager {statistics.median(ratios):.3f} ({min(ratios):.3f} - {max(ratios):.3f}, {rounds} rounds of 15 steps)")
    return native and own and verdict.ok and drift <= spread


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    reexec_pinned(2)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    print(machine(torch.get_num_threads()) | {"transformers": transformers.__version__})
    good = [finetune(name, make, arguments.steps, arguments.rounds) for name, make in (("bert", bert), ("gpt2", gpt2))]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
