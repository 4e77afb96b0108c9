"""Graphs with dynamic sizes: one program for all of them, and what becomes of calls that it refuses (docs/architecture/sizes.md)."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from plugin.checking import same_as_eager

pytestmark = pytest.mark.usefixtures("tenon")


def _compile(f, records, **options):
    """`f`, whose sizes are dynamic throughout, and the records of its graphs to come."""
    del records[:]
    return torch.compile(f, backend="tenon", dynamic=True, options=options), records


def _check(f, records, *calls, programs=1, **tolerance):
    """`f` is right for all the calls (tuples of inputs), by so many programs, each of them for all sizes."""
    compiled, records = _compile(f, records)
    for inputs in calls:
        torch.testing.assert_close(compiled(*inputs), f(*inputs), **tolerance)
    assert len(records) == programs and all(r.sizes.startswith("all ") for r in records), [r.sizes for r in records]
    return records


def _rows(*shape, dim):
    """Inputs of this shape with the size along `dim` replaced by each of a few."""
    for size in (5, 4, 16, 33, 100):
        yield (torch.randn(*(size if d == dim else s for d, s in enumerate(shape))),)


LINEAR = nn.Linear(24, 40)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x * 2 + 1).sin(),
        lambda x: x.softmax(-1),
        lambda x: x.log_softmax(1),
        lambda x: F.layer_norm(x, x.shape[-1:]),
        lambda x: x.sum(1),
        lambda x: x.mean(1),
        lambda x: x.mean(),
        lambda x: x.var(1),
        lambda x: x.amax(0),
        lambda x: x.argmax(1),
        lambda x: x.cumsum(1),
        lambda x: LINEAR(x).relu(),
        lambda x: x @ x.transpose(1, 2),
        lambda x: torch.cat([x, x * 2], 1),
        lambda x: torch.stack([x, -x]),
        lambda x: x[:, : x.shape[1] // 2] * 2,
        lambda x: x[:, 1:] - x[:, :-1],
        lambda x: x.flip(1) + 1,
        lambda x: x.reshape(x.shape[0] * x.shape[1], -1) + 1,
        lambda x: x.transpose(1, 2).contiguous(),
        lambda x: x + torch.arange(x.shape[1])[:, None],
        lambda x: x * x.shape[1] + x.shape[0],
        lambda x: torch.ones(x.shape[1]) + x.sum((0, 2)),
        lambda x: torch.tril(x @ x.transpose(1, 2)),
        lambda x: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True),
        lambda x: F.pad(x, (1, 2)),
        lambda x: F.pad(x, (2, 1), mode="reflect"),
        lambda x: F.pad(x[None], (2, 1, 1, 2), mode="reflect"),
        lambda x: F.pad(x[None], (2, 1, 1, -2), mode="replicate"),
        lambda x: torch.where(x > 0, x, x.shape[1]),
        lambda x: x.sort(1),
        lambda x: x.transpose(1, 2).sort(descending=True),
        lambda x: x.argsort(stable=True, dim=0),
        lambda x: x.topk(3, 1),
        lambda x: x.kthvalue(2, 1),
        lambda x: x.median(1),
        lambda x: x.nanmedian(1),
        lambda x: x.median(),
        lambda x: (x > 0).mode(1)[0],
        lambda x: torch.searchsorted(x.sort(1)[0].transpose(1, 2).contiguous(), x.transpose(1, 2).contiguous()),
        lambda x: torch.bucketize(x, torch.arange(x.shape[1]).float()),
        lambda x: x.masked_fill(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()[:, :1], 0.0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dim", (0, 1))
def test_one_program(f, dim, graphs_ran_natively):
    _check(f, graphs_ran_natively, *_rows(3, 7, 24, dim=dim), rtol=1e-4, atol=1e-4)


def test_rows_of_a_table(graphs_ran_natively):
    table = torch.randn(30, 8)
    calls = [(torch.randint(0, 30, (2, n)),) for n in (4, 3, 50)]
    _check(lambda i: F.embedding(i, table) * 2, graphs_ran_natively, *calls)
    calls = [(torch.randn(n, 8), torch.randint(-n, n, (9,))) for n in (4, 3, 50)]
    compiled, records = _compile(lambda x, i: (x[i], x.index_select(0, i.abs() % x.shape[0])), graphs_ran_natively)
    for x, i in calls:
        torch._dynamo.mark_static(x, 1)
        torch.testing.assert_close(compiled(x, i), (x[i], x.index_select(0, i.abs() % x.shape[0])))
    assert [r.sizes.startswith("all ") for r in records] == [True]


def test_an_index_out_of_range(graphs_ran_natively):
    """Eager's own error, from the program of ATen steps made for the very sizes."""
    compiled, _ = _compile(lambda x, i: x[i] * 2, graphs_ran_natively)
    for n in (5, 4):
        x = torch.randn(n, 3)
        torch._dynamo.mark_static(x, 1)
        torch.testing.assert_close(compiled(x, torch.tensor([n - 1, -n])), x[[n - 1, -n]] * 2)
        with pytest.raises(IndexError, match=f"index {n} is out of bounds for dimension 0 with size {n}"):
            compiled(x, torch.tensor([0, n]))


