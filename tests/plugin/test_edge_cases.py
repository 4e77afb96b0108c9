"""Tensors and graphs at the edge of what PyTorch allows, each against eager."""

import functools
import math
import os

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from plugin.checking import same_as_eager

FLOATS = [torch.float32, torch.bfloat16]


def _pointwise(x):
    return torch.tanh(x * 2 + 1) - x.abs()


# --- shapes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0, 2)])
def test_empty(shape, backend):
    x = torch.randn(shape)
    same_as_eager(_pointwise, x, backend=backend)
    same_as_eager(lambda t: (t.sum(), t.sum(-1), t.mean(0, keepdim=True)), x, backend=backend)
    same_as_eager(lambda t: torch.cat([t, t + 1], 0).contiguous(), x, backend=backend)
    same_as_eager(lambda t: F.softmax(t, -1), x, backend=backend)


@pytest.mark.parametrize("sizes", [(3, 65537, 65537, 65537), (100_003, 50_001, 7), (5, 200_001), (1, 2, 3, 300_000)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int16], ids=str)
def test_long_lists_put_together(sizes, dtype, backend):
    """In pieces: one that ends before a part begins has nothing of it to write."""
    parts = [(1000 * torch.randn(n)).to(dtype) for n in sizes]
    same_as_eager(lambda *xs: torch.cat([x + x for x in xs]), *parts, backend=backend)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("exponent", [0.5, -0.5])
def test_roots_of_negative_zeros_and_infinities(dtype, exponent, backend):
    x = torch.tensor([-0.0, 0.0, -float("inf"), float("inf"), 4.0], dtype=dtype)
    found, expected = torch.compile(lambda t: t**exponent, backend=backend, dynamic=False)(x), x**exponent
    torch.testing.assert_close(found, expected, equal_nan=True)
    assert torch.equal(found.signbit() & ~found.isnan(), expected.signbit() & ~expected.isnan())


@pytest.mark.parametrize("to", [torch.uint8, torch.int8, torch.int16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128], ids=str)
def test_narrow_integers_wrap_as_the_machine_does(dtype, to, backend):
    x = torch.tensor([-1.5, -0.7, -3.2, 300.0, -300.0, 255.9, 70000.0]).to(dtype)
    same_as_eager(lambda t: (t.to(to), torch.zeros(7, dtype=to).copy_(t)), x, backend=backend)


