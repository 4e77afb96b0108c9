"""FX graphs of ATen ops -> aten::Graph (torch_plugin/aten/graph.h), node by node through _C.Graph.

Every call has its schema's whole argument list. SymInts are numbers by the time a graph is exported with `values`, else
expressions over the graph's symbols. What a graph can't say about a call (a generator, a higher-order operator, a dtype without a
name) makes it a `python.<id>` node: a Python callable run as one step.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
import re
from collections.abc import Set
from typing import Any, Callable, Sequence

import sympy
import torch
from torch import fx

from . import _C, symbols
from ._torch_private import free_unbacked_symbols, known_equalities, symbol_hint, symbol_range
from ._torch_private import (
    fake_mode_of, is_auto_functionalized, is_higher_order, is_random_call, is_with_effects, no_dispatch_modes, plain_tensor_types,
    untraced, written_arguments,
)  # fmt: skip
from .output_views import OutputPlan, has_bit, plan_outputs, read_alike

_AT_RUN_TIME = "size known when it runs"
_LITERAL_ELEMENTS = 16  # constants up to this size are part of the graph
_NUMBERS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


class NotExpressible(Exception):
    """No aten::Graph says what this graph does; the message says why."""


class _NotAnArgument(Exception):
    """No aten::Graph has such an argument; the call becomes a Python step."""


@dataclasses.dataclass
class Exported:
    name: str
    graph: _C.Graph | None = None
    constants: list[torch.Tensor] = dataclasses.field(default_factory=list)
    callables: list[int] = dataclasses.field(default_factory=list)  # ids that the graph names, freed by release()
    needs_eager: str = ""  # why no compiler can take it
    # Per output of the graph: k, the program's output k; or (is_input, k, sizes, strides, offset, reading), a
    # view of input or output k; reading: None, or what dtype, conjugate and negative bit the view has where the base has others.
    # None: the program's outputs are the graph's.
    recipes: list[Any] | None = None
    symbols: list[str] = dataclasses.field(default_factory=list)  # of the graph, where it was exported without values
    # Of these, those that the tracer does not know: (which one of its symbols, by which number it is divided).
    parts: dict[str, tuple[str, int]] = dataclasses.field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.graph.text()

    @property
    def traced_symbols(self) -> list[str]:
        """The tracer's symbols that the graph hangs on."""
        return sorted({self.parts[symbol][0] if symbol in self.parts else symbol for symbol in self.symbols})

    def values_from(self, values: dict[str, int]) -> tuple[tuple[str, int], ...]:
        """Of the graph's symbols, from the tracer's."""
        return tuple((s, values[self.parts[s][0]] // self.parts[s][1] if s in self.parts else values[s]) for s in self.symbols)


def release(callables: list[int]) -> None:
    """After the last compile of a graph that names them: prepared steps keep their callables."""
    for number in callables:
        _C.unregister_callable(number)
    callables.clear()


def count_nodes(gm: fx.GraphModule) -> dict[str, int]:
    """ATen (and other) operators of the graph by overload; size arithmetic and getitem aside."""
    counts: collections.Counter[str] = collections.Counter()
    given = _given(gm)
    for node in gm.graph.nodes:
        if node.op == "call_function" and not _is_size_arithmetic(node, given):
            counts[_target_name(node.target)] += 1
    return dict(counts)


def export(
    gm: fx.GraphModule, name: str, values: symbols.Values | None = None, fixed: symbols.Values | None = None
) -> Exported:
    """Raises NotExpressible. `values`: what the graph's symbols stand for, so that all sizes are numbers; None: they stay symbols, but
    for those that are `fixed`."""
    return _Exporter(gm, name, values, fixed or {}).run()


class _Exporter:
    def __init__(self, gm: fx.GraphModule, name: str, values: symbols.Values | None, fixed: symbols.Values):
        self.gm, self.values, self.given = gm, values, _given(gm)
        self.known: symbols.Expressions = {symbol: sympy.Integer(number) for symbol, number in fixed.items()}
        self.parts: dict[sympy.Symbol, symbols.Divided] = {}
        self.out = Exported(name)
        # Of a node's value; of its results, by number or, in tuples within tuples, by numbers.
        self.names: dict[tuple[fx.Node, int | tuple[int, ...] | None], str] = {}
        self.numbers: dict[str, int] = {}  # sizes that views of outputs need: text -> which output of the program it is
        self.symbols: set[sympy.Symbol] = set()
        self.absolute = counts_from_storage(gm)
        self.exact = False  # tensors are arguments with the strides that the operator must get them in
        self.resolved = True  # a value with a conjugate or negative bit is written as what is read through it
        self.has_floats = False  # some number so far is a SymFloat that stays one
        self.floats: set[tuple[fx.Node, str]] = set()  # SymFloats that are values of the graph
        self.tokens: set[fx.Node] = set()  # of ordered effects: the graph's order is order enough

    def run(self) -> Exported:
        self.plan = plan_outputs(self.gm)
        self.resolved = not _needs_bits(self.gm, self.plan)
        if self.values is None:
            self._use_equalities()
        self.graph = self.out.graph = _C.Graph(self.out.name, plain_tensor_types(), self._arg, self._meta, self.resolved)
        try:
            for node in self.gm.graph.nodes:
                if node not in self.plan.skipped:
                    getattr(self, f"_{node.op}")(node)
        except BaseException:
            release(self.out.callables)
            raise
        self.out.symbols = sorted(map(str, self.symbols))
        self.out.parts = {str(part): (str(d.of), d.by) for part, d in self.parts.items() if part in self.symbols}
        return self.out

    def _use_equalities(self) -> None:
        """Symbols that others say are written by those (s1 as 2*s0 + 1), where the inputs say what those are."""
        said: dict[sympy.Basic, torch.SymInt] = {}
        for node in self.gm.graph.find_nodes(op="placeholder"):
            value = node.meta.get("val")
            tensor = isinstance(value, torch.Tensor) and value.layout == torch.strided
            for number in value.shape if tensor else (value,):
                if isinstance(number, torch.SymInt) and not symbols.is_unbacked(number, self.given):
                    said[symbols.expression(number)] = number
        some = next(iter(said.values()), None)
        if some is None or not (equalities := known_equalities(some)):
            return
        readable = {number for number in said if number.is_Symbol}
        least = {symbol: symbol_range(some, symbol)[0] for equal in equalities for symbol in equal.free_symbols}
        self.known, self.parts = symbols.from_equalities(equalities, readable, least, self.known)

    # Nodes.

    def _placeholder(self, node: fx.Node) -> None:
        value = node.meta.get("val", None)
        self._see_number(value)
        if any(is_with_effects(user) for user in node.users):
            self.tokens.add(node)  # AOTAutograd passes None for it
            value = None
        self.names[node, None] = node.name
        self.graph.input(node.name, value)

    def _get_attr(self, node: fx.Node) -> None:
        value = _attribute(self.gm, node.target)
        if not isinstance(value, torch.Tensor):
            return  # a submodule: an argument of a higher-order operator, which is called from Python
        if type(value) not in plain_tensor_types() or _why_other(value):
            raise NotExpressible(f"constant {node.target}: {_why_other(value) or type(value).__name__}")
        self.names[node, None] = node.name
        if value.numel() <= _LITERAL_ELEMENTS and value.is_contiguous() and not _is_fake(value):
            self.graph.literal(node.name, value)
        else:
            self.out.constants.append(value)
            self.graph.constant(node.name, value)

    def _call_function(self, node: fx.Node) -> None:
        target = node.target
        if target is operator.getitem:
            if (place := _place(node)) in self.names:
                self.names[node, None] = self.names[place]
            elif is_with_effects(node.args[0]) and node.args[1] == 0:
                self.tokens.add(node)
            return
        if not isinstance(value := node.meta.get("val", None), torch.Tensor):
            self._see_number(value)
            if _is_size_arithmetic(node, self.given):
                return
        try:
            if isinstance(target, torch._ops.OpOverload):
                return self._aten(node)
            if is_with_effects(node) and isinstance(node.args[1], torch._ops.OpOverload):
                return self._with_effects(node)
            if is_auto_functionalized(node):
                return self._writing(node)
        except _NotAnArgument:
            pass
        if is_random_call(node):
            _find_value(node)
            if _on_cpu(node.meta["val"]):
                return self._random(node)
        self._python(node)

    def _see_number(self, value: Any) -> None:
        self.has_floats = self.has_floats or (self.values is None and isinstance(value, torch.SymFloat))

    def _call_module(self, node: fx.Node) -> None:
        raise NotExpressible(f"the graph calls the module {node.target}; wanted ATen operators")

    def _call_method(self, node: fx.Node) -> None:
        raise NotExpressible(f"the graph calls the method {node.target}; wanted ATen operators")

    def _output(self, node: fx.Node) -> None:
        outputs = node.args[0]
        if not isinstance(outputs, (list, tuple)):
            raise NotExpressible("the graph's output is no list or tuple")
        direct = [self._returned(k, o) for k, o in enumerate(self.plan.direct)]
        if not self.plan.trivial:
            self.out.recipes = [self._recipe(r) for r in self.plan.recipes]
        self.graph.returns(direct + [_C.Symbolic(size) for size in self.numbers])

    def _recipe(self, recipe: Any) -> Any:
        if isinstance(recipe, int):
            return recipe
        base, node = recipe
        is_input = base.op == "placeholder"
        places = self.gm.graph.find_nodes(op="placeholder") if is_input else self.plan.direct
        value, of = node.meta["val"], base.meta["val"]
        number = self._recipe_number
        offset = number(value.storage_offset() - of.storage_offset() * of.itemsize // value.itemsize)
        sizes, strides = tuple(map(number, value.shape)), tuple(map(number, value.stride()))
        reading = None if read_alike(value, of) and not has_bit(base) else (value.dtype, value.is_conj(), value.is_neg())
        return (is_input, list(places).index(base), sizes, strides, offset, reading)

    def _recipe_number(self, value: int | torch.SymInt) -> int | tuple[int]:
        """A number, or (k,): what the program's output k will be."""
        if self.values is not None:
            return symbols.evaluate(value, self.values)
        size = self._size(value)
        if isinstance(size, int):
            return size
        if size not in self.numbers:
            self.numbers[size] = len(self.plan.direct) + len(self.numbers)
        return (self.numbers[size],)

    def _returned(self, index: int, value: Any) -> Any:
        if value in self.tokens:
            return None
        if isinstance(value, fx.Node) and (value, None) in self.names:
            return None if value.meta.get("val", None) is None else _C.Value(self.names[value, None])
        node = value
        if isinstance(node, fx.Node):
            value = node.meta.get("val", None)
            if isinstance(value, (torch.Tensor, list, tuple)):
                raise NotExpressible(f"output {index} of the graph is {_unnamed(node)}")
        if value is None:
            return None
        if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
            return self._symbolic(value)
        raise NotExpressible(f"output {index} of the graph is of type {type(value).__name__}; wanted a tensor")

    # Calls.

    def _aten(self, node: fx.Node) -> None:
        overload = _overload(node.target)
        if overload.returns_foreign_alias:
            raise _NotAnArgument("what returns an operand's memory is called from Python")
        args = overload.whole_arguments(node.args, node.kwargs)
        if self.has_floats:
            args = self._with_floats(node, args)
        if overload.takes_a_number and isinstance(args[0], (bool, int, float)):
            args[0] = self._literal(node, args[0])
        if not overload.is_mutable:
            return self._call(node, node.target, args, *self._results(node))
        alias = overload.mutates_first and isinstance(node.args[0] if node.args else None, fx.Node)
        names, metas = ([node.name], []) if alias else self._results(node)
        self._call(node, node.target, args, names, metas, alias)
        if alias:
            self.names[node, None] = node.name
        elif not self.out.needs_eager:
            self.out.needs_eager = f"{node.target} changes its arguments"

    def _literal(self, node: fx.Node, number: bool | int | float) -> _C.Value:
        """A number where the operator takes a tensor, as a tensor of its own."""
        dtype = torch.bool if isinstance(number, bool) else torch.int64 if isinstance(number, int) else torch.float64
        name = f"{node.name}.number"
        with no_dispatch_modes():
            self.graph.literal(name, torch.tensor(number, dtype=dtype))
        return _C.Value(name)

    # SymFloats: scalars that the program computes, in f64 and in the order of the user's own arithmetic.

    def _with_floats(self, node: fx.Node, args: list[Any]) -> list[Any]:
        """The arguments with a tensor of one element for each number that is a SymFloat."""
        if not any(_is_symbolic_float(arg) for arg in args):
            return args
        value = node.meta.get("val", None)
        single = isinstance(value, torch.Tensor) and value.dtype == torch.float32
        return [_C.Value(self._float(arg, single)) if _is_symbolic_float(arg) else arg for arg in args]

    def _float(self, node: fx.Node, single: bool = False) -> str:
        """The name of its value; `single`: rounded to f32, as eager rounds a number among tensors of f32."""
        name = f"{node.name}.{'single' if single else 'float'}"
        if (node, name) in self.floats:
            return name
        self.floats.add((node, name))
        value = node.meta["val"]
        if single:
            args = ["aten._to_copy.default", [_C.Value(self._float(node)), torch.float32, None, None, None, False, None]]
        elif isinstance(value, (int, torch.SymInt)):
            args = ["aten.scalar_tensor.default", [self._number(value), torch.float64, None, None, None]]
        elif node.op == "call_function" and node.target in _FLOAT_ARITHMETIC:
            op, more = _FLOAT_ARITHMETIC[node.target]
            args = [op, [_C.Value(self._float_operand(arg, name, k)) for k, arg in enumerate(node.args)] + more]
        else:
            raise NotExpressible(f"a SymFloat made by {_target_name(node.target) if node.op == 'call_function' else 'the caller'}")
        meta = _scalar(torch.float32 if single else torch.float64)
        self._call(node, *args, [name], [meta])
        return name

    def _float_operand(self, arg: Any, name: str, place: int) -> str:
        if isinstance(arg, fx.Node):
            return self._float(arg)
        name = f"{name}.{place}"
        with no_dispatch_modes():
            self.graph.literal(name, torch.tensor(arg, dtype=torch.float64))
        return name

    def _with_effects(self, node: fx.Node) -> None:
        _, target, *args = node.args
        args = _overload(target).whole_arguments(args, node.kwargs)
        values = node.meta["val"][1:]
        for index in range(len(values)):
            self.names[node, index + 1] = f"{node.name}.{index + 1}"
        used = [i for i, value in enumerate(values) if value is not None]
        self._call(node, target, args, [self.names[node, i + 1] for i in used], [values[i] for i in used])

    def _python(self, node: fx.Node) -> None:
        _find_value(node)
        call, operands, numbers = _closure(self.gm, node, self)
        number = _C.register_callable(untraced(call))
        self.out.callables.append(number)
        args = [_C.Value(self._operand(o)) for o in operands] + [self._symbolic(n) for n in numbers]
        self._call(node, f"python.{number}.{_target_name(node.target)}", args, *self._results(node))

    def _random(self, node: fx.Node) -> None:
        """A draw with the generator's state saved before it, or restored for it: steps of their own, which keep their order."""
        saves = _saves_state(node)
        op, *args = node.args if saves else node.args[1:]
        state = f"{node.name}.state"
        if saves:
            self._call(node, "tenon.rng_state", [], [state], [_State()])
            self.names[node, 0] = state
        else:
            self._call(node, "tenon.swap_rng_state", [node.args[0]], [state], [_State()])
        results = self._results(node, node.meta["val"][1] if saves else node.meta["val"], (1,) if saves else ())
        self._call(node, op, _overload(op).whole_arguments(args, node.kwargs), *results)
        if not saves:
            self._call(node, "tenon.swap_rng_state", [_C.Value(state)], [f"{node.name}.after"], [_State()])

    def _writing(self, node: fx.Node) -> None:
        """auto_functionalized_v2: an operator that changes arguments, as a function of the memory that these are in ("bases"), whose
        last results are what the bases hold then."""
        target, arguments = node.args[0], dict(node.kwargs)
        bases = arguments.pop("_all_bases")
        windows = written_arguments(target, arguments, bases)  # takes what says so out of the arguments
        if windows is None or not all(self._is_dense(base.meta["val"]) for base in bases):
            raise _NotAnArgument("memory with gaps")
        seen = set()
        for name, window in windows.items():
            arguments[name] = self._windows(window, bases, seen)
        if len(seen) != len(bases):
            raise _NotAnArgument("a base that nothing is a view of")
        writes = [self._operand(base) for base in bases]
        self._call(node, target, _overload(target).whole_arguments((), arguments), *self._results(node), writes=writes)

    def _windows(self, window: Any, bases: list[fx.Node], seen: set[int]) -> Any:
        if window is None or isinstance(window, list):
            return window and [self._windows(w, bases, seen) for w in window]
        base = bases[window.base_index]
        seen.add(window.base_index)
        value = base.meta["val"]
        sizes, strides, offset = list(value.shape), list(value.stride()), 0
        if hasattr(window, "storage_offset"):
            sizes, strides = window.size, window.stride
            offset = self._static(window.storage_offset) - self._static(value.storage_offset())
        elif hasattr(window, "dim"):
            dim, length = self._static(window.dim), self._static(sizes[window.dim])
            start, end = (min(max(n + length if n < 0 else n, 0), length) for n in map(self._static, (window.start, window.end)))
            sizes[dim], offset = max(end - start, 0), start * self._static(strides[dim])
        return _C.Window((self._operand(base), [self._static(n) for n in sizes], [self._static(n) for n in strides], offset))

    def _is_dense(self, value: torch.Tensor) -> bool:
        """Its elements fill its memory, each once."""
        expected = 1
        for size, stride in sorted(zip(map(self._static, value.shape), map(self._static, value.stride())), key=lambda d: (d[1], d[0])):
            if size > 1 and stride != expected:
                return False
            expected *= max(size, 1)
        return True

    def _static(self, number: int | torch.SymInt) -> int:
        """Raises _NotAnArgument."""
        if self.values is not None and not isinstance(number, int):
            number = self._evaluate(number)
        elif self.known and not isinstance(number, int):
            text, used = symbols.to_text(number, self.known)
            number = number if used else int(text)
        if not isinstance(number, int):
            raise _NotAnArgument("a symbolic size")
        return number

    def _call(
        self, node: fx.Node, op: Any, args: Sequence[Any], names: Sequence[str], metas: Sequence[Any], alias: bool = False,
        writes: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """One node of the graph. op: an overload, or a name; args: see _arg; metas: see _meta; alias: the result is the first tensor,
        changed; writes: names of the values that it changes."""
        # Operators of other libraries get tensors in the very strides that they were traced with.
        overload = None if isinstance(op, str) else _overload(op)
        self.exact = overload is not None and overload.is_foreign
        self.graph.node(overload.name if overload else op, args, names, metas, alias, *_provenance(node), writes)

    def _results(self, node: fx.Node, value: Any = None, within: tuple[int, ...] = ()) -> tuple[Sequence[str], Sequence[Any]]:
        """Names of the results, and what is known of each. `value`: of what the node returns, what stands at `within`."""
        value = node.meta.get("val", None) if value is None else value
        if value is None and not node.users:
            return (), ()
        if not within and not isinstance(value, (list, tuple)):
            self.names[node, None] = node.name
            return (node.name,), (value,)
        names, metas = [], []
        for place, leaf in _leaves(value, within):
            names.append(".".join(map(str, (node.name, *place))))
            metas.append(leaf)
            self.names[node, _key(place)] = names[-1]
        return names, metas

    # Arguments.

    def _operand(self, node: fx.Node) -> str:
        if (node, None) not in self.names:
            raise NotExpressible(f"an operand is {_unnamed(node)}")
        return self.names[node, None]

    def _arg(self, value: Any) -> Any:
        """Of what _C.Graph doesn't read by itself as an argument (or as part of one): numbers, None, strings, lists, dtypes, layouts,
        devices and memory formats are none of it."""
        if isinstance(value, fx.Node):
            return self._node_arg(value)
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._number(value)
        raise _NotAnArgument(type(value).__name__)

    def _node_arg(self, node: fx.Node) -> Any:
        value = node.meta.get("val", None)
        if not self.exact and isinstance(value, torch.Tensor) and (name := self.names.get((node, None))):
            return _C.Value(name)
        if isinstance(value, _NUMBERS):
            return self._number(value)
        if isinstance(value, (list, tuple)):
            return [_C.Value(self.names[node, i]) for i in range(len(value))]
        if (node, None) not in self.names:
            raise _NotAnArgument(node.name)
        name = self.names[node, None]
        if self.exact and isinstance(value, torch.Tensor) and value.dim() > 0 and not _why_other(value, self.resolved):
            return _C.Window((name, None, [self._static(s) for s in value.stride()], 0))
        return _C.Value(name)

    def _number(self, value: Any) -> Any:
        if isinstance(value, (bool, int, float)):
            return value
        if self.values is not None:
            return self._evaluate(value)
        if isinstance(value, torch.SymInt):
            return self._symbolic(value)
        raise NotExpressible(f"a symbolic {type(value).__name__}")

    def _symbolic(self, value: int | torch.SymInt) -> Any:
        size = self._size(value)
        return size if isinstance(size, int) else _C.Symbolic(size)

    def _evaluate(self, value: torch.SymInt | torch.SymFloat | torch.SymBool) -> int | float | bool:
        try:
            return symbols.evaluate(value, self.values)
        except ValueError as error:
            raise NotExpressible(f"a number that is known when it runs: {error}") from None

    def _is_known(self, value: torch.Tensor) -> bool:
        numbers = (*value.shape, *value.stride(), value.storage_offset())
        if self.values is None:
            return not any(symbols.is_unbacked(number, self.given) for number in numbers)
        try:
            return all(isinstance(symbols.evaluate(n, self.values), int) for n in numbers if not isinstance(n, int))
        except ValueError:
            return False

    def _size(self, value: int | torch.SymInt) -> int | str:
        """A number, or the text of an expression."""
        if type(value) is int:
            return value
        if self.values is not None:
            return self._evaluate(value)
        try:
            text, used = symbols.to_text(value, self.known)
        except ValueError as error:
            raise NotExpressible(str(error)) from None
        for symbol in used:
            if symbol not in self.symbols:
                self.symbols.add(symbol)
                # Which sizes came first may not decide the last bits where the user wants the same ones each time.
                part = self.parts.get(symbol)
                traced = part.of if part else symbol
                hint = 0 if torch.are_deterministic_algorithms_enabled() else symbol_hint(value, traced)
                lower, upper = symbol_range(value, traced)
                if part:
                    lower, upper, hint = part.lower, upper // part.by, hint // part.by
                self.graph.symbol(str(symbol), lower, upper, hint)
        return text if used else int(text)

    def _meta(self, value: Any) -> Any:
        """Of what _C.Graph doesn't read by itself: dense CPU tensors of numbers as sizes, ints and None are none of it."""
        if value is None:
            return None
        if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
            return "symint", self._size(value)
        if isinstance(value, _State):
            return "other", _AT_RUN_TIME
        if not isinstance(value, torch.Tensor):
            return "other", type(value).__name__
        why = _why_other(value, self.resolved)
        if not why and not self._is_known(value):
            why = _AT_RUN_TIME
        if why:
            return "other", why
        sizes, strides = tuple(map(self._size, value.shape)), tuple(map(self._size, value.stride()))
        offset = value.storage_offset()
        if symbols.is_symbolic(offset) and self.values is None and not self.absolute:
            offset = 0  # it comes with the data pointer
        return "tensor", value.dtype, sizes, strides, self._size(offset)


def _given(gm: fx.GraphModule) -> set[sympy.Symbol]:
    """Symbols that data decide, but not the graph's: its inputs tell what they are."""
    return set().union(*(free_unbacked_symbols(node.meta.get("val")) for node in gm.graph.find_nodes(op="placeholder") if _has_sizes(node)))


def _has_sizes(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return symbols.is_symbolic(value) or (isinstance(value, torch.Tensor) and value.layout == torch.strided)


def counts_from_storage(gm: fx.GraphModule) -> bool:
    """An operator counts from the start of a storage, so inputs' offsets are part of the graph's meaning."""
    return any(_counts_from_storage(n.target) for n in gm.graph.nodes if n.op == "call_function")


@functools.lru_cache(maxsize=4096)
def _counts_from_storage(target: Any) -> bool:
    return "as_strided" in str(target) or "storage_offset" in str(target)


def _leaves(value: Any, place: tuple[int, ...] = ()):
    """What a call returns, in tuples within tuples: where, what."""
    if isinstance(value, (list, tuple)):
        for index, element in enumerate(value):
            yield from _leaves(element, (*place, index))
    else:
        yield place, value


def _key(place: tuple[int, ...]) -> int | tuple[int, ...] | None:
    return None if not place else place[0] if len(place) == 1 else place


def _find_value(node: fx.Node) -> None:
    """The partitioner's calls that save or restore the generator's state come without what they return."""
    if "val" in node.meta or not is_random_call(node):
        return
    saves = _saves_state(node)
    op, args = (node.args[0], node.args[1:]) if saves else (node.args[1], node.args[2:])
    values = lambda leaf: leaf.meta["val"]
    with fake_mode_of(node.graph):
        value = op(*fx.node.map_arg(args, values), **fx.node.map_arg(node.kwargs, values))
    node.meta["val"] = (_State(), value) if saves else value


def _saves_state(random_call: fx.Node) -> bool:
    return random_call.target.name() == "run_and_save_rng_state"


def _on_cpu(value: Any) -> bool:
    return all(leaf.device.type == "cpu" for _, leaf in _leaves(value) if isinstance(leaf, torch.Tensor))


class _State:
    """Stands for the state of a random generator."""


def _place(node: fx.Node) -> tuple[fx.Node, int | tuple[int, ...]]:
    """What a getitem takes: whose result, which."""
    maker, place = node, ()
    while maker.target is operator.getitem:
        maker, place = maker.args[0], (maker.args[1], *place)
    return maker, _key(place)


def _unnamed(node: fx.Node) -> str:
    """What a node is that should be one tensor of the text and isn't: whose result, of what kind, where."""
    maker, path = node, ""
    while maker.target is operator.getitem:
        maker, path = maker.args[0], f"[{maker.args[1]}]{path}"
    value = node.meta.get("val", None)
    kind = "a tuple" if isinstance(value, (list, tuple)) else "inside a tuple" if path.count("[") > 1 else "no tensor"
    source = _last_frame(maker.stack_trace or "")
    where = f" ({source})" if source else ""
    return f"result{path} of {_target_name(maker.target)}{where}, which is {kind}; wanted a tensor by itself"


def _needs_bits(gm: fx.GraphModule, plan: OutputPlan) -> bool:
    """Whether a conjugate or negative bit is seen from outside: on an output of the user's that the program itself returns, or
    on an input that is read as memory, or written otherwise than at the end."""
    if plan.returns_bits:
        return True
    inputs = [node for node in gm.graph.find_nodes(op="placeholder") if has_bit(node)]
    return any(_is_of_memory(user.target) for node in inputs for user in node.users)


def _is_of_memory(target: Any) -> bool:
    mutates = isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable
    return target is torch.ops.aten.as_strided.default or (mutates and target is not torch.ops.aten.copy_.default)


def _why_other(value: torch.Tensor, resolved: bool = False) -> str:
    """Why this tensor is more (or less) than dense CPU memory with numbers in it; "" if it isn't. `resolved`: its conjugate and
    negative bits are seen to."""
    if type(value) not in plain_tensor_types():
        return f"tensor subclass {type(value).__name__}"
    if value.layout != torch.strided:
        return f"layout {str(value.layout).removeprefix('torch.')}"
    if value.is_quantized:
        return "quantised tensor"
    if value.device.type != "cpu":
        return f"device {value.device}"
    if not _C.has_dtype(value.dtype):
        return f"dtype {str(value.dtype).removeprefix('torch.')}"
    if not resolved and (value.is_conj() or value.is_neg()):
        return "conjugated or negated view"
    return ""


def _is_fake(value: torch.Tensor) -> bool:
    return type(value).__name__ == "FakeTensor"


def _is_size_arithmetic(node: fx.Node, given: Set[sympy.Symbol]) -> bool:
    """Computes only numbers that are expressions of symbols that inputs tell (or asserts something of them)."""
    if node.target is operator.getitem:
        return True
    value = node.meta.get("val", None)
    if isinstance(value, torch.Tensor):
        return False
    if isinstance(node.target, torch._ops.OpOverload) and node.target in _SIZE_ASSERTS:
        return True
    return isinstance(value, _NUMBERS) and not symbols.is_unbacked(value, given)


_SIZE_ASSERTS = {
    torch.ops.aten._assert_scalar.default,
    torch.ops.aten.sym_constrain_range.default,
    torch.ops.aten.sym_constrain_range_for_size.default,
}


@functools.lru_cache(maxsize=4096)
def _target_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if is_higher_order(target):
        return f"higher_order.{target.name()}"
    return getattr(target, "__name__", str(target))


_FLOAT_ARITHMETIC = {  # of f64; arguments behind the operands
    torch.sym_float: ("aten.clone.default", [None]),
    operator.add: ("aten.add.Tensor", [1]), operator.sub: ("aten.sub.Tensor", [1]), operator.mul: ("aten.mul.Tensor", []),
    operator.truediv: ("aten.div.Tensor", []), operator.neg: ("aten.neg.default", []), operator.pow: ("aten.pow.Tensor_Tensor", []),
    torch._sym_sqrt: ("aten.sqrt.default", []),
}  # fmt: skip


def _is_symbolic_float(value: Any) -> bool:
    return isinstance(value, fx.Node) and isinstance(value.meta.get("val", None), torch.SymFloat)


@functools.cache
def _scalar(dtype: torch.dtype) -> torch.Tensor:
    with no_dispatch_modes():
        return torch.empty((), dtype=dtype)


_NO_DEFAULT = object()


class _Overload:
    """What is known of an operator whatever it is called with."""

    def __init__(self, target: torch._ops.OpOverload):
        schema = target._schema
        self.name = str(target)
        self.parameters = [(a.name, a.default_value if a.has_default_value() else _NO_DEFAULT) for a in schema.arguments]
        self.is_foreign = target.namespace not in ("aten", "prims")  # of another library than PyTorch's own
        self.is_mutable = schema.is_mutable
        self.returns_foreign_alias = (
            self.is_foreign and not self.is_mutable and any(r.alias_info is not None for r in schema.returns)
        )
        written = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        # copy_ and its like: changes its first argument and returns it.
        self.mutates_first = self.is_mutable and written == [schema.arguments[0].name] and len(schema.returns) == 1
        self.takes_a_number = target is torch.ops.aten._to_copy.default

    def whole_arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        arguments = list(args)
        for name, default in self.parameters[len(arguments) :]:
            value = kwargs.get(name, default)
            if value is _NO_DEFAULT:
                raise NotExpressible(f"{self.name}: argument {name} is missing")
            arguments.append(value)
        return arguments


@functools.lru_cache(maxsize=4096)
def _overload(target: torch._ops.OpOverload) -> _Overload:
    return _Overload(target)


def _closure(gm: fx.GraphModule, node: fx.Node, exporter: _Exporter) -> tuple[Callable, list[fx.Node], list[torch.SymInt]]:
    """A callable of the node's distinct tensors and behind them its numbers of this call, and these."""
    operands: list[fx.Node] = []
    numbers: list[torch.SymInt] = []

    def bind(leaf: fx.Node) -> Any:
        if leaf.op == "get_attr" and (leaf, None) not in exporter.names:
            return _Bound(_attribute(gm, leaf.target))
        value = leaf.meta.get("val", None)
        if isinstance(value, _NUMBERS):
            if not isinstance(value, (int, float, bool)):
                if exporter.values is None and not isinstance(value, torch.SymInt):
                    raise NotExpressible(f"{node.name} takes a symbolic {type(value).__name__} from Python")
                if exporter.values is None and symbols.expression(value).free_symbols:
                    numbers.append(value)
                    return _Number(len(numbers) - 1)
                value = symbols.evaluate(value, exporter.values or {})
            return _Bound(value)
        if isinstance(value, (list, tuple)):
            raise NotExpressible(f"{node.name} takes a list of tensors as one value")
        if leaf not in operands:
            operands.append(leaf)
        return _Slot(operands.index(leaf))

    args = fx.node.map_arg(node.args, bind)
    kwargs = fx.node.map_arg(node.kwargs, bind)
    target = node.target
    value = node.meta.get("val")
    tuples = isinstance(value, (list, tuple))
    places = [place for place, _ in _leaves(value)]

    def call(*given: torch.Tensor | int) -> Any:
        from torch.utils import _pytree as pytree

        def fill(leaf: Any) -> Any:
            if isinstance(leaf, (_Slot, _Number)):
                return given[leaf.index + (len(operands) if isinstance(leaf, _Number) else 0)]
            return leaf.value if isinstance(leaf, _Bound) else leaf

        with torch.no_grad():
            result = target(*pytree.tree_map(fill, args), **pytree.tree_map(fill, kwargs))
        return [functools.reduce(operator.getitem, place, result) for place in places] if tuples else result

    return call, operands, numbers


@dataclasses.dataclass
class _Slot:
    index: int


@dataclasses.dataclass
class _Number:
    index: int


@dataclasses.dataclass
class _Bound:
    value: Any


def _attribute(gm: fx.GraphModule, target: str) -> Any:
    value: Any = gm
    for part in target.split("."):
        value = getattr(value, part)
    return value


# Provenance.


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def _provenance(node: fx.Node) -> tuple[str, str]:
    """The module's path and the source line, "" where unknown."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    module = ""
    if stack:
        path = next(reversed(stack.values()))
        module = _clean_path(path[0] if isinstance(path, (tuple, list)) else str(path))
    return module, _last_frame(node.meta.get("stack_trace") or "")


@functools.lru_cache(maxsize=4096)
def _last_frame(stack_trace: str) -> str:
    frames = _FRAME.findall(stack_trace)
    return f"{frames[-1][0].rsplit('/', 1)[-1]}:{frames[-1][1]}" if frames else ""


@functools.lru_cache(maxsize=4096)
def _clean_path(path: str) -> str:
    path = re.sub(r"^L\['\w+'\]\.?", "", path)
    path = re.sub(r"_modules\['([^']+)'\]", r"\1", path)
    return re.sub(r"\[(?:'([^']*)'|(\d+))\]", lambda m: "." + (m[1] or m[2] or ""), path).strip(".")
