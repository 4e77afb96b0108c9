"""Random programs of ATen operators, by tenon and by eager: views, strides, memory that is shared, writes, all dtypes, empty and 0-d.

    python -m plugin.shell_fuzz --seed 1 --programs 500 [--train] [--seconds 60]      (from tests/)

A program is a list of instructions on a list of tensors, drawn from a seed; the same list runs in eager, in eager with float64 in the place
of floats, and through torch.compile, three calls each, the second with other numbers, the third with inputs that lie otherwise. Judged by
torch_tenon.testing.compare: outputs and what the inputs hold afterwards. Operators that jump (comparisons, sorts, casts to integers) take
exact values only: inputs are small multiples of 1/8, and what moves, compares and adds few of them stays exact. A program that differs is
cut to fewer instructions and printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import time
from typing import Any, Callable

import torch

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.bool)
SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 16, 17)


@dataclasses.dataclass
class Instruction:
    name: str
    operands: list[int]
    arguments: dict[str, Any]
    exact: bool  # its result is, for any dtype

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map('t{}'.format, self.operands))}{''.join(f', {k}={v}' for k, v in self.arguments.items())})"


@dataclasses.dataclass
class Layout:
    """How an input lies in its memory."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    kind: str  # "dense", "transposed", "gaps", "offset", "expanded", "shared"
    base: int = -1  # of "shared": the input whose memory it is in, behind that one's elements

    def make(self, numbers: torch.Tensor, bases: list[torch.Tensor]) -> torch.Tensor:
        count = numbers.numel()
        if self.kind == "transposed" and len(self.shape) >= 2:
            return numbers.flatten().reshape(self.shape[::-1]).contiguous().permute(*reversed(range(len(self.shape))))
        if self.kind == "gaps" and self.shape:
            room = torch.zeros(*self.shape[:-1], 2 * self.shape[-1] + 1, dtype=self.dtype)
            view = room[..., : 2 * self.shape[-1] : 2]
            return view.copy_(numbers)
        if self.kind == "offset":
            return torch.cat([torch.ones(3, dtype=self.dtype), numbers.flatten()])[3:].view(self.shape)
        if self.kind == "expanded" and self.shape and self.shape[0] > 1:
            return numbers[:1].clone().expand(self.shape)
        if self.kind == "shared":
            room = torch.cat([bases[self.base].flatten(), numbers.flatten()])
            bases[self.base] = room[: bases[self.base].numel()].view(bases[self.base].shape)
            return room[-count:].view(self.shape) if count else numbers
        return numbers.clone()


@dataclasses.dataclass
class Program:
    seed: int
    inputs: list[Layout]
    body: list[Instruction]
    outputs: list[int]

    def __call__(self, *inputs: torch.Tensor, checked: bool = False) -> list[torch.Tensor]:
        """checked: raises where one element of memory would be written several times."""
        values = list(inputs)
        for instruction in self.body:
            if checked and OPERATORS[instruction.name].writes and _repeats(values[instruction.operands[0]]):
                raise ValueError("writes an expanded tensor")
            values.append(OPERATORS[instruction.name].run(*(values[k] for k in instruction.operands), **instruction.arguments))
        return [values[k] for k in self.outputs]

    def __str__(self) -> str:
        lines = [f"t{k} = input {layout}" for k, layout in enumerate(self.inputs)]
        lines += [f"t{len(self.inputs) + k} = {instruction}" for k, instruction in enumerate(self.body)]
        return "\n".join([*lines, f"return {', '.join(f't{k}' for k in self.outputs)}"])

    def make_inputs(self, seed: int, double: bool = False, kinds: list[str] | None = None) -> list[torch.Tensor]:
        generator, made = torch.Generator().manual_seed(seed), []
        for k, layout in enumerate(self.inputs):
            low = 0 if layout.dtype in (torch.uint8, torch.bool) else -16
            numbers = torch.randint(low, 2 if layout.dtype is torch.bool else 17, layout.shape, generator=generator)
            numbers = numbers.to(layout.dtype) if layout.dtype in INTEGERS else (numbers / 8).to(layout.dtype)
            dtype = torch.float64 if double and layout.dtype in FLOATS else layout.dtype
            kind = layout.kind if kinds is None else kinds[k]
            made.append(Layout(layout.shape, dtype, kind, layout.base).make(numbers.to(dtype), made))
        return made


