"""One graph: export it, have libtenon compile it, account for it."""

from __future__ import annotations

import json
import re
import time
import warnings
from typing import Any, Callable, Sequence

import torch
from torch import fx

from . import _C, registry, symbols
from ._torch_private import logger, no_dispatch_modes
from .export import Exported, NotExpressible, count_nodes, export
from .options import Options

Compiled = Callable[[list], list]


class NotNative(RuntimeError):
    """fallback="error" and something would not run natively."""


# ATen steps that count as native: the library's contraction or attention is the fast one.
_BY_DESIGN = re.compile(
    r"aten\.(mm|addmm|bmm|baddbmm|convolution|convolution_backward"
    r"|_scaled_dot_product_\w+)\.\w+"
)


def compile_static(
    gm: fx.GraphModule,
    kind: str,
    options: Options,
    values: symbols.Values | None = None,
) -> Compiled:
    """Graphs without symbols, or with `values` for all of them. Never fails but for fallback="error"."""
    began = time.perf_counter()
    record = registry.new_record(kind, count_nodes(gm))
    name = f"{kind}_{record.id}"
    try:
        exported = export(gm, name, values)
    except (NotExpressible, ValueError) as error:
        return _run_from_python(gm, record, options, str(error))
    record.compile_ms["export"] = 1e3 * (time.perf_counter() - began)
    try:
        executable = _compile(exported, options)
    finally:
        exported.release()
    record.attach(executable)
    record.compile_ms["total"] = 1e3 * (time.perf_counter() - began)
    if kind == "backward":
        executable.allow_early_release()
    _judge_fallback(record, options)
    logger().info(
        "%s: %s%s, %d nodes, %d kernels, %.1f ms", name, record.tier,
        f" ({record.reason})" if record.reason else "", sum(record.nodes.values()), record.kernels,
        record.compile_ms["total"],
    )  # fmt: skip
    return executable


def _compile(exported: Exported, options: Options):
    told = options.for_compiler()
    told.setdefault("threads", torch.get_num_threads())
    if exported.needs_eager:
        told.update(tier="eager_program", reason=exported.needs_eager)
    elif options.tier == "eager_program":
        told["reason"] = "asked for by the options"
    if options.dump:
        told["dump_prefix"] = f"{exported.name}."
    with no_dispatch_modes():  # compilers are called under fake tensors; constants are real
        executable = _C.compile(exported.text, json.dumps(told), exported.constants)
    if exported.recipes is not None:
        executable.set_recipes(exported.recipes)
    return executable


def _judge_fallback(record: registry.GraphRecord, options: Options) -> None:
    if options.fallback == "allow" or options.tier == "eager_program":
        return
    if record.tier != "native":
        problem = f"the graph runs by ATen: {record.reason}; its ops: {', '.join(record.nodes)}"
    else:
        calls = [s for s in record.info.get("steps", ()) if s["kind"] == "call"]
        strays = {s["op"]: s["reason"] for s in calls if not _BY_DESIGN.fullmatch(s["op"])}
        if not strays:
            return
        problem = "; ".join(f"{op}: {reason}" for op, reason in strays.items())
    message = f"tenon: {record.kind} graph {record.id} doesn't run natively: {problem}"
    if options.fallback == "error":
        raise NotNative(message)
    warnings.warn(message, stacklevel=2)


def _run_from_python(
    gm: fx.GraphModule, record: registry.GraphRecord, options: Options, reason: str
) -> Compiled:
    """What the text can't say runs node by node from Python, as backend="aot_eager" would."""
    record.reason = reason
    _judge_fallback(record, options)
    logger().info("%s_%d: run from Python: %s", record.kind, record.id, reason)
    return PythonProgram(gm, record)


class PythonProgram:
    """An FX graph run by its own Python code. Boxed, counted."""

    def __init__(self, gm: fx.GraphModule, record: registry.GraphRecord):
        self._boxed_call = True  # on the instance, since functools.wraps copies that
        self.record = record
        gm.graph.set_codegen(fx.graph._BoxedCodeGen())
        gm.recompile()
        self._gm = gm

    def __call__(self, inputs: Sequence[Any]) -> list:
        began = time.perf_counter_ns()
        with torch.no_grad():
            outputs = self._gm(list(inputs))
        if isinstance(inputs, list):
            inputs.clear()
        self.record.count_python_run(time.perf_counter_ns() - began)
        return list(outputs)
