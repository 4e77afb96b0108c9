"""The operators that random graphs are made of (graph_fuzz.py): for each overload how its arguments are drawn, and what it does to
numbers that are exact.

A *grain* (q, m) says of a value that its elements are multiples of 2**-q not larger than m, so that whoever computes it right has it in
every bit; None: rounding counts. Operators that jump (comparisons, sorts, casts to integers) and those that are steep take exact operands
only.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable

import torch

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
COMPLEX = (torch.complex64,)
ALL = FLOATS + INTEGERS + COMPLEX

Grain = tuple[int, float] | None

_DIGITS = {torch.float32: 24, torch.float64: 53, torch.bfloat16: 8, torch.float16: 11, torch.complex64: 24, torch.complex128: 53}
_LARGEST = {torch.float16: 60000.0}


def fitting(grain: Grain, dtype: torch.dtype) -> Grain:
    """What is left of the grain in this dtype: integers wrap, floats round what has too many digits."""
    if dtype not in _DIGITS:
        if grain is None:
            return None
        bits = 1 if dtype is torch.bool else torch.iinfo(dtype).bits
        return 0, min(grain[1], 2.0**bits)
    if grain is None or grain[1] > _LARGEST.get(dtype, 2.0**100):
        return None
    return grain if grain[0] + math.log2(max(grain[1], 1)) <= _DIGITS[dtype] else None


@dataclasses.dataclass(frozen=True)
class SizeOf:
    """A number among arguments: a size of a value, times, plus."""

    value: Any  # the value's id (while it is drawn: the Value)
    dim: int
    times: int = 1
    plus: int = 0

    def of(self, shape) -> Any:
        return shape[self.dim] * self.times + self.plus


@dataclasses.dataclass
class Operator:
    name: str
    draw: Callable[[Any], list | None]
    grain: Callable[[list[Grain], Any, list], Grain] | None = None  # (of the operands, the first operand, arguments); None: inexact
    exact: bool = False  # takes exact operands only
    undefined: tuple[int, ...] = ()  # results that ATen leaves open (which of equal elements)

    def __post_init__(self):
        _, name, overload = self.name.split(".")
        self.overload = getattr(getattr(torch.ops.aten, name), overload)
        parameters = self.overload._schema.arguments
        self.positional = sum(not a.kwarg_only for a in parameters)
        self.keywords = [a.name for a in parameters[self.positional :]]


# ---- what is exact ---------------------------------------------------------------------------------------------------


def keeps(grains, *_):
    return None if None in grains else (max(g[0] for g in grains), max(g[1] for g in grains)) if grains else (3, 8.0)


def adds(grains, first, args):
    factor = 2 if any(a == 2 for a in args if isinstance(a, int)) else 1
    if None in grains:
        return None
    return max(max(g[0] for g in grains), 1), sum(g[1] for g in grains) * factor + (3 if len(grains) == 1 else 0)


def multiplies(grains, first, args):
    if None in grains:
        return None
    grains = grains + [(1, 3.0)] if len(grains) == 1 else grains
    return sum(g[0] for g in grains), math.prod(g[1] for g in grains)


def sums(grains, first, args):
    return None if None in grains else (grains[0][0], grains[0][1] * max(first.numel(), 1))


def products(grains, first, args):  # of matrices
    if None in grains:
        return None
    count = max(first.shape[-1] if first.dim() else 1, 1)
    return sum(g[0] for g in grains), math.prod(g[1] for g in grains) * count


def puts(grains, *_):
    """Up to four numbers to one place."""
    return None if None in grains else (max(g[0] for g in grains), grains[0][1] + 4 * grains[-1][1])


def small(grains, *_):
    """Zeros, ones, places."""
    return 0, 4096.0


# ---- drawing ---------------------------------------------------------------------------------------------------------


def is_float(t):
    return t.is_floating_point()


def is_number(t):
    return not t.is_complex() and t.dtype != torch.bool


def is_real(t):
    return not t.is_complex()


def is_integer(t):
    return not t.is_floating_point() and not t.is_complex()


def anything(t):
    return True


def has_dims(t):
    return t.dim() > 0


def both(*wanted):
    return lambda t: all(w(t) for w in wanted)


def of_rank(*ranks):
    return lambda t: t.dim() in ranks


def full(t):
    return t.dim() > 0 and t.numel() > 0


def apart(t):
    """Each element has its own place in memory."""
    reach = 0
    for stride, size in sorted((stride, size) for stride, size in zip(t.stride(), t.shape) if size > 1):
        if stride <= reach:
            return False
        reach += stride * (size - 1)
    return True


def dim_of(m, t):
    return m.random.randrange(-t.dim(), t.dim()) if t.dim() else 0


def flag(m, t):
    return m.random.random() < 0.5


def number(m, t):
    return m.random.choice((1, 2, 3, -1) if is_integer(t) else (1, 2, -1, 0.5, -1.5, 3))


def dims_of(m, t):
    count = m.random.randint(1, max(t.dim(), 1))
    return m.random.sample(range(-t.dim(), 0), min(count, t.dim()))


def one(wanted=anything, *more):
    def draw(m):
        a = m.pick(wanted)
        return None if a is None else [a, *(choice(m, a.tensor) if callable(choice) else choice for choice in more)]

    return draw


def two(wanted=anything, *more, same=False):
    def draw(m):
        a = m.pick(wanted)
        if a is None:
            return None
        b = m.pick(lambda t: wanted(t) and broadcasts(t.shape, a.tensor.shape) and (not same or t.dtype == a.tensor.dtype))
        if b is None:
            return None
        if m.random.random() < 0.5:
            a, b = b, a
        return [a, b, *(choice(m, a.tensor) if callable(choice) else choice for choice in more)]

    return draw


def broadcasts(a, b):
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b)))


def expands(a, b):
    return len(a) <= len(b) and all(x in (1, y) for x, y in zip(reversed(a), reversed(b)))


def _where(m):
    c = m.pick(lambda t: t.dtype == torch.bool)
    if c is None:
        return None
    fits = lambda t: broadcasts(t.shape, c.tensor.shape)
    a = m.pick(fits)
    b = a and m.pick(lambda t: fits(t) and t.dtype == a.tensor.dtype and broadcasts(t.shape, a.tensor.shape))
    return b and [c, a, b]


def _masked_fill(m):
    a = m.pick()
    mask = a and m.pick(lambda t: t.dtype == torch.bool and expands(t.shape, a.tensor.shape))
    return mask and [a, mask, 1 if is_integer(a.tensor) else 0.5]


def _clamp(m):
    a = m.pick(is_number)
    return a and [a, m.random.choice((None, 0, 1)), m.random.choice((None, 1, 2))]


def _ternary(wanted, *more):
    def draw(m):
        a = m.pick(wanted)
        fits = lambda t: wanted(t) and expands(t.shape, a.tensor.shape) and t.dtype == a.tensor.dtype
        b, c = a and m.pick(fits), a and m.pick(fits)
        return c and [a, b, c, *more]

    return draw


def _matrices(rank, count=2, bias=0):
    def draw(m):
        a = m.pick(lambda t: t.dim() == rank and (is_float(t) or t.dtype == torch.int64))
        if a is None:
            return None
        left = a.tensor
        if bias and left.dtype in (torch.bfloat16, torch.float16):
            return None  # rounded twice, where eager may be right by luck
        fits = lambda t: t.shape[-2] == left.shape[-1] and t.shape[:-2] == left.shape[:-2]
        b = m.pick(lambda t: t.dim() == rank and t.dtype == left.dtype and fits(t))
        if b is None:
            b = m.input((*left.shape[:-2], left.shape[-1], m.random.choice((1, 3, 5))), left.dtype)
        if not bias:
            return [a, b]
        shape = (*left.shape[:-1], b.tensor.shape[-1])
        c = m.pick(lambda t: t.dtype == left.dtype and (t.shape == shape if bias == 3 else expands(t.shape, shape)))
        c = c or m.input(shape[-1:] if bias == 2 else shape, left.dtype)
        return [c, a, b]

    return draw


def _vector(m):
    a = m.pick(lambda t: t.dim() == 2 and is_float(t))
    return a and [a, m.input(a.tensor.shape[1:], a.tensor.dtype)]


def _dot(m):
    a = m.pick(lambda t: t.dim() == 1 and is_float(t))
    return a and [a, m.pick(lambda t: t.shape == a.tensor.shape and t.dtype == a.tensor.dtype)]


def _convolution(m):
    a = m.pick(lambda t: t.dim() in (3, 4) and t.dtype in (torch.float32, torch.float64) and t.numel() > 0)
    if a is None:
        return None
    spatial, groups = a.tensor.dim() - 2, m.random.choice((1, 1, a.tensor.shape[1]))
    kernel = [m.random.choice((1, 2, 3)) for _ in range(spatial)]
    out = groups * m.random.randint(1, 3)
    weight = m.input((out, a.tensor.shape[1] // groups, *kernel), a.tensor.dtype)
    bias = m.input((out,), a.tensor.dtype) if flag(m, None) else None
    pad = [m.random.randint(0, 1)] * spatial
    return [a, weight, bias, [m.random.randint(1, 2)] * spatial, pad, [1] * spatial, False, [0] * spatial, groups]


def _pool(*more):
    def draw(m):
        a = m.pick(lambda t: t.dim() in (3, 4) and t.dtype in (torch.float32, torch.float64) and t.numel() > 0 and min(t.shape[-2:]) >= 2)
        return a and [a, [2, 2], [m.random.randint(1, 2)] * 2, [m.random.randint(0, 1)] * 2, *more]

    return draw


def _view(m):
    """Of dense memory: dims merged, split off, or as they are."""
    a = m.pick(lambda t: t.is_contiguous())
    if a is None:
        return None
    t, sizes = a.tensor, [SizeOf(a, d) for d in range(a.tensor.dim())]
    kind = m.random.randrange(4)
    if kind == 0 and t.dim() >= 2 and not m.symbolic:
        return [a, [t.numel()]]
    if kind == 1 and t.dim() >= 1:
        at = m.random.randint(0, t.dim())
        return [a, [*sizes[:at], 1, *sizes[at:]]]
    if kind == 2 and t.dim() >= 1 and t.shape[-1] % 2 == 0 and t.shape[-1] > 0 and not m.is_symbolic(a, -1):
        return [a, [*sizes[:-1], t.shape[-1] // 2, 2]]
    if kind == 3 and t.dim() >= 2:
        fixed = [d for d in range(t.dim() - 1) if not m.is_symbolic(a, d) or not m.is_symbolic(a, d + 1)]
        if fixed:
            d = m.random.choice(fixed)
            merged = (
                SizeOf(a, d, int(t.shape[d + 1])) if not m.is_symbolic(a, d + 1) else SizeOf(a, d + 1, int(t.shape[d]))
            )
            return [a, [*sizes[:d], merged, *sizes[d + 2 :]]]
    return [a, sizes]


def _expand(m):
    a = m.pick()
    if a is None:
        return None
    grows = lambda d, s: s == 1 and not m.is_symbolic(a, d) and flag(m, None)
    sizes = [m.random.choice((2, 3)) if grows(d, s) else SizeOf(a, d) for d, s in enumerate(a.tensor.shape)]
    if flag(m, None) and len(sizes) < 4:
        sizes = [m.random.choice((1, 2, 3)), *sizes]
    return [a, sizes]


def _permute(m):
    a = m.pick(lambda t: t.dim() >= 1)
    if a is None:
        return None
    order = list(range(a.tensor.dim()))
    m.random.shuffle(order)
    return [a, order]


def _slice(m):
    a = m.pick(has_dims)
    if a is None:
        return None
    start = m.random.randint(-3, 3)
    end = m.random.choice((2**63 - 1, m.random.randint(-3, 8)))
    return [a, dim_of(m, a.tensor), start, end, m.random.choice((1, 1, 2, 3))]


def _select(m):
    a = m.pick(full)
    if a is None:
        return None
    d = m.random.randrange(a.tensor.dim())
    if m.is_symbolic(a, d):
        return [a, d, m.random.choice((0, -1))]
    return [a, d, m.random.randrange(-a.tensor.shape[d], a.tensor.shape[d])]


def _as_strided(m):
    a = m.pick(lambda t: t.is_contiguous() and t.numel() >= 4 and t.storage_offset() == 0)
    if a is None or m.symbolic:
        return None
    room = a.tensor.numel()
    size = [m.random.randint(1, 3), m.random.randint(1, 3)]
    stride = [m.random.randint(0, 3), m.random.randint(1, 3)]
    reach = sum((s - 1) * k for s, k in zip(size, stride))
    return [a, size, stride, m.random.randint(0, room - 1 - reach)] if reach < room else None


def _split(m):
    a = m.pick(full)
    if a is None:
        return None
    d = m.random.randrange(a.tensor.dim())
    return None if m.is_symbolic(a, d) else [a, m.random.randint(1, max(a.tensor.shape[d], 1)), d]


def _unbind(m):
    a = m.pick(lambda t: t.dim() > 0 and 0 < min(t.shape, default=0) <= 5)
    if a is None:
        return None
    d = m.random.randrange(a.tensor.dim())
    return None if m.is_symbolic(a, d) or a.tensor.shape[d] > 5 else [a, d]


def _unfold(m):
    a = m.pick(full)
    if a is None:
        return None
    d = m.random.randrange(a.tensor.dim())
    return None if m.is_symbolic(a, d) else [a, d, m.random.randint(1, max(a.tensor.shape[d], 1)), m.random.randint(1, 3)]


def _diagonal(m):
    a = m.pick(lambda t: t.dim() >= 2)
    return a and [a, m.random.choice((0, 0, 1, -1)), 0, a.tensor.dim() - 1]


def _cat(m):
    a = m.pick(has_dims)
    if a is None:
        return None
    d = m.random.randrange(a.tensor.dim())
    rest = lambda t: [s for k, s in enumerate(t.shape) if k != d]
    same = lambda t: t.dim() == a.tensor.dim() and t.dtype == a.tensor.dtype and rest(t) == rest(a.tensor)
    return [[a, *(m.pick(same) for _ in range(m.random.randint(1, 3)))], d]


def _stack(m):
    a = m.pick()
    if a is None:
        return None
    return [[a, *(m.pick(lambda t: t.shape == a.tensor.shape and t.dtype == a.tensor.dtype) for _ in range(m.random.randint(1, 2)))],
            m.random.randint(0, a.tensor.dim())]


def _pad(m):
    a = m.pick(has_dims)
    return a and [a, [m.random.randint(0, 2) for _ in range(2 * m.random.randint(1, a.tensor.dim()))], number(m, a.tensor)]


def _repeat(m):
    a = m.pick(lambda t: t.dim() <= 2)
    return a and [a, [m.random.randint(0, 2) for _ in range(a.tensor.dim() + m.random.randint(0, 1))]]


def _index_select(m):
    a = m.pick(full)
    if a is None:
        return None
    d = m.random.randrange(a.tensor.dim())
    return [a, d, m.index((m.random.randint(0, 5),), SizeOf(a, d))]


def _gather(m):
    a = m.pick(full)
    if a is None:
        return None
    d = m.random.randrange(a.tensor.dim())
    shape = [m.random.randint(0, 5) if k == d else SizeOf(a, k) for k in range(a.tensor.dim())]
    return [a, d, m.index(shape, SizeOf(a, d)), False]


def _scatter(with_source):
    def draw(m):
        a = m.pick(full)
        if a is None:
            return None
        d = m.random.randrange(a.tensor.dim())
        shape = [m.random.randint(1, 3) if k == d else SizeOf(a, k) for k in range(a.tensor.dim())]
        index = m.index(shape, SizeOf(a, d), distinct=d)
        return [a, d, index, m.input(shape, a.tensor.dtype) if with_source else number(m, a.tensor)]

    return draw


def _index(m):
    a = m.pick(full)
    if a is None:
        return None
    shape = tuple(m.random.randint(1, 4) for _ in range(m.random.randint(1, 2)))
    count = m.random.randint(1, min(2, a.tensor.dim()))
    indices = [m.index(shape, SizeOf(a, k)) if flag(m, None) or k == count - 1 else None for k in range(count)]
    return [a, indices]


def _index_put(m):
    a = m.pick(full)
    if a is None:
        return None
    count = m.random.randint(1, 4)
    index = m.index((count,), SizeOf(a, 0), distinct=None if is_integer(a.tensor) else 0)
    shape = [count, *(SizeOf(a, k) for k in range(1, a.tensor.dim()))]
    return [a, [index], m.input(shape, a.tensor.dtype), a.tensor.dtype != torch.bool and flag(m, None)]


def _index_add(m):
    a = m.pick(both(full, is_number))
    if a is None:
        return None
    d = m.random.randrange(a.tensor.dim())
    count = m.random.randint(1, 4)
    shape = [count if k == d else SizeOf(a, k) for k in range(a.tensor.dim())]
    return [a, d, m.index((count,), SizeOf(a, d)), m.input(shape, a.tensor.dtype)]


def _fresh_pair(m):
    """Of new inputs, which have no -0: which zero a contraction gives is open."""
    a = m.pick(is_float)
    return a and [m.input([SizeOf(a, k) for k in range(a.tensor.dim())], a.tensor.dtype) for _ in range(2)]


def _take(m):
    a = m.pick(lambda t: t.numel() > 0)
    return [a, m.index((3,), int(a.tensor.numel()))] if a is not None and not m.symbolic else None


def _embedding(m):
    a = m.pick(lambda t: t.dim() == 2 and is_float(t) and t.shape[0] > 0)
    if a is None:
        return None
    shape = tuple(m.random.choice((0, 1, 2, 3, 5)) for _ in range(m.random.randint(0, 2)))
    return [a, m.index(shape, SizeOf(a, 0))]


def _slice_scatter(m):
    a = m.pick(lambda t: t.dim() > 0 and t.shape[0] >= 2 and apart(t))  # eager's copy of overlapping elements overlaps, and is written
    if a is None or m.is_symbolic(a, 0):
        return None
    start = m.random.randrange(a.tensor.shape[0])
    end = m.random.randint(start + 1, a.tensor.shape[0])
    shape = [end - start, *(SizeOf(a, k) for k in range(1, a.tensor.dim()))]
    return [a, m.input(shape, a.tensor.dtype), 0, start, end, 1]


def _select_scatter(m):
    a = m.pick(both(full, apart))
    return a and [a, m.input([SizeOf(a, k) for k in range(1, a.tensor.dim())], a.tensor.dtype), 0, 0]


def _like(m):
    a = m.pick()
    return a and [[SizeOf(a, k) for k in range(a.tensor.dim())]]


def _full(m):
    drawn = _like(m)
    return drawn and [drawn[0], m.random.choice((0, 1, 2, -0.5))]


def _arange(m):
    a = m.pick(has_dims)
    return a and [SizeOf(a, 0, m.random.choice((1, 1, 2)), m.random.randint(0, 2))]


def _eye(m):
    a = m.pick(has_dims)
    return a and [SizeOf(a, 0)]


def _layer_norm(m):
    a = m.pick(lambda t: is_float(t) and t.dim() > 0 and t.shape[-1] > 1 and not m.is_tight(t))
    if a is None or m.is_symbolic(a, -1):
        return None
    shape = [int(a.tensor.shape[-1])]
    weight, bias = (m.input(shape, a.tensor.dtype) if flag(m, None) else None for _ in range(2))
    return [a, shape, weight, bias, 1e-5]


def _convert(dtypes):
    def draw(m):
        a = m.pick(is_real)
        return a and [a, m.random.choice(dtypes)]

    return draw


def _like_other(wanted=anything):
    """Two of one shape and dtype."""
    def draw(m):
        a = m.pick(wanted)
        return a and [a, m.pick(lambda t: t.shape == a.tensor.shape and t.dtype == a.tensor.dtype)]

    return draw


_ROWS: list[Operator] = []


def _row(names: str, draw, grain=None, **more) -> None:
    for name in names.split():
        _ROWS.append(Operator(f"aten.{name}", draw, grain, **more))


_tame = is_float


def _not_tail(t) -> bool:
    """Of numbers below -2 alone, gelu and its derivative are what 1 and a number near 1 differ by: eager is as exact as it happens
    to be (its vectors at -3.625 40 times less than its loop over single elements)."""
    return is_float(t) and bool(t.numel() == 0 or (t > -2).any())


def _of_number_sizes(draw):
    """None of a value whose size may be another in a call."""
    return lambda m: d if (d := draw(m)) and not any(m.is_symbolic(d[0], k) for k in range(d[0].tensor.dim())) else None


_row("sin.default cos.default tanh.default sigmoid.default atan.default erf.default expm1.default asinh.default sinc.default "
     "deg2rad.default", one(is_real))
_row("gelu.default", one(_not_tail))
_row("silu.default mish.default softplus.default elu.default hardsigmoid.default hardswish.default", one(_tame))
_row("exp.default exp2.default sinh.default cosh.default log_sigmoid_forward.default", one(_tame))
_row("log.default log2.default log10.default log1p.default sqrt.default rsqrt.default reciprocal.default tan.default asin.default "
     "acos.default "
     "lgamma.default digamma.default erfinv.default", one(is_real), exact=True)
_row("relu.default neg.default abs.default", one(is_number), keeps)
_row("sign.default sgn.default ceil.default floor.default round.default trunc.default isnan.default isinf.default "
     "logical_not.default",
     one(both(is_number)), keeps, exact=True)
_row("signbit.default", one(is_integer), small, exact=True)
_row("frac.default", one(is_float), keeps, exact=True)
_row("bitwise_not.default", one(is_integer), lambda *_: (0, 2.0**62))
_row("hardtanh.default", one(_tame, -1, 1), lambda grains, *_: keeps(grains))
_row("leaky_relu.default", one(_tame, 0.5), multiplies)
_row("threshold.default", one(is_float, 0.5, 1), keeps, exact=True)
_row("square.default", one(is_number), lambda grains, *_: multiplies(grains * 2, None, None))
_row("add.Tensor sub.Tensor", two(lambda t: t.dtype != torch.bool), adds)
_row("rsub.Tensor", two(lambda t: t.dtype != torch.bool), adds)
_row("add.Tensor sub.Tensor", two(is_number, lambda m, t: 2), adds)
_row("mul.Tensor", two(), multiplies)
_row("add.Scalar sub.Scalar rsub.Scalar", one(is_number, number), adds)
_row("mul.Scalar", one(is_number, number), multiplies)
_row("div.Tensor", two(is_real), exact=True)
_row("div.Scalar", one(is_real, number))
_row("remainder.Tensor fmod.Tensor floor_divide.default", two(both(is_number, is_float)), exact=True)
_row("remainder.Scalar fmod.Scalar", one(is_number, lambda m, t: m.random.choice((1, 2, 3))), keeps, exact=True)
_row("pow.Tensor_Scalar", one(is_number, lambda m, t: m.random.choice((0, 1, 2, 3))))
_row("hypot.default", two(is_float, same=True), exact=True)
_row("atan2.default", _fresh_pair)
_row("maximum.default minimum.default fmax.default fmin.default", two(is_real), keeps)
_row("copysign.Tensor", _fresh_pair, keeps)
_row("bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor", two(is_integer), lambda *_: (0, 2.0**62))
_row("logical_and.default logical_or.default logical_xor.default", two(is_real), small, exact=True)
_row("eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor", two(is_real), small, exact=True)
_row("eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar", one(is_real, number), small, exact=True)
_row("where.self", _where, keeps)
_row("masked_fill.Scalar", _masked_fill, keeps)
_row("clamp.default", _clamp, lambda grains, *_: keeps([*grains, (1, 2.0)]))
_row("clamp_min.default clamp_max.default", one(is_number, 1), lambda grains, *_: keeps([*grains, (1, 2.0)]))
_row("addcmul.default", _ternary(is_float))
_row("lerp.Scalar", lambda m: (lambda d: d and [*d, 0.25])(_like_other(is_float)(m)))
_row("threshold_backward.default", lambda m: (lambda d: d and [*d, 0])(_like_other(is_float)(m)), keeps, exact=True)
_row("tanh_backward.default sigmoid_backward.default silu_backward.default mse_loss.default", _like_other(is_float))
_row("gelu_backward.default", lambda m: (lambda d: d if d and d[1] and _not_tail(d[1].tensor) else None)(_like_other(is_float)(m)))
# Reductions.
_row("sum.default", one(), sums)
_row("sum.dim_IntList", one(anything, dims_of, flag), sums)
_row("mean.default", one(is_float))
_row("mean.dim", one(is_float, dims_of, flag))
_few = lambda t: t.numel() <= 100  # more would overflow in one order and not in another
_row("prod.default", _of_number_sizes(one(both(is_number, _few))))
_row("prod.dim_int", _of_number_sizes(one(both(is_number, has_dims, _few), dim_of, flag)))
_row("any.default all.default", one(is_real), small, exact=True)
_row("any.dim all.dim", one(both(is_real, has_dims), dim_of, flag), small, exact=True)
_row("any.dims all.dims", one(both(is_real, has_dims), dims_of, flag), small, exact=True)
_row("amax.default amin.default", one(both(is_real, full), dims_of, flag), keeps)
_row("max.default min.default", one(both(is_real, full)), keeps)
_row("max.dim min.dim", one(both(is_real, full), dim_of, flag), lambda grains, *_: keeps([*grains, (0, 4096.0)]), exact=True)
_row("argmax.default argmin.default", one(both(is_number, full), dim_of, flag), small, exact=True)
_row("aminmax.default", lambda m: (lambda a: a and [a])(m.pick(both(is_number, full))), keeps)
_row("var.correction std.correction", one(both(is_float, lambda t: t.numel() > 3)), exact=True)
_row("var_mean.correction", one(both(is_float, full, lambda t: t.shape[-1] > 2), [-1]), exact=True)
_row("cumsum.default", one(both(is_real, has_dims), dim_of), sums)
_row("cumprod.default", one(both(is_float, has_dims), dim_of))
_row("cummax.default cummin.default", one(both(is_number, full), dim_of), lambda grains, *_: keeps([*grains, (0, 4096.0)]), exact=True)
_row("logsumexp.default", one(both(is_float, has_dims), dims_of, flag))
_row("linalg_vector_norm.default", one(is_float, 2))
_row("_softmax.default _log_softmax.default", one(both(is_float, has_dims), dim_of, False))
_row("native_layer_norm.default", _layer_norm, exact=True)
# Contractions, windows.
_row("mm.default", _matrices(2), products)
_row("bmm.default", _matrices(3), products)
_row("addmm.default", _matrices(2, bias=2))
_row("baddbmm.default", _matrices(3, bias=3))
_row("mv.default", _vector)
_row("dot.default", _dot)
_row("convolution.default", _convolution)
_row("max_pool2d_with_indices.default", _pool(), lambda grains, *_: keeps([*grains, (0, 4096.0)]), exact=True)
_row("avg_pool2d.default", _pool())
_row("_adaptive_avg_pool2d.default", one(both(is_float, full, of_rank(3, 4)), [2, 2]))
# Views.
_row("view.default", _view, keeps)
_row("unsqueeze.default", one(anything, lambda m, t: m.random.randint(0, t.dim())), keeps)
_row("squeeze.default", one(), keeps)
_row("squeeze.dim", one(has_dims, dim_of), keeps)
_row("alias.default detach.default", one(), keeps)
_row("permute.default", _permute, keeps)
_row("transpose.int", one(has_dims, dim_of, dim_of), keeps)
_row("t.default", one(of_rank(0, 1, 2)), keeps)
_row("expand.default", _expand, keeps)
_row("slice.Tensor", _slice, keeps)
_row("select.int", _select, keeps)
_row("as_strided.default", _as_strided, keeps)
_row("split.Tensor", _split, keeps)
_row("unbind.int", _unbind, keeps)
_row("unfold.default", _unfold, keeps)
_row("diagonal.default", _diagonal, keeps)
# Copies and moves.
_row("clone.default", one(), keeps)
_row("_to_copy.default", _convert(FLOATS), keeps)
_row("_to_copy.default", _convert(INTEGERS), keeps, exact=True)
_row("copy.default", two(is_real), keeps, exact=True)
_row("cat.default", _cat, keeps)
_row("stack.default", _stack, keeps)
_row("flip.default", one(has_dims, dims_of), keeps)
_row("roll.default", one(has_dims, [1], [0]), keeps)
_row("repeat.default", _repeat, keeps)
_row("constant_pad_nd.default", _pad, lambda grains, *_: keeps([*grains, (1, 3.0)]))
_row("tril.default triu.default", one(lambda t: t.dim() >= 2, lambda m, t: m.random.randint(-1, 1)), keeps)
_row("diag_embed.default", one(lambda t: 0 < t.dim() <= 2), keeps)
_row("slice_scatter.default", _slice_scatter, keeps)
_row("select_scatter.default", _select_scatter, keeps)
# By indices.
_row("index_select.default", _index_select, keeps)
_row("gather.default", _gather, keeps)
_row("index.Tensor", _index, keeps)
_row("embedding.default", _embedding, keeps)
_row("index_put.default", _index_put, puts)
_row("scatter.src", _scatter(True), keeps)
_row("scatter.value", _scatter(False), lambda grains, *_: keeps([*grains, (1, 3.0)]))
_row("scatter_add.default", _scatter(True), puts)
_row("index_add.default", _index_add, puts)
# In order.
_row("sort.stable", lambda m: (lambda a: a and [a, True, dim_of(m, a.tensor), flag(m, None)])(m.pick(both(is_number, has_dims))),
     lambda grains, *_: keeps([*grains, (0, 4096.0)]), exact=True)
_row("topk.default", one(both(is_number, full), 1, dim_of), keeps, exact=True, undefined=(1,))
# Eager's median of elements that share a place is wrong: it sorts them there.
_row("median.dim", one(both(is_number, full, apart), dim_of), keeps, exact=True, undefined=(1,))
_row("median.default", one(both(is_number, full)), keeps, exact=True)
# From nothing.
_row("full.default", _full, small)
_row("zeros.default ones.default", _like, small)
_row("zeros_like.default ones_like.default", one(), small)
_row("full_like.default", one(is_real, 2), small)
_row("arange.default", _arange, small)
_row("eye.default", _eye, small)
_row("new_zeros.default", lambda m: (lambda a: a and [a, [SizeOf(a, k) for k in range(a.tensor.dim())]])(m.pick()), small)
_row("scalar_tensor.default", lambda m: [m.random.choice((1, 2.5, True))], lambda *_: (1, 3.0))
# Complex.
_row("view_as_real.default", one(lambda t: torch.is_complex(t) and not t.is_conj()), keeps)
_row("real.default imag.default", one(torch.is_complex), keeps)
_row("_conj.default", one(torch.is_complex), keeps)
_row("_neg_view.default", one(lambda t: t.is_floating_point() or t.is_complex()), keeps)
_row("complex.default", _like_other(lambda t: t.dtype == torch.float32), keeps)
_row("abs.default", one(torch.is_complex), exact=True)


def _to_turn(m):
    """Where complex numbers were negated, it depends on strides whether eager has 0 or -0 of a 0 (its vectors take the difference from
    0, its loop over single elements the negative): a half turn to one side or the other."""
    negated = any(v.tensor.is_complex() and v.tensor.is_neg() for v in m.values.values())
    return None if negated else one(torch.is_complex)(m)


_row("angle.default", _to_turn, exact=True)
# The library's.
_is_square = lambda t: t.dim() == 2 and t.shape[0] == t.shape[1] and t.dtype == torch.float64
_row("_fft_r2c.default", one(lambda t: t.dtype == torch.float32 and full(t), lambda m, t: [t.dim() - 1], 0, True), exact=True)
_row("linalg_inv_ex.default", one(_is_square), exact=True)
_row("linalg_cholesky_ex.default", one(lambda t: _is_square(t) and t.shape[0] == 1), exact=True)
_points = _like_other(lambda t: t.dim() == 2 and t.dtype == torch.float64 and full(t))
_row("_cdist_forward.default", lambda m: (lambda d: d and [*d, 2.0, 2])(_points(m)), exact=True)
_row("trace.default", one(lambda t: t.dim() == 2), sums)
_row("take.default", _take, keeps)

OPERATORS: list[Operator] = _ROWS
OVERLOADS = sorted({row.name for row in _ROWS})
