"""Random graphs of ATen operators through the C++ seam, against ATen op by op.

    python -m plugin.graph_fuzz --seed 1 --graphs 5000 [--symbols] [--seconds 600] [--guard 1] [--jobs 2]      (from tests/)
    python -m plugin.graph_fuzz --only 1000017                                        one graph again, printed

A graph is drawn from a number as inputs (views, memory that is shared, 0-d, empty, all dtypes), nodes (graph_fuzz_ops.py), writes of inputs
at the end, as AOTAutograd has them, and outputs: values, inputs, views of both, one value twice, None. It becomes a `_C.Graph` call by call, without
Dynamo, and its executable is called several times: other numbers, other places in memory, nobody else holding the inputs, an index out of
range. ATen runs the same nodes one after the other. With --symbols sizes are symbols, and one executable is called at many sizes, and with
inputs that its guards must refuse.

Judged: values (bit by bit where they are exact, else by torch_tenon.testing.compare), dtypes, sizes, strides, which outputs share memory with what,
inputs afterwards, version counters, errors and their text, what earlier calls returned, and that the graph ran natively. A graph that
differs is cut to fewer nodes and printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import random
import re
import subprocess
import sys
import time
import types
import warnings
from typing import Any, Callable

import torch

from plugin.graph_fuzz_ops import ALL, COMPLEX, FLOATS, INTEGERS, OPERATORS, Grain, Operator, SizeOf, expands, fitting, has_dims, is_integer

SIZES = (0, 1, 1, 2, 2, 3, 4, 5, 7, 8, 16, 17)
# Graphs that are the eager program's, and say so.
BY_ATEN = "the write-back of v\\d+ reads an input that is written back too"


@dataclasses.dataclass(frozen=True)
class Ref:
    """A value among arguments."""

    id: int

    def __repr__(self) -> str:
        return f"%{self.id}"


@dataclasses.dataclass
class Input:
    id: int
    shape: tuple[Any, ...]  # ints, or expressions of symbols
    dtype: torch.dtype
    kind: str = "dense"  # "transposed", "gaps", "offset", "expanded", "beside" and "within" another's memory; "literal", "constant"
    base: int = -1  # whose memory
    high: Any = None  # its numbers are indices below this
    distinct: int | None = None  # along this dim no index comes twice

    def __str__(self) -> str:
        of = f" %{self.base}" if self.base >= 0 else ""
        return f"{str(self.dtype)[6:]}{list(self.shape)} {self.kind}{of}" + (f" below {self.high}" if self.high is not None else "")


@dataclasses.dataclass
class Instruction:
    op: Operator
    args: list[Any]
    results: list[int]
    grains: list[Grain]

    def refs(self) -> list[int]:
        return list(_refs(self.args))

    def __str__(self) -> str:
        return f"{', '.join(f'%{r}' for r in self.results)} = {self.op.name.removeprefix('aten.')}({', '.join(map(_shown, self.args))})"


def _shown(arg: Any) -> str:
    if isinstance(arg, SizeOf):
        return f"size(%{arg.value}, {arg.dim})" + (f"*{arg.times}" if arg.times != 1 else "") + (f"+{arg.plus}" if arg.plus else "")
    return f"[{', '.join(map(_shown, arg))}]" if isinstance(arg, list) else str(arg)


def _refs(arg: Any):
    if isinstance(arg, Ref):
        yield arg.id
    elif isinstance(arg, SizeOf):
        yield arg.value
    elif isinstance(arg, list):
        for a in arg:
            yield from _refs(a)


@dataclasses.dataclass
class Program:
    number: int
    inputs: list[Input]
    body: list[Instruction]
    copies: list[tuple[int, int]]  # (input, value): written in this order, at the end
    outputs: list[int | None]
    hints: dict[Any, int] = dataclasses.field(default_factory=dict)  # symbols -> the sizes that it was drawn with
    numbers: list[Any] = dataclasses.field(default_factory=list)  # symbols that are inputs too

    def __str__(self) -> str:
        lines = [f"%{i.id} = input {i}" for i in self.inputs] + [str(i) for i in self.body]
        lines += [f"copy_(%{a}, %{b})" for a, b in self.copies]
        return "\n".join([*lines, f"return {', '.join('None' if k is None else f'%{k}' for k in self.outputs)}"])

    @property
    def arguments(self) -> list[Input]:
        return [i for i in self.inputs if i.kind not in ("literal", "constant")]

    def written(self) -> set[int]:
        return {a for a, _ in self.copies}


# ---- inputs ----------------------------------------------------------------------------------------------------------


def _size(expression: Any, values: dict[Any, int]) -> int:
    return expression if isinstance(expression, int) else int(expression.xreplace(values))


def make_inputs(program: Program, seed: int, values: dict[Any, int] | None = None, shift: int = 0) -> dict[int, torch.Tensor]:
    """`values`: of the symbols. `shift`: elements by which whatever lies in an input's memory lies further on."""
    values, made = program.hints if values is None else values, {}
    for i in program.inputs:
        fixed = i.kind in ("literal", "constant")
        numbers = _numbers(i, torch.Generator().manual_seed((program.number if fixed else seed) * 1000 + i.id), values)
        made[i.id] = _lay(i, numbers, made, 0 if fixed else shift)
    return made


def _numbers(i: Input, generator: torch.Generator, values: dict[Any, int]) -> torch.Tensor:
    shape = [_size(s, values) for s in i.shape]
    if i.high is not None:
        high = _size(i.high, values)
        if i.distinct is not None and shape:
            scores = torch.rand([max(high, s) if d == i.distinct else s for d, s in enumerate(shape)], generator=generator)
            return scores.argsort(i.distinct).narrow(i.distinct, 0, shape[i.distinct]).clone()
        return torch.randint(0, max(high, 1), shape, generator=generator)
    low = 0 if i.dtype in (torch.uint8, torch.bool) else -16
    numbers = torch.randint(low, 2 if i.dtype is torch.bool else 17, shape, generator=generator)
    if i.dtype in COMPLEX:
        return torch.complex(numbers / 8, torch.randint(-16, 17, shape, generator=generator) / 8).to(i.dtype)
    return numbers.to(i.dtype) if i.dtype not in FLOATS else (numbers / 8).to(i.dtype)


