"""Outputs that are views of each other, or of an input, have eager's base and version counter."""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("tenon")
TIERS = ["native", pytest.param("eager_program", marks=pytest.mark.by_aten(tier="eager_program"))]


def _parts(x):
    y = x * 2 + 1
    return y, y[0], y.view(-1), y.t()[1:, ::2]


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_views_share_version_and_base(mode, tier, graphs_ran_natively):
    compiled = torch.compile(_parts, backend="tenon", options={"tier": tier})
    x = torch.randn(3, 4)
    for function in (_parts, compiled, compiled):
        with mode():
            whole, row, flat, window = function(x)
        before = whole._version
        row.add_(1)
        assert whole._version == before + 1 == flat._version == window._version
        assert row._base is whole and flat._base is whole and window._base is whole and whole._base is None
        assert torch.equal(flat, whole.view(-1)) and torch.equal(window, whole.t()[1:, ::2])
    assert len(graphs_ran_natively) == 1


def test_a_write_to_a_view_is_seen_by_autograd():
    """What a backward saved and a view overwrote is an error, as in eager."""

    def use(function):
        whole, row, *_ = function(torch.randn(3, 4))
        whole.requires_grad_()
        loss = (whole.exp() * whole).sum()
        with torch.no_grad():
            row.add_(1)
        loss.backward()

    for function in (_parts, torch.compile(_parts, backend="tenon")):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            use(torch.no_grad()(function))


def test_views_without_their_base_share_one():
    def halves(x):
        y = x.exp()
        return y[:2], y[2:]

    compiled = torch.compile(halves, backend="tenon")
    for function in (halves, compiled):
        with torch.no_grad():
            first, second = function(torch.randn(4, 3))
        before = second._version
        first.mul_(2)
        assert second._version == before + 1 and first._base is second._base is not None


def test_inference_tensors():
    compiled = torch.compile(_parts, backend="tenon")
    with torch.inference_mode():
        whole, row, flat, _ = compiled(torch.randn(3, 4))
        row.add_(1)
        assert whole.is_inference() and row.is_inference() and torch.equal(flat, whole.view(-1))
