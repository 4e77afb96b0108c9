"""Graphs with SymInts: one program for all their sizes, or, compiled at call time, one for each set of values
(docs/architecture/sizes.md)."""

from __future__ import annotations

import threading
import warnings
import weakref
from typing import Any, Callable, Sequence

import sympy
import torch
from torch import fx

from . import registry, symbols
from ._torch_private import is_nested_int, logger, no_new_guards, untraced
from .compiler import Compiled, NotNative, PythonProgram, compile_static, compile_symbolic, run_from_python
from .export import count_nodes, counts_from_storage
from .options import Options

MAX_SPECIALIZATIONS = 64
EXPECTED_GAIN = 0.05  # of a program for sizes that are hot, before one is made; what decides is its trial
STEPS_GAIN = 0.5  # where the program for all sizes has steps by ATen for want of a number
WORTH = 0.97  # such a program stays if it takes at most so much of the time
MOST_HOT_BYTES = 1 << 30  # arenas of the programs for hot sizes

_Reader = tuple[str, int, int]  # which number of a call: "number", "size", "stride" or "offset"; of which input, which axis


def symbolic_inputs(gm: fx.GraphModule, key: str = "val") -> bool:
    """True if a placeholder's value or meta depends on a symbol. key: "example_value" of Dynamo's graphs."""
    return bool(_mentioned(gm, key))


def is_symbolic(node: fx.Node) -> bool:
    """True if the node's value or meta depends on a symbol."""
    return bool(symbols_of(node.meta.get("val")))


def symbols_of(value: Any, offset: bool = True) -> set[sympy.Symbol]:
    """Those that a number, a tensor's sizes and strides, its offset, or any of a list of such things depend on."""
    if symbols.is_symbolic(value):
        return set(symbols.expression(value).free_symbols)
    if isinstance(value, (list, tuple)):
        return set().union(*(symbols_of(v, offset) for v in value))
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return set()
    sizes = (*value.shape, *value.stride(), *([value.storage_offset()] if offset else []))
    return set().union(*(symbols_of(s) for s in sizes))


def _mentioned(gm: fx.GraphModule, key: str = "val") -> set[sympy.Symbol]:
    return set().union(*(symbols_of(n.meta.get(key)) for n in gm.graph.find_nodes(op="placeholder")))


def _needed(gm: fx.GraphModule) -> set[sympy.Symbol]:
    """The symbols that the graph's meaning depends on: not those that are only some tensor's offset in its
    storage, since the offset comes with the data pointer, unless an operator counts from the storage's start."""
    absolute = counts_from_storage(gm)
    needed = set()
    for node in gm.graph.nodes:
        if not _is_unused_number(node):
            needed |= symbols_of(node.meta.get("val"), offset=absolute)
    return needed


def _is_unused_number(node: fx.Node) -> bool:
    return node.op == "placeholder" and not node.users and symbols.is_symbolic(node.meta.get("val"))


def compile_dynamic(gm: fx.GraphModule, kind: str, options: Options, frozen: Sequence[int] = ()) -> Compiled:
    """The program for all sizes, where there is one; its guards send what it doesn't take to programs for the very sizes."""
    exact = DynamicGraph(gm, kind, options, frozen)
    number = next(value for value in map(_some_symbol, gm.graph.find_nodes(op="placeholder")) if value is not None)
    reason = _why_exact(gm, options, frozen)
    if not reason:
        with no_new_guards(number):
            compiled = _all_sizes(gm, kind, options, exact)
        if not isinstance(compiled, str):
            exact.follow(compiled)
            return compiled
        reason = compiled
    exact.reason = reason
    return exact


def _all_sizes(
    gm: fx.GraphModule, kind: str, options: Options, exact: DynamicGraph, fixed: symbols.Values | None = None
) -> Compiled | str:
    try:
        return compile_symbolic(gm, kind, options, exact.values_of, exact.refused, fixed)
    except NotNative as error:  # of the very sizes everything may run natively
        return str(error)


def _why_exact(gm: fx.GraphModule, options: Options, frozen: Sequence[int]) -> str:
    if options.sizes == "exact" or options.tier == "eager_program":
        return "asked for by the options"
    if frozen:
        return "frozen values are of the very sizes"
    for node in gm.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if symbols.is_symbolic(value) and is_nested_int(value):
            return "a size is a jagged tensor's"
    return ""


def _some_symbol(node: fx.Node) -> torch.SymInt | None:
    """A number of the node's that is symbolic."""
    value = node.meta.get("val")
    if symbols.is_symbolic(value):
        return value
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    return next((n for n in (*value.shape, *value.stride(), value.storage_offset()) if symbols.is_symbolic(n)), None)


