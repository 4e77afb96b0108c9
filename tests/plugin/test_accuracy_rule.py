"""The accuracy rule itself: what it accepts, and that planted wrong results do not pass."""

import math

import pytest
import torch
from torch import nn

from torch_tenon.testing import check_model, compare


def _values(count=1000, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, generator=generator, dtype=torch.float64)


def _rounded(truth, ulps, dtype=torch.float32):
    """`truth` with an error of about `ulps` of `dtype`, alternating in sign."""
    sign = torch.ones_like(truth)
    sign[::2] = -1
    return (truth * (1 + ulps * sign * torch.finfo(dtype).eps)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_result_as_good_as_eager_passes(dtype):
    truth = _values()
    report = compare(truth.to(dtype), _rounded(truth, 1, dtype), truth)
    assert report.ok, str(report)


def test_rmse_is_bounded_by_twice_eagers():
    truth = _values() * 1e-3 + 1  # the 1e-5 slack stays below 200 ulps
    eager = _rounded(truth, 300)
    assert compare(_rounded(truth, 500), eager, truth).ok
    report = compare(_rounded(truth, 900), eager, truth)
    assert "RMSE" in report.failures[0]


def test_few_elements_get_a_factor_of_three():
    truth = _values(8) * 1e-3 + 1
    assert compare(_rounded(truth, 700), _rounded(truth, 300), truth).ok


def test_one_bad_element_is_caught_by_the_max_rule():
    truth = _values(1_000_000)
    candidate = truth.float()
    candidate[17] += 0.005
    report = compare(candidate, truth.float(), truth)
    assert not report.ok and "max error" in report.failures[0]


def test_integers_and_bools_are_exact():
    eager = torch.arange(10)
    assert compare(eager.clone(), eager, None).ok
    assert not compare(eager + (eager == 3), eager, None).ok
    assert not compare(eager > 3, eager > 4, None).ok


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_masks_of_non_finite_values_equal_eagers(special):
    truth = _values()
    eager = truth.float()
    eager[5] = special
    assert compare(eager.clone(), eager, truth).ok
    report = compare(truth.float(), eager, truth)
    assert not report.ok and "mask" in report.failures[0]
    report = compare(-eager, eager, truth)
    assert not report.ok


def test_dtype_shape_and_strides_are_eagers():
    truth = _values(12).view(3, 4)
    eager = truth.float()
    assert "dtype" in compare(truth, eager, truth).failures[0]
    assert "shape" in compare(eager.view(4, 3), eager, truth).failures[0]
    transposed = eager.t().contiguous().t()
    assert "strides" in compare(transposed, eager, truth).failures[0]
    assert compare(transposed, eager, truth, check_strides=False).ok
    odd = torch.empty_strided((1, 4), (99, 1)).copy_(eager[:1])
    assert compare(odd, eager[:1], truth[:1]).ok


def test_structure_none_and_scalars():
    truth = _values()
    eager = {"a": truth.float(), "b": [None, 3, "x", math.nan]}
    assert compare(dict(eager), eager, None).ok
    assert not compare({"a": eager["a"], "b": [None, 4, "x", math.nan]}, eager, None).ok
    assert "structure" in compare([eager["a"]], eager, None).failures[0]
    with pytest.raises(AssertionError, match="accuracy rule not met"):
        compare([eager["a"]], eager, None).raise_if_failed()


@pytest.mark.parametrize(
    "truth",
    [torch.zeros(20), torch.full((20,), 3.0), torch.full((20,), math.nan), _values() * 1e-4],
)
def test_vacuous_outputs_fail_unless_allowed(truth):
    truth = truth.double()
    report = compare(truth.float(), truth.float(), truth)
    assert not report.ok and "vacuous" in report.failures[0]
    assert compare(truth.float(), truth.float(), truth, vacuous_ok=True).ok


def test_eager_far_from_the_reference_is_vacuous():
    truth = _values()
    eager = _values(seed=1).float()
    assert "vacuous: eager is" in compare(eager, eager, truth).failures[0]


def test_without_reference_eager_stands_in():
    eager = _values().float()
    assert compare(eager * (1 + 1e-7), eager, None).ok
    assert not compare(eager * (1 + 1e-4), eager, None).ok
    assert compare(_values().bfloat16(), _values().bfloat16(), None).ok


def test_complex_and_empty():
    truth = torch.complex(_values(), _values(seed=1))
    eager = truth.to(torch.complex64)
    assert compare(eager.clone(), eager, truth).ok
    assert not compare(eager.conj(), eager, truth).ok
    empty = torch.empty(0, 4)
    assert compare(empty, empty, empty.double()).ok


def test_huge_and_tiny_values_neither_overflow_nor_vanish():
    for scale in (1e300, 1e-300):
        truth = _values() * scale
        assert compare(truth.clone(), truth, truth, vacuous_ok=True).ok
        assert not compare(truth * 1.001, truth, truth, vacuous_ok=True).ok


# --- planted wrong backends: check_model must refuse each ---------------------------------------


class _Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(32, 64), nn.Linear(64, 16)

    def forward(self, x):
        y = torch.log(self.first(x))  # NaN where negative
        return self.second(torch.tanh(self.first(x))), y


def _spoiling(change):
    """The eager backend with `change` applied to its list of outputs."""

    def backend(graph_module, example_inputs):
        return lambda *inputs: tuple(change(list(graph_module(*inputs))))

    return backend


def _perturb(outputs):
    return [outputs[0] * 1.01, *outputs[1:]]


def _flip_nan(outputs):
    flipped = outputs[1].clone()
    flipped[flipped.isnan().nonzero(as_tuple=True)[0][:1], :] = 1.0
    return [outputs[0], flipped]


def _restride(outputs):
    return [outputs[0].t().contiguous().t(), *outputs[1:]]


def _case():
    torch.manual_seed(0)
    return _Net(), (torch.randn(8, 32),)


def test_an_honest_backend_passes():
    model, args = _case()
    report = check_model(model, args, backend=_spoiling(lambda outputs: outputs))
    assert report.ok, str(report)
    assert report.coverage == 1.0 and report.capture.graphs == 1


@pytest.mark.parametrize(
    "change, word", [(_perturb, "RMSE"), (_flip_nan, "NaN mask"), (_restride, "strides")]
)
def test_a_planted_wrong_backend_fails(change, word):
    model, args = _case()
    report = check_model(model, args, backend=_spoiling(change))
    assert not report.ok and any(word in failure for failure in report.failures), str(report)


def test_a_wrong_gradient_fails():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad * 1.01

    model = nn.Sequential(nn.Linear(8, 8), nn.GELU())
    spoil = _spoiling(lambda outputs: [Wrong.apply(outputs[0])])
    report = check_model(model, (torch.randn(4, 8),), backend=spoil, train=True)
    assert not report.ok and all("grad:" in failure for failure in report.failures)


def test_a_vacuous_model_fails():
    model = nn.Linear(32, 16)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    report = check_model(model, (torch.randn(8, 32),), backend="aot_eager")
    assert not report.ok and "vacuous" in report.failures[0]


def test_a_lost_mutation_fails():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x):
            self.seen.add_(x.sum(0))
            return x + self.seen

    lose = _spoiling(lambda outputs: outputs)

    def forgetful(graph_module, example_inputs):
        inner = lose(graph_module, example_inputs)
        return lambda *inputs: inner(*(t.clone() for t in inputs))

    report = check_model(Counting(), (torch.randn(8, 4),), backend=forgetful)
    assert not report.ok and any("after:buffer:seen" in f for f in report.failures), str(report)
    assert check_model(Counting(), (torch.randn(8, 4),), backend="aot_eager").ok


def test_more_graphs_than_the_baseline_fails():
    class Breaking(nn.Module):
        def forward(self, x):
            return x.sin() + 1

    def refuse(graph_module, example_inputs):
        torch._dynamo.utils.counters["graph_break"]["planted"] += 1
        return graph_module

    report = check_model(Breaking(), (torch.randn(8),), backend=refuse)
    assert any("breaks" in failure for failure in report.failures)


def test_ops_outside_of_graphs_are_counted():
    def half(x):
        y = x.sin() + 1
        torch._dynamo.graph_break()
        return y.cos() * 2

    @torch._dynamo.disable
    def outside(x):
        return x.sin() + 1

    def escaping(x):
        return outside(x).cos() * 2

    x = torch.randn(8)
    assert check_model(half, (x,), backend="aot_eager").coverage == 1.0
    report = check_model(escaping, (x,), backend="aot_eager")
    assert report.ok and report.coverage == 0.5


def test_without_float64_the_report_says_so():
    class Narrow(nn.Module):
        def forward(self, x):
            if x.dtype == torch.float64:
                raise NotImplementedError('"op" not implemented for Double')
            return x * 2

    report = check_model(Narrow(), (torch.randn(8),), backend="eager")
    assert report.ok and "no float64 reference" in str(report)