def test_views_among_the_outputs(graphs_ran_natively):
    """Views whose sizes, strides and offsets are expressions; they share memory as eager's do."""

    def f(x):
        y = x * 2
        return y, y[1:], y.t(), x[:, x.shape[1] // 2 :]

    compiled, records = _compile(f, graphs_ran_natively)
    for shape in ((4, 6), (3, 9), (20, 4)):
        x = torch.randn(shape)
        y, tail, turned, half = compiled(x)
        torch.testing.assert_close((y, tail, turned, half), f(x))
        assert tail.data_ptr() == y[1:].data_ptr() and turned.data_ptr() == y.data_ptr()
        assert half.data_ptr() == x[:, x.shape[1] // 2 :].data_ptr() and half.stride() == x[:, x.shape[1] // 2 :].stride()
    assert [r.sizes.startswith("all ") for r in records] == [True]


def test_written_inputs(graphs_ran_natively):
    def f(x, y):
        x.add_(y)
        return x * 2

    compiled, records = _compile(f, graphs_ran_natively)
    for n in (4, 3, 70):
        x, y = torch.randn(n, 5), torch.randn(n, 5)
        a, b = x.clone(), x.clone()
        torch.testing.assert_close(compiled(a, y), f(b, y))
        torch.testing.assert_close(a, b)
    assert [r.sizes.startswith("all ") for r in records] == [True]


@pytest.mark.parametrize("node", ("own", "stock"))
def test_training(node, graphs_ran_natively):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))
    loss = lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten())
    compiled = torch.compile(lambda x, t: loss(model(x), t), backend="tenon", dynamic=True, options={"autograd": node})
    for length in (3, 4, 11, 64):
        x, t = torch.randn(2, length, 6), torch.randint(0, 3, (2, length))
        gradients = []
        for run in (lambda: loss(model(x), t), lambda: compiled(x, t)):
            model.zero_grad()
            run().backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
        torch.testing.assert_close(*gradients)
    assert {r.kind for r in graphs_ran_natively} == {"forward", "backward"} and len(graphs_ran_natively) == 2
    assert all(r.sizes.startswith("all ") for r in graphs_ran_natively)


def test_sizes_that_the_program_refuses(graphs_ran_natively):
    """The symbols are what the tracer knows of them, two at least; an input with no rows is another graph of Dynamo's, but a call of
    the executable with one goes to a program for that very size."""
    from torch_tenon import registry

    compiled, records = _compile(lambda x: x * 2, graphs_ran_natively)
    compiled(torch.randn(4, 3))
    (record,) = records
    numbers = sum(row["kind"] == 1 for row in record.info["inputs"])
    x = torch.randn(1, 3)
    inputs = [*x.shape][:numbers] + [x]  # Dynamo's numbers come first
    executable = record.executable
    (y,) = executable(inputs)
    torch.testing.assert_close(y, x * 2)
    assert len(registry.records()) >= 2 and "refused by the program for all sizes" in records[-1].sizes


def test_the_option_of_exact_sizes(graphs_ran_natively):
    compiled, records = _compile(lambda x: x * 2, graphs_ran_natively, sizes="exact")
    for n in (4, 5):
        compiled(torch.randn(n, 3))
    assert len(records) == 2 and all("asked for by the options" in r.sizes for r in records)