@dataclasses.dataclass
class Operator:
    run: Callable
    draw: Callable[["_Maker"], tuple[list[int], dict[str, Any]] | None]
    keeps_exact: bool = False  # of exact operands
    writes: bool = False  # its first operand


class _Maker:
    """Draws a program; runs it as it grows, to know shapes and to leave out what eager refuses."""

    def __init__(self, seed: int, length: int, train: bool):
        self.random, self.train = random.Random(seed), train
        self.seed, self.length = seed, length
        self.values: list[torch.Tensor] = []
        self.exact: list[bool] = []
        self.body: list[Instruction] = []

    def pick(self, wanted: Callable[[torch.Tensor], bool] = lambda t: True, exact: bool = False) -> int | None:
        found = [k for k, t in enumerate(self.values) if wanted(t) and (self.exact[k] or not exact)]
        # The newer the likelier: chains, not fans.
        return found[max(self.random.randrange(len(found)) for _ in range(2))] if found else None

    def make(self) -> Program:
        inputs: list[Layout] = []
        for _ in range(self.random.randint(1, 4)):
            inputs.append(self._layout(inputs))
        program = Program(self.seed, inputs, self.body, [])
        self.values = program.make_inputs(self.seed)
        self.exact = [True] * len(inputs)
        written: set[int] = set()
        while len(self.body) < self.length:
            self._append(inputs, written)
        count = self.random.randint(1, 4)
        candidates = range(len(self.values)) if self.random.random() < 0.2 else range(len(inputs), len(self.values))
        program.outputs = sorted(self.random.choices(list(candidates), k=count), key=lambda k: self.random.random())
        return program

    def _layout(self, others: list[Layout]) -> Layout:
        shape = tuple(self.random.choice(SIZES) for _ in range(self.random.randint(0, 3)))
        dtype = self.random.choice(FLOATS[:1] * 4 + FLOATS + (() if self.train else INTEGERS))
        kinds = ["dense"] * 3 + ["transposed", "gaps", "offset"] + ([] if self.train else ["expanded"])
        dense = [k for k, other in enumerate(others) if other.kind == "dense"]
        if dense and not self.train and self.random.random() < 0.2:
            base = self.random.choice(dense)
            return Layout(shape, others[base].dtype, "shared", base)
        return Layout(shape, dtype, self.random.choice(kinds))

    def _append(self, inputs: list[Layout], written: set[int]) -> None:
        name = self.random.choice(_NAMES_FOR_TRAINING if self.train else _NAMES)
        operator = OPERATORS[name]
        drawn = operator.draw(self)
        if drawn is None or any(k is None for k in drawn[0]):
            return
        operands, arguments = drawn
        if operator.writes and _repeats(self.values[operands[0]]):
            return
        snapshot = [t.clone() for t in self.values] if operator.writes else None
        try:
            result = operator.run(*(self.values[k] for k in operands), **arguments)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
            if snapshot is not None:
                for t, old in zip(self.values, snapshot):
                    if not torch.equal(t, old) and (0 not in t.stride() or t.numel() < 2):
                        t.copy_(old)
            return
        if not isinstance(result, torch.Tensor) or result.numel() > 4096 or not _is_tame(result):
            if snapshot is not None:
                for t, old in zip(self.values, snapshot):
                    if 0 not in t.stride() or t.numel() < 2:
                        t.copy_(old)
            return
        exact = operator.keeps_exact and all(self.exact[k] for k in operands)
        if operator.writes:
            storage = self.values[operands[0]].untyped_storage().data_ptr()
            for k, t in enumerate(self.values):
                self.exact[k] = self.exact[k] and (exact or t.untyped_storage().data_ptr() != storage)
        self.body.append(Instruction(name, operands, arguments, exact))
        self.values.append(result)
        self.exact.append(exact)


