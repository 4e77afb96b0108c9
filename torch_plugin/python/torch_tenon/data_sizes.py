"""Graphs in which data decide sizes (nonzero, masked_select, item: unbacked symbols), in parts: a part ends where such a size is known,
and the next one has it among its inputs, as a symbol like any other (docs/architecture/sizes.md)."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Callable

import sympy
import torch
from torch import fx

from . import symbols
from ._torch_private import free_unbacked_symbols, logger
from .compiler import Compiled
from .dynamic import symbols_of

_BY_NUMBERS = "computes with a number that is known when it runs, and is no integer"
_ASSERTS = (torch.ops.aten._assert_scalar.default,)
_CONSTRAINTS = (torch.ops.aten.sym_constrain_range.default, torch.ops.aten.sym_constrain_range_for_size.default)


def decided_by_data(gm: fx.GraphModule) -> bool:
    """Some size or number is an unbacked symbol, of the graph's making or the caller's (mark_unbacked)."""
    made = any(node.meta.get("unbacked_bindings") for node in gm.graph.nodes)
    return made or any(_unbacked(node.meta.get("val")) for node in gm.graph.find_nodes(op="placeholder"))


def compile_in_parts(
    gm: fx.GraphModule, compile_part: Callable[[fx.GraphModule, Sequence[int], str], Compiled], frozen: Sequence[int] = ()
) -> Compiled:
    """compile_part(graph, which of its inputs are frozen, why it has to run from Python if so) of each part. `frozen`: inputs of `gm`,
    which stays as it is."""
    try:
        plan = _Plan(gm)
        graphs = {id(piece): _graph(gm, piece) for piece in plan.pieces if isinstance(piece, _Piece)}
    except Exception as error:
        logger().warning("a graph whose sizes data decide: %s", error, exc_info=error)
        return compile_part(gm, frozen, f"to cut it in parts failed: {error}")
    if plan.is_one_part:
        return compile_part(_checked(gm, plan), frozen, "")
    inputs = list(gm.graph.find_nodes(op="placeholder"))
    kept = {node for k, node in enumerate(inputs) if k in frozen}
    steps: list[_Step] = []
    count, parts = 0, sum(isinstance(piece, _Piece) for piece in plan.pieces)
    for piece in plan.pieces:
        if isinstance(piece, fx.Node):
            steps.append(_Step(_call(piece), piece.all_input_nodes, [piece]))
            continue
        compiled = compile_part(
            graphs[id(piece)], [k for k, node in enumerate(piece.takes) if node in kept], _BY_NUMBERS if piece.by_numbers else ""
        )
        count += 1
        if (record := getattr(compiled, "record", None)) is not None:
            record.part = f"{count} of {parts}" + (f", decides {', '.join(sorted(map(str, piece.decides)))}" if piece.decides else "")
        steps.append(_Step(compiled, piece.takes, piece.returns, is_part=True))
    (output,) = gm.graph.find_nodes(op="output")
    return InParts(inputs, steps, list(output.args[0]))


def _unbacked(value: Any) -> set[sympy.Symbol]:
    """The unbacked symbols of a node's value."""
    return {s for s in symbols_of(value) if free_unbacked_symbols(s)}


def _is_number(node: fx.Node) -> bool:
    """Computes no tensor: a size, what follows from sizes, a check of them."""
    return node.op == "call_function" and (
        node.target in _ASSERTS or node.target in _CONSTRAINTS or symbols.is_symbolic(node.meta.get("val"))
    )


@dataclasses.dataclass
class _Piece:
    nodes: list[fx.Node] = dataclasses.field(default_factory=list)
    by_numbers: bool = False  # with real or boolean numbers that data decide
    decides: set[sympy.Symbol] = dataclasses.field(default_factory=set)
    repeats: list[fx.Node] = dataclasses.field(default_factory=list)  # further nodes: numbers that follow from sizes, constants
    takes: list[fx.Node] = dataclasses.field(default_factory=list)
    returns: list[fx.Node] = dataclasses.field(default_factory=list)