def _lay(i: Input, numbers: torch.Tensor, made: dict[int, torch.Tensor], shift: int) -> torch.Tensor:
    dims = numbers.dim()
    if i.kind in ("beside", "within"):
        base = made[i.base]
        if i.kind == "within":  # the same elements, in another shape
            return base.as_strided(numbers.shape, numbers.stride())
        count = base.numel()
        room = torch.cat([base.flatten(), numbers.flatten()])
        made[i.base] = room[:count].view(base.shape)
        return room[count:].view(numbers.shape)
    if i.kind == "transposed" and dims >= 2:
        return numbers.permute(*reversed(range(dims))).contiguous().permute(*reversed(range(dims)))
    if i.kind == "gaps" and dims:
        room = torch.zeros(*numbers.shape[:-1], 2 * numbers.shape[-1] + 1, dtype=numbers.dtype)
        return room[..., : 2 * numbers.shape[-1] : 2].copy_(numbers)
    if i.kind == "expanded" and dims and numbers.shape[0] > 1:
        return numbers[:1].clone().expand(numbers.shape)
    before = shift + (3 if i.kind == "offset" else 0)
    if before:
        return torch.cat([torch.ones(before, dtype=numbers.dtype), numbers.flatten()])[before:].view(numbers.shape)
    return numbers.clone()


_WIDER = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64, torch.complex64: torch.complex128}


