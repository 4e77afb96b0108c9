"""generate() of Hugging Face's models with a cache that grows, under torch.compile: one program for all lengths, against eager.

    PYTHONPATH=build/release/python .venv/bin/python benchmarks/generation.py [--rows llama2,t5,...] [--batches 1,8] [--tokens 200]

Greedy, from random weights, each row in a process of its own: tokens must be eager's; programs are those of one call of generate(), counted
for each graph of Dynamo's; the first call (tracing and compiling included) is told beside that with PyTorch's static cache, whose sizes are
numbers; then calls of eager and of tenon take turns.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
import warnings

from environment import find_packages, machine, measure_apart

find_packages()
VOCABULARY, PROMPT = 1000, 10
NO_END = {"eos_token_id": None, "pad_token_id": 0}


def llama(layers: int, hidden: int, heads: int):
    import transformers

    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads // 2,
        intermediate_size=3 * hidden, max_position_embeddings=512, bos_token_id=1, **NO_END,
    ))  # fmt: skip


def gpt2():
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=512, n_embd=256, n_layer=4, n_head=4, bos_token_id=1, **NO_END,
    ))  # fmt: skip


def t5():
    import transformers

    return transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=VOCABULARY, d_model=256, d_kv=64, d_ff=512, num_layers=4, num_heads=4, decoder_start_token_id=0, **NO_END,
    ))  # fmt: skip


def whisper():
    import transformers

    return transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
        vocab_size=VOCABULARY, d_model=256, encoder_layers=4, decoder_layers=4, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=512, decoder_ffn_dim=512, max_source_positions=150, max_target_positions=448, bos_token_id=1,
        decoder_start_token_id=1, begin_suppress_tokens=None, suppress_tokens=None, **NO_END,
    ))  # fmt: skip


MODELS = {"llama2": lambda: llama(2, 256, 4), "llama12": lambda: llama(12, 512, 8), "gpt2": gpt2, "t5": t5, "whisper": whisper}


def measure(name: str, batch: int, tokens: int, blocks: int) -> dict:
    import torch
    import torch_tenon  # noqa: F401
    import transformers
    from torch_tenon import registry

    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    torch.manual_seed(0)
    eager = MODELS[name]().eval()
    if name == "whisper":
        inputs = {"input_features": torch.randn(batch, 80, 300)}
    else:
        ids = torch.randint(2, VOCABULARY, (batch, PROMPT))
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def generate(model, **cache):
        began = time.perf_counter()
        with torch.no_grad():
            out = model.generate(**inputs, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, num_beams=1, **cache)
        return getattr(out, "sequences", out), time.perf_counter() - began

    def compiled(**cache):
        torch._dynamo.reset()
        model = copy.deepcopy(eager)
        model.compile(backend="tenon")
        before = len(registry.records())
        found, seconds = generate(model, **cache)
        return model, found, seconds, registry.records()[before:]

    wanted, _ = generate(eager)
    _, _, static_s, static_records = compiled(cache_implementation="static")
    model, found, first_s, records = compiled()
    eager_s, ratios = [], []
    for block in range(blocks):
        times = {id(m): generate(m)[1] for m in ((model, eager) if block % 2 else (eager, model))}
        eager_s.append(times[id(eager)])
        ratios.append(times[id(model)] / times[id(eager)])
    return {
        "same": bool(torch.equal(wanted, found)),
        "graphs": len(records),
        "for all sizes": sum(r.sizes.startswith("all ") for r in records),
        "not native": [r.reason or r.sizes for r in records if r.tier != "native"],
        "steps": sorted({step["op"] for r in records for step in r.framework_steps()}),
        "first": first_s, "static first": static_s, "static graphs": len(static_records),
        "eager tokens/s": batch * tokens / statistics.median(eager_s),
        "ratio": statistics.median(ratios), "spread": [min(ratios), max(ratios)],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(MODELS))
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, batch = arguments.one.split(":")
        print(json.dumps(measure(name, int(batch), arguments.tokens, arguments.blocks)))
        return
    print(machine(2))
    columns = ("model, batch", "tokens as eager's", "graphs (for all sizes)", "ATen steps", "first call s", "static cache's",
               "eager tokens/s", "time / eager")  # fmt: skip
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for name in arguments.rows.split(","):
        for batch in arguments.batches.split(","):
            settings = ("--tokens", str(arguments.tokens), "--blocks", str(arguments.blocks))
            r = measure_apart(2, "--one", f"{name}:{batch}", *settings)
            if isinstance(r, str):
                print(f"| {name}, {batch} | {r} | | | | | | |", flush=True)
                continue
            graphs = f"{r['graphs']} ({r['for all sizes']})" + (f", not native: {r['not native']}" if r["not native"] else "")
            ratio = f"{r['ratio']:.3f} ({r['spread'][0]:.2f} - {r['spread'][1]:.2f})"
            static = f"{r['static first']:.1f} ({r['static graphs']} graphs)"
            print(f"| {name}, {batch} | {'yes' if r['same'] else 'NO'} | {graphs} | {', '.join(r['steps']) or 'none'} | {r['first']:.1f} |"
                  f" {static} | {r['eager tokens/s']:.0f} | {ratio} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
