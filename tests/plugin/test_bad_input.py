"""What a user can get wrong at call time: eager's exceptions, and named ones of our own."""

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx


def _raises_as_eager(function, good, bad, backend):
    """`bad` raises eager's exception type, and the same compiled code still serves `good`."""
    compiled = torch.compile(function, backend=backend)
    torch.testing.assert_close(compiled(*good), function(*good))
    with pytest.raises(Exception) as eager:
        function(*bad)
    with pytest.raises(Exception) as found:
        compiled(*bad)
    assert type(found.value) is type(eager.value), (found.value, eager.value)
    torch.testing.assert_close(compiled(*good), function(*good))


X = torch.randn(5, 4)
GOOD = torch.tensor([0, 4, 2])


@pytest.mark.parametrize("index", [5, 1000, -6])
def test_index_out_of_range(index, backend):
    bad = torch.tensor([0, index, 2])
    _raises_as_eager(lambda x, i: x[i] * 2, (X, GOOD), (X, bad), backend)
    _raises_as_eager(lambda x, i: x.index_select(0, i) + 1, (X, GOOD), (X, bad), backend)


@pytest.mark.parametrize("index", [5, -1])
def test_embedding_and_gather_out_of_range(index, backend):
    bad = torch.tensor([0, index, 2])
    _raises_as_eager(lambda x, i: F.embedding(i, x) * 2, (X, GOOD), (X, bad), backend)
    column = lambda i: i[:, None].expand(3, 4).contiguous()
    _raises_as_eager(
        lambda x, i: torch.gather(x, 0, i) + 1, (X, column(GOOD)), (X, column(bad)), backend
    )


def test_scatter_out_of_range(backend):
    source, bad = torch.randn(3, 4), torch.tensor([0, 9, 2])
    _raises_as_eager(
        lambda x, i, s: x.index_add(0, i, s) + 1, (X, GOOD, source), (X, bad, source), backend
    )


def test_an_error_leaves_mutated_inputs_alone(backend):
    def gather_then_write(x, i):
        y = x[i] * 2
        x.add_(1)
        return y

    compiled = torch.compile(gather_then_write, backend=backend)
    x = X.clone()
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([0, 7, 2]))
    assert torch.equal(x, X)


@pytest.mark.parametrize("mode", ["floor", "trunc"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_integer_division_by_zero(mode, dtype, backend):
    a = torch.tensor([4, 7, 9], dtype=dtype)
    good, bad = torch.tensor([2, 3, 5], dtype=dtype), torch.tensor([2, 0, 5], dtype=dtype)
    _raises_as_eager(
        lambda x, y: torch.div(x, y, rounding_mode=mode) + 1, (a, good), (a, bad), backend
    )


def test_integer_remainder_by_zero(backend):
    a, good, bad = torch.tensor([4, -7, 9]), torch.tensor([2, 3, -5]), torch.tensor([2, 0, 5])
    _raises_as_eager(lambda x, y: x % y + 1, (a, good), (a, bad), backend)
    _raises_as_eager(lambda x, y: torch.fmod(x, y) + 1, (a, good), (a, bad), backend)


def test_float_division_by_zero_is_no_error(backend):
    a, b = torch.tensor([1.0, -1.0, 0.0]), torch.zeros(3)
    found = torch.compile(lambda x, y: (x / y, x // y, x % y), backend=backend)(a, b)
    for f, w in zip(found, (a / b, a // b, a % b)):
        torch.testing.assert_close(f, w, equal_nan=True)


# --- the executable itself -------------------------------------------------------------------


@pytest.fixture
def executable(tenon):
    x, y = torch.randn(3, 4), torch.randn(3, 4)  # one tensor twice would be traced as one
    graph = make_fx(lambda a, b: [torch.ops.aten.add.Tensor(a, b)])(x, y)
    return tenon.compile_graph(graph, [x, y])


def test_executable_runs(executable):
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    torch.testing.assert_close(executable([x, y])[0], x + y)


@pytest.mark.parametrize(
    "make, word",
    [
        (lambda x: [x], "2"),
        (lambda x: [x, x, x], "2"),
        (lambda x: [x, x.double()], "dtype|float"),
        (lambda x: [x, x.to("meta")], "device|meta"),
        (lambda x: [x, torch.randn(4, 3)], "shape|size|stride"),
        (lambda x: [x, torch.randn(12)], "shape|size|rank"),
        (lambda x: [x, None], "Tensor|tensor|None"),
        (lambda x: [x, 3], "Tensor|tensor|int"),
    ],
)
def test_wrong_inputs_are_named(executable, make, word):
    x = torch.randn(3, 4)
    with pytest.raises((TypeError, ValueError, RuntimeError), match=word):
        executable(make(x))
    torch.testing.assert_close(executable([x, x])[0], x + x)


def test_not_a_list(executable):
    with pytest.raises((TypeError, ValueError)):
        executable(3)


# --- options ----------------------------------------------------------------------------------


def test_unknown_option_is_refused(tenon):
    compiled = torch.compile(lambda t: t + 1, backend="tenon", options={"no_such_option": 1})
    with pytest.raises(Exception, match="no_such_option"):
        compiled(torch.randn(3))


def test_bad_option_value_is_refused(tenon):
    compiled = torch.compile(lambda t: t + 1, backend="tenon", options={"fallback": "sometimes"})
    with pytest.raises(Exception, match="sometimes"):
        compiled(torch.randn(3))


def test_mode_is_accepted(tenon):
    compiled = torch.compile(lambda t: t + 1, backend="tenon", mode="max-autotune")
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), x + 1)


@pytest.mark.by_aten(steps={"aten._linalg_svd.default"})
def test_fallback_modes(tenon):
    def sorted_values(t):
        return torch.linalg.svdvals(t) + 1

    x = torch.randn(4, 4)
    allow = torch.compile(sorted_values, backend="tenon", options={"fallback": "allow"})
    torch.testing.assert_close(allow(x), sorted_values(x))
    torch._dynamo.reset()
    error = torch.compile(sorted_values, backend="tenon", options={"fallback": "error"})
    with pytest.raises(Exception, match="svd"):
        error(x)
    torch._dynamo.reset()
    warn = torch.compile(sorted_values, backend="tenon", options={"fallback": "warn"})
    with pytest.warns(Warning, match="svd"):
        warn(x)
