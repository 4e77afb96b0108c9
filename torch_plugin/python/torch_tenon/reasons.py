"""torch_tenon.why: why something was compiled again, and what to change (docs/architecture/sizes.md)."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Callable, Iterator

import torch
from torch import nn

from . import registry
from ._torch_private import code_around_library_modules, compilation_metrics


@dataclasses.dataclass(frozen=True)
class Reason:
    """One compile that another sort of call brought about, or sizes that a program could not keep open."""

    what: str  # "graph": Dynamo traced again; "program": of a graph's very sizes; "step": by ATen within a program
    where: str  # file:line and function of what was compiled, or of the operator
    failed: str  # the guard, or tenon's reason
    wanted: str = ""
    seen: str = ""
    source: str = ""  # the user's line that the guard comes from
    advice: str = ""

    def __str__(self) -> str:
        lines = [f"{self.what}: {self.where}", f"  because {self.failed}"]
        if self.wanted or self.seen:
            lines.append(f"  wanted {self.wanted or 'otherwise'}" + (f", got {self.seen}" if self.seen else ""))
        if self.source:
            lines.append(f"  at {self.source}")
        if self.advice:
            lines.append(f"  to change: {self.advice}")
        return "\n".join(lines)


class Why(list):
    """Reasons in the order of the compiles; `str()` is for people."""

    def __str__(self) -> str:
        return "\n".join(map(str, self)) if self else "nothing was compiled again"

    __repr__ = __str__


_DYNAMIC = "torch._dynamo.mark_dynamic({0}, {1}) before the first call, or torch.compile(..., dynamic=True), makes it a symbol at once"
_ONE = "sizes of 0 and 1 are graphs of their own: pad, or torch._dynamo.mark_unbacked(x, dim), if such calls are many"
_SAME = "one graph for each: give {0} alike in every call"
# What Dynamo says of a guard that failed -> advice, into which the groups a and b go.
_GUARDS = (
    (r"tensor '(?P<a>.+?)' size mismatch at index (?P<b>\d+)\. expected (?P<wanted>\S+), actual (?P<seen>\S+)", _DYNAMIC),
    (r"tensor '(?P<a>.+?)' stride mismatch at index (?P<b>\d+)\. expected (?P<wanted>\S+), actual (?P<seen>\S+)", _SAME),
    (r"tensor '(?P<a>.+?)' \w+ mismatch\. expected (?P<wanted>[^,]+?)(, actual (?P<seen>\S+))?$", _SAME),
    (r"(?P<wanted>2 <= (?P<a>.+?)\.size\(\)\[(?P<b>\d+)\])", _ONE),
    (r"___check_type_id\((?P<a>[^,]+), \d+\)(, type=(?P<wanted>[^#]+?))?\s*(\(HINT|#|$)", _SAME),
    (r"GLOBAL_STATE changed: (?P<a>.+)", "grad mode, autocast, threads and the like are part of a graph: one graph for each state"),
    (r"(?P<a>[^#\n]+?) == (?P<wanted>[^#\n]+?)\s*(#|$)", "{0} is a number or object of Python's, part of the graph while it stays as it is;"
     " an int becomes a symbol with its second value, other changing values belong into tensors"),
    (r"(?P<wanted>\S.*?(<=|>=|<|>|!=|%).*?)\s*(#|$)", "the traced code, or an operator, asked that of the sizes: others go another way"),
)  # fmt: skip
_PROGRAMS = (
    ("hot", 'a program beside the one for all sizes, kept where it is faster; options={"sizes": "one"} makes none'),
    ("asked for by the options", 'options={"sizes": "symbolic"}'),
    ("frozen values", 'without options={"freeze": True} there is one program for all sizes'),
    ("jagged tensor", "jagged tensors have a program for each number of rows"),
    ("refused by the program for all sizes", "sizes that the graph was traced with as equal, or in a range, were not in this call"),
    ("no program for all sizes", "an operator of the graph needs numbers, and each size has a program of its own"),
)  # fmt: skip


def why(model: Callable | None = None) -> Why:
    """Each compile that was not a graph's first: by Dynamo of `model` (a module, a function, or what torch.compile made of it; None: of
    all; PyTorch remembers the last 64 compiles), and tenon's programs of the very sizes, and steps, of all graphs that are alive."""
    return Why([*_recompiles(model), *_programs()])


def _recompiles(model: Callable | None) -> Iterator[Reason]:
    wanted = None if model is None else set(_codes(model))
    for compile_ in compilation_metrics():
        code = (compile_.co_filename, compile_.co_firstlineno)
        if compile_.recompile_reason and (wanted is None or code in wanted):
            yield _of_guard(compile_.recompile_reason, f"{code[0]}:{code[1]}, {compile_.co_name}")


def _codes(model: Any) -> Iterator[tuple[str, int]]:
    model = getattr(model, "_orig_mod", getattr(model, "_torchdynamo_orig_callable", model))
    functions = [type(m).forward for m in model.modules()] if isinstance(model, nn.Module) else [model]
    codes = [getattr(getattr(function, "__func__", function), "__code__", None) for function in functions]
    if isinstance(model, nn.Module) and type(model).__module__.startswith("torch."):
        codes.append(code_around_library_modules())
    for code in codes:
        if code is not None:
            yield code.co_filename, code.co_firstlineno


def _of_guard(text: str, where: str) -> Reason:
    guard = re.sub(r"^\d+/\d+: ", "", text).split("\nUser stack trace")[0].strip()
    source = re.search(r"#\s*(?P<line>.+?)\s+#\s*(?P<place>\S+:\d+) in (?P<function>\w+)", guard)
    at = f"{source['place']}, {source['function']}: {source['line']}" if source else ""
    failed = re.split(r"\s+#", guard)[0]
    for pattern, advice in _GUARDS:
        if found := re.search(pattern, guard):
            groups = {"a": "", "b": "", "wanted": "", "seen": "", **{k: v or "" for k, v in found.groupdict().items()}}
            return Reason("graph", where, failed, groups["wanted"], groups["seen"], at, advice.format(groups["a"], groups["b"]))
    return Reason("graph", where, failed, source=at)


def _programs() -> Iterator[Reason]:
    for record in registry.records():
        if not record.sizes:
            continue
        where = f"{record.kind} graph {record.id}"
        if not record.sizes.startswith("all "):
            sizes, _, reason = record.sizes.partition(" (")
            reason = reason.removesuffix(")")
            advice = next((advice for word, advice in _PROGRAMS if word in reason), "")
            yield Reason("program", where, reason, "one program for all sizes", sizes, advice=advice)
        for step in record.framework_steps():
            if "symbolic" in step["reason"]:
                yield Reason("step", f"{where}, {step['op']}", step["reason"], source=step["source"],
                             advice='options={"sizes": "exact"} compiles it for each size')  # fmt: skip
