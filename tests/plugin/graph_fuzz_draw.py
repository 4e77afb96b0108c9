"""Draws random graphs (graph_fuzz.py) and runs them as they grow, to know shapes and to leave out what ATen refuses."""

from __future__ import annotations

import dataclasses
import random
import types
from typing import Any, Callable

import torch

from plugin.graph_fuzz_ops import ALL, FLOATS, INTEGERS, OPERATORS, Grain, Operator, SizeOf, expands, fitting, is_integer
from plugin.graph_fuzz_program import Input, Instruction, Program, Ref, call, count_of, lay, make_inputs, numbers_for, resolve, size_in


SIZES = (0, 1, 1, 2, 2, 3, 4, 5, 7, 8, 16, 17)


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
        kind = self.random.choice(("dense",) * 4 + ("offset", "transposed"))
        return self._declare(Input(self._id(), tuple(map(self._expression, shape)), dtype, kind, **more))

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
        bases = {j.base for j in self.program.inputs}
        dense = [i for i in self.program.inputs if i.kind == "dense" and i.dtype is dtype and i.id not in bases]
        if dense and not self.symbolic and self.random.random() < 0.5:
            base = self.random.choice(dense)
            if self.random.random() < 0.5:
                return Input(self._id(), (max(count_of(base.shape), 1),) if count_of(base.shape) else (0,), dtype, "within", base.id)
            return Input(self._id(), tuple(shape), dtype, "beside", base.id)
        if kind == "literal" and count_of(shape) > 16:
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
        tensor = lay(i, numbers_for(i, generator, hints), made, 0)
        grain = (0, 1.0) if i.dtype is torch.bool else (0, 16.0) if is_integer(tensor) else (3, 2.0)
        value = self.values[i.id] = Value(i.id, tensor, (0, 4096.0) if i.high is not None else grain)
        if self.symbolic:
            value.fake = self._fake(i, tensor)
        return value

    def _fake(self, i: Input, tensor: torch.Tensor) -> Any:
        from plugin.graph_fuzz_symbols import fake_input

        sizes = [s if isinstance(s, int) else self.env.create_symintnode(s, hint=size_in(s, self.program.hints)) for s in i.shape]
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
        results = call(op, resolve(args, {v.id: v.tensor for v in self.values.values()}))
        if not results or len(results) > 8 or not all(_is_tame(t) for t in results):
            return None
        rounds = any(v.grain is None and v.tensor.is_floating_point() for v in operands)
        if rounds and not op.exact and not all(t.is_floating_point() or t.is_complex() for t in results):
            return None  # what is no number is no integer either
        grains = [None if k in op.undefined else self._grain(op, operands, drawn, t) for k, t in enumerate(results)]
        fakes: list[Any] = [None] * len(results)
        if self.symbolic:
            with self.mode:
                fakes = call(op, resolve(args, {v.id: v.fake for v in self.values.values()}))
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
    if t.layout != torch.strided or t.numel() > 200_000 or t.dtype not in ALL or t.dim() > 6:
        return False
    if t.is_floating_point() or t.is_complex():
        return bool(torch.isfinite(t).all()) and bool((t.abs() < 200).all())
    return True


def draw(number: int, symbolic: bool = False) -> tuple[Program, Maker]:
    maker = Maker(number, symbolic)
    return maker.make(maker.random.choice((2, 3, 4, 6, 8, 12))), maker