@pytest.mark.by_aten(tier="any")
def test_what_needs_numbers_is_a_step(graphs_ran_natively):
    """A row that wants numbers is an ATen step of the program for all sizes; with fallback="error" each size gets a program."""
    f = lambda x: F.max_pool1d(x, 2, ceil_mode=True, return_indices=True)[1] * 2
    compiled, records = _compile(f, graphs_ran_natively)
    for n in (4, 5, 9):
        x = torch.randn(3, n)
        torch.testing.assert_close(compiled(x), f(x))
    (record,) = records
    assert record.sizes.startswith("all ") and [s["op"] for s in record.framework_steps()] == ["aten.max_pool2d_with_indices.default"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch._dynamo.reset()
        compiled, records = _compile(f, graphs_ran_natively, fallback="error")
        for n in (4, 5):
            x = torch.randn(3, n)
            torch.testing.assert_close(compiled(x), f(x))
    assert [r.framework_steps() for r in records[-2:]] == [[], []] and "max_pool2d" in records[-1].sizes


@pytest.mark.parametrize("deterministic", (False, True))
def test_plans_are_for_the_sizes_that_came_first(graphs_ran_natively, deterministic, monkeypatch):
    """By Dynamo's hints, but where the last bits may not hang on what came first."""
    from torch_tenon import export

    hints = []
    hint = export.symbol_hint
    monkeypatch.setattr(export, "symbol_hint", lambda *args: hints.append(hint(*args)) or hints[-1])
    torch.use_deterministic_algorithms(deterministic)
    try:
        _check(lambda x: x.sum() * 3, graphs_ran_natively, (torch.randn(70, 4),), (torch.randn(5, 4),))
    finally:
        torch.use_deterministic_algorithms(False)
    assert sorted(hints) == ([] if deterministic else [4, 70])


def test_automatic_dynamic(graphs_ran_natively):
    """Dynamo's second size is the first for which a graph has symbols; the third compiles nothing."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False)
    compiled = torch.compile(model, backend="tenon")
    with torch.no_grad():
        for n in (6, 9, 17, 40):
            x = torch.randn(2, n, 32)
            model.train()  # eval() runs ATen's fused encoder layer
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    assert [bool(r.sizes) for r in graphs_ran_natively] == [False, True]


_SAYS = {
    "automatic": lambda x: None,
    "mark_dynamic": lambda x: torch._dynamo.mark_dynamic(x, 0) if x.shape[0] > 1 else None,
    "maybe_mark_dynamic": lambda x: torch._dynamo.maybe_mark_dynamic(x, 0),
    "mark_unbacked": lambda x: torch._dynamo.decorators.mark_unbacked(x, 0),
}


@pytest.mark.parametrize("train", (False, True), ids=("inference", "training"))
@pytest.mark.parametrize("says", _SAYS)
def test_batches_of_one_of_none_and_of_many(says, train, graphs_ran_natively):
    """However the user says that batches change: sizes of 0 and 1 are graphs of Dynamo's of their own, unless they were left open."""
    model = nn.Sequential(nn.Conv1d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(80, 16), nn.LayerNorm(16), nn.Linear(16, 4))
    if says == "mark_unbacked":
        model = model[3:]  # PyTorch's convolution asks whether the batch is empty
    compiled = torch.compile(model, backend="tenon", options={"sizes": "one"})
    sizes = (4, 7, 1, 0, 12, 1, 0, 9)
    for n in sizes:
        x = torch.randn(n, 80) if says == "mark_unbacked" else torch.randn(n, 3, 10)
        _SAYS[says](x)
        with torch.set_grad_enabled(train):
            got, want = compiled(x), model(x)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        if train:
            grads = [torch.autograd.grad(y.square().sum(), list(model.parameters())) for y in (got, want)]
            torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)
    programs = [r for r in graphs_ran_natively if r.kind != "backward"]
    symbolic = [r for r in programs if r.sizes.startswith("all ")]
    assert len(symbolic) == 1 and symbolic[0].stats()["calls"] >= (8 if says == "mark_unbacked" else 3)
    assert len(programs) <= {"automatic": 4, "mark_dynamic": 3, "maybe_mark_dynamic": 3, "mark_unbacked": 1}[says]