def _repeats(t: torch.Tensor) -> bool:
    """Some element of memory is several of the tensor's."""
    return any(stride == 0 and size > 1 for size, stride in zip(t.shape, t.stride()))


def _is_tame(t: torch.Tensor) -> bool:
    return not t.is_floating_point() or (bool(torch.isfinite(t).all()) and bool((t.abs() < 200).all()))


def _is_float(t: torch.Tensor) -> bool:
    return t.is_floating_point()


def _one(wanted=lambda t: True, exact=False, **choices):
    def draw(m: _Maker):
        k = m.pick(wanted, exact)
        return None if k is None else ([k], {name: choice(m, m.values[k]) for name, choice in choices.items()})

    return draw


def _two(wanted=lambda t: True, exact=False, **choices):
    def draw(m: _Maker):
        a = m.pick(wanted, exact)
        if a is None:
            return None
        shape = m.values[a].shape
        fits = lambda t: wanted(t) and _broadcasts(t.shape, shape)
        b = m.pick(fits, exact)
        return [a, b], {name: choice(m, m.values[a]) for name, choice in choices.items()}

    return draw


def _written(value_wanted=lambda t: True):
    """A tensor to write, one of its kind that fits into it."""
    def draw(m: _Maker):
        a = m.pick(lambda t: not (m.train and t.requires_grad))
        if a is None:
            return None
        into = m.values[a]
        fits = lambda t: t.dtype == into.dtype and value_wanted(t) and _expands(t.shape, into.shape)
        return [a, m.pick(fits)], {}

    return draw


def _broadcasts(a, b) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b)))


def _expands(a, b) -> bool:
    return len(a) <= len(b) and all(x in (1, y) for x, y in zip(reversed(a), reversed(b)))


_dim = lambda m, t: m.random.randrange(-t.dim(), t.dim()) if t.dim() else 0
_flag = lambda m, t: m.random.random() < 0.5
_place = lambda m, t: m.random.randrange(4)
_has_dims = lambda t: t.dim() > 0
_matrix = lambda t: t.dim() == 2 and _is_float(t)
_unary = lambda f, wanted=_is_float: Operator(f, _one(wanted))
_moves = lambda f, wanted=lambda t: True, **choices: Operator(f, _one(wanted, **choices), keeps_exact=True)
_jumps = lambda f, wanted=lambda t: True, **choices: Operator(f, _one(wanted, exact=True, **choices), keeps_exact=True)


def _draw_product(m: _Maker):
    a = m.pick(_matrix)
    if a is None:
        return None
    left = m.values[a]
    return [a, m.pick(lambda t: _matrix(t) and t.dtype == left.dtype and t.shape[0] == left.shape[1])], {}


def _draw_index(m: _Maker):
    a = m.pick(lambda t: _has_dims(t) and t.shape[0] > 0)
    if a is None:
        return None
    size = m.values[a].shape[0]
    return [a], {"index": [m.random.randrange(size) for _ in range(m.random.randint(0, 5))]}


def _draw_cat(m: _Maker):
    a = m.pick(_has_dims)
    if a is None:
        return None
    first = m.values[a]
    same = lambda t: t.dim() == first.dim() and t.dtype == first.dtype and t.shape[1:] == first.shape[1:]
    return [a, m.pick(same)], {}


def _add_to(a, b):
    return a.add_(b)


def _put(a, b, index=0):
    """Into a part of a."""
    a[index % max(a.shape[0], 1)].copy_(b)
    return a


def _draw_put(m: _Maker):
    a = m.pick(lambda t: _has_dims(t) and t.shape[0] > 0 and not (m.train and t.requires_grad))
    if a is None:
        return None
    into = m.values[a]
    return [a, m.pick(lambda t: t.dtype == into.dtype and _expands(t.shape, into.shape[1:]))], {"index": m.random.randrange(into.shape[0])}