@pytest.mark.parametrize("to", [torch.uint8, torch.int8, torch.int16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_narrow_integers_wrap_before_they_are_added_up(dtype, to, backend):
    x = torch.tensor([-1.5, -3.25, 2.5, -2.0, 5.0]).to(dtype)
    functions = lambda t: (t.sum(dtype=to), t.sum(0, dtype=to), t.prod(dtype=to), t.cumsum(0, dtype=to), t.cumprod(0, dtype=to),
                           torch.ops.aten.fill(torch.zeros(3, dtype=to), t[0]))  # fmt: skip
    same_as_eager(functions, x, backend=backend)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_values_put_where_a_mask_is_true(dtype, accumulate, backend):
    x = torch.arange(24).reshape(2, 3, 4).to(dtype)
    rows, columns = torch.tensor([[True, False, True], [False, False, True]]), torch.tensor([True, False, False, True])
    for mask, values in [
        ((rows,), (3, 4)), ((rows,), (4,)), ((rows,), (1, 4)), ((rows,), (3, 1)), ((rows,), ()), ((rows.byte(),), (3, 4)),
        ((None, None, columns), (2, 3, 2)), ((None, None, columns), (3, 2)), ((None, None, columns), (2,)),
        ((None, None, columns), (2, 3, 1)), ((rows & ~rows,), (0, 4)), ((rows & ~rows,), (1, 4)),
    ]:  # fmt: skip
        given = (torch.arange(math.prod(values)).reshape(values) % 3 - 1).to(dtype)

        def put(t, v, mask=mask):
            return torch.ops.aten.index_put(t, mask, v, accumulate)

        same_as_eager(put, x, given, backend=backend)


@pytest.mark.parametrize("to", [torch.float32, torch.float64, torch.int32, torch.int16, torch.complex128], ids=str)
def test_complex_numbers_seen_as_their_parts(to, backend):
    z = torch.randn(3, 4, dtype=torch.complex64)
    assert torch.equal(torch.compile(lambda t: (t * 2).view(to), backend=backend, dynamic=False)(z), (z * 2).view(to))
    x = torch.randn(3, 8).to(to)
    if to in (torch.float32, torch.float64):
        seen = torch.complex128 if to == torch.float64 else torch.complex64
        assert torch.equal(torch.compile(lambda t: (t + t).view(seen), backend=backend, dynamic=False)(x), (x + x).view(seen))


def test_empty_contraction(backend):
    same_as_eager(lambda a, b: a @ b + 1, torch.randn(3, 0), torch.randn(0, 4), backend=backend)


def test_max_of_an_empty_dimension_raises_as_eager(backend):
    compiled = torch.compile(lambda t: t.amax(1), backend=backend)
    with pytest.raises(Exception) as eager:
        torch.randn(3, 0).amax(1)
    with pytest.raises(Exception, match="amax"):
        compiled(torch.randn(3, 0))
    assert "amax" in str(eager.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_zero_dimensional(dtype, backend):
    x = torch.tensor(1).to(dtype)
    same_as_eager(lambda t: (t + 1, t * 2.5, t.float().exp(), t.sum()), x, backend=backend)


def test_zero_dimensional_tensors_do_not_promote(backend):
    half, single = torch.randn(4).bfloat16(), torch.tensor(1.5)
    ints = torch.arange(4, dtype=torch.int32)
    same_as_eager(lambda a, s: a * s + 1.25, half, single, backend=backend)
    same_as_eager(lambda a, s: (a * s, a / 2, a // 2, a + True), ints, single, backend=backend)


def test_logic_is_of_the_common_dtype(backend):
    """In which 256 is 0, and so is what float32 has no number for."""
    bytes_, floats = torch.tensor([[0], [2], [255]], dtype=torch.uint8), torch.randn(3)
    logic = lambda a, b: (torch.logical_and(a, b), torch.logical_or(a, b), torch.logical_xor(a, b))  # noqa: E731
    pairs = [(torch.tensor(number), bytes_) for number in (0, 1, 256, 257)]
    for a, b in (*pairs, (floats, torch.tensor(1e-60, dtype=torch.float64)), (floats.half(), floats > 0)):
        torch._dynamo.reset()
        for found, wanted in zip(torch.compile(logic, backend=backend, dynamic=False)(a, b), logic(a, b), strict=True):
            assert torch.equal(found, wanted), (a, b)


def test_size_one_dimensions_with_odd_strides(backend):
    for size, stride in [((1, 4), (99, 1)), ((4, 1), (1, 7)), ((1, 1, 3), (0, 5, 2))]:
        x = torch.empty_strided(size, stride).uniform_(-1, 1)
        same_as_eager(_pointwise, x, backend=backend)
        same_as_eager(lambda t: t.reshape(-1) + 1, x, backend=backend)
        same_as_eager(lambda t: t.sum(0), x, backend=backend)


# --- layouts --------------------------------------------------------------------------------


def test_offset_and_misaligned(backend):
    base = torch.randn(67)
    for start in range(4):
        same_as_eager(_pointwise, base[start : start + 61], backend=backend)


def test_one_graph_serves_aligned_and_misaligned_inputs(backend):
    base = torch.randn(1, 257)
    compiled = torch.compile(lambda t: torch.tanh(t) + 1, backend=backend)
    for offset in (0, 1, 3):
        x = base[0, offset : offset + 250]
        torch.testing.assert_close(compiled(x), torch.tanh(x) + 1)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_overlapping_input(backend):
    base = torch.randn(16)
    window = base.as_strided((5, 4), (1, 1))
    same_as_eager(_pointwise, window, backend=backend)
    same_as_eager(lambda t: (t.sum(0), t.sum(1), t.t() @ t), window, backend=backend)
    same_as_eager(lambda t: t.unfold(0, 4, 2) * 2, base, backend=backend)


def test_two_inputs_that_share_memory(backend):
    base = torch.randn(12)
    same_as_eager(lambda a, b: a * 2 + b, base[:8], base[4:], backend=backend)


@pytest.mark.by_aten(steps={"aten.as_strided_scatter.default"})
def test_mutating_an_input_that_another_overlaps(backend):
    base = torch.randn(12)

    def mutate(a, b):
        a.mul_(2)
        return b + 1

    same_as_eager(mutate, base[:8], base[4:], backend=backend)


@pytest.mark.parametrize("dtype", FLOATS)
def test_expanded(dtype, backend):
    row = torch.randn(1, 5).to(dtype).expand(3, 5)
    same_as_eager(_pointwise, row, backend=backend)
    same_as_eager(lambda t: (t.sum(0), t.sum(1), t + t.t()[0, 0]), row, backend=backend)
    same_as_eager(lambda t: t.expand(4, 3, 5) * 2, row, backend=backend)


@pytest.mark.parametrize("dtype", FLOATS)
def test_channels_last(dtype, backend):
    x = torch.randn(2, 6, 5, 4).to(dtype).to(memory_format=torch.channels_last)
    same_as_eager(_pointwise, x, backend=backend)
    same_as_eager(lambda t: (t.mean((2, 3)), t.sum(1), t + t.contiguous()), x, backend=backend)
    same_as_eager(lambda t: F.max_pool2d(F.relu(t), 2), x, backend=backend)


def test_channels_last_convolution(backend):
    layer = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.SiLU()).eval()
    x = torch.randn(2, 8, 9, 9).to(memory_format=torch.channels_last)
    same_as_eager(layer, x, backend=backend)


def test_transposed_and_strided_views(backend):
    x = torch.randn(6, 8, 10)
    for view in (x.transpose(0, 2), x.permute(1, 2, 0), x[::2, 1::3], x[:, ::4].transpose(0, 1)):
        same_as_eager(_pointwise, view, backend=backend)
        same_as_eager(lambda t: (t.sum(-1), t.reshape(-1) + 1), view, backend=backend)


def test_conj_and_neg_views(backend):
    z = torch.complex(torch.randn(5), torch.randn(5))
    same_as_eager(lambda t: t.real * 2, z.conj(), backend=backend)
    same_as_eager(lambda t: t * t + 1, z.conj(), backend=backend)
    same_as_eager(lambda t: t.exp() + 1, z.conj().imag, backend=backend)


# --- graphs ---------------------------------------------------------------------------------


def test_input_returned_as_output(backend):
    x = torch.randn(4)
    compiled = torch.compile(lambda t: (t, t + 1), backend=backend)
    out = compiled(x)
    assert out[0] is x
    same_as_eager(lambda t: (t, t + 1), x, backend=backend)


def test_view_of_input_returned(backend):
    x = torch.randn(4, 6)
    view, _ = torch.compile(lambda t: (t.t()[1:], t + 1), backend=backend)(x)
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    same_as_eager(lambda t: (t.t()[1:], t.view(-1), t + 1), x, backend=backend)


def test_mutated_input_returned(backend):
    same_as_eager(lambda t: t.add_(1), torch.randn(4), backend=backend)
    x = torch.randn(4)
    assert torch.compile(lambda t: t.add_(1), backend=backend)(x) is x


def test_same_tensor_twice(backend):
    x = torch.randn(4)
    same_as_eager(lambda a, b: a * b + a, x, x, backend=backend)

    def twice(t):
        y = t + 1
        return y, y, y.view(2, 2)

    same_as_eager(twice, x, backend=backend)
    a, b, c = torch.compile(twice, backend=backend)(x)
    assert a.data_ptr() == b.data_ptr() == c.data_ptr()


def test_mutating_one_of_two_equal_inputs(backend):
    x = torch.randn(4)

    def mutate(a, b):
        a.add_(1)
        return a * b

    same_as_eager(mutate, x, x, backend=backend)


def test_none_outputs(backend):
    same_as_eager(lambda t: (None, t + 1, [None]), torch.randn(4), backend=backend)


def test_no_outputs_but_a_mutation(backend):
    def mutate(t):
        t.mul_(2)

    same_as_eager(mutate, torch.randn(4), backend=backend)


def test_constants(backend):
    table = torch.tensor([1.0, 2.0, 3.0])
    same_as_eager(lambda t: t * torch.tensor([1.0, 2.0, 3.0]), torch.randn(3), backend=backend)
    same_as_eager(lambda t: t * table + torch.tensor(2), torch.randn(3), backend=backend)


def test_a_mutated_constant_is_fresh_in_each_call(backend):
    def accumulate(t):
        total = torch.tensor([1.0, 2.0, 3.0])
        total.add_(t)
        return total

    x = torch.randn(3)
    compiled = torch.compile(accumulate, backend=backend)
    first, second = compiled(x).clone(), compiled(x)
    assert torch.equal(first, second) and torch.equal(first, accumulate(x))


def test_outputs_of_two_calls_do_not_share_memory(backend):
    compiled = torch.compile(_pointwise, backend=backend)
    x, y = torch.randn(64), torch.randn(64)
    first = compiled(x)
    kept = first.clone()
    second = compiled(y)
    assert torch.equal(first, kept) and first.data_ptr() != second.data_ptr()


@pytest.mark.skipif(
    os.environ.get("TENON_TEST_HUGE") != "1",
    reason="needs 6 GiB of memory; set TENON_TEST_HUGE=1",
)
def test_more_than_2_to_the_31_elements(backend):
    x = torch.zeros(2**31 + 16, dtype=torch.int8)
    x[-1] = 5
    compiled = torch.compile(lambda t: (t + 1, (t * 2)[-3:]), backend=backend)
    with torch.no_grad():
        out, tail = compiled(x)
    assert out[-1] == 6 and out[2**31 - 1] == 1 and out[0] == 1
    assert tail.tolist() == [0, 0, 10]


# --- mutation, randomness -------------------------------------------------------------------


class _Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        self.count += 1
        self.seen[1:3].mul_(0.5).add_(x.mean(0)[1:3])
        return x + self.seen * self.count


def test_buffers_are_mutated(backend):
    same_as_eager(_Counting(), torch.randn(3, 4), backend=backend)
    eager, model = _Counting(), _Counting()
    compiled = torch.compile(model, backend=backend)
    for _ in range(3):
        x = torch.randn(3, 4)
        torch.testing.assert_close(compiled(x), eager(x))
    assert model.count == 3
    torch.testing.assert_close(model.seen, eager.seen)


def test_inputs_are_mutated(backend):
    def write(x, index, value):
        x[1:, ::2] = value
        x.t()[0].add_(1)
        index.add_(2)
        return x * 2

    x, value = torch.randn(4, 6), torch.randn(3, 3)
    same_as_eager(write, x, torch.arange(3), value, backend=backend)
    same_as_eager(write, torch.randn(6, 4).t(), torch.arange(3), value, backend=backend)


def test_batch_norm_statistics(backend):
    layer = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).train()
    same_as_eager(layer, torch.randn(2, 3, 8, 8), backend=backend)


def _bit_equal(function, *args, backend):
    compiled = torch.compile(function, backend=backend)
    compiled(*args)
    torch.manual_seed(7)
    wanted = function(*args)
    torch.manual_seed(7)
    found = compiled(*args)
    for w, f in zip(wanted, found):
        assert torch.equal(w, f)


@pytest.mark.parametrize("grad", [False, True])
def test_random_numbers_are_eagers(grad, backend):
    with torch.set_grad_enabled(grad):
        x = torch.ones(1000, requires_grad=grad)
        _bit_equal(lambda t: (F.dropout(t, 0.3),), x, backend=backend)
        _bit_equal(lambda t: (torch.rand_like(t), torch.randn(7), torch.rand(3)), x, backend=backend)
        _bit_equal(lambda t: (torch.rand_like(t), torch.rand_like(t)), x, backend=backend)
    x = torch.ones(1000)
    first, second = torch.compile(lambda t: (torch.rand_like(t), torch.rand_like(t)),
                                  backend=backend)(x)  # fmt: skip
    assert not torch.equal(first, second)


def test_dropout_in_training(backend):
    model = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.5), nn.GELU(), nn.Linear(32, 8)).train()
    same_as_eager(model, torch.randn(64, 16), backend=backend, train=True)


# --- training -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradients(dtype, backend):
    model = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8))
    x = torch.randn(64, 16).to(dtype).requires_grad_()
    same_as_eager(model.to(dtype), x, backend=backend, train=True)