def test_a_number_of_pythons_that_may_be_negative(graphs_ran_natively):
    compiled, records = _compile(lambda x, k: (x * k + k).sum(0), graphs_ran_natively)
    for k in (7, -3, 0, 12, -1000):
        x = torch.randn(3, 4)
        torch.testing.assert_close(compiled(x, k), (x * k + k).sum(0))
    assert all(r.sizes.startswith("all ") for r in records) and len(records) <= 3, [r.sizes for r in records]


@pytest.mark.parametrize("mode", ("nearest", "bilinear", "bicubic"))
def test_resampling_of_changing_batches(mode, graphs_ran_natively):
    """Tracing fixes no size of it (PyTorch's kernels of resamplings would), forward or backward."""
    f = lambda x: F.interpolate(x * 1.5, scale_factor=2, mode=mode)
    compiled = torch.compile(f, backend="tenon")
    for batch in (2, 3, 5):
        x = torch.randn(batch, 3, 6, 6)
        torch._dynamo.mark_dynamic(x, 0)
        y = x.clone().requires_grad_()
        x.requires_grad_()
        found, wanted = compiled(x), f(y)
        found.square().sum().backward()
        wanted.square().sum().backward()
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(x.grad, y.grad)
    assert [r.kind for r in graphs_ran_natively] == ["forward", "backward"] and all(r.sizes.startswith("all ") for r in graphs_ran_natively)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=str)
@pytest.mark.parametrize("mode", ("bilinear", "bicubic"))
def test_antialiased_resampling(mode, dtype, graphs_ran_natively):
    """Smaller and larger, images smaller than a row's taps, an infinity that stays where its taps are."""
    f = lambda x: F.interpolate(x * 1.5, size=(9, 14), mode=mode, antialias=True)
    compiled = torch.compile(f, backend="tenon", dynamic=True, options={"sizes": "one"})
    for sizes in ((2, 3, 31, 23), (3, 5, 64, 40), (4, 2, 5, 8), (2, 2, 9, 200)):
        x = torch.randn(sizes, dtype=dtype)
        x[0, 0, 3, 4] = math.inf
        found, wanted = compiled(x), f(x)
        assert torch.equal(found.isfinite(), wanted.isfinite()) and not found.isfinite().all()
        rtol, atol = (1e-5, 3e-6) if dtype is torch.float32 else (1e-12, 1e-13)
        torch.testing.assert_close(found, wanted, rtol=rtol, atol=atol, equal_nan=True)
    (record,) = graphs_ran_natively
    assert record.sizes.startswith("all ") and not record.framework_steps()


_RESAMPLINGS = {
    "linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2, "nearest1d": 1, "nearest2d": 2, "nearest-exact": 2,
    "bilinear, antialiased": 2, "bicubic, antialiased": 2,
}  # fmt: skip


@pytest.mark.parametrize("dynamic", (False, True), ids=("exact", "symbols"))
@pytest.mark.parametrize("scale", (1.0, 1.05, 0.97))
@pytest.mark.parametrize("name", _RESAMPLINGS)
def test_a_scale_by_which_a_size_stays(name, scale, dynamic, tenon):
    """Nine, six and seven elements stay as many by 1.05: most kernels of ATen's copy then, whatever the scale."""
    mode, _, antialiased = name.partition(", ")
    options = {"antialias": True} if antialiased else {}
    f = lambda x: F.interpolate(x * 1.5, scale_factor=scale, mode=mode[:7] if mode[-1] == "d" else mode, **options)
    x = torch.randn(2, 3, *(9, 6, 7)[: _RESAMPLINGS[name]])
    x.flatten()[2] = math.inf
    torch._dynamo.reset()
    found, wanted = torch.compile(f, backend="tenon", dynamic=dynamic)(x), f(x)
    assert torch.equal(found.isfinite(), wanted.isfinite()) and not found.isfinite().all()
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=5e-6, equal_nan=True)


_STEP = """graph "g" {
  symbols s0 in [2, 1024]
  %x = input u8[s0,s0,s0]{1,s0,s0*s0}
  %y = input s8[s0]{1}
  %most = aten.maximum.default(%y, %x) -> s16[s0,s0,s0]{1,s0,s0*s0}
  %square = aten.square.default(%most) -> s16[s0,s0,s0]{1,s0,s0*s0}
  %n = aten.neg.default(%square) -> s16[s0,s0,s0]{1,s0,s0*s0}
  return (%square, %n)
}
"""