def _fill(t: torch.Tensor, at: int) -> torch.Tensor:
    t.select(0, at % t.shape[0]).fill_(1)
    return t


OPERATORS: dict[str, Operator] = {
    "sin": _unary(torch.sin), "tanh": _unary(torch.tanh), "sigmoid": _unary(torch.sigmoid), "gelu": _unary(torch.nn.functional.gelu),
    "silu": _unary(torch.nn.functional.silu), "relu": Operator(torch.relu, _one(_is_float), keeps_exact=True),
    "exp_of_minus_square": _unary(lambda t: torch.exp(-t * t)), "sqrt_of_abs": _unary(lambda t: (t.abs() + 0.5).sqrt()),
    "neg": _moves(torch.neg, lambda t: t.dtype not in (torch.bool, torch.uint8)), "abs": _moves(torch.abs, lambda t: t.dtype != torch.bool),
    "add": Operator(torch.add, _two()), "sub": Operator(torch.sub, _two(lambda t: t.dtype != torch.bool)),
    "mul": Operator(torch.mul, _two()), "add_number": Operator(lambda t: t + 1, _one()),
    "mul_number": Operator(lambda t: t * 0.5, _one(_is_float)),
    "div": Operator(lambda a, b: a / (b.abs() + 1), _two()),
    "maximum": Operator(torch.maximum, _two(lambda t: t.dtype != torch.bool), keeps_exact=True),
    "less": Operator(torch.lt, _two(exact=True), keeps_exact=True), "equal": Operator(torch.eq, _two(exact=True), keeps_exact=True),
    "where": Operator(lambda a, b: torch.where(a != 0, a, b), _two(exact=True), keeps_exact=True),
    "to_float": _moves(lambda t: t.to(torch.float32)), "to_half": _moves(lambda t: t.to(_half)),
    "to_double": _moves(lambda t: t.to(torch.float64), lambda t: not _is_float(t)),
    "to_int": _jumps(lambda t: t.to(torch.int32)), "to_bool": _jumps(lambda t: t.to(torch.bool)),
    "sum": Operator(lambda t, dim, keep: t.sum(dim, keepdim=keep), _one(dim=_dim, keep=_flag)),
    "sum_all": Operator(torch.sum, _one()), "mean": Operator(lambda t, dim: t.mean(dim), _one(_is_float, dim=_dim)),
    "amax": Operator(lambda t, dim: t.amax(dim), _one(lambda t: t.dim() > 0 and t.numel() > 0, dim=_dim), keeps_exact=True),
    "argmax": _jumps(lambda t, dim: t.argmax(dim), lambda t: t.dim() > 0 and t.numel() > 0 and t.dtype != torch.bool, dim=_dim),
    "any": _jumps(lambda t, dim: (t != 0).any(dim), _has_dims, dim=_dim),
    "softmax": Operator(lambda t, dim: torch.softmax(t, dim), _one(_is_float, dim=_dim)),
    "layer_norm": Operator(lambda t: torch.nn.functional.layer_norm(t, t.shape[-1:]),
                           _one(lambda t: _is_float(t) and t.dim() > 0 and t.shape[-1] > 1)),
    "cumsum": Operator(lambda t, dim: t.cumsum(dim), _one(_has_dims, dim=_dim)),
    "sort": _jumps(lambda t, dim: torch.sort(t, dim, stable=True)[0], lambda t: t.dim() > 0 and t.dtype != torch.bool, dim=_dim),
    "argsort": _jumps(lambda t, dim: torch.argsort(t, dim, stable=True), lambda t: t.dim() > 0 and t.dtype != torch.bool, dim=_dim),
    "matmul": Operator(torch.matmul, _draw_product), "cat": Operator(lambda a, b: torch.cat([a, b]), _draw_cat, keeps_exact=True),
    "stack": Operator(lambda t: torch.stack([t, t], -1), _one(), keeps_exact=True),
    "index_select": Operator(lambda t, index: t[torch.tensor(index, dtype=torch.long)], _draw_index, keeps_exact=True),
    "flip": _moves(lambda t: t.flip(0), _has_dims), "roll": _moves(lambda t: t.roll(1, 0), _has_dims), "clone": _moves(torch.clone),
    "contiguous": _moves(lambda t: t.contiguous()), "pad": _moves(lambda t: torch.nn.functional.pad(t, (1, 2)), _has_dims),
    # Views.
    "transpose": _moves(lambda t: t.transpose(0, -1), _has_dims), "flatten": _moves(torch.flatten),
    "alias": _moves(lambda t: t.view(t.shape)),
    "unsqueeze": _moves(lambda t, dim: t.unsqueeze(dim), dim=_dim), "squeeze": _moves(torch.squeeze),
    "select": _moves(lambda t, at: t.select(0, at % t.shape[0]), lambda t: t.dim() > 0 and t.shape[0] > 0, at=_place),
    "slice": _moves(lambda t, at: t[at:], _has_dims, at=_place), "step": _moves(lambda t, at: t[..., ::2][..., at:], _has_dims, at=_place),
    "expand": _moves(lambda t: t.expand(3, *t.shape)), "diagonal": _moves(torch.diagonal, lambda t: t.dim() >= 2),
    "narrow": _moves(lambda t: t.narrow(-1, 0, max(t.shape[-1] - 1, 0)), _has_dims), "reshape": _moves(lambda t: t.reshape(-1, 1)),
    # Writes.
    "add_": Operator(_add_to, _written(), writes=True),
    "copy_": Operator(lambda a, b: a.copy_(b), _written(), keeps_exact=True, writes=True),
    "put_": Operator(_put, _draw_put, keeps_exact=True, writes=True),
    "neg_": Operator(torch.neg_, _one(lambda t: t.dtype not in (torch.bool, torch.uint8)), keeps_exact=True, writes=True),
    "relu_": Operator(torch.relu_, _one(_is_float), keeps_exact=True, writes=True),
    "zero_": Operator(torch.zero_, _one(), keeps_exact=True, writes=True),
    "fill_row_": Operator(_fill, _one(lambda t: t.dim() > 0 and t.shape[0] > 0, at=_place), keeps_exact=True, writes=True),
}  # fmt: skip