def test_unused_and_frozen_parameters(backend):
    class Partial(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)
            self.frozen = nn.Linear(4, 4).requires_grad_(False)

        def forward(self, x):
            return self.frozen(self.used(x)), x.detach() * 2, None

    same_as_eager(Partial(), torch.randn(3, 4), backend=backend, train=True)


def test_backward_twice_through_a_retained_graph(backend):
    x = torch.randn(8, requires_grad=True)
    out = torch.compile(lambda t: torch.tanh(t * 2).exp(), backend=backend)(x).sum()
    (first,) = torch.autograd.grad(out, x, retain_graph=True)
    (second,) = torch.autograd.grad(out, x)
    assert torch.equal(first, second)
    (eager,) = torch.autograd.grad(torch.tanh(x * 2).exp().sum(), x)
    torch.testing.assert_close(first, eager)


def test_mutation_under_training(backend):
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

        def forward(self, x):
            return F.relu(self.norm(self.conv(x)), inplace=True)

    same_as_eager(Norm().train(), torch.randn(4, 3, 8, 8), backend=backend, train=True)


def test_embedding_and_cross_entropy(backend):
    class Classify(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Embedding(50, 16), nn.Linear(16, 10)

        def forward(self, ids):
            return F.cross_entropy(self.out(self.embed(ids)).flatten(0, 1), ids.flatten() % 10)

    same_as_eager(Classify(), torch.randint(0, 50, (4, 7)), backend=backend, train=True)


# --- dynamic shapes -------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [True, None])
def test_changing_sizes(dynamic, backend):
    def scale(x):
        y = F.softmax(x, -1) * x.shape[0]
        return y, y.reshape(-1)[: x.shape[1]], x.shape[0] + 1

    compiled = torch.compile(scale, backend=backend, dynamic=dynamic)
    for rows, columns in [(3, 5), (4, 5), (7, 9), (2, 33), (1, 5), (5, 1), (0, 5), (7, 9)]:
        x = torch.randn(rows, columns)
        wanted, found = scale(x), compiled(x)
        torch.testing.assert_close(found[0], wanted[0])
        torch.testing.assert_close(found[1], wanted[1])
        assert found[2] == wanted[2]


def test_changing_sizes_in_training(backend):
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Tanh())
    compiled = torch.compile(model, backend=backend, dynamic=True)
    for rows in (2, 3, 17, 4):
        x = torch.randn(rows, 8)
        model.zero_grad()
        compiled(x).square().sum().backward()
        found = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model(x).square().sum().backward()
        for f, p in zip(found, model.parameters()):
            torch.testing.assert_close(f, p.grad, rtol=1e-4, atol=1e-5)


