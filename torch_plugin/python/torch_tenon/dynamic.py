"""Graphs with SymInts: compiled at call time, once for each set of values."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import sympy
import torch
from torch import fx

from . import registry, symbols
from ._torch_private import logger
from .compiler import Compiled, PythonProgram, compile_static
from .export import count_nodes
from .options import Options

MAX_SPECIALIZATIONS = 64


def symbolic_inputs(gm: fx.GraphModule) -> bool:
    """True if a placeholder's value or meta depends on a symbol."""
    return any(_symbols_of(node.meta.get("val")) for node in gm.graph.find_nodes(op="placeholder"))


def _symbols_of(value: Any) -> set[sympy.Symbol]:
    if symbols.is_symbolic(value):
        return set(symbols.expression(value).free_symbols)
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return set()
    sizes = (*value.shape, *value.stride(), value.storage_offset())
    return set().union(*(_symbols_of(s) for s in sizes))


class DynamicGraph:
    """Dispatches on the values of the graph's symbols. At most MAX_SPECIALIZATIONS are compiled; any
    further sizes run from Python. Thread-safe; a size is compiled once, and other sizes don't wait for it."""

    def __init__(self, gm: fx.GraphModule, kind: str, options: Options):
        self._boxed_call = True  # on the instance, since functools.wraps copies that
        self._gm, self._kind, self._options = gm, kind, options
        self._readers = _readers(gm)
        self._compiled: dict[tuple[int, ...], Compiled] = {}
        self._in_flight: dict[tuple[int, ...], threading.Event] = {}
        self._lock = threading.Lock()
        self._beyond: PythonProgram | None = None

    @property
    def specializations(self) -> int:
        return len(self._compiled)

    def __call__(self, inputs: list) -> list:
        key = tuple(read(inputs) for _, read in self._readers)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._get(key)
        return compiled(inputs)

    def _get(self, key: tuple[int, ...]) -> Compiled:
        while True:
            with self._lock:
                if key in self._compiled:
                    return self._compiled[key]
                if len(self._compiled) + len(self._in_flight) >= MAX_SPECIALIZATIONS:
                    return self._python_program()
                event = self._in_flight.get(key)
                if event is None:
                    self._in_flight[key] = threading.Event()
                    break
            event.wait()  # another thread compiles this size; if it fails, we try
        try:
            values = dict(zip((symbol for symbol, _ in self._readers), key))
            logger().info("%s graph: compiling for %s", self._kind, values)
            compiled = compile_static(self._gm, self._kind, self._options, values)
            with self._lock:
                self._compiled[key] = compiled
            return compiled
        finally:
            with self._lock:
                self._in_flight.pop(key).set()

    def _python_program(self) -> Compiled:
        if self._beyond is None:
            reason = f"more than {MAX_SPECIALIZATIONS} sets of sizes"
            warnings.warn(f"tenon: a {self._kind} graph has seen {reason}; others run by ATen", stacklevel=4)
            record = registry.new_record(self._kind, count_nodes(self._gm))
            record.reason = reason
            self._beyond = PythonProgram(self._gm, record)
        return self._beyond


def _readers(gm: fx.GraphModule) -> list[tuple[sympy.Symbol, Any]]:
    """For each symbol of the inputs how to read its value from the call's inputs."""
    found: dict[sympy.Symbol, Any] = {}
    wanted: set[sympy.Symbol] = set()
    for index, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        value = node.meta.get("val")
        wanted |= _symbols_of(value)
        for expression, read in _numbers(index, value):
            if expression.is_Symbol:
                found.setdefault(expression, read)
    missing = wanted - found.keys()
    if missing:
        raise ValueError(f"no input is {', '.join(sorted(map(str, missing)))}")
    return sorted(found.items(), key=lambda item: str(item[0]))


def _numbers(index: int, value: Any):
    if symbols.is_symbolic(value):
        yield symbols.expression(value), lambda inputs: inputs[index]
    elif isinstance(value, torch.Tensor) and value.layout == torch.strided:
        for axis in range(value.dim()):
            for number, read in (
                (value.shape[axis], lambda inputs, axis=axis: inputs[index].shape[axis]),
                (value.stride()[axis], lambda inputs, axis=axis: inputs[index].stride(axis)),
            ):
                if symbols.is_symbolic(number):
                    yield symbols.expression(number), read
