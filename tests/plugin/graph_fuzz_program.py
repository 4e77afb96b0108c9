"""What a random graph is (graph_fuzz.py): inputs in memory, nodes, writes, outputs; and how ATen runs it, node by node."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Callable

import torch

from plugin.graph_fuzz_ops import COMPLEX, FLOATS, Grain, Operator, SizeOf


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
        return list(refs_in(self.args))

    def __str__(self) -> str:
        return f"{', '.join(f'%{r}' for r in self.results)} = {self.op.name.removeprefix('aten.')}({', '.join(map(_shown, self.args))})"


def _shown(arg: Any) -> str:
    if isinstance(arg, SizeOf):
        return f"size(%{arg.value}, {arg.dim})" + (f"*{arg.times}" if arg.times != 1 else "") + (f"+{arg.plus}" if arg.plus else "")
    return f"[{', '.join(map(_shown, arg))}]" if isinstance(arg, list) else str(arg)


def refs_in(arg: Any):
    if isinstance(arg, Ref):
        yield arg.id
    elif isinstance(arg, SizeOf):
        yield arg.value
    elif isinstance(arg, list):
        for a in arg:
            yield from refs_in(a)


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


def size_in(expression: Any, values: dict[Any, int]) -> int:
    return expression if isinstance(expression, int) else int(expression.xreplace(values))


def make_inputs(
    program: Program, seed: int, values: dict[Any, int] | None = None, shift: int = 0, beside: int = 0
) -> dict[int, torch.Tensor]:
    """`values`: of the symbols. `shift`: elements by which whatever lies in an input's memory lies further on. `beside`: 0, or which of
    the inputs close to these."""
    values, made = program.hints if values is None else values, {}
    for i in program.inputs:
        fixed = i.kind in ("literal", "constant")
        generator = torch.Generator().manual_seed((program.number if fixed else seed) * 1000 + i.id)
        numbers = numbers_for(i, generator, values)
        if beside and not fixed and (numbers.is_floating_point() or numbers.is_complex()):
            generator.manual_seed(generator.initial_seed() + beside)
            near = 1 + torch.rand(numbers.shape, generator=generator, dtype=torch.float64) * torch.finfo(numbers.dtype).eps ** 0.5
            numbers = (numbers * near).to(numbers.dtype)
        made[i.id] = lay(i, numbers, made, 0 if fixed else shift)
    return made


def numbers_for(i: Input, generator: torch.Generator, values: dict[Any, int]) -> torch.Tensor:
    shape = [size_in(s, values) for s in i.shape]
    if i.high is not None:
        high = size_in(i.high, values)
        if i.distinct is not None and shape:
            scores = torch.rand([max(high, s) if d == i.distinct else s for d, s in enumerate(shape)], generator=generator)
            return scores.argsort(i.distinct).narrow(i.distinct, 0, shape[i.distinct]).clone()
        return torch.randint(0, max(high, 1), shape, generator=generator)
    low = 0 if i.dtype in (torch.uint8, torch.bool) else -16
    numbers = torch.randint(low, 2 if i.dtype is torch.bool else 17, shape, generator=generator)
    if i.dtype in COMPLEX:
        return torch.complex(numbers / 8, torch.randint(-16, 17, shape, generator=generator) / 8).to(i.dtype)
    return numbers.to(i.dtype) if i.dtype not in FLOATS else (numbers / 8).to(i.dtype)


def lay(i: Input, numbers: torch.Tensor, made: dict[int, torch.Tensor], shift: int) -> torch.Tensor:
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


def widened(inputs: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """In float64: of the same values, each in memory of its own."""
    return {k: t.to(_WIDER.get(t.dtype, t.dtype)) if t.dtype in _WIDER else t.clone() for k, t in inputs.items()}


def resolve(arg: Any, values: dict[int, torch.Tensor], wide: bool = False) -> Any:
    if isinstance(arg, Ref):
        return values[arg.id]
    if isinstance(arg, SizeOf):
        return arg.of(values[arg.value].shape)
    if isinstance(arg, list):
        return [resolve(a, values, wide) for a in arg]
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
    spare: dict[int, torch.Tensor] | None = None, change: Callable[[int, torch.Tensor], torch.Tensor] = lambda k, result: result,
) -> dict[int, torch.Tensor]:
    """`nodes`: of others it doesn't matter whether they can be run; their results are `spare` then. `change`: what becomes of result k."""
    values = dict(inputs)
    torch.set_default_dtype(torch.float64 if wide else torch.float32)  # what becomes of integers
    try:
        for instruction in program.body:
            if nodes is not None and not nodes & set(instruction.results):
                try:
                    results = call(instruction.op, resolve(instruction.args, values, wide))
                except (IndexError, RuntimeError):
                    results = [spare[r] for r in instruction.results]
            else:
                results = call(instruction.op, resolve(instruction.args, values, wide))
            values.update((k, change(k, result)) for k, result in zip(instruction.results, results, strict=True))
        for into, value in program.copies:
            values[into].copy_(values[value])
    finally:
        torch.set_default_dtype(torch.float32)
    return values


def live(program: Program) -> Program:
    """Without the nodes that nothing returned or written hangs on."""
    needed = needed_by(program)
    return dataclasses.replace(program, body=[i for i in program.body if set(i.results) & needed])


def needed_by(program: Program, sizes: bool = True) -> set[int]:
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


def count_of(shape) -> int:
    count = 1
    for s in shape:
        count *= s
    return count
