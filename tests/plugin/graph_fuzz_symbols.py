"""Random graphs whose sizes are symbols (graph_fuzz.py): one executable, called at many sizes, and with inputs that its guards must refuse.

Fake tensors run the nodes with symbolic sizes, as a tracer would; what they had to take for granted on the way (a size that isn't 1, two
that are equal) says which calls the graph is good for. Of the others nothing is asked.
"""

from __future__ import annotations

import dataclasses
import random
import re
from typing import Any, Callable

import sympy
import torch

from plugin import graph_fuzz_judge
from plugin.graph_fuzz_program import Program, call, count_of, lay, make_inputs, numbers_for, resolve, run_by_aten, size_in

SIZES = (0, 1, 2, 7, 64, 1000)
_ELEMENTS = 300_000  # of a value, at most
_MOST_ELEMENTS = 1 << 23  # of anything that is computed


@dataclasses.dataclass
class Trace:
    values: dict[int, Any]  # fake tensors
    env: Any

    def holds(self, values: dict[Any, int]) -> bool:
        """Whether the trace is good for these sizes."""
        for guard in self.env.guards:
            try:
                truth = guard.expr.xreplace(values)
            except ZeroDivisionError:
                return False
            if truth not in (sympy.true, True):
                return False
        if self.out_of_range(values, [str(s) for s in values]):
            return False
        return not any(s in self.env.replacements and self.env.replacements[s].xreplace(values) != v for s, v in values.items())

    def out_of_range(self, values: dict[Any, int], symbols: list[str]) -> bool:
        for symbol, value in values.items():
            known = self.env.var_to_range.get(symbol)
            if str(symbol) in symbols and known is not None and not (known.lower <= value and value <= known.upper):
                return True
        return False


def trace(program: Program) -> Trace:
    """Raises what the fake kernels raise."""
    from torch._dynamo.source import ConstantSource
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

    env = ShapeEnv(specialize_zero_one=False, duck_shape=False)
    mode, sizes = FakeTensorMode(shape_env=env), {}
    for k, (symbol, hint) in enumerate(program.hints.items()):
        source = ConstantSource(f"size{k}")
        made = env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
        assert made == symbol, (made, symbol)
        sizes[symbol] = env.create_symintnode(made, hint=hint, source=source)
    values: dict[int, Any] = {}
    for i in program.inputs:
        shape = [s if isinstance(s, int) else env.create_symintnode(s, hint=size_in(s, program.hints)) for s in i.shape]
        values[i.id] = fake_input(i, shape, env, mode)
    with mode:
        for instruction in program.body:
            results = call(instruction.op, resolve(instruction.args, values))
            values.update(zip(instruction.results, results, strict=True))
        for into, value in program.copies:
            values[into].copy_(values[value])
    return Trace(values, env)


def fake_input(i: Any, sizes: list[Any], env: Any, mode: Any) -> Any:
    """In the strides that lay gives it."""
    order = range(len(sizes)) if i.kind == "transposed" else reversed(range(len(sizes)))
    strides, step = [1] * len(sizes), 1
    with env.suppress_guards(), mode:
        for position, d in enumerate(order):
            strides[d] = step
            step = step * (sizes[d] if isinstance(sizes[d], torch.SymInt) else max(sizes[d], 1))
            if i.kind == "gaps" and position == 0:
                strides[d], step = 2, 2 * sizes[d] + 1
        return torch.empty_strided(sizes, strides, dtype=i.dtype)


def difference(program: Program, compiled_by: Callable) -> str:
    try:
        traced = trace(program)
    except RuntimeError:  # a fake kernel that takes no symbols
        return ""
    values_of = lambda inputs: read(program, inputs)
    try:
        compiled = compiled_by(program, traced.values, values_of)
    except RuntimeError as error:
        # Programs of the very sizes take the graph. Two sizes that the tracer found equal without one being the other's name are not
        # known to be so to libtenon.
        if re.search(graph_fuzz_judge.BY_ATEN, str(error)) or any(isinstance(g.expr, sympy.Eq) for g in traced.env.guards):
            return ""
        raise
    if compiled.tier != "native":
        return "" if re.search(graph_fuzz_judge.BY_ATEN, compiled.reason) else f"the graph is no native one: {compiled.reason}"
    choose, kept = random.Random(program.number), []
    refused: list[int] = []

    def refuse(inputs: list, why: str) -> list:
        refused.append(1)
        return [None] * len(program.outputs)

    compiled.executable.set_refused(refuse)
    calls = [dict(program.hints)]
    calls += [{s: n if len(program.hints) == 1 else choose.choice((n, choose.choice(SIZES))) for s in program.hints} for n in SIZES]
    ran = 0
    for number, values in enumerate(calls):
        if not fits(program, traced, values):
            continue
        if traced.out_of_range(values, compiled.symbols):
            inputs = make_inputs(program, program.number, values)
            compiled.executable([*(values[s] for s in program.numbers), *(inputs[i.id] for i in program.arguments)])
            if not refused:
                return f"sizes {values}: taken, though out of range"
            del refused[:]
            continue
        if not traced.holds(values):
            continue
        try:
            wanted = run_by_aten(program, make_inputs(program, program.number + number, values))
        except Exception:
            continue  # the same for any sizes is no law of ATen's
        if not as_traced(program, traced, wanted, values):
            continue
        ran += 1
        alone = number % 2 == 1 and not program.copies
        what = graph_fuzz_judge.one_call(program, compiled, program.number + number, values, 0, alone, kept)
        if refused:
            what = "refused, though the trace is good for it"
        if what:
            return f"sizes {values}: {what}"
    for was, now in kept:
        if not graph_fuzz_judge.same(was, now):
            return "an output of an earlier call has changed since"
    if compiled.tier == "native":
        what = guards(program, traced, compiled, refused)
        if what:
            return what
    what = graph_fuzz_judge.failing_calls(program, compiled, dict(program.hints))
    return what or (f"gave up: {compiled.given_up[0]}" if compiled.given_up else "")


