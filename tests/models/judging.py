"""What a model case must fulfil, and the table printed of it."""

import contextlib
import dataclasses
import math
from typing import Any

from torch_tenon import first_call
from torch_tenon.testing import ModelReport, check_model

# Contractions and attention may be library calls; everything else is to be compiled.
LIBRARY = {
    "mm", "addmm", "bmm", "baddbmm", "matmul", "convolution",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_fused_attention_overrideable",
    "scaled_dot_product_attention", "attention",
}  # fmt: skip
LIBRARY_BACKWARD = {
    "convolution_backward", "kernel_gradient",
    "_scaled_dot_product_flash_attention_for_cpu_backward", "attention_backward",
}
# They move no data: left out of both sides of the native share.
VIEWS = {
    "view", "_unsafe_view", "reshape", "permute", "t", "transpose", "expand", "unsqueeze",
    "squeeze", "alias", "detach", "slice", "select", "split", "split_with_sizes", "unbind",
}  # fmt: skip
MIN_COVERAGE = 0.95


def packet(overload: str) -> str:
    """aten.addmm.out, aten::addmm.out and addmm all name addmm; host.matmul names matmul."""
    return overload.replace("aten::", "").removeprefix("aten.").removeprefix("host.").split(".")[0]


class Measured(contextlib.AbstractContextManager):
    """Collects the executor's counters of one call. Without tenon it collects nothing."""

    def __init__(self, tenon):
        self.tenon, self.graphs = tenon, []

    def __enter__(self):
        if self.tenon is not None:
            self.tenon.reset_stats()
        return self

    def __exit__(self, *exc):
        if self.tenon is not None:
            self.graphs = [g for g in self.tenon.stats()["graphs"] if g["calls"] > 0]


@dataclasses.dataclass
class Verdict:
    report: ModelReport
    graphs: list[dict[str, Any]]
    problems: list[str]
    first_call: dict[str, float]  # CPU seconds by phase; without tenon {}

    def __str__(self) -> str:
        steps = step_table(self.graphs)
        summary = self.report.summary()
        if self.first_call:
            summary += "\nfirst call, CPU s: " + ", ".join(f"{phase} {s:.2f}" for phase, s in self.first_call.items())
        return f"{summary}\n{steps}" if steps else summary


# Of this run of the tests: model, "inference" or "training" -> CPU seconds by phase of the first call, others having been compiled before.
FIRST_CALLS: dict[tuple[str, str], dict[str, float]] = {}


def first_call_table(calls: dict[tuple[str, str], dict[str, float]]) -> list[str]:
    """Markdown."""
    phases = list(next(iter(calls.values())))
    rows = [[name, what, *(f"{s[p]:.2f}" for p in phases), f"{sum(s.values()):.2f}"] for (name, what), s in calls.items()]
    head = ["model", "", *phases, "all"]
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def judge(case, backend: str, tenon, train: bool = False) -> Verdict:
    """Runs one zoo case by every criterion; `tenon` is the module or None."""
    model, args = case.make_train() if train else case.make()
    measured = Measured(tenon)
    report = check_model(
        model,
        args,
        backend=backend,
        train=train,
        loss=case.loss if train else None,
        measure=measured,
    )
    problems = list(report.failures)
    if report.coverage < MIN_COVERAGE:
        problems.append(f"{report.coverage:.1%} of eager's ops ran inside graphs")
    if tenon is not None:
        problems += _executor_problems(case, measured.graphs, train)
    return Verdict(report, measured.graphs, problems, _first_call(case, report, measured.graphs, train))


def _first_call(case, report: ModelReport, graphs, train: bool) -> dict[str, float]:
    if not any(g.get("first_call_s") for g in graphs):
        return {}
    spent = first_call.remaining(report.call_cpu_seconds[0], report.call_cpu_seconds[-1], graphs)
    FIRST_CALLS[case.name, "training" if train else "inference"] = spent
    return spent


def _executor_problems(case, graphs, train: bool) -> list[str]:
    if not graphs:
        return ["the executor counted no run of a graph"]
    problems = [
        f"graph {graph['id']} ran as {graph['tier']}: {graph['reason']}"
        for graph in graphs
        if graph["tier"] != "native"
    ]
    if case.family in ("transformer", "cnn") and not train:
        for overload, step in foreign_steps(graphs).items():
            problems.append(f"{step['count']} ATen steps {overload}: {step['reason']}")
    if train:
        share = native_share([g for g in graphs if g["kind"] == "backward"])
        if not share > 0.5:
            problems.append(f"native share of the backward's non-library ops is {share:.0%}")
    return problems


def foreign_steps(graphs) -> dict[str, dict]:
    """ATen steps that are no library calls, over all graphs."""
    found: dict[str, dict] = {}
    for graph in graphs:
        for overload, step in graph["aten_steps"].items():
            if packet(overload) not in LIBRARY | LIBRARY_BACKWARD:
                entry = found.setdefault(overload, {"count": 0, "ns": 0, "reason": step["reason"]})
                entry["count"] += step["count"]
                entry["ns"] += step["ns"]
    return found


def native_share(graphs) -> float:
    """Share of the graphs' compute ops, library calls and views aside, that no ATen step ran."""

    def compute(overload):
        return packet(overload) not in LIBRARY | LIBRARY_BACKWARD | VIEWS

    nodes = sum(n for g in graphs for op, n in g["nodes"].items() if compute(op))
    steps = sum(
        step["count"] / max(g["calls"], 1)
        for g in graphs
        for op, step in g["aten_steps"].items()
        if compute(op)
    )
    return 1.0 - steps / nodes if nodes else math.nan


def step_table(graphs) -> str:
    """Every ATen step's share of its graph's run time."""
    lines = []
    for graph in graphs:
        run_ns = max(graph["run_ns"], 1)
        compile_ms = sum(graph["compile_ms"].values())
        lines.append(
            f"graph {graph['id']} ({graph['kind']}, {graph['tier']}): {graph['kernels']} kernels, "
            f"{graph['calls']} runs, {run_ns / 1e6:.2f} ms, compiled in {compile_ms:.0f} ms"
        )
        steps = sorted(graph["aten_steps"].items(), key=lambda item: -item[1]["ns"])
        for overload, step in steps:
            lines.append(
                f"  {step['ns'] / run_ns:6.1%}  {step['count']:5d} x {overload}  {step['reason']}"
            )
        if graph["kind"] == "backward":
            lines.append(f"  native share of non-library compute ops: {native_share([graph]):.0%}")
    return "\n".join(lines)