class _Plan:
    """A graph's nodes in the order in which they run: pieces that are compiled, which keep the nodes' order, and nodes between them that
    compute with numbers that data decide. Numbers that follow from other sizes are computed wherever they are needed."""

    def __init__(self, gm: fx.GraphModule):
        self.pieces: list[_Piece | fx.Node] = []
        self._open = _Piece()
        self._made: set[fx.Node] = set()  # by the open piece
        self._pure = True  # the open piece changes nothing, so what does not need it may run before
        self._waiting: dict[fx.Node, None] = {}  # nodes that run when the open piece has
        self._loose: set[fx.Node] = set()  # numbers that follow from sizes
        placed: set[fx.Node] = set()
        known: set[sympy.Symbol] = set()
        (output,) = gm.graph.find_nodes(op="output")
        for node in gm.graph.nodes:
            mentioned = _unbacked(node.meta.get("val")).union(*(_unbacked(n.meta.get("val")) for n in node.all_input_nodes))
            if node.op == "placeholder":
                known |= mentioned
            elif node.op == "get_attr":
                self._loose.add(node)
            elif node.op == "output" or node in placed:
                continue
            elif _is_number(node):
                if not mentioned:
                    self._loose.add(node)
                elif not _always_holds(node):
                    self._between(node)
                known |= mentioned
            else:
                found = [node, *_taken_from(node)]
                self._add(node, found, mentioned - known)
                placed.update(found)
                known |= mentioned
        self._close()
        self.pieces += self._with_loose(output.all_input_nodes, [n for n in self.pieces if isinstance(n, fx.Node)])
        self._connect(gm)

    @property
    def is_one_part(self) -> bool:
        return len(self.pieces) <= 1 and all(isinstance(p, _Piece) and not p.by_numbers for p in self.pieces)

    def _add(self, node: fx.Node, found: list[fx.Node], decided: set[sympy.Symbol]) -> None:
        """A node, with what is taken out of its results, to the open piece."""
        by_numbers = any(_is_real_or_bool(n) for n in node.all_input_nodes)
        needs_result = any(_unbacked(n.meta.get("val")) & self._open.decides for n in node.all_input_nodes)
        needs_number = any(n in self._waiting for n in node.all_input_nodes)
        if self._waiting and _changes_something(node):  # checks that fail leave everything as it was
            self._close()
        if needs_result or needs_number or (self._open.nodes and by_numbers != self._open.by_numbers):
            self._close()
        self._open.by_numbers = by_numbers
        self._open.nodes += found
        self._open.decides |= decided
        self._made.update(found)
        self._pure &= not _changes_something(node)

    def _between(self, node: fx.Node) -> None:
        nodes = [*self._with_loose(node.all_input_nodes, [*self._waiting, *(n for n in self.pieces if isinstance(n, fx.Node))]), node]
        needed = {operand for n in nodes for operand in n.all_input_nodes}
        if self._pure and not any(n in self._made or n in self._waiting for n in needed):
            self.pieces += nodes
        else:
            self._waiting.update(dict.fromkeys(nodes))

    def _with_loose(self, operands: Sequence[fx.Node], there: Sequence[fx.Node]) -> list[fx.Node]:
        """Those of `operands`, and of what they need, that are loose and not `there` yet, in their order."""
        found: dict[fx.Node, None] = {}

        def need(node: fx.Node) -> None:
            if node.op == "call_function" and node in self._loose and node not in found and node not in there:
                for operand in node.all_input_nodes:
                    need(operand)
                found[node] = None

        for operand in operands:
            need(operand)
        return list(found)

    def _close(self) -> None:
        if self._open.nodes:
            self.pieces.append(self._open)
        self.pieces += self._waiting
        self._open, self._made, self._pure, self._waiting = _Piece(), set(), True, {}

    def _connect(self, gm: fx.GraphModule) -> None:
        """What pieces take, and what they return of what is used behind them. Raises where something is not there when it is used."""
        there = dict.fromkeys(gm.graph.find_nodes(op="placeholder"))  # and what pieces before have made

        def expect(nodes: Iterable[fx.Node]) -> None:
            if missing := [node.name for node in nodes if node not in there]:
                raise ValueError(f"no part makes {', '.join(missing)}")

        for piece in self.pieces:
            if isinstance(piece, fx.Node):
                expect(piece.all_input_nodes)
                there[piece] = None
                continue
            inside, taken, repeated = set(piece.nodes), {}, {}

            def need(node: fx.Node) -> None:
                if node in inside or node in repeated:
                    return
                if node in self._loose:
                    for operand in node.all_input_nodes:
                        need(operand)
                    repeated[node] = None
                else:
                    taken[node] = None

            for node in piece.nodes:
                for operand in node.all_input_nodes:
                    need(operand)
            piece.repeats, piece.takes = list(repeated), [*taken, *_telling(piece.nodes, taken, there)]
            expect(piece.takes)
            there |= dict.fromkeys(piece.nodes)
        (output,) = gm.graph.find_nodes(op="output")
        expect(output.all_input_nodes)
        used = set(output.all_input_nodes)
        for piece in reversed(self.pieces):
            if isinstance(piece, fx.Node):
                used.update(piece.all_input_nodes)
            else:
                piece.returns = [node for node in piece.nodes if node in used]
                used.update(piece.takes)