_half = torch.bfloat16  # float64 in the reference: it rounds nothing

_NAMES = sorted(OPERATORS)
_NAMES_FOR_TRAINING = [name for name in _NAMES if not OPERATORS[name].writes]


def draw(seed: int, length: int = 12, train: bool = False) -> Program:
    return _Maker(seed, length, train).make()


def difference(program: Program, backend: str, train: bool = False) -> str:
    """What tenon does otherwise than eager; "": nothing. Raises what the compiled program raises."""
    from torch_tenon.testing import compare

    torch._dynamo.reset()
    compiled = torch.compile(program.__call__, backend=backend, dynamic=False, fullgraph=True)
    kinds = [layout.kind for layout in program.inputs]
    for call, (seed, lie) in enumerate(((program.seed, kinds), (program.seed + 1, kinds), (program.seed, ["dense"] * len(kinds)))):
        runs, counted = [], []
        for run, double in ((compiled, False), (program, False), (program, True)):
            globals()["_half"] = torch.float64 if double else torch.bfloat16
            inputs = program.make_inputs(seed, double, lie)
            if train:
                inputs = [t.requires_grad_() if t.is_floating_point() and t.is_leaf else t for t in inputs]
            before = [t._version for t in inputs]
            outputs = [t for t in run(*inputs)]
            counted.append([t._version > old for t, old in zip(inputs, before) if t.numel()])
            gradients = []
            if train and any(t.requires_grad for t in outputs):
                sum(_weighted(t) for t in outputs if t.requires_grad).backward()
                gradients = [t.grad for t in inputs if t.is_leaf and t.grad is not None]
            runs.append([t.detach() for t in outputs] + [t.detach() for t in inputs] + gradients)
        if counted[0] != counted[1]:
            return f"call {call}: written, by the inputs' version counters: {counted[0]}, eager's: {counted[1]}"
        found, wanted, reference = runs
        reference = [r if r.is_floating_point() else None for r in reference]
        found = [_without_noise(f, w) for f, w in zip(found, wanted)]
        report = compare(found, wanted, reference, vacuous_ok=True, check_strides=False)
        if not report.ok:
            return f"call {call}: {report}"
        for k in range(len(program.outputs)):
            strides = lambda t: [stride for size, stride in zip(t.shape, t.stride()) if size > 1 and t.numel() > 1]
            if strides(found[k]) != strides(wanted[k]):
                return f"call {call}: output {k} has strides {found[k].stride()}, eager's has {wanted[k].stride()}"
    return ""


