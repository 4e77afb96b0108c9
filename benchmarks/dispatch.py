"""What it costs a call to find its program among those for some sizes (docs/architecture/sizes.md, tiers).

    PYTHONPATH=build/release/python .venv/bin/python benchmarks/dispatch.py [--blocks 15]

One graph of two sizes, (x+1)*2 on a few floats, called past Dynamo: as a static program, as one program for all sizes, and where seven
others stand beside that, for the sizes of the first and of the last. Such a call differs from the static one in the dispatch alone.
The least of the blocks counts.
"""

from __future__ import annotations

import argparse
import time
import warnings
from unittest import mock

import torch
from environment import find_packages, machine, reexec_pinned

CALLS = 20_000
KEPT = []  # what was compiled


def graph(x):
    return (x + 1) * 2


def compiled_graph(warm: list[torch.Tensor], hot_ns: float, dynamic_sizes: bool = True):
    """(executable, record) of a fresh compile, called for the sizes of `warm` until each has its program, if sizes get hot."""
    from rows import own_code
    from torch_tenon import dynamic, registry

    before = len(registry.records())
    with mock.patch.object(dynamic.DynamicGraph, "_hot_ns", lambda self, record: hot_ns), mock.patch.object(dynamic, "WORTH", float("inf")):
        call = torch.compile(own_code(graph), backend="tenon", dynamic=dynamic_sizes)
        for x in warm:
            for _ in range(400):
                call(x)
    KEPT.append(call)
    record = registry.records()[before]
    return record.executable, record


def timed(executable, x) -> float:
    """Microseconds a call."""
    began = time.perf_counter()
    for _ in range(CALLS):
        executable([x])
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
        static, _ = compiled_graph([sizes[0]], hot_ns=float("inf"), dynamic_sizes=False)
        alone, _ = compiled_graph([other], hot_ns=float("inf"))
        many, record = compiled_graph(sizes, hot_ns=0.0)
        print(f"programs kept: {sum('kept' in verdict for verdict in record.tiers)} beside the one for all sizes")
        first, last = sizes[0], sizes[-1]
        rows = {"static": (static, first), "for all sizes, alone": (alone, other),
                "among 8, the first": (many, first), "among 8, the last": (many, last)}  # fmt: skip
        times = {name: [] for name in rows}
        for block in range(arguments.blocks + 1):
            for name in rows if block % 2 else reversed(rows):
                times[name].append(timed(*rows[name]))
    base = min(times["static"])
    print("| call | us | more than static, us |\n|---|---|---|")
    for name, found in times.items():
        print(f"| {name} | {min(found):.2f} | {min(found) - base:+.3f} |")


if __name__ == "__main__":
    find_packages()
    main()
