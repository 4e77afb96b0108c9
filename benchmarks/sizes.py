"""Requests of many lengths: the transformer of four layers (rows.py) behind 100 requests of 71 lengths, against eager, Inductor and JAX.

    PYTHONPATH=build/release/python .venv/bin/python benchmarks/sizes.py [--peers tenon,inductor] [--blocks 5]

Each peer runs in a process of its own, beside eager: a first pass over all requests (tracing and compiling included), then passes that
alternate with eager's. Ratios to eager; programs are the graphs that were compiled. `tenon_exact` compiles each length by itself; exact/all
is the steady pass of a model compiled for one length against the program for all of them. JAX has a function for each length, as jax.jit
makes them; its first pass exports the model from PyTorch each time, so only its steady passes say something.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
import warnings

from environment import find_packages, machine, measure_apart

find_packages()
import torch  # noqa: E402

PEERS = {
    "tenon": {"backend": "tenon"},
    "tenon_dynamic": {"backend": "tenon", "dynamic": True},
    "tenon_exact": {"backend": "tenon", "options": {"sizes": "exact"}},
    "inductor": {"backend": "inductor"},
    "inductor_dynamic": {"backend": "inductor", "dynamic": True},
    "jax": {},
}


def requests() -> list[int]:
    """100 requests of 71 lengths between 8 and 160."""
    draw = random.Random(0)
    lengths = draw.sample(range(8, 161), 71)
    return lengths + draw.choices(lengths, k=29)


def model():
    from models import zoo

    return zoo.CASES["transformer4l"].make()[0].eval()


class Jax:
    """A compiled function for each length. Inputs and weights are JAX's before the clock starts: those of `inputs`, by their lengths."""

    def __init__(self, net, inputs):
        import jax
        from jax_step import Program, to_jax

        self.jit, self.program, self.net, self.calls = jax.jit, Program, net, {}
        self.inputs = {id(x): to_jax(x) for x in inputs}

    def __call__(self, x):
        if x.shape not in self.calls:
            program = self.program(self.net, (x,))
            self.calls[x.shape] = self.jit(lambda state, given: program(state, [given])[0]), program.state
        call, state = self.calls[x.shape]
        return call(state, self.inputs[id(x)])[0].block_until_ready()


def measure(peer: str, blocks: int) -> dict:
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    net = model()
    width = 768
    inputs = [torch.randn(1, n, width) for n in requests()]

    def one_pass(call) -> float:
        began = time.perf_counter()
        for x in inputs:
            call(x)
        return time.perf_counter() - began

    with torch.no_grad():
        one_pass(net)
        eager_first = one_pass(net)
        compiled = Jax(net, inputs) if peer == "jax" else torch.compile(net, **PEERS[peer])
        first = one_pass(compiled)
        ratios = []
        for block in range(blocks):
            order = (net, compiled) if block % 2 else (compiled, net)
            times = {id(call): one_pass(call) for call in order}
            ratios.append(times[id(compiled)] / times[id(net)])
    found = {"peer": peer, "eager_ms": 1e3 * eager_first, "first": first / eager_first, "steady": statistics.median(ratios),
             "spread": [min(ratios), max(ratios)]}  # fmt: skip
    if "tenon" in peer:
        import torch_tenon

        found["programs"] = len(torch_tenon.stats()["graphs"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="tenon,tenon_dynamic,tenon_exact")
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.blocks)))
        return
    print(machine(2))
    print("| peer | first pass / eager | steady / eager | spread | programs |\n|---|---|---|---|---|")
    for peer in arguments.peers.split(","):
        r = measure_apart(2, "--one", peer, "--blocks", str(arguments.blocks))
        if isinstance(r, str):
            print(f"| {peer} | {r} | | | |")
            continue
        spread = f"{r['spread'][0]:.2f} - {r['spread'][1]:.2f}"
        print(f"| {peer} | {r['first']:.2f} | {r['steady']:.3f} | {spread} | {r.get('programs', '')} |", flush=True)


if __name__ == "__main__":
    main()
