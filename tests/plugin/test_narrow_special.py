"""Special functions that f32 has in arithmetic of its own: units in the last place, and special values as eager's."""

import pytest
import torch

INFINITY = float("inf")


def _numbers(of):
    torch.manual_seed(0)
    if of == "all":
        return torch.rand(400_000) * 2 - 1
    if of == "the middle":
        return (torch.rand(200_000) * 40 - 41).exp2() * torch.randn(200_000).sign()
    if of == "the end":
        return 1 - torch.arange(1, 200_000) * 2.0**-24  # every number from there to 1
    if of == "both signs":
        return torch.rand(400_000) * 16 - 7
    return (torch.rand(200_000) * 250 - 125).exp2()


def _units_off(function, x):
    y = torch.compile(function, backend="tenon", dynamic=False)(x)
    exact = function(x.double())
    nearest = exact.float().abs().clamp_min(torch.finfo(torch.float32).tiny)
    unit = torch.nextafter(nearest, torch.tensor(INFINITY)) - nearest
    return ((y.double() - exact).abs() / unit).max()


@pytest.mark.parametrize("of", ["all", "the middle", "the end"])
def test_erfinv(of, tenon):
    assert _units_off(torch.erfinv, _numbers(of)) < 3


@pytest.mark.parametrize("of", ["both signs", "the middle"])
def test_erfc(of, tenon):
    assert _units_off(torch.erfc, _numbers(of)) < 5


def test_erfcx(tenon):
    assert _units_off(torch.special.erfcx, _numbers("exponents")) < 5
    assert _units_off(torch.special.erfcx, -torch.rand(10_000)) < 6


def test_special_values_of_erfinv(tenon):
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, 1e-45, -1e-38, 1.5, -INFINITY, float("nan")] * 8)
    y = torch.compile(torch.erfinv, backend="tenon", dynamic=False)(x)
    assert torch.equal(y[:6], torch.erfinv(x[:6])) and y[1].signbit() and y[6:9].isnan().all()


@pytest.mark.parametrize("function", [torch.erfc, torch.special.erfcx])
def test_special_values_of_erfc(function, tenon):
    x = torch.tensor([0.0, -0.0, 1e-45, 30.0, 3e38, INFINITY, -30.0, -3e38, -INFINITY, float("nan")] * 8)
    y = torch.compile(function, backend="tenon", dynamic=False)(x)
    expected = function(x.double()).float()
    assert torch.allclose(y, expected, rtol=1e-6, atol=1e-44, equal_nan=True), (y[:10], expected[:10])
