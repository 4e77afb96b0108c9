"""Each row as a program for all sizes against the program of its very sizes.

    PYTHONPATH=build/release/python .venv/bin/python benchmarks/symbolic_rows.py [--rows chain20_1M,...] [--blocks 15]

Both are tenon's, in one process for each row, in blocks that take turns: `torch.compile(dynamic=True)`, every dim of every input a symbol,
and `dynamic=False`. Bars: 1.05 for models, 1.1 for pointwise and row rows; a row misses its bar when the lower 95 % bound is above it.
"within" is the same ratio of the time in tenon's programs alone: the rest of a call is Dynamo's guards and wrappers, which do more for
dynamic=True (a size of an input is an argument that Python makes in each call).
With `--hot` the row is called until its sizes are hot and the trial of a program for them has ended (docs/architecture/sizes.md, tiers).
"""

from __future__ import annotations

import argparse
import json
import time

from environment import find_packages, machine, measure_apart

find_packages()
import intervals  # noqa: E402

MODEL_BAR, KERNEL_BAR = 1.05, 1.1
BLOCK_S = 0.06
ONE = {"sizes": "one"}  # no programs for hot sizes beside the one for all


def is_model(row) -> bool:
    import rows
    import torch

    return isinstance(rows.ROWS[row].make()[0], torch.nn.Module)


def heat(step, graphs) -> list[str]:
    """Calls until each graph has a verdict, or for a minute; the verdicts."""
    from torch_tenon import registry

    ids = {g["id"] for g in graphs}
    records = [r for r in registry.records() if r.id in ids]
    began = time.perf_counter()
    while not all(r.tiers for r in records) and time.perf_counter() - began < 60:
        step.timed(1)
    return [verdict.split(": ")[-1] for r in records for verdict in r.tiers] or ["not hot in a minute"]


def measure(name: str, blocks: int, hot: bool) -> dict:
    import rows
    import torch
    import torch_tenon
    from step import Step

    torch.set_num_threads(2)
    made = {}
    programs = {}
    for way in ("exact", "all"):
        torch._dynamo.reset()
        known = {g["id"] for g in torch_tenon.stats()["graphs"]}
        options = {} if hot else ONE
        made[way] = Step(rows.ROWS[name], lambda f, way=way: torch.compile(f, backend="tenon", dynamic=way == "all", options=options))
        made[way].first_call()
        programs[way] = [g for g in torch_tenon.stats()["graphs"] if g["id"] not in known]
    verdicts = heat(made["all"], programs["all"]) if hot else []
    once = made["exact"].timed(3)
    count = max(1, int(BLOCK_S / max(once, 1e-7)))
    times: dict[str, list[float]] = {"exact": [], "all": []}
    within: dict[str, list[float]] = {"exact": [], "all": []}
    for block in range(blocks + 1):
        for way in ("exact", "all") if block % 2 else ("all", "exact"):
            torch_tenon.reset_stats()
            times[way].append(made[way].timed(count))
            within[way].append(sum(g["run_ns"] for g in torch_tenon.stats()["graphs"]) / count)
    graphs = programs["all"]
    return {
        "row": name,
        "ms": 1e3 * intervals.median([times["exact"][1:]]),
        "ratio": intervals.ratio([times["all"][1:]], [times["exact"][1:]]),
        "within": intervals.ratio([within["all"][1:]], [within["exact"][1:]]),
        "symbolic": sum(g["sizes"].startswith("all ") for g in graphs),
        "static": sum(g["sizes"] == "" for g in graphs),
        "others": [g["sizes"] for g in graphs if g["sizes"] and not g["sizes"].startswith("all ")],
        "steps": sorted({op for g in graphs for op in g["aten_steps"]} - {op for g in programs["exact"] for op in g["aten_steps"]}),
        "verdicts": verdicts,
        "bar": MODEL_BAR if is_model(name) else KERNEL_BAR,
    }


def main() -> None:
    import rows

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(rows.ROWS))
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--hot", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.blocks, arguments.hot)))
        return
    print(machine(2))
    print("| row | exact ms | all / exact | 95 % | bar | within | 95 % | programs for all sizes | ATen steps that exact sizes lack |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in arguments.rows.split(","):
        r = measure_apart(2, "--one", name, "--blocks", str(arguments.blocks), *(["--hot"] if arguments.hot else []))
        if isinstance(r, str):
            print(f"| {name} | {r} | | | | | | | |", flush=True)
            continue
        ratio = r["ratio"]
        missed = " missed" if ratio["low"] > r["bar"] else ""
        programs = str(r["symbolic"]) + (f", static {r['static']}" if r["static"] else "")
        programs += f"; {'; '.join(r['verdicts'])}" if r["verdicts"] else ""
        programs += f", not: {r['others']}" if r["others"] else ""
        shown = lambda q: f"{q['median']:.3f} | {q['low']:.3f} - {q['high']:.3f}"
        print(f"| {name} | {r['ms']:.4g} | {shown(ratio)} | {r['bar']}{missed} | {shown(r['within'])} | {programs} |"
              f" {', '.join(r['steps']) or 'none'} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
