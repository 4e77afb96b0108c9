"""torch_tenon.explain: what became of a model."""

from __future__ import annotations

import collections
import dataclasses
import json
import linecache
import os
import pathlib
import sys
import time
from typing import Any, Callable

import torch

from . import _C, first_call, registry
from .backend import tenon

_TIMED_RUNS = 5
_SHOWN_ROWS = 10  # of clusters and library calls, in text; ATen steps and copies are always all shown


@dataclasses.dataclass
class Explanation:
    """The report. `str()` is for people (the dearest rows), `text(rows=None)` shows all, `to_dict()` is for tools."""

    graphs: list[dict[str, Any]]
    breaks: list[str]
    run_ms: float  # one warm call of the model, as its caller sees it
    report: dict[str, Any] = dataclasses.field(repr=False, default_factory=dict)  # docs/architecture/report.md
    # CPU seconds of the first call, with the compile of a backward only if the model runs its own: first_call.ALL_PHASES.
    first_call_s: dict[str, float] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "report"}

    def to_html(self, path: str | os.PathLike | None = None) -> str:
        """All graphs as one self-contained page (no network): graph with fusions, buffers over time, costs, timeline, remarks,
        source lines. Written to `path` if given. options={"report": "code"} adds LLVM IR and assembly of the kernels."""
        html = _C.report_html(json.dumps(self.report))
        if path is not None:
            pathlib.Path(path).write_text(html, encoding="utf-8")
        return html

    def _repr_html_(self) -> str:
        from .hlo import notebook_frame

        return notebook_frame(self.to_html())

    def __str__(self) -> str:
        return self.text()

    def text(self, rows: int | None = _SHOWN_ROWS) -> str:
        lines = [f"{len(self.graphs)} graphs, {len(self.breaks)} breaks, {self.run_ms:.3f} ms a call"]
        lines += [f"  break: {reason}" for reason in self.breaks]
        if self.first_call_s:
            lines.append("  first call, CPU s: " + ", ".join(f"{phase} {s:.2f}" for phase, s in self.first_call_s.items()))
        for graph in self.graphs:
            lines += _graph_lines(graph, rows)
        return "\n".join(lines)


def explain(model: Callable, *inputs: Any, options: dict[str, Any] | None = None, **kwargs: Any) -> Explanation:
    """Compiles `model` anew for these inputs, runs it, and reports clusters, kernels, library calls,
    ATen steps with reason, source line and share of run time, the memory plan, compile time by phase."""
    options = {"report": "module", **(options or {})}
    before = {record.id for record in registry.records()}
    breaks = _BreakCounter()

    def fresh_backend(gm, example_inputs):  # a new object: nothing compiled earlier is used again
        return tenon(gm, example_inputs, options=options)

    compiled = torch.compile(model, backend=fresh_backend)
    began = time.process_time()
    with breaks:
        compiled(*inputs, **kwargs)
    first_s = time.process_time() - began
    records = [r for r in registry.records() if r.id not in before]
    for record in records:
        record.raw_stats(reset=True)
    _C.set_profiling(True)
    try:
        began, began_cpu = time.perf_counter(), time.process_time()
        for _ in range(_TIMED_RUNS):
            compiled(*inputs, **kwargs)
        run_ms = 1e3 * (time.perf_counter() - began) / _TIMED_RUNS
        warm_s = (time.process_time() - began_cpu) / _TIMED_RUNS
    finally:
        _C.set_profiling(False)
    spent = first_call.remaining(first_s, warm_s, [{"first_call_s": r.first_call and r.first_call.seconds} for r in records])
    report = _report(model, records, {"breaks": breaks.reasons, "run_ms": run_ms, "first_call_s": spent})
    return Explanation([_describe(r) for r in records], breaks.reasons, run_ms, report, spent)


def _report(model: Callable, records: list[registry.GraphRecord], told: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": "tenon-report",
        "version": 1,
        "title": getattr(model, "__name__", None) or type(model).__name__,
        "generator": "torch_tenon.explain",
        "model": told,
        "graphs": [_graph_report(r) for r in records],
    }