_VERDICTS = {
    "kept": "kept, {:.2f} of the time of the program for all sizes",
    "dropped": "dropped, {:.2f} of the time of the program for all sizes",
    "unused": "dropped, such calls did not come again",
    "replaced": "made room for another",
}


class DynamicGraph:
    """Dispatches on what the graph depends on: SymInts, sizes and strides of its inputs, and their offsets
    where an operator asks for them. At most MAX_SPECIALIZATIONS are compiled; any further sizes run from Python. Thread-safe; a
    size is compiled once, and other sizes don't wait for it."""

    def __init__(self, gm: fx.GraphModule, kind: str, options: Options, frozen: Sequence[int] = ()):
        self._boxed_call = True  # on the instance, since functools.wraps copies that
        self._gm, self._kind, self._options, self._frozen = gm, kind, options, frozen
        needed = _needed(gm)
        self._readers = _readers(gm, needed)
        self._ignored = {symbol: 0 for symbol in _mentioned(gm) - needed}  # any value will do
        self._compiled: dict[tuple[int, ...], Compiled] = {}
        self._in_flight: dict[tuple[int, ...], threading.Event] = {}
        self._lock = threading.Lock()
        self._from_python: dict[str, PythonProgram] = {}  # reason -> the graph run so
        self.autograd: registry.Autograd | None = None  # of all the sizes' records
        self.cut: Any = None  # likewise
        self.reason = ""  # why there is no program for all sizes
        self._unused = [k for k, node in enumerate(gm.graph.find_nodes(op="placeholder")) if _is_unused_number(node)]
        self._all: weakref.ref | None = None  # the program for all sizes, which holds this object
        self._hot: dict[tuple[int | None, ...], Compiled] = {}

    @property
    def specializations(self) -> int:
        return len(self._compiled)

    def refused(self, inputs: list, why: str) -> list:
        """A call that the program for all sizes does not take."""
        return self(inputs, f"refused by the program for all sizes: {why}")

    def __call__(self, inputs: list, why: str = "") -> list:
        for index in self._unused:
            inputs[index] = 0  # it may be no number but the id of a jagged tensor's lengths
        key = self._read(inputs)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._get(key, why or self.reason)
        return compiled(inputs)

    def values_of(self, inputs: list) -> dict[str, int]:
        """What the symbols are in a call."""
        return {str(symbol): value for symbol, value in self._solved(self._read(inputs)).items() if symbol.is_Symbol}

    def _read(self, inputs: list) -> tuple[int, ...]:
        return tuple([_number(inputs, reader) for _, reader in self._readers])

    def _solved(self, key: Sequence[int | None]) -> symbols.Values:
        return self._ignored | solve({e: number for (e, _), number in zip(self._readers, key) if number is not None})

    # Sizes that are hot (docs/architecture/sizes.md, tiers).

    def follow(self, compiled: Compiled) -> None:
        """`compiled`, the program for all sizes, may have others beside it."""
        self._all = weakref.ref(compiled)
        hot_ns = float("inf") if self._options.sizes == "one" else self._hot_ns(compiled.record)
        readers = [reader for _, reader in self._readers]
        compiled.set_sizes(readers, hot_ns, WORTH, MOST_HOT_BYTES, untraced(self.specialize), untraced(self.judge))

    @staticmethod
    def _hot_ns(record: registry.GraphRecord) -> float:
        """The time after which a compile that would gain what is expected has paid."""
        steps = any("symbolic" in step["reason"] for step in record.framework_steps())
        return 1e6 * record.compile_ms["total"] / (STEPS_GAIN if steps else EXPECTED_GAIN)

    def specialize(self, sizes: tuple[int | None, ...]) -> tuple[Compiled, int] | None:
        """A program for these sizes, None: any, and the bytes of its arena; or nothing. Never raises but to interrupt."""
        try:
            values = self._solved(sizes)
            told = self._told(sizes)
            logger().info("%s graph: compiling for %s, which are hot", self._kind, told)
            if None not in sizes:
                program = compile_static(self._gm, self._kind, self._options, values)
            else:
                fixed = {symbol: value for symbol, value in values.items() if symbol.is_Symbol}
                program = _all_sizes(self._gm, self._kind, self._options, self, fixed)
        except Exception as error:
            logger().warning("%s graph: no program for hot sizes: %s", self._kind, error)
            return None
        if isinstance(program, str) or isinstance(program, PythonProgram) or program.record.tier != "native":
            return None
        program.record.autograd, program.record.cut = self.autograd, self.cut
        program.record.sizes = f"{told} (hot)"
        with self._lock:
            self._hot[sizes] = program
        return program, program.record.planned_bytes

    def judge(self, sizes: tuple[int | None, ...], verdict: str, ratio: float) -> None:
        """What becomes of a program for hot sizes: a key of _VERDICTS; ratio: its time over that of the one for all sizes."""
        kept = verdict == "kept"
        verdict = f"{self._told(sizes)}: {_VERDICTS[verdict].format(ratio)}"
        logger().info("%s graph: %s", self._kind, verdict)
        compiled = self._all and self._all()
        if compiled is not None:
            compiled.record.tiers.append(verdict)
        if not kept:
            with self._lock:
                self._hot.pop(sizes, None)

    def _told(self, sizes: Sequence[int | None]) -> str:
        return ", ".join(f"{e} = {'any' if number is None else number}" for (e, _), number in zip(self._readers, sizes))

    def _get(self, key: tuple[int, ...], why: str) -> Compiled:
        if not all(isinstance(number, int) for number in key):
            return self._python_program("a size is a jagged tensor's")
        while True:
            with self._lock:
                if key in self._compiled:
                    return self._compiled[key]
                if len(self._compiled) + len(self._in_flight) >= MAX_SPECIALIZATIONS:
                    return self._python_program(f"more than {MAX_SPECIALIZATIONS} sets of sizes", warn=True)
                event = self._in_flight.get(key)
                if event is None:
                    self._in_flight[key] = threading.Event()
                    break
            event.wait()  # another thread compiles this size; if it fails, we try
        try:
            values = self._solved(key)
            logger().info("%s graph: compiling for %s", self._kind, values)
            compiled = compile_static(self._gm, self._kind, self._options, values, self._frozen)
            compiled.record.autograd, compiled.record.cut = self.autograd, self.cut
            compiled.record.sizes = f"{self._told(key)} ({why})"
            with self._lock:
                self._compiled[key] = compiled
            all_sizes = self._all and self._all()
            if all_sizes is not None and not isinstance(compiled, PythonProgram):
                all_sizes.add_program(key, compiled)
            return compiled
        finally:
            with self._lock:
                self._in_flight.pop(key).set()

    def _python_program(self, reason: str, warn: bool = False) -> Compiled:
        program = self._from_python.get(reason)
        if program is None:
            if warn:
                warnings.warn(f"tenon: the {self._kind} graph has seen {reason}; others run by ATen", stacklevel=4)
            record = registry.new_record(self._kind, count_nodes(self._gm))
            record.autograd, record.cut = self.autograd, self.cut
            program = run_from_python(self._gm, record, self._options, reason)
            self._from_python[reason] = program
        return program


