"""One graph: export it, have libtenon compile it, account for it."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
import warnings
import weakref
from typing import Any, Callable, Sequence

import torch
from torch import fx

from . import _C, registry, symbols
from ._torch_private import logger, no_dispatch_modes, untraced
from .export import Exported, NotExpressible, count_nodes, export, release
from .options import Options

Compiled = Callable[[list], list]


_C.set_logger(
    lambda level, text: logger().log((logging.DEBUG, logging.INFO, logging.WARNING)[level], "%s", text)
)


class NotNative(RuntimeError):
    """fallback="error" and something would not run natively. `reasons`: overload, or "the graph" -> why."""

    def __init__(self, message: str, reasons: dict[str, str]):
        super().__init__(message)
        self.reasons = reasons

    @property
    def failed(self) -> bool:
        """The compile came to grief, rather than refused by name."""
        return any(" failed: " in reason for reason in self.reasons.values())


def compile_static(
    gm: fx.GraphModule,
    kind: str,
    options: Options,
    values: symbols.Values | None = None,
    frozen: Sequence[int] = (),
) -> Compiled:
    """Graphs without symbols, or with `values` for all of them; the inputs `frozen` stay as they are. Never fails but for
    fallback="error": whatever goes wrong is the reason why the graph runs from Python."""
    began = time.perf_counter()
    record = registry.new_record(kind, count_nodes(gm))
    name = f"{kind}_{record.id}"
    try:
        exported = export(gm, name, values or {})
    except NotExpressible as error:
        return run_from_python(gm, record, options, str(error))
    except Exception as error:
        return _failed(gm, record, options, "export", error)
    record.compile_ms["export"] = 1e3 * (time.perf_counter() - began)
    try:
        executable = _compile(exported, options, any_inputs=kind == "backward" and bool(exported.needs_eager), frozen=frozen)
    except BaseException as error:
        release(exported.callables)
        if not isinstance(error, Exception):
            raise
        return _failed(gm, record, options, "compile", error)
    record.attach(executable)
    record.compile_ms["total"] = 1e3 * (time.perf_counter() - began)
    if kind == "backward":
        executable.allow_early_release()
    if record.tier == "native":
        executable.set_rerun(untraced(Rerun(exported, record, options.fallback)), _draws_random_numbers(gm), kind == "backward")
    else:
        release(exported.callables)
    judge_fallback(record, options)
    logger().info(
        "%s: %s%s, %d nodes, %d kernels, %.1f ms", name, record.tier,
        f" ({record.reason})" if record.reason else "", sum(record.nodes.values()), record.kernels,
        record.compile_ms["total"],
    )  # fmt: skip
    return executable


def compile_symbolic(
    gm: fx.GraphModule,
    kind: str,
    options: Options,
    values_of: Callable[[list], dict[str, int]],
    refused: Callable[[list, str], list],
    fixed: symbols.Values | None = None,
) -> Compiled | str:
    """One executable for all the sizes that the graph was traced for, or those with the symbols that are `fixed`; calls that its guards
    refuse go to `refused`. values_of(inputs): what the symbols are in a call. Or the reason why there is none, if the sizes have to be
    numbers."""
    began = time.perf_counter()
    exported = None
    try:
        exported = export(gm, f"{kind}_{registry.count()}", None, fixed)
        if exported.needs_eager:
            release(exported.callables)
            return exported.needs_eager
        export_ms = 1e3 * (time.perf_counter() - began)
        executable = _compile(exported, options)
    except NotExpressible as error:
        return str(error)
    except Exception as error:
        if exported is not None:
            release(exported.callables)
        logger().info("%s graph: no program for all sizes: %s", kind, error)
        return f"no program for all sizes: {error}"
    record = registry.new_record(kind, count_nodes(gm))
    record.sizes = f"all {', '.join(exported.traced_symbols)}"
    record.compile_ms["export"] = export_ms
    record.attach(executable)
    record.compile_ms["total"] = 1e3 * (time.perf_counter() - began)
    if kind == "backward":
        executable.allow_early_release()
    executable.set_rerun(untraced(Rerun(exported, record, options.fallback, values_of)), _draws_random_numbers(gm), kind == "backward")
    executable.set_refused(untraced(refused))
    judge_fallback(record, options)
    logger().info(
        "%s: native, for %s, %d nodes, %d kernels, %.1f ms", exported.name, record.sizes, sum(record.nodes.values()), record.kernels,
        record.compile_ms["total"],
    )  # fmt: skip
    return executable


def _compile(
    exported: Exported, options: Options, any_inputs: bool = False, frozen: Sequence[int] = (), values: Sequence[tuple[str, int]] = ()
):
    """`any_inputs`: of an eager program, that takes tensors of any dtype and size. What a forward saved may
    not be what its fake kernels had said."""
    told = {"name": exported.name, **options.for_compiler()}
    told.setdefault("threads", torch.get_num_threads())
    if exported.needs_eager:
        told.update(tier="eager_program", reason=exported.needs_eager)
    elif options.tier == "eager_program":
        told["reason"] = "asked for by the options"
    if torch.get_default_dtype() != torch.float32:
        told["default_dtype"] = torch.get_default_dtype()
    if torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory:
        told["fill_empty"] = True
    if any_inputs:
        told["any_inputs"] = True
    if exported.callables:
        told["cache"] = False  # they are this graph's, and go with it
    if values:
        told["symbols"] = [list(pair) for pair in values]
    if frozen:
        told["frozen"] = list(frozen)
    if options.dump:
        told["dump_prefix"] = f"{exported.name}."
    with no_dispatch_modes():  # compilers are called under fake tensors; constants are real
        executable = _C.compile(exported.graph, told, exported.constants)
    if exported.recipes is not None:
        executable.set_recipes(exported.recipes)
    return executable


class Rerun:
    """A native graph by ATen alone. Called when one of its checks failed, so that the error is eager's in every word; with a
    reason, for as long as the caller computes otherwise than it was compiled for; or from when it turned out to be compiled for what
    isn't so (`lasting`). Thread-safe; compiled when first called, for each set of values of the graph's symbols."""

    def __init__(
        self, exported: Exported, record: registry.GraphRecord, fallback: str = "allow",
        values_of: Callable[[list], dict[str, int]] = lambda inputs: {},
    ):  # fmt: skip
        self._exported = dataclasses.replace(exported, needs_eager="run again by ATen")
        self._values_of = values_of
        self._name = exported.name
        self._record = record
        self._fallback = fallback
        if exported.callables:
            weakref.finalize(self, release, exported.callables)  # not earlier: the graph names them
        self._executables: dict[tuple, Compiled] = {}
        self._lock = threading.Lock()

    def __call__(self, inputs: list, reason: str | None = None, lasting: bool = True) -> list:
        if reason and not lasting:
            self._pass(reason)
        key = self._exported.values_from(self._values_of(inputs)) if self._exported.symbols else ()
        with self._lock:
            if reason and lasting and not self._record.reason:
                self._record.give_up(reason)
                logger().warning("%s runs by ATen from now on: %s", self._name, reason)
            executable = self._executables.pop(key, None)
            if executable is None:
                executable = _compile(self._exported, Options(), any_inputs=True, values=key)
                if len(self._executables) == _MOST_RERUNS:
                    del self._executables[next(iter(self._executables))]
            self._executables[key] = executable  # the last used is last
        return executable(inputs)

    def _pass(self, reason: str) -> None:
        """Notes a call that goes by ATen; raises where that isn't wanted."""
        message = f"{self._name} runs by ATen: {reason}"
        if self._fallback == "error":
            raise NotNative(f"tenon: {message}", {"the graph": reason})
        if self._record.note_passing(reason):
            logger().warning("%s", message)
            if self._fallback == "warn":
                warnings.warn(f"tenon: {message}", stacklevel=2)