def _widened(inputs: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """In float64: of the same values, each in memory of its own."""
    return {k: t.to(_WIDER.get(t.dtype, t.dtype)) if t.dtype in _WIDER else t.clone() for k, t in inputs.items()}


# ---- by ATen ---------------------------------------------------------------------------------------------------------


def _resolve(arg: Any, values: dict[int, torch.Tensor], wide: bool = False) -> Any:
    if isinstance(arg, Ref):
        return values[arg.id]
    if isinstance(arg, SizeOf):
        return arg.of(values[arg.value].shape)
    if isinstance(arg, list):
        return [_resolve(a, values, wide) for a in arg]
    if wide and isinstance(arg, torch.dtype):
        return _WIDER.get(arg, arg)
    return arg


def call(op: Operator, arguments: list[Any]) -> list[torch.Tensor]:
    """A whole list of arguments, keyword-only ones last."""
    plain = op.positional
    result = op.overload(*arguments[:plain], **dict(zip(op.keywords, arguments[plain:])))
    return list(result) if isinstance(result, (tuple, list)) else [result]


def run_by_aten(
    program: Program, inputs: dict[int, torch.Tensor], wide: bool = False, nodes: set[int] | None = None,
    spare: dict[int, torch.Tensor] | None = None,
) -> dict[int, torch.Tensor]:
    """`nodes`: of others it doesn't matter whether they can be run; their results are `spare` then."""
    values = dict(inputs)
    torch.set_default_dtype(torch.float64 if wide else torch.float32)  # what becomes of integers
    try:
        for instruction in program.body:
            if nodes is not None and not nodes & set(instruction.results):
                try:
                    results = call(instruction.op, _resolve(instruction.args, values, wide))
                except (IndexError, RuntimeError):
                    results = [spare[r] for r in instruction.results]
            else:
                results = call(instruction.op, _resolve(instruction.args, values, wide))
            values.update(zip(instruction.results, results, strict=True))
        for into, value in program.copies:
            values[into].copy_(values[value])
    finally:
        torch.set_default_dtype(torch.float32)
    return values


# ---- drawing ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Value:
    id: int
    tensor: torch.Tensor
    grain: Grain
    fake: Any = None


class Maker:
    """Draws a program and runs it as it grows, to know shapes and to leave out what ATen refuses."""

    def __init__(self, number: int, symbolic: bool = False):
        self.random, self.symbolic = random.Random(number), symbolic
        self.program = Program(number, [], [], [], [])
        self.values: dict[int, Value] = {}
        self.exact = False  # what is picked has to be
        self.next = 0
        self.symbols: list[Any] = []

    # What operators ask for.

    def pick(self, wanted: Callable[[torch.Tensor], bool] = lambda t: True) -> Value | None:
        found = [v for v in self.values.values() if (v.grain is not None or not self.exact) and wanted(v.tensor)]
        # The newer the likelier: chains, not fans.
        return found[max(self.random.randrange(len(found)) for _ in range(2))] if found else None

    def is_symbolic(self, value: Value, dim: int) -> bool:
        return value.fake is not None and isinstance(value.fake.shape[dim], torch.SymInt) and not value.fake.shape[dim].node.is_constant()

    def is_tight(self, t: torch.Tensor) -> bool:
        """Rows of one number: a norm of them is rounding alone."""
        return t.numel() > 0 and bool((t.double().var(-1, correction=0) < 0.05).any())

    def input(self, shape, dtype, **more) -> Value:
        value = Input(self._id(), tuple(map(self._expression, shape)), dtype, self.random.choice(("dense",) * 4 + ("offset", "transposed")), **more)
        return self._declare(value)

    def index(self, shape, high, distinct: int | None = None) -> Value:
        return self.input(shape, torch.int64, high=self._expression(high), distinct=distinct)

    # How it grows.

    def make(self, length: int) -> Program:
        program = self.program
        if self.symbolic:
            self._symbols()
        for _ in range(self.random.randint(1, 4)):
            self._declare(self._layout())
        tries = 0
        while len(program.body) < length and tries < 20 * length:
            tries += 1
            self._append(self.random.choice(OPERATORS))
        self._end()
        return program

    def _id(self) -> int:
        self.next += 1
        return self.next - 1

    def _expression(self, size: Any) -> Any:
        if isinstance(size, SizeOf):
            size = size.of(size.value.fake.shape if size.value.fake is not None else size.value.tensor.shape)
        if isinstance(size, torch.SymInt):
            return size.node.expr if size.node.expr.free_symbols else int(size.node.expr)
        return size

    def _symbols(self) -> None:
        from torch._dynamo.source import ConstantSource
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

        self.env = ShapeEnv(specialize_zero_one=False, duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self.env)
        for k, hint in enumerate(self.random.sample((6, 9, 11, 13), self.random.randint(1, 2))):
            source = ConstantSource(f"size{k}")
            symbol = self.env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
            self.program.hints[symbol] = hint
            self.symbols.append(self.env.create_symintnode(symbol, hint=hint, source=source))
        if self.random.random() < 0.4:
            self.program.numbers = [s.node.expr for s in self.symbols]

    def _layout(self) -> Input:
        shape = [self.random.choice(SIZES) for _ in range(self.random.choice((0, 1, 2, 2, 3, 3, 4)))]
        if not self.symbolic and self.random.random() < 0.02:
            shape = [self.random.choice((150, 300)), self.random.choice((160, 257))]
        if self.symbolic:
            sizes = [s.node.expr for s in self.symbols]
            shape = [self.random.choice(sizes) if self.random.random() < 0.6 else s for s in shape]
            if not any(not isinstance(s, int) for i in (*self.program.inputs, types.SimpleNamespace(shape=shape)) for s in i.shape):
                shape.insert(0, sizes[0])
        dtype = self.random.choice(FLOATS[:1] * 5 + ALL)
        kinds = ["dense"] * 4 + ["transposed", "gaps", "offset"] + ([] if self.symbolic else ["expanded", "literal", "constant"])
        kind = self.random.choice(kinds)
        dense = [i for i in self.program.inputs if i.kind == "dense" and i.dtype is dtype and not any(j.base == i.id for j in self.program.inputs)]
        if dense and not self.symbolic and self.random.random() < 0.5:
            base = self.random.choice(dense)
            if self.random.random() < 0.5:
                return Input(self._id(), (max(_count(base.shape), 1),) if _count(base.shape) else (0,), dtype, "within", base.id)
            return Input(self._id(), tuple(shape), dtype, "beside", base.id)
        if kind == "literal" and _count(shape) > 16:
            kind = "constant"
        return Input(self._id(), tuple(shape), dtype, kind)

    def _declare(self, i: Input) -> Value:
        if self.values and i.kind == "beside":  # its base moves
            self.program.inputs.append(i)
            made = make_inputs(self.program, self.program.number)
            for other in self.program.inputs:
                self.values[other.id] = Value(other.id, made[other.id], (3, 8.0))
            return self.values[i.id]
        self.program.inputs.append(i)
        made = {k: v.tensor for k, v in self.values.items()}
        hints = self.program.hints
        generator = torch.Generator().manual_seed(self.program.number * 1000 + i.id)
        tensor = _lay(i, _numbers(i, generator, hints), made, 0)
        grain = (0, 1.0) if i.dtype is torch.bool else (0, 16.0) if is_integer(tensor) else (3, 2.0)
        value = self.values[i.id] = Value(i.id, tensor, (0, 4096.0) if i.high is not None else grain)
        if self.symbolic:
            value.fake = self._fake(i, tensor)
        return value

    def _fake(self, i: Input, tensor: torch.Tensor) -> Any:
        from plugin.graph_fuzz_symbols import fake_input

        sizes = [s if isinstance(s, int) else self.env.create_symintnode(s, hint=_size(s, self.program.hints)) for s in i.shape]
        return fake_input(i, sizes, self.env, self.mode)

    def _append(self, op: Operator) -> None:
        program = self.program
        self.exact = op.exact
        held = len(program.inputs), self.next, dict(self.values)
        try:
            drawn = op.draw(self)
            instruction = drawn and self._instruction(op, drawn)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
            instruction = None
        if instruction is None:
            del program.inputs[held[0] :]
            self.next, self.values = held[1], held[2]
        else:
            program.body.append(instruction)

    def _instruction(self, op: Operator, drawn: list[Any]) -> Instruction | None:
        operands = list(_values(drawn))
        schema = op.overload._schema.arguments
        drawn = [*drawn, *(a.default_value for a in schema[len(drawn) :])]
        for k, a in enumerate(schema):
            if a.name == "dtype" and drawn[k] is None and (not operands or self.random.random() < 0.2):
                drawn[k] = self.random.choice(FLOATS + INTEGERS)
        args = _named(drawn)
        results = call(op, _resolve(args, {v.id: v.tensor for v in self.values.values()}))
        if not results or len(results) > 8 or not all(_is_tame(t) for t in results):
            return None
        grains = [None if k in op.undefined else self._grain(op, operands, drawn, t) for k, t in enumerate(results)]
        fakes: list[Any] = [None] * len(results)
        if self.symbolic:
            with self.mode:
                fakes = call(op, _resolve(args, {v.id: v.fake for v in self.values.values()}))
            if any(len(f.shape) != len(t.shape) for f, t in zip(fakes, results)):
                return None
        ids = [self._id() for _ in results]
        for k, (i, t) in enumerate(zip(ids, results)):
            if k not in op.undefined:
                self.values[i] = Value(i, t, grains[k], fakes[k])
        return Instruction(op, args, ids, grains)

    def _grain(self, op: Operator, operands: list[Value], drawn: list[Any], t: torch.Tensor) -> Grain:
        if not (t.is_floating_point() or t.is_complex()):
            if op.grain is None and any(v.grain is None for v in operands):
                return None
            known = op.grain(_grains(operands, None), operands[0].tensor if operands else None, drawn) if op.grain else (0, 2.0**63)
            return fitting(known or ((0, 2.0**63) if all(v.grain is not None for v in operands) else None), t.dtype)
        if op.grain is None:
            return None
        known = op.grain(_grains(operands, t.dtype), operands[0].tensor if operands else None, drawn)
        return fitting(known, t.dtype)

    def _end(self) -> None:
        program, choose = self.program, self.random
        shared = {i.base for i in program.inputs if i.kind == "within"}
        writable = [i for i in program.arguments if i.kind not in ("expanded", "within") and i.id not in shared and i.high is None]
        for i in choose.sample(writable, min(len(writable), choose.choice((0, 0, 0, 1, 1, 2)))):
            into = self.values[i.id]
            fits = lambda v: v.tensor.dtype == into.tensor.dtype and expands(v.tensor.shape, into.tensor.shape) and v.id != i.id
            found = [v for v in self.values.values() if fits(v) and not self._memory(v.tensor) & self._memory(into.tensor)]
            if found:
                program.copies.append((i.id, found[-1 - min(choose.randrange(3), len(found) - 1)].id))
        gone = set().union(*(self._memory(self.values[k].tensor) for k in program.written()), set())
        results = [r for i in program.body for r in i.results if r in self.values]
        fit = [k for k in results if not self._memory(self.values[k].tensor) & gone]
        inputs = [i.id for i in program.arguments]
        for _ in range(choose.choice((1, 1, 2, 3, 4))):
            kind = choose.random()
            if kind < 0.05 or not (inputs or fit):
                program.outputs.append(None)
            elif inputs and (kind < 0.15 or not fit):
                program.outputs.append(choose.choice(inputs))
            else:
                program.outputs.append(fit[max(choose.randrange(len(fit)) for _ in range(2))])

    @staticmethod
    def _memory(t: torch.Tensor) -> set[int]:
        return {t.untyped_storage().data_ptr()} if t.untyped_storage().nbytes() else set()


def _count(shape) -> int:
    count = 1
    for s in shape:
        count *= s
    return count


def _values(arg: Any):
    if isinstance(arg, Value):
        yield arg
    elif isinstance(arg, list):
        for a in arg:
            yield from _values(a)


def _named(arg: Any) -> Any:
    if isinstance(arg, Value):
        return Ref(arg.id)
    if isinstance(arg, SizeOf):
        return SizeOf(arg.value.id, arg.dim, arg.times, arg.plus) if isinstance(arg.value, Value) else arg
    return [_named(a) for a in arg] if isinstance(arg, list) else arg


def _grains(operands: list[Value], dtype: torch.dtype | None) -> list[Grain]:
    """In the type that is computed with, if that is known."""
    grains = [v.grain for v in operands]
    if dtype is None:
        return grains
    return [fitting(g, dtype) if g is not None else None for g in grains]


def _is_tame(t: torch.Tensor) -> bool:
    if t.layout != torch.strided or t.numel() > 200_000 or t.dtype not in ALL or t.dim() > 6 or t.is_conj() or t.is_neg():
        return False
    if t.is_floating_point() or t.is_complex():
        return bool(torch.isfinite(t).all()) and bool((t.abs() < 200).all())
    return True


def draw(number: int, symbolic: bool = False) -> tuple[Program, Maker]:
    maker = Maker(number, symbolic)
    return maker.make(maker.random.choice((2, 3, 4, 6, 8, 12))), maker


# ---- as a graph ------------------------------------------------------------------------------------------------------


class _Views:
    """Which outputs are views of what, as torch_tenon/output_views.py plans them."""

    def __init__(self, program: Program, values: dict[int, Any]):
        self.program, self.values = program, values
        self.made = {r: i for i in program.body for r in i.results}
        self.inputs = {i.id for i in program.arguments}
        self.direct: list[int | None] = []
        self.recipes: list[Any] = []
        returned = [k for k in program.outputs if k is not None]
        bases = {k: self.base(k) for k in returned}
        for k in program.outputs:
            if k is None:
                self.recipes.append(self._direct(None))
                continue
            base = bases[k]
            others = {o for o in returned if bases[o] == base}
            from_input = base in self.inputs and len(others | {base}) > 1
            several = base not in self.inputs and len(others) > 1
            if k == base or not (from_input or several):
                self.recipes.append(self._direct(k))
                continue
            if several:
                self._direct(base)
            self.recipes.append((base, k))

    def _direct(self, k: int | None) -> int:
        if k is None or k not in self.direct:
            self.direct.append(k)
            return len(self.direct) - 1
        return self.direct.index(k)

    def base(self, k: int) -> int:
        while k in self.made and self.is_view(k):
            k = self.made[k].refs()[0]
        return k

    def is_view(self, k: int) -> bool:
        instruction = self.made[k]
        returns = instruction.op.overload._schema.returns
        source = instruction.refs()
        return len(returns) == 1 and returns[0].alias_info is not None and self.values[k].dtype == self.values[source[0]].dtype

    def retyped(self, k: int) -> bool:
        """Memory of another type's is behind it."""
        while k in self.made and self.made[k].op.overload._schema.returns[0].alias_info is not None:
            if not self.is_view(k):
                return True
            k = self.made[k].refs()[0]
        return False


def build(program: Program, values: dict[int, Any]) -> tuple[Any, list[torch.Tensor], list[Any] | None, list[str]]:
    """A complete _C.Graph, its constants, its outputs' recipes and its symbols. `values`: tensors, or fake ones, by id."""
    from torch_tenon import _C
    from torch_tenon._torch_private import plain_tensor_types

    known: set[Any] = set()
    graph = _C.Graph(f"g{program.number}", plain_tensor_types(), lambda v: _symbolic(graph, v, known), lambda v: _meta(graph, v, known), True)
    constants, name = [], lambda k: f"v{k}"
    for symbol in program.numbers:
        carrier = next(v for v in values.values() if hasattr(v, "fake_mode"))
        graph.input(f"n{symbol}", carrier.fake_mode.shape_env.create_symintnode(symbol, hint=program.hints[symbol]))
    for i in program.inputs:
        value = values[i.id]
        if i.kind == "literal":
            graph.literal(name(i.id), value)
        elif i.kind == "constant":
            constants.append(value)
            graph.constant(name(i.id), value)
        else:
            graph.input(name(i.id), value)
    for instruction in program.body:
        args = _graph_args(instruction.args, values)
        results = [values[r] for r in instruction.results]
        graph.node(instruction.op.name, args, [name(r) for r in instruction.results], results, False, "", "")
    for k, (into, value) in enumerate(program.copies):
        graph.node("aten.copy_.default", [_C.Value(name(into)), _C.Value(name(value)), False], [f"w{k}"], [], True, "", "")
    views = _Views(program, values)
    direct = [None if k is None else _C.Value(name(k)) for k in views.direct]
    numbers: list[Any] = []
    recipes = None
    if views.recipes != list(range(len(direct))):
        recipes = [_recipe(r, views, program, values, direct, numbers) for r in views.recipes]
    graph.returns(direct + numbers)
    return graph, constants, recipes, sorted(map(str, known))


def _recipe(recipe: Any, views: _Views, program: Program, values: dict[int, Any], direct: list[Any], numbers: list[Any]) -> Any:
    if isinstance(recipe, int):
        return recipe
    from torch_tenon import _C, symbols

    def number(value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            text, used = symbols.to_text(value)
            if not used:
                return int(text)
            if text not in numbers:
                numbers.append(_C.Symbolic(text))
            return (len(direct) + numbers.index(text),)
        return int(value)

    base, k = recipe
    of_input = base in views.inputs
    before = len(program.numbers)
    index = before + [i.id for i in program.arguments].index(base) if of_input else views.direct.index(base)
    view, memory = values[k], values[base]
    return (of_input, index, tuple(map(number, view.shape)), tuple(map(number, view.stride())),
            number(view.storage_offset() - memory.storage_offset()))


def _graph_args(arg: Any, values: dict[int, Any]) -> Any:
    from torch_tenon import _C

    if isinstance(arg, Ref):
        return _C.Value(f"v{arg.id}")
    if isinstance(arg, SizeOf):
        return arg.of(values[arg.value].shape)
    if isinstance(arg, list):
        return [_graph_args(a, values) for a in arg]
    return arg


def _symbolic(graph: Any, value: Any, known: set[Any]) -> Any:
    from torch_tenon import _C, symbols
    from torch_tenon._torch_private import symbol_range

    if not isinstance(value, torch.SymInt):
        raise TypeError(f"{type(value).__name__} is no argument")
    text, used = symbols.to_text(value)
    for symbol in used:
        if symbol not in known:
            known.add(symbol)
            graph.symbol(str(symbol), *symbol_range(value, symbol))
    return _C.Symbolic(text) if used else int(text)


def _meta(graph: Any, value: Any, known: set[Any]) -> Any:
    size = lambda v: _plain(_symbolic(graph, v, known)) if isinstance(v, torch.SymInt) else v
    if isinstance(value, torch.SymInt):
        return "symint", size(value)
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{type(value).__name__} is no tensor")
    offset = value.storage_offset()
    return ("tensor", value.dtype, tuple(map(size, value.shape)), tuple(map(size, value.stride())),
            0 if isinstance(offset, torch.SymInt) else offset)


def _plain(size: Any) -> int | str:
    return size if isinstance(size, int) else str(size)


class Compiled:
    """The executable, with what runs it again by ATen for eager's errors."""

    def __init__(self, program: Program, values: dict[int, Any], values_of: Callable | None = None):
        from torch_tenon import _C
        from torch_tenon.compiler import Rerun
        from torch_tenon.export import Exported

        choose = random.Random(program.number)
        self.graph, constants, recipes, symbols = build(program, values)
        self.options = {"compile_threads": 1, "verify_passes": False, "cache": choose.random() < 0.7, "threads": choose.choice((1, 1, 2, 3))}
        if choose.random() < 0.1:
            self.options["excess_precision"] = False
        if choose.random() < 0.1:
            self.options["provider"] = "generated"
        self.executable = _C.compile(self.graph, {"name": f"g{program.number}", **self.options}, constants)
        self.tier, self.reason, *_ = self.executable.summary()
        if recipes is not None:
            self.executable.set_recipes(recipes)
        self.early = choose.random() < 0.3
        if self.early:
            self.executable.allow_early_release()
        self.given_up: list[str] = []
        record = types.SimpleNamespace(reason="", give_up=self.given_up.append)
        exported = Exported(f"g{program.number}", self.graph, constants, recipes=recipes, symbols=symbols)
        if not program.hints or values_of:
            self.executable.set_rerun(Rerun(exported, record, *([values_of] if values_of else [])), False, False)


# ---- judging ---------------------------------------------------------------------------------------------------------


def difference(program: Program, compiled_by: Callable = Compiled) -> str:
    """What tenon does otherwise than ATen; "": nothing. Raises what the compile raises."""
    if program.hints:
        from plugin import graph_fuzz_symbols

        return graph_fuzz_symbols.difference(program, compiled_by)
    values = run_by_aten(dataclasses.replace(program, copies=[]), make_inputs(program, program.number))
    compiled = compiled_by(program, values)
    if compiled.tier != "native" and not re.search(BY_ATEN, compiled.reason):
        return f"the graph is no native one: {compiled.reason}"
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    absolute = any("as_strided" in i.op.name for i in program.body)  # counts from where memory begins, so that is part of the graph
    for number, (seed, shift, alone) in enumerate(((0, 0, False), (1, 0, True), (2, 0 if absolute else 5, False), (0, 0, True))):
        what = one_call(program, compiled, program.number + seed, {}, shift, alone and not program.copies, kept)
        if what:
            return f"call {number}: {what}"
    what = failing_calls(program, compiled)
    if what:
        return what
    for was, now in kept:
        if not _same(was, now):
            return "an output of an earlier call has changed since"
    return f"gave up: {compiled.given_up[0]}" if compiled.given_up else ""


def one_call(program: Program, compiled: Any, seed: int, symbols: dict[Any, int], shift: int, alone: bool, kept: list) -> str:
    inputs = make_inputs(program, seed, symbols or None, shift)
    reference = make_inputs(program, seed, symbols or None, shift)
    wide = run_by_aten(program, _widened(reference), True)
    wanted = run_by_aten(program, reference)
    given = [inputs[i.id] for i in program.arguments]
    versions = [t._version for t in given]
    arguments = [*(symbols[s] for s in program.numbers), *given]
    if alone:
        inputs, held = {k: None for k in inputs}, given
        given = []
        arguments = [*(symbols[s] for s in program.numbers), *held]
        del held
    found = compiled.executable(arguments)
    given = given or [None] * len(program.arguments)
    what = _judge_outputs(program, found, wanted, wide, dict(zip([i.id for i in program.arguments], given)), compiled.tier != "native")
    if what:
        return what
    for i, t, before in zip(program.arguments, given, versions):
        if t is None:
            continue
        why = _unlike(t, wanted[i.id], wide[i.id], _grain_of(program, i.id))
        if why:
            return f"input %{i.id} afterwards: {why}"
        if t._version != before:  # who calls counts writes
            return f"input %{i.id}: its version went from {before} to {t._version}"
    outputs = [t for t in found if isinstance(t, torch.Tensor) and not any(t is g for g in given)]
    kept += [(t, t.clone()) for t in outputs if t.numel() < 10_000]
    return ""


def _grain_of(program: Program, k: int) -> Grain:
    """Of a value, and of what an input holds in the end."""
    grains = {i.id: (0, 1.0) for i in program.inputs}
    for i in program.body:
        grains.update(zip(i.results, i.grains))
    for into, value in program.copies:
        grains[into] = grains[value]
    return grains[k]


def _judge_outputs(program: Program, found: list, wanted: dict, wide: dict, given: dict[int, torch.Tensor | None], by_aten: bool) -> str:
    if len(found) < len(program.outputs):
        return f"{len(found)} outputs, wanted {len(program.outputs)}"
    for place, k in enumerate(program.outputs):
        t = found[place]
        if k is None or t is None:
            if k is not None or t is not None:
                return f"output {place} is {t}, wanted {'None' if k is None else 'a tensor'}"
            continue
        why = _unlike(t, wanted[k], wide[k], _grain_of(program, k))
        if why:
            return f"output {place} (%{k}): {why}"
        if k in given and given[k] is not None and t is not given[k]:
            return f"output {place} is not the input %{k} itself"
        if k not in given and t._base is None and t._version:
            return f"output {place} has version {t._version}"
    return _judge_memory(program, found, wanted, given, by_aten)


def _judge_memory(program: Program, found: list, wanted: dict, given: dict[int, torch.Tensor | None], by_aten: bool) -> str:
    """Who shares memory with whom."""
    views = _Views(program, wanted)
    owner: dict[int, Any] = {}
    for k, recipe in zip(program.outputs, views.recipes):
        if k is not None:
            owner[k] = recipe[0] if isinstance(recipe, tuple) else k
    constants = {i.id for i in program.inputs if i.kind in ("constant", "literal")}
    where = lambda t: t.untyped_storage().data_ptr()
    for a, k in enumerate(program.outputs):
        if k is None or not found[a].numel() or owner[k] in constants:
            continue
        for b, j in enumerate(program.outputs[:a]):
            if j is not None and found[b].numel() and owner[j] not in constants and k not in given and j not in given:
                if (where(found[a]) == where(found[b])) != (owner[k] == owner[j]):
                    return f"outputs {b} and {a}: {'do not ' if owner[k] == owner[j] else ''}share memory"
        for j, t in given.items():
            if t is None or not t.numel() or k in given:
                continue
            may = _related(program, owner[k], j) or (by_aten and where(wanted[k]) == where(wanted[j]))
            if (where(found[a]) == where(t)) and owner[k] != j and not may:
                return f"output {a} shares memory with input %{j}"
            if owner[k] == j and where(found[a]) != where(t):
                return f"output {a} is no view of input %{j}"
    return ""


def _related(program: Program, a: int, b: int) -> bool:
    """Inputs in one memory."""
    root = {i.id: i.base if i.base >= 0 else i.id for i in program.inputs}
    return a in root and b in root and root[a] == root[b]


def _unlike(found: torch.Tensor, wanted: torch.Tensor, wide: torch.Tensor, grain: Grain) -> str:
    if not isinstance(found, torch.Tensor):
        return f"is {type(found).__name__}"
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f"is {found.dtype} {list(found.shape)}, wanted {wanted.dtype} {list(wanted.shape)}"
    if found.numel() > 1:
        strides = lambda t: [stride for size, stride in zip(t.shape, t.stride()) if size > 1]
        if strides(found) != strides(wanted):
            return f"has strides {found.stride()}, wanted {wanted.stride()}"
    if _same(found, wanted):
        return ""
    if grain is not None or not (found.is_floating_point() or found.is_complex()):
        return f"differs, though it is exact: {_shown_difference(found, wanted)}"
    from torch_tenon.testing import compare

    reals = [torch.view_as_real(t) if t.is_complex() else t for t in (found.clone(), wanted.clone(), wide.clone())]
    reals[0] = _without_noise(reals[0], reals[1])
    if found.dtype in (torch.bfloat16, torch.float16):  # where eager had no error by luck, one rounding is none
        rounding = torch.finfo(found.dtype).eps * reals[1].double().abs()
        reals[0] = torch.where((reals[0].double() - reals[1].double()).abs() <= rounding, reals[1], reals[0])
    report = compare(*([t] for t in reals), vacuous_ok=True, check_strides=False)
    return "" if report.ok else f"{'; '.join(report.failures)[:300]}: {_shown_difference(found, wanted)}"


def _without_noise(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """What is nothing but rounding in both is the same."""
    little = 100 * torch.finfo(found.dtype).eps if found.dtype in (torch.float32, torch.float64) else 0.0
    return torch.where((found.abs() < little) & (wanted.abs() < little), wanted, found)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


def _shown_difference(found: torch.Tensor, wanted: torch.Tensor) -> str:
    differ = ~((found == wanted) | ((found != found) & (wanted != wanted)))
    return f"{int(differ.sum())} of {found.numel()} elements, {found[differ][:4].tolist()} for {wanted[differ][:4].tolist()}"


def failing_calls(program: Program, compiled: Any, symbols: dict[Any, int] | None = None) -> str:
    """With an index out of range ATen's error comes, and inputs stay as they were. Of what is returned or written: dead nodes aren't run."""
    needed = _needed(program, sizes=False)
    indices = [i for i in program.arguments if i.high is not None and _count([_size(s, symbols or program.hints) for s in i.shape]) > 0]
    if not indices:
        return ""
    choose = random.Random(program.number + 7)
    i = choose.choice(indices)
    wrong = choose.choice((_size(i.high, symbols or program.hints), _size(i.high, symbols or program.hints) + 1000, -1 - _size(i.high, symbols or program.hints)))

    def broken() -> dict[int, torch.Tensor]:
        inputs = make_inputs(program, program.number + 3, symbols)
        inputs[i.id].view(-1)[-1] = wrong if inputs[i.id].is_contiguous() else wrong
        return inputs

    try:
        inputs = make_inputs(program, program.number + 3, symbols)
        if not inputs[i.id].is_contiguous():
            return ""
        run_by_aten(program, broken(), nodes=needed, spare=run_by_aten(program, inputs))
        return ""  # its row is dead, or the operator takes any number
    except Exception as error:
        wanted = error
    inputs = broken()
    given = [inputs[k.id] for k in program.arguments]
    before = [t.clone() for t in given]
    try:
        compiled.executable([*((symbols or {})[s] for s in program.numbers), *given])
    except Exception as error:
        if type(error) is not type(wanted) or str(error).split("\n")[0] != str(wanted).split("\n")[0]:
            return f"an index of {wrong}: {type(error).__name__}: {error}, wanted {type(wanted).__name__}: {wanted}"
    else:
        return f"an index of {wrong} in %{i.id} raises nothing, wanted {type(wanted).__name__}: {wanted}"
    for k, t, old in zip(program.arguments, given, before):
        if not _same(t, old):
            return f"input %{k.id} was written though the call failed"
    return ""


def live(program: Program) -> Program:
    """Without the nodes that nothing returned or written hangs on."""
    needed = _needed(program)
    return dataclasses.replace(program, body=[i for i in program.body if set(i.results) & needed])


def _needed(program: Program, sizes: bool = True) -> set[int]:
    """`sizes`: what only a size is taken of, too."""
    needed = {k for k in program.outputs if k is not None} | {v for _, v in program.copies}
    for i in reversed(program.body):
        if needed & set(i.results):
            needed |= set(i.refs()) if sizes else _read(i)
    return needed


def _read(i: Instruction) -> set[int]:
    """Whose numbers it reads: not of what it makes something alike."""
    if re.search("_like|new_", i.op.name):
        return set()
    return {a.id for a in _flat(i.args[1:] if i.op.name == "aten.copy.default" else i.args) if isinstance(a, Ref)}


def _flat(arg: Any):
    if isinstance(arg, list):
        for a in arg:
            yield from _flat(a)
    else:
        yield arg


def difference_compiled(program: Program) -> str:
    """As a function through torch.compile; where gradients go back, these too."""
    arguments = [i for i in program.arguments]
    fixed = {i.id for i in program.inputs} - {i.id for i in arguments}
    constants = {k: t for k, t in make_inputs(program, program.number).items() if k in fixed}

    def function(given: list[torch.Tensor], wide: bool = False, fixed: dict[int, torch.Tensor] = constants) -> list[Any]:
        values = {**fixed, **dict(zip([i.id for i in arguments], given))}
        for instruction in program.body:
            values.update(zip(instruction.results, call(instruction.op, _resolve(instruction.args, values, wide))))
        for into, value in program.copies:
            values[into].copy_(values[value])
        return [None if k is None else values[k] for k in program.outputs]

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="tenon", dynamic=False, fullgraph=True)
    train = not program.copies and not any(i.base >= 0 for i in program.inputs)
    for number, seed in enumerate((0, 1)):
        runs = []
        for run, wide in ((compiled, False), (function, False), (function, True)):
            made = make_inputs(program, program.number + seed)
            made = _widened(made) if wide else made
            given = [made[i.id] for i in arguments]
            given = [t.detach().requires_grad_(train and t.is_floating_point()) for t in given]
            torch.set_default_dtype(torch.float64 if wide else torch.float32)
            try:
                outputs = run(given, wide, _widened(constants) if wide else constants)
            finally:
                torch.set_default_dtype(torch.float32)
            graded = [t for t in outputs if t is not None and t.requires_grad]
            if graded:
                sum((t.double() * torch.linspace(0.5, 1.5, t.numel(), dtype=torch.float64).view(t.shape)).sum() for t in graded).backward()
            runs.append(([None if t is None else t.detach() for t in outputs], given, [t.grad for t in given if t.requires_grad]))
        (found, held, gradients), (wanted, held_by_aten, by_aten), (wide, held_wide, wide_gradients) = runs
        for what, *three in (("output", found, wanted, wide), ("input", held, held_by_aten, held_wide), ("gradient", gradients, by_aten, wide_gradients)):
            for k, (a, b, c) in enumerate(zip(*three)):
                if (a is None) != (b is None):
                    return f"call {number}: {what} {k} is {a}, wanted {b}"
                grain = _grain_of(program, program.outputs[k]) if what == "output" and a is not None else None
                if a is not None and (why := _unlike(a.detach(), b.detach(), c.detach(), grain)):
                    return f"call {number}: {what} {k}: {why}"
    return ""


# ---- cutting ---------------------------------------------------------------------------------------------------------


def cut(program: Program, differs: Callable[[Program], bool]) -> Program:
    """Fewer nodes, outputs and writes that still differ."""
    best, progress = program, True
    while progress:
        progress = False
        for smaller in _smaller(best):
            try:
                run_by_aten(smaller, make_inputs(smaller, smaller.number))
            except Exception:
                continue
            if differs(smaller):
                best, progress = smaller, True
                break
    return best


def _smaller(program: Program):
    needed, without = _needed(program), live(program)
    if len(without.body) < len(program.body):
        yield without
    for k in range(len(program.outputs)):
        if len(program.outputs) > 1:
            yield dataclasses.replace(program, outputs=[*program.outputs[:k], *program.outputs[k + 1 :]])
    for k in range(len(program.copies)):
        yield dataclasses.replace(program, copies=[*program.copies[:k], *program.copies[k + 1 :]])
    try:
        values = run_by_aten(dataclasses.replace(program, copies=[]), make_inputs(program, program.number))
        symbolic = _shapes(program) if program.hints else {}
    except Exception:
        return
    for k in reversed(range(len(program.body))):
        removed = program.body[k]
        rest = [*program.body[:k], *program.body[k + 1 :]]
        # Its readers read an operand of the same kind, or an input of its own.
        for old in removed.refs():
            if len(removed.results) == 1 and (values[old].shape, values[old].dtype) == (values[removed.results[0]].shape, values[removed.results[0]].dtype):
                yield _renamed(dataclasses.replace(program, body=rest), {removed.results[0]: old})
        shapes = symbolic if program.hints else {r: tuple(values[r].shape) for r in removed.results}
        if all(r in shapes for r in removed.results):
            fresh = [Input(r, shapes[r], values[r].dtype) for r in removed.results if r in needed]
            yield dataclasses.replace(program, inputs=[*program.inputs, *fresh], body=rest)
    used = needed | set().union(*(set(i.refs()) for i in program.body), set()) | program.written() | {i.base for i in program.inputs}
    for i in program.inputs:
        if i.id not in used and len(program.arguments) > 1:
            yield dataclasses.replace(program, inputs=[j for j in program.inputs if j is not i])


def _shapes(program: Program) -> dict[int, tuple]:
    """Over the symbols."""
    from plugin.graph_fuzz_symbols import trace

    number = lambda s: s if isinstance(s, int) else s.node.expr if s.node.expr.free_symbols else int(s.node.expr)
    return {k: tuple(map(number, t.shape)) for k, t in trace(program).values.items()}


def _renamed(program: Program, names: dict[int, int]) -> Program:
    def renamed(arg: Any) -> Any:
        if isinstance(arg, Ref):
            return Ref(names.get(arg.id, arg.id))
        if isinstance(arg, SizeOf):
            return dataclasses.replace(arg, value=names.get(arg.value, arg.value))
        return [renamed(a) for a in arg] if isinstance(arg, list) else arg

    body = [dataclasses.replace(i, args=renamed(i.args)) for i in program.body]
    copies = [(a, names.get(b, b)) for a, b in program.copies]
    return dataclasses.replace(program, body=body, copies=copies, outputs=[names.get(k, k) if k is not None else None for k in program.outputs])


# ---- running ---------------------------------------------------------------------------------------------------------


def wrong(program: Program, compiled_by: Callable = Compiled, judge: Callable | None = None) -> str:
    try:
        return judge(program) if judge else difference(program, compiled_by)
    except Exception as error:  # ATen has run it
        return f"{type(error).__name__}: {error}"


def kind_of(what: str) -> str:
    """What is wrong, its numbers aside."""
    return re.sub(r"call \d+: |[%\d]+", "", what)[:24]


def run(
    seed: int, graphs: int, symbolic: bool = False, seconds: float = float("inf"), first: int = 0, every: int = 1,
    note: Callable[[int], None] = lambda number: None, tell: Callable[[str], None] = print, judge: Callable | None = None,
) -> tuple[int, list[str]]:
    """How many ran, and what was found."""
    found, began, count = [], time.monotonic(), 0
    for k in range(first, graphs, every):
        if time.monotonic() - began > seconds:
            break
        number = seed * 1_000_000 + k
        note(number)
        program, _ = draw(number, symbolic)
        count += 1
        what = wrong(program, judge=judge)
        if what:
            smaller = cut(program, lambda p: kind_of(wrong(p, judge=judge)) == kind_of(what))
            found.append(f"graph {number}: {what[:300]}\n{smaller}\n{wrong(smaller, judge=judge)[:1500]}")
            tell(found[-1] + "\n")
    return count, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--only", type=int, help="one graph again, by its number")
    parser.add_argument("--symbols", action="store_true", help="sizes are symbols")
    parser.add_argument("--compile", action="store_true", help="through torch.compile, gradients too")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--guard", choices=("1", "2"), help="memory beside tensors may not be touched: behind them, or before them")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--every", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.guard and os.environ.get("TENON_GUARD") != options.guard:
        os.environ["TENON_GUARD"] = options.guard
    if options.only is not None:
        import conftest  # noqa: F401  (guarded memory)

        program, _ = draw(options.only, options.symbols)
        print(program, wrong(program, judge=difference_compiled if options.compile else None) or "no difference", sep="\n")
        return
    if options.every:
        return _worker(options)
    sys.exit(_parent(options))


def _worker(options: argparse.Namespace) -> None:
    import conftest  # noqa: F401

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)  # of fake kernels that cannot
    tell = lambda text: print(text, file=sys.stderr, flush=True)
    note = lambda number: print(f"at {number}", flush=True)
    count, found = run(options.seed, options.graphs, options.symbols, options.seconds, options.first, options.every, note, tell,
                       difference_compiled if options.compile else None)  # fmt: skip
    print(f"done {count} {len(found)}", flush=True)


def _parent(options: argparse.Namespace) -> int:
    """Workers are processes, so that a crash costs one graph."""
    began, total, different = time.monotonic(), 0, 0
    left = {job: job for job in range(options.jobs)}
    running: dict[int, tuple[subprocess.Popen, Any]] = {}

    def start(job: int, first: int) -> None:
        seconds = options.seconds - (time.monotonic() - began)
        command = [sys.executable, "-m", "plugin.graph_fuzz", "--seed", str(options.seed), "--graphs", str(options.graphs), "--seconds",
                   str(seconds), "--first", str(first), "--every", str(options.jobs), *(["--symbols"] if options.symbols else []), *(["--compile"] if options.compile else [])]
        out = open(f"/tmp/graph_fuzz.{os.getpid()}.{job}", "w+")
        running[job] = subprocess.Popen(command, stdout=out), out
        left[job] = first

    for job in range(options.jobs):
        start(job, job)
    while running:
        time.sleep(0.2)
        for job, (process, out) in list(running.items()):
            if process.poll() is None:
                continue
            del running[job]
            out.seek(0)
            lines = out.read().split("\n")
            out.close()
            os.unlink(out.name)
            done = next((line.split() for line in lines if line.startswith("done ")), None)
            if done is not None:
                total, different = total + int(done[1]), different + int(done[2])
                continue
            at = [int(line.split()[1]) for line in lines if line.startswith("at ")]
            total, different = total + len(at), different + 1
            print(f"graph {at[-1] if at else '?'}: the process died, {process.returncode}\n", file=sys.stderr, flush=True)
            following = at[-1] - options.seed * 1_000_000 + options.jobs if at else options.graphs
            if following < options.graphs and time.monotonic() - began < options.seconds:
                start(job, following)
    took = time.monotonic() - began
    print(f"{total} graphs of seed {options.seed}, {different} differ, {total / took:.1f} a second")
    return int(different > 0)


if __name__ == "__main__":
    from plugin import graph_fuzz  # this file, as the other modules know it

    graph_fuzz.main()
