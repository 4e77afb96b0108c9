"""What it costs a call to find its program among those for some sizes (docs/architecture/sizes.md, tiers).

    PYTHONPATH=build/release/python .venv/bin/python benchmarks/dispatch.py [--blocks 15]

One graph of two sizes, (x+1)*2 on a few floats: called where there is one program for all sizes, and where seven others stand beside it,
for the sizes of the last of them and for sizes of none. What differs is the dispatch, and the program; Python's part is in all of them.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from unittest import mock

import torch
from environment import find_packages, machine, reexec_pinned

CALLS = 20_000


def graph(x):
    return (x + 1) * 2


def compiled_graph(warm: list[torch.Tensor], hot_ns: float):
    """A fresh compile of the graph, called for the sizes of `warm` until each has its program, if sizes get hot."""
    from rows import own_code
    from torch_tenon import dynamic, registry

    before = len(registry.records())
    with mock.patch.object(dynamic.DynamicGraph, "_hot_ns", lambda self, record: hot_ns), mock.patch.object(dynamic, "WORTH", float("inf")):
        call = torch.compile(own_code(graph), backend="tenon", dynamic=True)
        for x in warm:
            for _ in range(400):
                call(x)
    return call, registry.records()[before:]


def timed(call, x) -> float:
    began = time.perf_counter()
    for _ in range(CALLS):
        call(x)
    return 1e6 * (time.perf_counter() - began) / CALLS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=15)
    arguments = parser.parse_args()
    reexec_pinned(2)
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    print(machine(2))
    sizes = [torch.randn(n, 3) for n in range(2, 9)]
    other = torch.randn(20, 3)
    with torch.no_grad():
        alone, _ = compiled_graph([other], hot_ns=float("inf"))
        many, records = compiled_graph(sizes, hot_ns=0.0)
        print(f"programs: {sum(r.executable is not None for r in records)}; {records[0].tiers[-1]}")
        rows = {"one program": (alone, other), "among 8, none of the seven": (many, other), "among 8, the last": (many, sizes[-1])}
        times = {name: [] for name in rows}
        for block in range(arguments.blocks + 1):
            for name in rows if block % 2 else reversed(rows):
                times[name].append(timed(*rows[name]))
    base = times["one program"][1:]
    print("| call | us | more than one program's, us |\n|---|---|---|")
    for name, found in times.items():
        more = statistics.median(a - b for a, b in zip(found[1:], base))
        print(f"| {name} | {statistics.median(found[1:]):.2f} | {more:+.3f} |")


if __name__ == "__main__":
    find_packages()
    main()