@pytest.mark.parametrize("size", [2, 5, 9])
def test_a_steps_result_lies_as_its_readers_take_for_granted(tenon, size):
    """The operator gets %most in other strides, and returns its result in those."""
    from torch_tenon import _C

    run = _C.compile(_C.Graph.parse(_STEP), {}, [])
    x = torch.randint(0, 9, (size, size, size), dtype=torch.uint8).permute(2, 1, 0)
    y = torch.randint(-9, 9, (size,), dtype=torch.int8)
    square, negative = run([x, y])
    wanted = torch.maximum(y, x).square()
    assert torch.equal(square, wanted) and square.stride() == wanted.stride()
    assert torch.equal(negative, -wanted)


@pytest.mark.parametrize("size", ["9", "s0"])
def test_a_step_gets_no_elements_that_share_a_place(tenon, size):
    """Eager's median along an expanded dim is wrong; what the graph made of one element is no expanded tensor to eager."""
    from torch_tenon import _C

    text = """graph "g" { SYMBOLS
  %x = input f32[N]{1}
  %ones = aten.ones_like.default(%x, none, none, none, none, none) -> f32[N]{1}
  %median, %index = aten.median.dim(%ones, 0, false) -> f32[]{}, s64[]{}
  return (%median)
}
""".replace("[N]", f"[{size}]").replace("SYMBOLS", "symbols s0 in [2, 1024]" if size == "s0" else "")
    run = _C.compile(_C.Graph.parse(text), {"disable_lowering": ["aten.median.dim"]}, [])
    assert run([torch.zeros(9)])[0].item() == 1


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("mode, spatial", [("linear", 1), ("bilinear", 2), ("trilinear", 3)])
def test_linear_resampling_goes_along_one_dim_after_the_other(mode, spatial, align, graphs_ran_natively):
    """Each dim is two gathers, where all corners of a cell would be 2^dims gathers by as many indices."""
    compiled, records = _compile(
        lambda x: F.interpolate(x, scale_factor=2, mode=mode, align_corners=align).sin(), graphs_ran_natively
    )
    for size in (5, 9, 8, 1 + 2 * spatial):
        x = torch.randn(2, 3, *range(size, size + spatial), requires_grad=True)
        y = F.interpolate(x, scale_factor=2, mode=mode, align_corners=align).sin()
        got = compiled(x)
        torch.testing.assert_close(got, y)
        (want,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(torch.autograd.grad(got.sum(), x)[0], want, rtol=1e-4, atol=1e-5)
    assert all(r.sizes.startswith("all ") for r in records), [r.sizes for r in records]
    nodes = next(r.nodes for r in records if r.kind == "forward")
    assert nodes["aten.index_select.default"] == 2 * spatial and not any("index.Tensor" in n or "_unsafe_index" in n for n in nodes), nodes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.uint8])
def test_linear_resampling_of_other_types(dtype, graphs_ran_natively):
    to = lambda x, n: F.interpolate(x, size=(n, 2 * n), mode="bilinear")
    compiled, records = _compile(to, graphs_ran_natively)
    for size in (5, 9, 8):
        x = (torch.rand(2, 3, size, size + 1) * 200).to(dtype).contiguous(memory_format=torch.channels_last)
        got, want = compiled(x, size + 3), to(x, size + 3)
        assert got.stride() == want.stride()
        torch.testing.assert_close(got, want, atol=1.0, rtol=0.01)  # uint8: eager's weights are integers
    assert all(r.sizes.startswith("all ") for r in records), [r.sizes for r in records]


POOLS = {
    "3x3": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), 2),
    "2x2": (lambda x: F.max_pool2d(x, 2, return_indices=True), 2),
    "uneven": (lambda x: F.max_pool2d(x, (3, 2), (1, 2), (1, 0), return_indices=True), 2),
    "apart": (lambda x: F.max_pool2d(x, 2, 3, return_indices=True), 2),
    "volumes": (lambda x: F.max_pool3d(x, 3, 2, 1, return_indices=True), 3),
}


