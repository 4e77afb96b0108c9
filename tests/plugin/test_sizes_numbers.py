"""Numbers that follow from sizes, as arguments of framework steps and in arithmetic: one program for all sizes has them."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytestmark = pytest.mark.usefixtures("tenon")


def _check(f, records, calls, steps=(), **options):
    """Right for all calls, by one native program for all sizes with these framework steps."""
    del records[:]
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="tenon", dynamic=True, options=options)
    for inputs in calls:
        torch.testing.assert_close(compiled(*inputs), f(*inputs))
    (record,) = records
    assert record.tier == "native" and record.sizes.startswith("all "), (record.tier, record.sizes)
    assert [s["op"].split(".", 2)[-1] if s["op"].startswith("python") else s["op"] for s in record.framework_steps()] == list(steps)
    return record


ROWS = [(torch.randn(n, 6),) for n in (8, 5, 40)]


@pytest.mark.by_aten(tier="any")
@pytest.mark.parametrize(
    "f, step",
    [
        (lambda x: x.clamp(max=x.shape[0] // 7) - 2, "aten.clamp.default"),  # a Scalar
        (lambda x: x.sin() * x.shape[0], "aten.mul.Tensor"),  # where it takes a tensor
        (lambda x: x.kthvalue(x.shape[0] // 2, 0)[0] + 2, "aten.kthvalue.default"),  # an int
        (lambda x: F.pad(x, (0, 1, x.shape[0] - 1, x.shape[1])) + 2, "aten.constant_pad_nd.default"),  # in a list
    ],
    ids=["scalar", "tensor", "int", "list"],
)  # fmt: skip
def test_numbers_of_steps(f, step, graphs_ran_natively):
    _check(f, graphs_ran_natively, ROWS, [step], disable_lowering=[step])


@torch.library.custom_op("sizes::shift", mutates_args=())
def shift(x: torch.Tensor, by: int, many: list[int]) -> torch.Tensor:
    return x + by + 1000 * sum(many)


@shift.register_fake
def _(x, by, many):
    return torch.empty_like(x)


@pytest.mark.by_aten(tier="any")
def test_numbers_of_users_operators(graphs_ran_natively):
    f = lambda x: shift(x * 2, x.shape[0] - 1, [x.shape[1], 3, x.shape[0] * 2]) + 1
    _check(f, graphs_ran_natively, ROWS, ["sizes.shift.default"])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * (x.shape[0] / 7),
        lambda x: x / (x.shape[0] / x.shape[1] + 0.5),
        lambda x: torch.full((x.shape[0],), x.shape[0] / 3.0) + x[:, 0],
        lambda x: x.long() * (x.shape[0] / 3),
        lambda x: x.double() - (2 - x.shape[0] / 3),
        lambda x: x.to(torch.bfloat16) * (x.shape[0] / 3),
        lambda x: x / math.sqrt(x.shape[0]),
        lambda x: x.clamp(max=x.shape[0] / 16),
    ],
)  # fmt: skip
def test_real_numbers_of_sizes(f, graphs_ran_natively):
    _check(f, graphs_ran_natively, ROWS)


@pytest.mark.by_aten(tier="any")
@pytest.mark.parametrize(
    "f, step",
    [
        (lambda x: x.clamp(max=x.shape[0] / 16) * 2, "aten.clamp.default"),
        (lambda x: torch.add(x, x.sin(), alpha=x.shape[0] / 9), "aten.add.Tensor"),  # its lowering wants a number too
    ],
)  # fmt: skip
def test_real_numbers_of_steps(f, step, graphs_ran_natively):
    _check(f, graphs_ran_natively, ROWS, [step], disable_lowering=["aten.clamp.default"])


_TWICE = """graph "g" {
  symbols s0 in [2, 64], s1
  %x = input f32[2*s0+1]{1}
  %y = input f32[s0*s1]{1}
  %z = aten.sum.default(%x, none) -> f32[]{}
  %half = aten.slice.Tensor(%x, 0, 0, sym(s0), 1) -> f32[s0]{1}
  %both = aten.mul.Tensor(%half, %z) -> f32[s0]{1}
  %r = aten.sum.default(%y, none) -> f32[]{}
  return (%both, %r, sym(s1))
}
"""


def test_a_symbol_that_is_no_size(tenon):
    """2*s0+1 is 7, so s0 is 3; a size that is no such number is refused, before anything is read."""
    from torch_tenon import _C

    run = _C.compile(_C.Graph.parse(_TWICE), {}, [])
    assert '"tier":"native"' in run.info().replace(" ", "")
    for s0, s1 in ((3, 4), (2, 0), (40, 9)):
        x, y = torch.randn(2 * s0 + 1), torch.randn(s0 * s1)
        both, r, number = run([x, y])
        torch.testing.assert_close(both, x[:s0] * x.sum())
        torch.testing.assert_close(r, y.sum())
        assert number == s1
    for sizes, why in (((8, 9), "2\\*s0"), ((7, 10), "s0\\*s1"), ((3, 1), "s0"), ((131, 65), "s0")):
        with pytest.raises(Exception, match=why):
            run([torch.randn(n) for n in sizes])


class Halves(nn.Module):
    def forward(self, x):
        a = torch.cat([x, x.sin()])  # 2*s0 rows
        return torch.sigmoid(a * a.shape[0])


def test_training_with_derived_sizes(graphs_ran_natively):
    """Of the backward's inputs none has s0 rows."""
    compiled = torch.compile(Halves(), backend="tenon", dynamic=True)
    for n in (3, 8, 20):
        x = torch.randn(n, 4, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        compiled(x).square().sum().backward()
        Halves()(y).square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    assert [r.kind for r in graphs_ran_natively] == ["forward", "backward"] and all(r.sizes.startswith("all ") for r in graphs_ran_natively)


def test_a_float_that_changes_is_an_input(graphs_ran_natively):
    """Where Dynamo is told not to make constants of floats (SymFloat): one graph of the first, one of all others."""
    f = lambda x, scale: (x * scale).sin() + x / (scale + 1)
    with torch._dynamo.config.patch(specialize_float=False):
        torch._dynamo.reset()
        compiled = torch.compile(f, backend="tenon", fullgraph=True)
        for scale in (0.5, 0.75, 1.9, 2.5, 10.0):
            torch.testing.assert_close(compiled(*ROWS[0], scale), f(*ROWS[0], scale))
    assert len(graphs_ran_natively) == 2
    assert all(record.tier == "native" and not record.framework_steps() for record in graphs_ran_natively)


COEFFICIENTS = (0.25, 1 / 3, -1.5)  # of the functions below, which close over them
SHIFT = 0.1


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.eps = 1e-5

    def forward(self, x, power=2.5):
        y = x * COEFFICIENTS[0] + COEFFICIENTS[1]
        return y * COEFFICIENTS[2] / (1 + x.square().mean(-1, keepdim=True) + self.eps) * power + SHIFT


def test_numbers_that_a_function_closes_over_are_constants(graphs_ran_natively, monkeypatch):
    """Until they change; those that the caller passes are inputs at once."""
    from torch._dynamo.symbolic_convert import TensorifyState

    torch._dynamo.reset()
    model = Scaled()
    compiled = torch.compile(model, backend="tenon", dynamic=True, fullgraph=True)

    def graphs_after(*call) -> int:
        with torch.no_grad():
            torch.testing.assert_close(compiled(*call), model(*call))
        return len(graphs_ran_natively)

    for inputs in ROWS:
        assert graphs_after(*inputs) == 1
    assert graphs_after(*ROWS[0], 3.5) == 1  # an argument
    for eps in (1e-3, 2e-3, 4e-3, 1e-5):  # an input from the second value on; the first program has the first
        model.eps = eps
        assert graphs_after(*ROWS[0]) == 2
    for shift in (0.2, 0.3, 0.4):
        monkeypatch.setitem(globals(), "SHIFT", shift)
        assert graphs_after(*ROWS[1]) == 3
    model.eps = 7e-3
    assert graphs_after(*ROWS[1]) == 3
    assert TensorifyState.empty()  # nothing that another graph's symbols would be taken for


def test_zeros_that_are_closed_over_keep_their_sign(graphs_ran_natively):
    """A guard takes -0.0 for 0.0, so no zero is a constant: one program, and each sign is eager's. So for two modules of one code."""
    torch._dynamo.reset()

    class Times(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return x * self.factor

    model = Times(0.0)
    compiled = torch.compile(model, backend="tenon", dynamic=True, fullgraph=True)
    for model.factor in (0.0, -0.0, 0.0):
        found, wanted = compiled(ROWS[0][0]), model(ROWS[0][0])
        assert torch.equal(found.signbit(), wanted.signbit()) and torch.equal(found, wanted)
    assert len(graphs_ran_natively) == 1
    for other in (Times(0.5), Times(0.75), Times(-2.0)):
        assert torch.equal(torch.compile(other, backend="tenon", dynamic=True, fullgraph=True)(ROWS[1][0]), other(ROWS[1][0]))


def test_gradients_of_numbers_that_are_closed_over(graphs_ran_natively):
    torch._dynamo.reset()
    model = Scaled()
    compiled = torch.compile(model, backend="tenon", dynamic=True, fullgraph=True)
    for (rows,) in ROWS:
        x, y = rows.clone().requires_grad_(), rows.clone().requires_grad_()
        compiled(x).tanh().sum().backward()
        model(y).tanh().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    assert [r.kind for r in graphs_ran_natively] == ["forward", "backward"]