def _taken_from(node: fx.Node) -> list[fx.Node]:
    """What is taken out of a node's results, and out of that: no part takes a tuple."""
    found: list[fx.Node] = []
    for user in node.users:
        if user.target is operator.getitem and user.args[0] is node:
            found += [user, *_taken_from(user)]
    return found


def _always_holds(node: fx.Node) -> bool:
    """A check that every size passes, or what serves such checks alone."""
    if node.target in _CONSTRAINTS:
        return True  # a word to the tracer; what it says is checked by an assertion, too
    if node.target in _ASSERTS:
        condition = node.args[0]
        if not isinstance(condition, fx.Node):
            return bool(condition)
        value = condition.meta.get("val")
        return symbols.is_symbolic(value) and _holds_of_sizes(condition, symbols.expression(value))
    return bool(node.users) and all(_is_number(user) and _always_holds(user) for user in node.users)


def _holds_of_sizes(condition: fx.Node, expression: sympy.Basic) -> bool:
    """A size is not negative; a number that data decide may be."""
    sizes = all(n.target is torch.ops.aten.sym_size.int for n in condition.all_input_nodes)
    any_size = {s: sympy.Dummy(nonnegative=True, integer=True) for s in expression.free_symbols}
    return sizes and sympy.sympify(expression.xreplace(any_size)) is sympy.true


def _is_real_or_bool(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, (torch.SymFloat, torch.SymBool)) and bool(_unbacked(value))