_MOST_RERUNS = 16


def _draws_random_numbers(gm: fx.GraphModule) -> bool:
    return any(torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()) for n in gm.graph.nodes)


def judge_fallback(record: registry.GraphRecord, options: Options) -> None:
    if options.fallback == "allow" or options.tier == "eager_program":
        return
    if record.tier != "native":
        reasons = {"the graph": record.reason}
        problem = f"the graph runs by ATen: {record.reason}; its ops: {', '.join(record.nodes)}"
    else:
        strays: dict[tuple[str, str], list[str]] = {}  # (op, reason) -> where
        for step in record.framework_steps():
            where = strays.setdefault((step["op"], step["reason"]), [])
            where += [step["source"]] if step["source"] and step["source"] not in where else []
        if not strays:
            return
        reasons = {op: reason for op, reason in strays}
        place = lambda where: f" ({', '.join(where[:3])}{', ...' * (len(where) > 3)})" if where else ""
        problem = "; ".join(f"{op}{place(where)}: {reason}" for (op, reason), where in strays.items())
    message = f"tenon: {record.kind} graph {record.id} doesn't run natively: {problem}"
    if options.fallback == "error":
        raise NotNative(message, reasons)
    warnings.warn(message, stacklevel=2)


def _failed(
    gm: fx.GraphModule, record: registry.GraphRecord, options: Options, phase: str, error: Exception
) -> Compiled:
    reason = f"the {phase} failed: {str(error) or type(error).__name__}"
    logger().warning("%s_%d: %s", record.kind, record.id, reason, exc_info=error)
    return run_from_python(gm, record, options, reason)


def run_from_python(
    gm: fx.GraphModule, record: registry.GraphRecord, options: Options, reason: str
) -> Compiled:
    """What the text can't say runs node by node from Python, as backend="aot_eager" would."""
    record.reason = reason
    program = PythonProgram(gm, record)
    record.follow(program)
    judge_fallback(record, options)
    logger().info("%s_%d: run from Python: %s", record.kind, record.id, reason)
    return program


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