def _graph_report(record: registry.GraphRecord) -> dict[str, Any]:
    graph = record.report() or _python_program(record)
    graph.update(name=f"{record.kind} {record.id}", kind=record.kind)
    if graph["program"]:
        phases = {name for name, _ in graph["program"]["compile_ms"]}
        graph["program"]["compile_ms"] += [[p, ms] for p, ms in record.compile_ms.items() if p not in phases and p != "total"]
    graph["source_lines"] = _source_lines(graph)
    return graph


def _python_program(record: registry.GraphRecord) -> dict[str, Any]:
    """A graph that runs node by node from Python, in the form of a program: a step per operator."""
    steps = [
        {"kind": "call", "name": f"{op} ×{count}", "source": "", "op": op, "reason": record.reason, "reads": [], "writes": [],
         "bytes": 0, "flops": 0, "estimated_ns": 0}
        for op, count in record.nodes.items()
    ]  # fmt: skip
    return {
        "profile": None,
        "program": {
            "tier": "eager_program", "reason": f"run from Python: {record.reason}", "inputs": [], "outputs": [], "kernels": [],
            "regions": [{"name": "main", "steps": steps}], "order": [[0, k] for k in range(len(steps))], "values": [],
            "memory": {"arena": 0, "code": 0}, "compile_ms": [], "remarks": [],
        },
    }  # fmt: skip


def _source_lines(graph: dict[str, Any]) -> dict[str, str]:
    """The text of the lines that the graph came from, where the files can be read."""
    places = {i["source"] for i in graph.get("module", {}).get("instructions", ()) if "source" in i}
    places |= {step["source"].split(" @ ")[-1] for region in graph["program"]["regions"] for step in region["steps"]}
    files = _loaded_files()
    lines = {}
    for place in places:
        file, _, number = place.rpartition(":")
        if text := linecache.getline(files.get(file, file), int(number)).strip() if number.isdigit() else "":
            lines[place] = text[:200]
    return lines


def _loaded_files() -> dict[str, str]:
    """Name of a file -> its path, of the modules that are loaded, where the name says which: metadata has names only."""
    paths = collections.defaultdict(set)
    for module in list(sys.modules.values()):
        if path := getattr(module, "__file__", None):
            paths[os.path.basename(path)].add(path)
    return {name: found.pop() for name, found in paths.items() if len(found) == 1}


class _BreakCounter:
    def __enter__(self):
        from torch._dynamo.utils import counters

        self._counter = counters["graph_break"]
        self._before = dict(self._counter)
        self.reasons: list[str] = []
        return self

    def __exit__(self, *unused):
        grown = [k for k, n in self._counter.items() if n > self._before.get(k, 0)]
        self.reasons = [reason.strip().splitlines()[0] for reason in grown if reason.strip()]