def _changes_something(node: fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return node.op == "call_function" and node.target is not operator.getitem
    return node.target._schema.is_mutable


def _graph(gm: fx.GraphModule, piece: _Piece) -> fx.GraphModule:
    graph, copies = fx.Graph(), {}
    for node in piece.takes:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta.update(node.meta)
    wanted = {*piece.repeats, *piece.nodes}
    for node in [n for n in gm.graph.nodes if n in wanted]:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output([copies[node] for node in piece.returns]).meta.update(gm.graph.output_node().meta)
    part = fx.GraphModule(gm, graph)
    part.meta.update(gm.meta)
    return part


def _checked(gm: fx.GraphModule, plan: _Plan) -> fx.GraphModule:
    """The graph of one part, whose checks always hold, without them."""
    nodes = {node for piece in plan.pieces for node in (*piece.repeats, *piece.nodes)}
    if all(node in nodes for node in gm.graph.nodes if node.op not in ("placeholder", "output")):
        return gm
    graph, copies = fx.Graph(), {}
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output") or node in nodes:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    checked = fx.GraphModule(gm, graph)
    checked.meta.update(gm.meta)
    return checked


def _telling(nodes: Sequence[fx.Node], taken: Iterable[fx.Node], there: Iterable[fx.Node]) -> list[fx.Node]:
    """Further tensors of those that are `there` that say which numbers the symbols are that these nodes mention."""
    said = set().union(*(_said(node) for node in taken))
    wanted = set().union(*(symbols_of(n.meta.get("val")) for n in (*nodes, *taken))) - said
    found: list[fx.Node] = []
    for node in there:
        if isinstance(node.meta.get("val"), torch.Tensor) and (tells := _said(node) & wanted):
            found.append(node)
            wanted -= tells
    return found


def _said(node: fx.Node) -> set[sympy.Symbol]:
    """Symbols that some size of the node's, or the number that it is, is."""
    value = node.meta.get("val")
    numbers = value.shape if isinstance(value, torch.Tensor) and value.layout == torch.strided else (value,)
    expressions = {symbols.expression(n) for n in numbers if isinstance(n, torch.SymInt)}
    return {e for e in expressions if e.is_Symbol}


@dataclasses.dataclass
class _Step:
    run: Callable
    takes: list[fx.Node]
    makes: list[fx.Node]
    is_part: bool = False  # boxed: takes a list, returns one


def _call(node: fx.Node) -> Callable:
    """The node's call, of the values of its nodes."""
    operands = node.all_input_nodes
    pair = len(node.args) == 2 and operands == [node.args[0]]
    if pair and node.target is torch.ops.aten.sym_size.int:
        return lambda tensor, axis=node.args[1]: tensor.size(axis)  # a tenth of the operator's time
    if pair and node.target in _ASSERTS:
        return lambda holds, message=node.args[1]: holds or torch.ops.aten._assert_scalar.default(holds, message)
    if not node.kwargs and all(isinstance(a, fx.Node) for a in node.args) and list(node.args) == operands:
        return node.target

    def call(*values: Any) -> Any:
        given = dict(zip(operands, values))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), given.__getitem__)
        return node.target(*args, **kwargs)

    return call


class InParts:
    """A graph's parts, and between them what becomes of the numbers that they decide. Boxed; holds nothing between calls."""

    def __init__(self, inputs: Sequence[fx.Node], steps: Sequence[_Step], outputs: Sequence[Any]):
        self._boxed_call = True  # on the instance, since functools.wraps copies that
        self.record = next((r for s in steps if (r := getattr(s.run, "record", None)) is not None), None)
        place = {node: k for k, node in enumerate(dict.fromkeys([*inputs, *(n for s in steps for n in s.makes)]))}
        self._inputs, self._size = len(inputs), len(place)
        last = {node: number for number, step in enumerate(steps) for node in (*step.makes, *step.takes)}
        kept = {node for node in outputs if isinstance(node, fx.Node)}
        self._steps = []
        for number, step in enumerate(steps):
            over = [place[node] for node in dict.fromkeys((*step.takes, *step.makes)) if last[node] == number and node not in kept]
            self._steps.append((step.run, step.is_part, [place[n] for n in step.takes], [place[n] for n in step.makes], over))
        self._outputs = [(place[o], None) if isinstance(o, fx.Node) else (-1, o) for o in outputs]

    def __call__(self, inputs: list[Any]) -> list[Any]:
        values = [*inputs, *([None] * (self._size - self._inputs))]
        inputs.clear()
        for run, is_part, takes, makes, over in self._steps:
            given = [values[k] for k in takes]
            for k in over:
                values[k] = None
            if is_part:
                for k, made in zip(makes, run(given)):
                    values[k] = made
            else:
                values[makes[0]] = run(*given)
        return [constant if k < 0 else values[k] for k, constant in self._outputs]
