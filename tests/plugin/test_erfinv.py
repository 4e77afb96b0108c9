"""erfinv of f32: within three units in the last place from the middle to the last number before 1, and the special values of eager's."""

import pytest
import torch


def _numbers(of):
    torch.manual_seed(0)
    if of == "all":
        return torch.rand(400_000) * 2 - 1
    if of == "the middle":
        return (torch.rand(200_000) * 40 - 41).exp2() * torch.randn(200_000).sign()
    return 1 - torch.arange(1, 200_000) * 2.0**-24  # every number from there to 1


@pytest.mark.parametrize("of", ["all", "the middle", "the end"])
def test_units_in_the_last_place(of, tenon):
    x = _numbers(of)
    y = torch.compile(torch.erfinv, backend="tenon", dynamic=False)(x)
    exact = torch.erfinv(x.double())
    nearest = exact.float().abs()
    unit = torch.nextafter(nearest, torch.tensor(float("inf"))) - nearest
    assert ((y.double() - exact).abs() / unit).max() < 3


def test_special_values(tenon):
    infinity = float("inf")
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, 1e-45, -1e-38, 1.5, -infinity, float("nan")] * 8)
    y = torch.compile(torch.erfinv, backend="tenon", dynamic=False)(x)
    assert torch.equal(y[:6], torch.erfinv(x[:6])) and y[1].signbit() and y[6:9].isnan().all()