def _readers(gm: fx.GraphModule, wanted: set[sympy.Symbol]) -> list[tuple[sympy.Basic, _Reader]]:
    """How to read from the call's inputs what tells the values of the `wanted` symbols: a symbol itself
    where some number is it, else every expression that it is part of."""
    found: dict[sympy.Basic, _Reader] = {}
    for index, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        for expression, read in () if _is_unused_number(node) else _numbers(index, node.meta.get("val")):
            if expression.free_symbols & wanted:
                found.setdefault(expression, read)
    plain = {e for e in found if e.is_Symbol}
    needed = [e for e in found if e in plain or e.free_symbols - plain]
    return sorted(((e, found[e]) for e in needed), key=lambda item: str(item[0]))


def _numbers(index: int, value: Any):
    if symbols.is_symbolic(value):
        yield symbols.expression(value), ("number", index, 0)
    elif isinstance(value, torch.Tensor) and value.layout == torch.strided:
        for axis in range(value.dim()):
            for kind, number in (("size", value.shape[axis]), ("stride", value.stride()[axis])):
                if symbols.is_symbolic(number):
                    yield symbols.expression(number), (kind, index, axis)
        if symbols.is_symbolic(value.storage_offset()):
            yield symbols.expression(value.storage_offset()), ("offset", index, 0)


def _number(inputs: list, reader: _Reader) -> int:
    kind, index, axis = reader
    value = inputs[index]
    if kind == "number":
        return value
    return value.shape[axis] if kind == "size" else value.stride(axis) if kind == "stride" else value.storage_offset()


def solve(known: dict[sympy.Basic, int]) -> symbols.Values:
    """`known` and, where an expression has one symbol without a value and is linear in it, that symbol's
    value. What stays unknown is an error only where the graph needs it (symbols.evaluate)."""
    values = dict(known)
    progress = True
    while progress:
        progress = False
        for expression, number in known.items():
            expression = sympy.sympify(expression.xreplace({k: v for k, v in values.items() if k.is_Symbol}))
            if len(expression.free_symbols) != 1:
                continue
            (symbol,) = expression.free_symbols
            slope = expression.diff(symbol)
            if slope.is_Integer and slope != 0 and (number - expression.subs(symbol, 0)) % slope == 0:
                values[symbol] = int((number - expression.subs(symbol, 0)) / slope)
                progress = True
    return values
