"""Models over many sizes: one program for all of them against programs of each size, and eager.

    PYTHONPATH=build/release/python .venv/bin/python benchmarks/size_scenarios.py [--rows bert_train,cnn,...] [--blocks 15]

A row's sizes are run in one pass; each peer has a model of its own, the passes alternate in blocks, after a pass of each that compiles. The
first pass of the program for all sizes (tracing, and the static graph of the first size, included) is told in passes of eager. `generate`
rows count tokens a second, and the tokens must be eager's.
"""

from __future__ import annotations

import argparse
import copy
import random
import statistics
import time
import warnings

import torch
import torch_tenon
from environment import find_packages, machine, reexec_pinned
from torch import nn
from torch_tenon import registry

EXACT = {"sizes": "exact"}


def _draw(count: int, low: int, high: int) -> list[int]:
    return random.Random(0).sample(range(low, high), count)


class Row:
    """sizes; run(call, model, input): one pass' part; compiled(model, options) -> call."""

    training = False

    def compiled(self, model, options):
        return torch.compile(model, backend="tenon", options=options)

    def run(self, call, model, x):
        return call(*x)


class Training(Row):
    training = True

    def run(self, call, model, x):
        model.zero_grad()
        loss = call(*x)
        loss = loss if isinstance(loss, torch.Tensor) else loss[0]
        loss.backward()
        return loss


class BertTrain(Training):
    """Masked language model, four layers of 256, batches of 8, 30 lengths."""

    def make(self):
        import transformers

        config = transformers.BertConfig(
            vocab_size=1000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        model = transformers.BertForMaskedLM(config)
        forward = model.forward
        model.forward = lambda ids: forward(input_ids=ids, labels=ids, return_dict=False)
        return model

    def inputs(self):
        return [(torch.randint(0, 1000, (8, n)),) for n in _draw(30, 8, 129)]


class Cnn(Row):
    """ResNet-18 over 20 image sizes, batch 1."""

    def make(self):
        from models import zoo

        return zoo.CASES["resnet18"].make()[0].eval()

    def inputs(self):
        return [(torch.randn(1, 3, n, n),) for n in _draw(20, 64, 225)]


class Gcn(Training):
    """Two graph convolutions by index_add over 20 graphs, node and edge counts changing."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(64, 128), nn.Linear(128, 64)

        def forward(self, x, source, target):
            for layer in (self.first, self.second):
                x = layer(x)
                x = torch.relu(x + torch.zeros_like(x).index_add(0, target, x[source]))
            return x.square().mean()

    def make(self):
        return self.Net()

    def inputs(self):
        found = []
        for nodes in _draw(20, 500, 3000):
            edges = 4 * nodes + nodes % 7
            found.append((torch.randn(nodes, 64), torch.randint(0, nodes, (edges,)), torch.randint(0, nodes, (edges,))))
        return found


ROWS = {"bert_train": BertTrain, "cnn": Cnn, "gcn_train": Gcn}


def measure(name: str, blocks: int) -> str:
    row = ROWS[name]()
    torch.manual_seed(0)
    eager = row.make()
    inputs = row.inputs()
    grad = torch.enable_grad if row.training else torch.no_grad
    models = {"eager": eager, "all": copy.deepcopy(eager), "exact": copy.deepcopy(eager)}
    before = len(registry.records())
    calls = {"eager": eager, "all": row.compiled(models["all"], {}), "exact": row.compiled(models["exact"], EXACT)}

    def one_pass(peer: str) -> float:
        began = time.perf_counter()
        for x in inputs:
            row.run(calls[peer], models[peer], x)
        return time.perf_counter() - began

    with grad():
        one_pass("eager")
        base, first = one_pass("eager"), one_pass("all")
        records = registry.records()[before:]
        programs = {kind: sum(r.kind == kind for r in records) for kind in {r.kind for r in records}}
        wrong = [r.sizes or r.reason for r in records if r.tier != "native"]
        one_pass("exact")
        to_eager, to_exact = [], []
        for block in range(blocks):
            order = ("eager", "all", "exact") if block % 2 else ("exact", "all", "eager")
            times = {peer: one_pass(peer) for peer in order}
            to_eager.append(times["all"] / times["eager"])
            to_exact.append(times["all"] / times["exact"])
    steps = sorted({s["op"] for r in records for s in r.framework_steps()})
    told = ", ".join(f"{n} {kind}" for kind, n in programs.items()) + (f"; not native: {wrong}" if wrong else "")
    return (f"| {name} | {len(inputs)} | {told} | {', '.join(steps) or 'none'} | {first / base:.2f} | {statistics.median(to_eager):.3f} |"
            f" {statistics.median(to_exact):.3f} ({min(to_exact):.2f} - {max(to_exact):.2f}) |")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--blocks", type=int, default=15)
    arguments = parser.parse_args()
    reexec_pinned(2)
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    torch._dynamo.config.cache_size_limit = 64
    print(machine(2))
    print("| row | sizes | programs | ATen steps | first pass / eager | all / eager | all / exact |\n|---|---|---|---|---|---|---|")
    for name in arguments.rows.split(","):
        print(measure(name, arguments.blocks), flush=True)


if __name__ == "__main__":
    find_packages()
    main()
