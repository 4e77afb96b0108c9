"""gelu by erf: a coarser erf does beside the 1 that is added to it. As exact as eager's, and as still far away from zero."""

import pytest
import torch
import torch.nn.functional as F


def _rmse(found, reference):
    return (found.double() - reference).square().mean().sqrt().item()


def _gelu_and_derivative(x, g):
    return F.gelu(x), torch.ops.aten.gelu_backward(g, x)


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
def test_as_exact_as_eager(spread, tenon):
    torch.manual_seed(0)
    x, g = torch.randn(200_000) * spread, torch.randn(200_000)
    found = torch.compile(_gelu_and_derivative, backend="tenon", dynamic=False)(x, g)
    eager, reference = _gelu_and_derivative(x, g), _gelu_and_derivative(x.double(), g.double())
    for f, e, r in zip(found, eager, reference, strict=True):
        assert _rmse(f, r) <= 1.5 * _rmse(e, r)


def test_far_away_it_is_zero_or_its_argument(tenon):
    x = torch.tensor([-1e30, -100.0, -6.0, 6.0, 100.0, 1e30, float("inf"), 0.0, float("nan")])
    y = torch.compile(F.gelu, backend="tenon", dynamic=False)(x)
    assert torch.equal(y[:8], torch.tensor([0.0, 0.0, 0.0, 6.0, 100.0, 1e30, float("inf"), 0.0])) and y[8].isnan()
