"""Sizes that the tracer found equal are one size to the compiler (docs/architecture/sizes.md, equal sizes)."""

import pytest
import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod

from torch_tenon import symbols

pytestmark = pytest.mark.usefixtures("tenon")


def rotate(x, c, s):
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)


def patches(x, positions):
    return (x.reshape(x.shape[0], -1, 4) + positions).softmax(1)


def halves(x, y):
    a, b = x[: x.shape[0] // 2], x[x.shape[0] // 2 :]
    return (a - b) * y


def _rotated(size):
    return torch.randn(2, 7, 2 * size), torch.randn(7, size), torch.randn(7, size)


CASES = {
    "rotate": (rotate, [_rotated(n) for n in (5, 8, 3, 32)]),
    "patches": (patches, [(torch.randn(3, 4 * n), torch.randn(n, 4)) for n in (5, 8, 2, 64)]),
    "halves": (halves, [(torch.randn(2 * n, 3), torch.randn(n, 3)) for n in (5, 8, 2, 64)]),
}


@pytest.mark.parametrize("name", CASES)
def test_one_program_without_steps(name, graphs_ran_natively):
    f, calls = CASES[name]
    compiled = torch.compile(f, backend="tenon", dynamic=True)
    for inputs in calls:
        torch.testing.assert_close(compiled(*inputs), f(*inputs))
    (record,) = graphs_ran_natively
    assert record.sizes.startswith("all ") and not record.framework_steps(), (record.sizes, record.framework_steps())


def test_gradients(graphs_ran_natively):
    compiled = torch.compile(rotate, backend="tenon", dynamic=True)
    for size in (5, 8, 3, 32):
        inputs = [i.requires_grad_() for i in _rotated(size)]
        got = torch.autograd.grad(compiled(*inputs).square().sum(), inputs)
        torch.testing.assert_close(got, torch.autograd.grad(rotate(*inputs).square().sum(), inputs))
    ran = [(r.sizes, r.framework_steps()) for r in graphs_ran_natively]
    assert all(sizes.startswith("all ") and not steps for sizes, steps in ran), ran
    assert sorted(r.kind for r in graphs_ran_natively) == ["backward", "forward"]


def test_other_sizes_are_another_graph(graphs_ran_natively):
    def f(x, y):
        return x[::2] + y if x.shape[0] % 2 == 0 else x[1::2] - y

    compiled = torch.compile(f, backend="tenon", dynamic=True)
    for size in (10, 11, 6, 13, 40):
        inputs = torch.randn(size), torch.randn(size // 2)
        torch.testing.assert_close(compiled(*inputs), f(*inputs))
    assert [r.sizes.startswith("all ") for r in graphs_ran_natively] == [True, True]


def test_an_error_is_eagers(graphs_ran_natively):
    """A failed check runs the graph again by ATen, for the values of the tracer's symbols."""

    def f(x, y, i):
        return (x[::2] * y)[i]

    compiled = torch.compile(f, backend="tenon", dynamic=True)
    right = torch.tensor([0, 3])
    for size in (4, 6, 9):
        x, y = torch.randn(2 * size), torch.randn(size)
        torch.testing.assert_close(compiled(x, y, right), f(x, y, right))
        with pytest.raises(IndexError, match=f"index {size} is out of bounds for dimension 0 with size {size}"):
            compiled(x, y, torch.tensor([1, size]))
    assert all(r.sizes.startswith("all ") for r in graphs_ran_natively)


S, T, U = (sympy.Symbol(name, integer=True, positive=True) for name in ("s", "t", "u"))


@pytest.mark.parametrize(
    "equalities, divisors",
    [
        ([sympy.Eq(Mod(S, 4), 0)], {S: 4}),
        ([sympy.Eq(FloorDiv(S + 1, 2), FloorDiv(S, 2))], {S: 2}),
        ([sympy.Eq(Mod(S, 4), 0), sympy.Eq(Mod(S, 6), 0)], {S: 12}),
        ([sympy.Eq(Mod(S, 4), 1)], {}),
        ([sympy.Eq(Mod(S, 4), 2)], {S: 2}),
        ([sympy.Eq(Mod(S, 1 << 20), 0)], {}),  # too many remainders to try
        ([sympy.Eq(FloorDiv(S, 2), T)], {}),
    ],
)
def test_divisors(equalities, divisors):
    assert symbols.divisors(equalities) == divisors


def _known(equalities, readable, known={}):
    return symbols.from_equalities(equalities, set(readable), {S: 2, T: 2, U: 2}, known)


def test_what_stands_for_symbols():
    known, parts = _known([sympy.Eq(FloorDiv(S + 1, 2), T), sympy.Eq(FloorDiv(S, 2), FloorDiv(S + 1, 2))], [S, T])
    ((part, divided),) = parts.items()
    assert known == {S: 2 * part, T: part}
    assert (divided.of, divided.by, divided.lower) == (S, 2, 2)  # as t is not 1, nor is it

    assert _known([sympy.Eq(2 * S - 1, T)], [S, T]) == ({T: 2 * S - 1}, {})
    assert _known([sympy.Eq(2 * S - 1, T)], [T]) == ({}, {})  # no input says what s is
    assert _known([sympy.Eq(2 * S - 1, T), sympy.Eq(T + 1, U)], [S, T, U])[0] in (
        {T: 2 * S - 1, U: 2 * S},
        {T: U - 1},  # the other way round needs a half
    )
    assert _known([sympy.Eq(FloorDiv(S, 2), T)], [S, T], {S: sympy.Integer(6)}) == ({S: 6, T: 3}, {})
    assert _known([sympy.Eq(FloorDiv(T, 2), S), sympy.Eq(FloorDiv(S, 3), T)], [S, T])[0] == {S: FloorDiv(T, 2)}  # not in a circle


@pytest.mark.parametrize("part", [lambda x: x[:, ::2], lambda x: x[:, 1::2], lambda x: x[:, 1::3], lambda x: x[:, 4::5]])
def test_gradient_of_each_other_element(part, graphs_ran_natively):
    """Whatever the rest behind the last one."""
    compiled = torch.compile(lambda x: part(x).square(), backend="tenon", dynamic=True)
    for size in (7, 8, 9, 10, 11, 12):
        x = torch.randn(3, size, requires_grad=True)
        (got,) = torch.autograd.grad(compiled(x).sum(), x)
        torch.testing.assert_close(got, torch.autograd.grad(part(x).square().sum(), x)[0])
    assert all(r.sizes.startswith("all ") for r in graphs_ran_natively), [r.sizes for r in graphs_ran_natively]


def test_numbers_that_follow_from_a_part(graphs_ran_natively):
    """SymInts and SymFloats of a symbol that the compiler writes by its half."""
    f = lambda x, y: (x[::2] * y) * (x.shape[0] / 7) + x.shape[0] - y.shape[0]
    compiled = torch.compile(f, backend="tenon", dynamic=True)
    for size in (5, 8, 3, 64):
        x, y = torch.randn(2 * size), torch.randn(size)
        torch.testing.assert_close(compiled(x, y), f(x, y))
    assert [(r.sizes.startswith("all "), r.framework_steps()) for r in graphs_ran_natively] == [(True, [])]
