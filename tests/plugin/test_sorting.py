"""Sorting, selecting and looking up: ATen's rules for NaN, ties and layouts; that nothing is a framework step (conftest.py)."""

import math

import pytest
import torch

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool]
ids = lambda v: str(v).removeprefix("torch.")


def compiled(function):
    return torch.compile(function, backend="tenon", dynamic=False, fullgraph=True)


def filled(shape, dtype, seed=0):
    """Few distinct values, so ties; of floats NaN of both signs, zeros of both signs and infinities too."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 2 if dtype == torch.bool else 9, shape, generator=g)
    if not dtype.is_floating_point:
        return (x - (4 if dtype.is_signed else 0)).to(dtype) if dtype != torch.bool else x.bool()
    special = torch.tensor([math.nan, -math.nan, 0.0, -0.0, math.inf, -math.inf, -2.5, 1.0, 7.0], dtype=torch.float64)
    return special[x].to(dtype)


def bits(x):
    wide = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return x.contiguous().view(wide)


def same(found, expected):
    """To the bit, and as it lies."""
    assert found.dtype == expected.dtype and found.shape == expected.shape and found.stride() == expected.stride()
    assert torch.equal(bits(found), bits(expected))


def equal_values(found, expected):
    assert found.dtype == expected.dtype and found.shape == expected.shape and found.stride() == expected.stride()
    assert bool(((found == expected) | ((found != found) & (expected != expected))).all())


def means(x, dim, index, values):
    """The indices mean elements that equal the values; no two of a row are one."""
    if index.dim() < x.dim():
        index, values = index.unsqueeze(dim), values.unsqueeze(dim)
    equal_values(x.gather(dim, index).contiguous(), values.contiguous())
    rows = index.movedim(dim, -1).sort(-1)[0]
    assert bool((rows[..., 1:] != rows[..., :-1]).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=ids)
@pytest.mark.parametrize("descending", [False, True])
def test_sort_is_eagers_to_the_bit(dtype, descending, tenon):
    inputs = [(filled(shape, dtype), dim) for shape, dim in [((3, 500), 1), ((40, 7), 0), ((2, 33, 5), 1), ((200,), -1)]]
    how = {"descending": descending, "stable": True}

    def function(xs):
        both = [torch.sort(x, dim=dim, **how) for x, (_, dim) in zip(xs, inputs)]
        values = [torch.sort(x.clone(), dim=dim, **how)[0] for x, (_, dim) in zip(xs, inputs)]
        order = [torch.argsort(x.clone(), dim=dim, **how) for x, (_, dim) in zip(xs, inputs)]
        return [v for pair in both for v in pair] + values + order

    xs = [x for x, _ in inputs]
    for found, expected in zip(compiled(function)(xs), function(xs), strict=True):
        same(found, expected)


def test_long_rows(tenon):
    x = torch.randn(400_000)
    x[::1000], x[7::1000], x[8::1000] = math.nan, 0.0, -0.0
    expected = torch.sort(x, stable=True)
    found = compiled(lambda t: torch.sort(t, stable=True))(x)
    same(found[0], expected[0])
    same(found[1], expected[1])
    clean = torch.randn(300_000)
    same(compiled(lambda t: torch.sort(t, descending=True)[0])(clean), torch.sort(clean, descending=True)[0])
    same(compiled(lambda t: torch.argsort(t, stable=True))(clean), torch.argsort(clean, stable=True))


@pytest.mark.parametrize("layout", ["transposed", "strided", "expanded", "channels_last", "unaligned"])
def test_layouts(layout, tenon):
    x = {
        "transposed": lambda: torch.randn(20, 30).t(),
        "strided": lambda: torch.randn(40, 60)[::2, ::3],
        "expanded": lambda: torch.randn(1, 30).expand(4, 30),
        "channels_last": lambda: torch.randn(2, 5, 6, 7).to(memory_format=torch.channels_last),
        "unaligned": lambda: torch.randn(601)[1:].view(20, 30),
    }[layout]()

    def function(t):
        both = [part for dim in (0, 1) for part in torch.sort(t, dim=dim, stable=True)]
        return both + [f(t, dim)[0] for dim in (0, 1) for f in (lambda v, d: torch.topk(v, 2, d), torch.median)]

    # Eager's median along an expanded dim reads and writes the one row there is (2.13).
    given = x.clone(memory_format=torch.contiguous_format) if layout == "expanded" else x
    for found, expected in zip(compiled(function)(x), function(given), strict=True):
        same(found, expected)


@pytest.mark.parametrize("shape, dim", [((), 0), ((0,), 0), ((3, 0), 0), ((3, 0), 1), ((1,), 0), ((4, 1), 1), ((2, 0, 3), 2)])
def test_few_elements(shape, dim, tenon):
    x = torch.randn(shape)
    some = x.dim() == 0 or x.shape[dim] > 0

    def function(t):
        ops = [lambda v: torch.sort(v, dim), lambda v: torch.topk(v, v.shape[dim] if v.dim() else 1, dim)]
        ops += [lambda v: torch.median(v, dim), lambda v: torch.mode(v, dim)] if some else []
        return [part for op in ops for part in op(t)]

    for found, expected in zip(compiled(function)(x), function(x), strict=True):
        same(found, expected)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.bool], ids=ids)
@pytest.mark.parametrize("largest", [True, False])
def test_topk(dtype, largest, tenon):
    cases = [((3, 500), 4, 1), ((2, 5000), 20, -1), ((40, 7), 12, 0), ((3, 200), 200, 1), ((6, 8), 2, 1)]
    xs = [filled(shape, dtype, seed=k) for shape, k, _ in cases]
    function = lambda ts: [torch.topk(t, k, dim, largest) for t, (_, k, dim) in zip(ts, cases)]
    for x, (_, _, dim), found, expected in zip(xs, cases, compiled(function)(xs), function(xs), strict=True):
        equal_values(found[0], expected[0])
        assert found[1].stride() == expected[1].stride() and found[1].dtype == torch.int64
        means(x, dim, found[1], found[0])


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.bool], ids=ids)
def test_order_statistics(dtype, tenon):
    x = filled((5, 31), dtype)
    number = x.nan_to_num(3.0) if dtype.is_floating_point else x

    def function(t, numbers):
        pairs = [torch.kthvalue(t, k, 1) for k in (1, 5, 15, 31)]
        pairs += [f(v, 1, keep) for f in (torch.median, torch.nanmedian) for v in (t, numbers) for keep in (False, True)]
        pairs += [torch.mode(numbers, 1)]
        return pairs, [f(v) for f in (torch.median, torch.nanmedian) for v in (t, numbers)]

    found, expected = compiled(function)(x, number), function(x, number)
    for k, (f, e) in enumerate(zip(found[0], expected[0], strict=True)):
        equal_values(f[0], e[0])
        means(x if k < 6 or k in (8, 9) else number, 1, f[1], f[0])
    for f, e in zip(found[1], expected[1], strict=True):
        equal_values(f, e)


def test_median_of_a_row_with_nan_is_its_first(tenon):
    x = torch.tensor([[1.0, math.nan, 0.0, math.nan], [4.0, 3.0, 2.0, 1.0], [math.nan] * 4])
    found, expected = compiled(lambda t: torch.median(t, 1))(x), torch.median(x, 1)
    equal_values(found[0], expected[0])
    same(found[1], expected[1])


@pytest.mark.parametrize("dtype", DTYPES[:-1], ids=ids)
@pytest.mark.parametrize("right", [False, True])
def test_searchsorted_and_bucketize(dtype, right, tenon):
    edges = filled((12,), dtype).sort()[0]
    rows = filled((3, 30), dtype, 1).sort(-1)[0]
    values, asked = filled((4, 5, 6), dtype, 2), filled((3, 40), dtype, 3)
    side, mixed = "right" if right else "left", filled((3, 30), dtype, 4)
    sorter = mixed.argsort(-1)

    def function(edges, rows, values, asked, mixed, sorter):
        found = [torch.bucketize(values, edges, out_int32=narrow, right=right) for narrow in (False, True)]
        found += [torch.searchsorted(rows, asked, out_int32=narrow, right=right) for narrow in (False, True)]
        found += [torch.searchsorted(edges, values, side=side), torch.searchsorted(mixed, asked, right=right, sorter=sorter)]
        return found + [torch.bucketize(3, edges, right=right), torch.searchsorted(edges, 2.5, right=right)]

    inputs = (edges, rows, values, asked, mixed, sorter)
    for f, e in zip(compiled(function)(*inputs), function(*inputs), strict=True):
        same(f, e)


def test_search_in_nothing_and_of_nothing(tenon):
    for edges, values in ((torch.randn(0), torch.randn(3)), (torch.randn(4).sort()[0], torch.randn(2, 0))):
        same(compiled(lambda e, v: torch.searchsorted(e, v))(edges, values), torch.searchsorted(edges, values))


def test_a_sorter_out_of_range_is_eagers_error(tenon):
    function = compiled(lambda s, v, o: torch.searchsorted(s, v, sorter=o))
    edges, values = torch.randn(4).sort()[0], torch.randn(3)
    function(edges, values, torch.arange(4))
    with pytest.raises(RuntimeError, match="sorter"):
        function(edges, values, torch.tensor([0, 1, 2, 4]))


@pytest.mark.parametrize("name", ["sort", "topk", "kthvalue", "median", "median_all", "nanmedian", "mode", "msort"])
def test_gradients(name, tenon):
    function = {
        "sort": lambda t: t.sort(1, descending=True)[0],
        "topk": lambda t: t.topk(5, 1)[0],
        "kthvalue": lambda t: t.kthvalue(4, 1)[0],
        "median": lambda t: t.median(0)[0],
        "median_all": lambda t: t.median(),
        "nanmedian": lambda t: t.nanmedian(1)[0],
        "mode": lambda t: t.mode(1)[0],
        "msort": lambda t: t.msort(),
    }[name]
    x = torch.randn(6, 50, requires_grad=True)
    weigh = lambda v: (v * torch.arange(1.0, v.numel() + 1).view(v.shape)).sum()
    (expected,) = torch.autograd.grad(weigh(function(x)), x)
    (found,) = torch.autograd.grad(weigh(compiled(function)(x)), x)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)



@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8], ids=ids)
@pytest.mark.parametrize("shape, dim", [((300_007,), 0), ((4, 70_001), 1), ((70_001, 5), 0)], ids=str)
def test_extrema_of_long_rows_and_where_are_taken_in_pieces(dtype, shape, dim, tenon):
    """As eager finds them: the first of equal ones, NaN before all."""
    x = filled(shape, dtype)
    if dtype.is_floating_point:
        x = torch.where(torch.arange(x.numel()).view(shape) < x.numel() - 9, x.nan_to_num(3, 5, -5), x)  # NaN at the end alone
    function = lambda t: (t.max(dim), t.argmin(dim))
    kernels = []
    for disabled in ([], ["split-reductions"]):
        torch._dynamo.reset()
        tenon.reset_stats()
        options = {"disable_passes": disabled}
        (values, indices), least = torch.compile(function, backend="tenon", dynamic=False, fullgraph=True, options=options)(x)
        (eager_values, eager_indices), eager_least = x.max(dim), x.argmin(dim)
        assert torch.equal(indices, eager_indices) and torch.equal(least, eager_least)
        # A NaN's code is eager's vector unit's: AVX2's maximum of bf16 makes all its bits one.
        assert torch.equal(values.isnan(), eager_values.isnan())
        assert torch.equal(bits(values.nan_to_num()), bits(eager_values.nan_to_num()))
        (graph,) = [g for g in tenon.stats()["graphs"] if g["calls"] > 0]
        kernels.append(graph["kernels"])
    assert kernels[0] > kernels[1]