def _describe(record: registry.GraphRecord) -> dict[str, Any]:
    raw = record.raw_stats()
    calls = max(raw["calls"], 1)
    total = sum(s["ns"] for key in ("steps", "kernels", "copies", "library") for s in raw.get(key, ())) or 1
    info = record.info
    kernels = info.get("kernels", [])

    def row(step: dict[str, Any], **more: Any) -> dict[str, Any]:
        us = step["ns"] / calls / 1e3
        return {"name": step["name"], "source": step["source"], "us": us, "share": step["ns"] / total, **more}

    clusters = [row(s, kernel=s["kernel"], plan=kernels[s["kernel"]]["plan"] if kernels else "") for s in raw["kernels"]]
    steps = [row(s, op=s["op"], reason=s["reason"], count=s["count"] // calls) for s in raw["steps"]]
    library = [s for s in steps if s["reason"].startswith("library")]
    own = [row(s, op=s["op"], reason="library", count=s["count"] // calls) for s in raw.get("library", ())]  # tenon's functions
    return {
        "id": record.id,
        "kind": record.kind,
        "tier": record.tier,
        "reason": record.reason,
        "sizes": record.sizes,
        "part": record.part,
        "tiers": list(record.tiers),
        "by_aten": dict(record.by_aten),
        "nodes": dict(record.nodes),
        "calls": raw["calls"],
        "run_us": raw["run_ns"] / calls / 1e3,
        "kernels": len(kernels),
        "launch_groups": info.get("launch_groups", []),
        "clusters": clusters,
        "library_calls": library + own,
        "aten_steps": [s for s in steps if s not in library],
        "copies": [row(s) for s in raw["copies"]],
        "memory": info.get("memory", {}),
        "frozen": record.frozen,
        "autograd": record.autograd.stats() if record.autograd is not None else None,
        "cut": dataclasses.asdict(record.cut) if record.cut is not None else None,
        "compile_ms": dict(record.compile_ms),
        "passes_verified": "verify" in record.compile_ms,
        "remarks": info.get("remarks", []),
    }


def _graph_lines(graph: dict[str, Any], rows: int | None) -> list[str]:
    why = f" because {graph['reason']}" if graph["reason"] else ""
    lines = [
        "",
        f"graph {graph['id']} ({graph['kind']}): {graph['tier']}{why}",
        f"  {sum(graph['nodes'].values())} ATen nodes -> {len(graph['clusters'])} clusters "
        f"({graph['kernels']} distinct kernels), {len(graph['library_calls'])} library calls, "
        f"{len(graph['aten_steps'])} ATen steps, {len(graph['copies'])} copies; {graph['run_us']:.1f} us",
    ]
    if part := graph["part"]:
        lines.append(f"  part {part}")
    if sizes := graph["sizes"]:
        lines.append(f"  sizes: {sizes}; {graph['calls']} calls went to this program")
    lines += [f"  tier: {verdict}" for verdict in graph["tiers"]]
    lines += [f"  by ATen, {count} calls: {reason}" for reason, count in graph["by_aten"].items()]
    if groups := graph["launch_groups"]:
        lines.append(f"  small kernels launched together: {', '.join(map(str, groups))}")
    if memory := graph["memory"]:
        lines.append("  memory: " + ", ".join(f"{name} {_bytes(n)}" for name, n in memory.items()))
    if frozen := graph["frozen"]:
        lines.append(f"  frozen: {frozen['values']} values, {_bytes(frozen['bytes'])}, computed {frozen['computed']} times")
    if autograd := graph["autograd"]:
        why = f" because {autograd['reason']}" if autograd["reason"] else ""
        lines.append("  autograd: " + ("tenon's node" if autograd["node"] == "own" else f"AOTAutograd's wrapper{why}"))
    if cut := graph["cut"]:
        who = "tenon's partitioner" if cut["by"] == "own" else f"PyTorch's min-cut because {cut['reason']}"
        size = f", {_bytes(cut['saved_bytes'])} beside parameters" if cut["saved_bytes"] >= 0 else ""
        lines.append(f"  cut: {who}; {cut['saved']} values saved{size}")
    phases = ", ".join(f"{name} {ms:.1f}" for name, ms in graph["compile_ms"].items() if ms >= 0.05)
    lines.append(f"  compile ms: {phases}")
    if graph["tier"] == "native":
        lines.append("  passes: " + ("verified each" if graph["passes_verified"] else "not verified (TENON_VERIFY=1 does)"))
    lines += _section("clusters", graph["clusters"], lambda s: s["plan"].split(" phases=")[0], rows)
    lines += _section("library calls", graph["library_calls"], lambda s: s["op"], rows)
    lines += _section("ATen steps", graph["aten_steps"], lambda s: f"{s['op']}: {s['reason']}")
    lines += _section("copies", graph["copies"], lambda s: "")
    return lines


def _section(
    title: str, rows: list[dict[str, Any]], what: Callable[[dict[str, Any]], str], limit: int | None = None
) -> list[str]:
    if not rows:
        return []
    lines = [f"  {title}:  {sum(r['share'] for r in rows):.1%} of the run"]
    ordered = sorted(rows, key=lambda r: -r["us"])
    for r in ordered[:limit]:
        source = f"  [{r['source']}]" if r["source"] else ""
        lines.append(f"    {r['share']:6.1%} {r['us']:9.1f} us  {r['name']}  {what(r)}{source}")
    if rest := ordered[limit:] if limit else []:
        lines.append(f"    {sum(r['share'] for r in rest):6.1%} {sum(r['us'] for r in rest):9.1f} us  in {len(rest)} more")
    return lines


def _bytes(count: int) -> str:
    for unit, size in (("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