def fits(program: Program, traced: Trace, values: dict[Any, int]) -> bool:
    """All inputs have such sizes, and nothing is so large that the run takes long, or all memory (diag_embed twice)."""
    if any(size_in(s, values) < 0 for i in program.inputs for s in i.shape):
        return False
    number = lambda s: int(s.node.expr.xreplace(values)) if isinstance(s, torch.SymInt) else s
    if any(count_of([number(s) for s in v.shape]) > _MOST_ELEMENTS for v in traced.values.values() if isinstance(v, torch.Tensor)):
        return False
    return all(count_of(_memory_of(i, values)) <= _ELEMENTS for i in program.inputs) and \
        max(values.values()) ** min(2, len([s for i in program.inputs for s in i.shape if not isinstance(s, int)])) <= 2_000_000


def _memory_of(i: Any, values: dict[Any, int]) -> list[int]:
    """Of what the input lies in: between gaps even nothing takes memory."""
    sizes = [size_in(s, values) for s in i.shape]
    return [*sizes[:-1], 2 * sizes[-1] + 1] if i.kind == "gaps" and sizes else sizes


def as_traced(program: Program, traced: Trace, wanted: dict[int, torch.Tensor], values: dict[Any, int]) -> bool:
    """ATen's sizes and strides are what the trace said; it isn't good for the call otherwise (an order of strides, say)."""
    number = lambda s: int(s.node.expr.xreplace(values)) if isinstance(s, torch.SymInt) else s
    for k, t in wanted.items():
        fake = traced.values[k]
        if [number(s) for s in fake.shape] != list(t.shape):
            return False
        if any(number(a) != b for a, b, size in zip(fake.stride(), t.stride(), t.shape) if size > 1) and t.numel() > 0:
            return False
    return True


def read(program: Program, inputs: list) -> dict[str, int]:
    """What the symbols are in a call."""
    found = {str(s): int(n) for s, n in zip(program.numbers, inputs)}
    for i, t in zip(program.arguments, inputs[len(program.numbers) :]):
        for size, s in zip(t.shape, i.shape):
            if not isinstance(s, int) and s.is_Symbol:
                found[str(s)] = size
    return found


def guards(program: Program, traced: Trace, compiled: Any, refused: list) -> str:
    """Inputs that the graph isn't for: one more or less in one size of one input. Refused before anything is read or written, or, where
    no node cares, right."""
    choose = random.Random(program.number + 11)
    for attempt in range(3):
        i = choose.choice(program.arguments)
        if not i.shape:
            continue
        dim, by = choose.randrange(len(i.shape)), choose.choice((-1, 1, 3))
        inputs = make_inputs(program, program.number)
        t = inputs[i.id]
        if t.shape[dim] + by < 0:
            continue
        shape = [s + by if d == dim else s for d, s in enumerate(t.shape)]
        other = dataclasses.replace(i, shape=tuple(shape))
        numbers = numbers_for(other, torch.Generator().manual_seed(1), program.hints)
        inputs[i.id] = lay(other, numbers, inputs, 0)
        given = [inputs[k.id] for k in program.arguments]
        before = [t.clone() for t in given]
        arguments = [*(program.hints[s] for s in program.numbers), *given]
        if consistent(program, given):
            continue
        del refused[:]
        compiled.executable(arguments)
        if not refused:
            return f"input %{i.id} of {list(shape)} is taken, though its sizes contradict the others'"
        del refused[:]
        if not all(torch.equal(a, b) or graph_fuzz_judge.same(a, b) for a, b in zip(given, before)):
            return "a refused call has written"
    return ""


def consistent(program: Program, given: list[torch.Tensor]) -> bool:
    """Whether some sizes of the symbols make these inputs."""
    values = {s: program.hints[s] for s in program.numbers}
    for i, t in zip(program.arguments, given):
        for size, s in zip(t.shape, i.shape):
            if not isinstance(s, int) and s.is_Symbol and values.setdefault(s, size) != size:
                return False
    for i, t in zip(program.arguments, given):
        for size, s in zip(t.shape, i.shape):
            if size_in(s, {**program.hints, **values}) != size:
                return False
    return True
