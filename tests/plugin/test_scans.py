"""Running sums, products and extrema: values, rules of ATen, and that they are kernels of their own."""

import math

import pytest
import torch

OPS = {
    "cumsum": lambda x, d: x.cumsum(d),
    "cumprod": lambda x, d: x.cumprod(d),
    "logcumsumexp": lambda x, d: x.logcumsumexp(d),
    "cummax": lambda x, d: x.cummax(d),
    "cummin": lambda x, d: x.cummin(d),
}


def _native(tenon):
    graphs = [g for g in tenon.stats()["graphs"] if g["calls"] > 0]
    assert graphs and all(g["tier"] == "native" and not g["aten_steps"] for g in graphs), graphs
    return graphs


def _compiled(tenon, function):
    tenon.reset_stats()
    return torch.compile(function, backend="tenon", dynamic=False)


def _close(found, expected):
    for f, e in zip(*[v if isinstance(v, tuple) else (v,) for v in (found, expected)]):
        assert f.dtype == e.dtype and f.shape == e.shape and f.stride() == e.stride()
        if f.dtype.is_floating_point:
            torch.testing.assert_close(f, e, rtol=2e-6, atol=0, equal_nan=True)
        else:
            assert torch.equal(f, e)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_along_each_dim(name, dim, tenon):
    x = 1 + 0.1 * torch.randn(7, 33, 19)
    with torch.no_grad():
        found = _compiled(tenon, lambda t: OPS[name](t, dim))(x)
    _close(found, OPS[name](x, dim))
    _native(tenon)


@pytest.mark.parametrize("name", OPS)
def test_of_a_strided_input(name, tenon):
    x = (1 + 0.1 * torch.randn(40, 21)).t()[::2]
    with torch.no_grad():
        found = _compiled(tenon, lambda t: OPS[name](t, 1))(x)
    _close(found, OPS[name](x, 1))
    _native(tenon)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int8, torch.uint8, torch.bool])
def test_extrema_take_the_last_of_equals(name, dtype, tenon):
    x = torch.tensor([[3, 1, 3, 3, 0, 0, 5, 5], [0, 0, 1, 1, 0, 1, 0, 1]]).to(dtype)
    with torch.no_grad():
        found = _compiled(tenon, lambda t: OPS[name](t, 1))(x)
    _close(found, OPS[name](x, 1))
    _native(tenon)


@pytest.mark.parametrize("name", OPS)
def test_nan_and_infinities(name, tenon):
    inf, nan = math.inf, math.nan
    x = torch.tensor([[-inf, -inf, 1, inf, inf, 2], [1, nan, 3, nan, 9, -inf], [inf, 1, -inf, inf, 0, nan]])
    with torch.no_grad():
        found = _compiled(tenon, lambda t: OPS[name](t, 1))(x)
    _close(found, OPS[name](x, 1))
    _native(tenon)


@pytest.mark.parametrize("shape, dim", [((), 0), ((0,), 0), ((3, 0), 0), ((0, 3), 0), ((1,), 0), ((4, 1), 1)])
@pytest.mark.parametrize("name", OPS)
def test_few_elements(name, shape, dim, tenon):
    x = torch.randn(shape)
    with torch.no_grad():
        found = _compiled(tenon, lambda t: OPS[name](t, dim))(x)
    _close(found, OPS[name](x, dim))


@pytest.mark.parametrize("name", OPS)
def test_gradients(name, tenon):
    x = (1 + 0.1 * torch.randn(6, 50)).requires_grad_()
    first = lambda t: OPS[name](t, 1)[0] if name in ("cummax", "cummin") else OPS[name](t, 1)
    (expected,) = torch.autograd.grad((first(x) * torch.arange(50)).sum(), x)
    (found,) = torch.autograd.grad((_compiled(tenon, first)(x) * torch.arange(50)).sum(), x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    kinds = {g["kind"] for g in _native(tenon)}
    assert "backward" in kinds


@pytest.mark.parametrize("name, kernels", [("cumsum", 3), ("cumprod", 3), ("logcumsumexp", 3), ("cummax", 3), ("cummin", 3)])
def test_one_long_row(name, kernels, tenon):
    """In blocks: their totals, where each starts, the blocks."""
    x = 1 + 1e-3 * torch.randn(1 << 18)
    with torch.no_grad():
        found = _compiled(tenon, lambda t: OPS[name](t, 0))(x)
    (graph,) = _native(tenon)
    assert graph["kernels"] == kernels
    expected = OPS[name](x, 0)
    _close(found, expected)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("kind", ["f32", "nan", "zeros", "infinite", "bf16", "int64", "uint8", "rows", "columns", "falling"])
def test_extrema_of_long_rows_are_eagers_bits(name, kind, tenon):
    """Ties, NaN and zeros of both signs within blocks and across them."""
    n, generator = 1 << 17, torch.Generator().manual_seed(3)
    x = torch.randn(n, generator=generator)
    if kind == "nan":
        x[[70_000, 70_001, 100_000]] = math.nan
    if kind == "zeros":
        x = torch.where(x > 0, 0.0, -0.0)
    if kind == "infinite":
        x[:] = -math.inf if name == "cummax" else math.inf
    if kind == "bf16":
        x = x.to(torch.bfloat16)
    if kind in ("int64", "uint8"):
        x = (x * 30 + 128).clamp(1, 200).to(getattr(torch, kind))
    if kind == "rows":
        x = torch.stack([x, -x])
    if kind == "columns":
        x = torch.stack([x, -x], dim=1)
    if kind == "falling":
        x = torch.arange(n, 0, -1.0) // 3
    dim = 1 if kind == "rows" else 0
    with torch.no_grad():
        values, places = _compiled(tenon, lambda t: OPS[name](t, dim))(x)
    wanted, wanted_places = OPS[name](x, dim)
    assert torch.equal(places, wanted_places)
    bits = {2: torch.int16, 4: torch.int32}.get(x.element_size(), x.dtype)
    same = values.view(bits) == wanted.view(bits)
    assert (same | (values != values) & (wanted != wanted)).all()
    (graph,) = _native(tenon)
    assert graph["kernels"] >= 3  # in blocks


def test_work_grows_with_the_length(tenon):
    """A window of the row's length would take minutes."""
    x = torch.ones(3, 600_000, dtype=torch.int64)
    with torch.no_grad():
        found = _compiled(tenon, lambda t: t.cumsum(1))(x)
    assert found[2, -1] == 600_000
    _native(tenon)