@pytest.mark.parametrize("name", POOLS)
def test_positions_of_maxima(name, graphs_ran_natively):
    """As ATen scans: of equal elements the first one, of NaNs the last; backward, too."""
    pool, spatial = POOLS[name]
    compiled, records = _compile(pool, graphs_ran_natively)
    for size in (9, 8, 12, 16):
        x = torch.randn(2, 3, *(size + k for k in range(spatial))).round_(decimals=1)
        x.view(-1)[3], x.view(-1)[10:14] = float("nan"), -float("inf")
        x.requires_grad_()
        (y, positions), (got, got_positions) = pool(x), compiled(x)
        assert torch.equal(got_positions, positions)
        torch.testing.assert_close(got, y, equal_nan=True)
        grad = torch.randn_like(y)
        torch.testing.assert_close(torch.autograd.grad(got, x, grad)[0], torch.autograd.grad(y, x, grad)[0])
    assert [r.kind for r in records] == ["forward", "backward"] and all(r.sizes.startswith("all ") for r in records)


def test_dilated_positions_of_maxima(graphs_ran_natively):
    pool = lambda x: F.max_pool2d(x, 3, 2, 1, dilation=2, return_indices=True)
    compiled, records = _compile(pool, graphs_ran_natively)
    for size in (9, 8, 12):
        x = torch.randn(2, 3, size, size + 1)
        for got, want in zip(compiled(x), pool(x)):
            assert torch.equal(got, want)
    assert [r.sizes.startswith("all ") for r in records] == [True]


def test_a_product_of_vectors_is_a_sum_of_ours(graphs_ran_natively):
    """The library adds up a matrix of one element in turn: 1e-5 off for a thousand equal numbers."""
    record = _check(lambda x: x.log1p().dot(x.log1p()), graphs_ran_natively, *((torch.ones(n),) for n in (1000, 20, 5000)),
                    rtol=1e-6, atol=0)[0]  # fmt: skip
    assert not record.framework_steps()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_long_sums_of_halves_by_index(dtype, graphs_ran_natively):
    """Are added in float, as eager adds them: the same bits. In halves a thousand numbers would stop to grow."""

    def added(y, index, x):
        return y.index_add(0, index, x)

    calls = []
    for rows, length, width in ((4, 1000, 8), (3, 7, 5), (9, 5000, 16), (2, 64, 33)):
        x = torch.rand(length, width).to(dtype)
        calls.append((torch.rand(rows, width).to(dtype), torch.randint(0, rows, (length,)), x))
    _check(added, graphs_ran_natively, *calls, rtol=0, atol=0)


@pytest.mark.parametrize("spatial, out", [(1, (6,)), (2, (7, 5)), (2, (4, None)), (3, (3, 2, 4))], ids=str)
def test_uneven_adaptive_averages(spatial, out, graphs_ran_natively):
    pool = getattr(F, f"adaptive_avg_pool{spatial}d")
    f = lambda x: pool(x * 1.5, out)
    compiled, records = _compile(f, graphs_ran_natively)
    for sizes in ((24, 17, 9), (9, 11, 10), (5, 3, 2), (70, 50, 33), (7, 5, 4), (3, 40, 3)):
        x = torch.randn(2, 3, *sizes[:spatial])
        mine, eagers = (x.clone().requires_grad_() for _ in range(2))
        got, wanted = compiled(mine), f(eagers)
        torch.testing.assert_close(got, wanted)
        grad = torch.randn_like(wanted)
        got.backward(grad)
        wanted.backward(grad)
        torch.testing.assert_close(mine.grad, eagers.grad)
        x[0, 1].view(-1)[1] = math.inf  # in its own windows alone
        torch.testing.assert_close(compiled(x), f(x))
    assert [r.sizes[:4] for r in records] == ["all "] * 3 and not any(r.framework_steps() for r in records)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_one_length(mode, dtype, graphs_ran_natively):
    table = torch.randn(50, 32)
    f = lambda x: F.embedding_bag(x, table, mode=mode) * 2
    calls = [(torch.randint(50, shape, dtype=dtype),) for shape in ((9, 4), (30, 2), (5, 200), (2, 7))]
    (record,) = _check(f, graphs_ran_natively, *calls)
    assert not record.framework_steps()
    plans = {kernel["plan"].split()[0] for kernel in record.report()["program"]["kernels"]}
    assert ("scatter" in plans) == (dtype == torch.int32), plans  # 32 bits may not hold a place of so many