def test_size_that_comes_from_a_stride(backend):
    compiled = torch.compile(_pointwise, backend=backend)
    base = torch.randn(40, 40)
    for width in (8, 12, 20, 31):
        x = base[:4, :width]
        torch.testing.assert_close(compiled(x), _pointwise(x))
        x = base.t()[:4, :width]
        torch.testing.assert_close(compiled(x), _pointwise(x))


def test_operator_that_returns_views_with_gaps_between_rows(backend):
    def parts(x):
        a, b = torch.unsafe_split(x * 2, 64, 1)
        return a + b, a * b

    same_as_eager(parts, torch.randn(16, 128), backend=backend)


# --- indices, and what they are proved to be ---------------------------------------------------------


@pytest.mark.parametrize("index", [
    lambda: torch.arange(300).to(torch.int8).long(),
    lambda: (torch.arange(100, dtype=torch.int8) * 2).long(),
    lambda: (torch.arange(100, dtype=torch.int8) + 100).long(),
    lambda: (torch.arange(100, dtype=torch.int16) * 400 // 400).long(),
])  # fmt: skip
def test_indices_that_wrap_around_in_their_type(index, backend):
    x = torch.arange(300.0)
    same_as_eager(lambda x: x[index()] * 2, x, backend=backend)
    same_as_eager(lambda x: torch.zeros(300).index_put((index(),), x[: index().numel()], accumulate=True), x, backend=backend)


def test_an_index_that_wraps_out_of_range_is_refused(backend):
    compiled = torch.compile(lambda x: x.index_select(0, (torch.arange(3, dtype=torch.uint8) - 1).int()) + 1, backend=backend)
    with pytest.raises(IndexError):
        compiled(torch.randn(100))


def test_nothing_is_taken_of_nothing(backend):
    x, index = torch.randn(0, 3), torch.empty(0, dtype=torch.long)
    same_as_eager(lambda x, i: x[i] + 1, x, index, backend=backend)
    same_as_eager(lambda x, i: x.index_select(0, i) + 1, x, index, backend=backend)
    same_as_eager(lambda x, i: F.embedding(i, x) + 1, x, index, backend=backend)
    same_as_eager(lambda x, i: x[i, i] + 1, x, index, backend=backend)


@pytest.mark.by_aten(
    steps=("aten.max.dim", "aten.min.dim", "aten.max.default", "aten.median.dim", "aten.nanmedian.dim", "aten.mode.default")
)
@pytest.mark.parametrize("function", [
    lambda x: x.max(0), lambda x: x.min(0), lambda x: x.max(), lambda x: x.median(0), lambda x: x.nanmedian(0), lambda x: x.mode(0),
    lambda x: x.long().max(0),
], ids=["max", "min", "max of all", "median", "nanmedian", "mode", "long"])  # fmt: skip
def test_extrema_of_no_elements_are_eagers_errors(function, tenon):
    x = torch.empty(0, 4)
    with pytest.raises((IndexError, RuntimeError)) as eager:
        function(x)
    with pytest.raises((IndexError, RuntimeError)) as found:
        torch.compile(lambda x: function(x + 1), backend="tenon")(x)
    assert str(eager.value).splitlines()[0] in str(found.value)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_resampling_of_an_empty_batch(mode, backend):
    same_as_eager(lambda x: F.interpolate(x * 2, scale_factor=2, mode=mode), torch.empty(0, 3, 4, 4), backend=backend)


@pytest.mark.parametrize("function", [
    lambda i: i * 1.1, lambda i: i / 3, lambda i: i // 0.3, lambda i: i * 0.1 > 25.7, lambda i: torch.exp(i / 100),
    lambda i: torch.sigmoid(i),
    lambda i: (i > 3) * 0.1, lambda i: i * (1 + 0.3j),
])  # fmt: skip
def test_integers_in_the_math_of_the_default_dtype(function, tenon):
    i = torch.arange(1000)
    of_f32 = torch.compile(function, backend="tenon")(i)
    torch._dynamo.reset()
    torch.set_default_dtype(torch.float64)
    try:
        found, wanted = torch.compile(function, backend="tenon")(i), function(i)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == wanted.dtype and (of_f32.dtype != found.dtype or found.dtype == torch.bool)
    torch.testing.assert_close(found, wanted, rtol=1e-14, atol=0)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_a_grid_that_is_no_number(mode, padding, backend):
    x, grid = torch.randn(2, 3, 5, 6), torch.rand(2, 4, 4, 2) * 2.4 - 1.2
    grid[0, 0, 0, 0], grid[1, 2] = math.nan, math.nan
    sample = functools.partial(F.grid_sample, mode=mode, padding_mode=padding, align_corners=False)
    same_as_eager(sample, x, grid, backend=backend)
    if mode != "bicubic":
        same_as_eager(sample, torch.randn(2, 3, 4, 5, 6), torch.cat([grid, grid[..., :1]], -1)[:, None], backend=backend)


def test_deterministic_mode_fills_new_memory(backend):
    def fresh(x):
        return torch.empty(2, 3), torch.empty_like(x), x.new_empty(2, dtype=torch.int32), torch.empty(2, dtype=torch.complex64), x + 1

    compiled = torch.compile(fresh, backend=backend)
    torch.use_deterministic_algorithms(True)
    try:
        for found, wanted in zip(compiled(torch.zeros(4)), fresh(torch.zeros(4)), strict=True):
            torch.testing.assert_close(found, wanted, equal_nan=True, rtol=0, atol=0)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_logarithms_of_powers_are_whole(dtype, backend):
    compiled = torch.compile(lambda x, y: (torch.log2(x), torch.log10(y), torch.log2(x).floor().long()), backend=backend)
    most = 126 if dtype is torch.float32 else 1022
    exponents = torch.arange(-most, most + 1)
    powers, tens = torch.ldexp(torch.ones(2 * most + 1, dtype=dtype), exponents), torch.arange(23 if dtype is torch.float64 else 11)
    twos, of_ten, floors = compiled(powers, torch.tensor([10.0**int(n) for n in tens], dtype=dtype))
    assert torch.equal(twos, exponents.to(dtype)) and torch.equal(floors, exponents) and torch.equal(of_ten, tens.to(dtype))
    x = torch.cat([torch.rand(1000, dtype=dtype) * 100, torch.tensor([0.0, -1.0, math.inf, math.nan, 1e-40], dtype=dtype)])
    same_as_eager(lambda x: (torch.log2(x), torch.log10(x)), x, backend=backend)


def test_logarithms_of_complex_infinities(backend):
    x = torch.tensor([complex(0, 0), complex(math.inf, 0), complex(1, math.inf), complex(3, -4)])
    for function in (torch.log2, torch.log10):
        torch.testing.assert_close(torch.compile(function, backend=backend)(x), function(x), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_linspace_of_integers(dtype, backend):
    last = 254.9 if dtype is torch.uint8 else 100_000_007.9

    def both():
        return torch.linspace(0.5, last, 11, dtype=dtype), torch.linspace(10.9, 0.5, 5, dtype=dtype)

    assert all(map(torch.equal, torch.compile(both, backend=backend)(), both()))


def test_a_hinge_at_its_corner_has_no_gradient(backend):
    x = torch.tensor([[0.5, 1.0, 0.0]])
    same_as_eager(lambda x: F.multilabel_margin_loss(x, torch.tensor([[1, -1, 0]])), x.requires_grad_(), backend=backend, train=True)