def _without_noise(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """What is nothing but rounding in both, as the mean of a layer norm, is the same."""
    if not found.is_floating_point() or (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
        return found
    little = 100 * torch.finfo(found.dtype).eps if found.dtype in (torch.float32, torch.float64) else 0.0
    both = (found.abs() < little) & (wanted.abs() < little)
    return torch.where(both, wanted, found).as_strided(found.shape, found.stride()) if bool(both.any()) and found.is_contiguous() else found


def _weighted(t: torch.Tensor) -> torch.Tensor:
    """Each element counts differently, so that no gradient vanishes for reasons of symmetry."""
    return (t.double() * torch.linspace(0.5, 1.5, t.numel(), dtype=torch.float64).view(t.shape)).sum()


def cut(program: Program, differs: Callable[[Program], bool]) -> Program:
    """Fewer instructions and outputs that still differ: each that nothing needs is left out."""
    best, progress = program, True
    while progress:
        progress = False
        for smaller in _smaller(best):
            if differs(smaller):
                best, progress = smaller, True
                break
    return best


def _smaller(program: Program):
    if len(program.outputs) > 1:
        for k in range(len(program.outputs)):
            yield dataclasses.replace(program, outputs=[*program.outputs[:k], *program.outputs[k + 1 :]])
    first = len(program.inputs)
    for k in reversed(range(len(program.body))):
        removed = program.body[k]
        stand_in = removed.operands[0]  # its readers read that
        place = lambda v: v if v < first + k else (stand_in if v == first + k else v - 1)
        body = [
            dataclasses.replace(i, operands=[place(v) for v in i.operands]) for index, i in enumerate(program.body) if index != k
        ]
        smaller = dataclasses.replace(program, body=body, outputs=[place(v) for v in program.outputs])
        try:
            smaller(*smaller.make_inputs(smaller.seed), checked=True)
        except Exception:
            continue
        yield smaller


def run(
    seed: int, programs: int, backend: str = "tenon", train: bool = False, seconds: float = float("inf"), tell=print
) -> tuple[int, list[str]]:
    """How many ran, and what was found."""
    found, began, count = [], time.monotonic(), 0
    for k in range(programs):
        if time.monotonic() - began > seconds:
            break
        program = draw(seed * 1_000_000 + k, length=random.Random(seed + k).choice((3, 6, 12, 20)), train=train)
        count += 1

        def wrong(p: Program) -> str:
            try:
                return difference(p, backend, train)
            except Exception as error:  # eager has run it
                return f"{type(error).__name__}: {error}"

        what = wrong(program)
        if what:
            smaller = cut(program, lambda p: bool(wrong(p)))
            found.append(f"program {program.seed}:\n{smaller}\n{wrong(smaller)[:1500]}")
            tell(found[-1])
    return count, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--backend", default="tenon")
    parser.add_argument("--train", action="store_true")
    options = parser.parse_args()
    count, found = run(options.seed, options.programs, options.backend, options.train, options.seconds)
    print(f"{count} programs, {len(found)} differ")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
