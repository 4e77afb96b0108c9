"""Reductions are as exact as eager's: RMSE against float64 at most 1.5 times eager's.

Eager's CPU kernels add in cascades, and in float64 for variances, batch norm and running sums.
docs/accuracy.md has the figures.
"""

import pytest
import torch

from plugin.reductions import CASES, Case, measure

LIMIT = 1.5


def _params():
    return [
        pytest.param(
            case, dtype, id=f"{case.name} {str(dtype).removeprefix('torch.')}",
            marks=() if case.quick else pytest.mark.slow,
        )
        for case in CASES.values()
        for dtype in case.dtypes
    ]  # fmt: skip


@pytest.mark.parametrize("case, dtype", _params())
def test_as_exact_as_eager(case: Case, dtype, tenon):
    torch._dynamo.config.recompile_limit = 64
    tenon.reset_stats()
    with torch.no_grad():
        found = measure(case, dtype, lambda f: torch.compile(f, backend="tenon", dynamic=False))
    graphs = [g for g in tenon.stats()["graphs"] if g["calls"] > 0]
    assert graphs and all(g["tier"] == "native" and not g["aten_steps"] for g in graphs), graphs
    assert found.ratio <= LIMIT, f"RMSE of tenon {found.tenon}, of eager {found.eager}: {found.ratio:.2f} times"


def _bits(threads: int, function, inputs):
    old = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return function(*inputs)
    finally:
        torch.set_num_threads(old)


@pytest.mark.parametrize(
    "name",
    [
        "sum of 10^6",
        "sum of 999,983 (a prime)",
        "std of 300,000",
        "cumsum of 10^6",
        "sum of columns 100,000x3",
        "group norm 4x32x32x32, channels last",
    ],
)
def test_same_bits_for_any_number_of_threads(name, tenon):
    case = CASES[name]
    inputs = case.inputs(0, torch.float32)
    results = []
    for threads in (1, 2, 3):
        torch._dynamo.reset()
        compiled = torch.compile(case.function, backend="tenon", dynamic=False)
        results.append(_bits(threads, compiled, inputs))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_a_sum_to_one_result_is_split(tenon):
    """Two kernels: what threads share, and the sum of their pieces."""
    tenon.reset_stats()
    torch.compile(lambda x: x.sum(), backend="tenon")(torch.ones(1 << 20))
    (graph,) = [g for g in tenon.stats()["graphs"] if g["calls"] > 0]
    assert graph["tier"] == "native" and graph["kernels"] == 2


def test_what_is_summed_fuses_with_the_pieces(tenon):
    tenon.reset_stats()
    torch.compile(torch.nn.functional.mse_loss, backend="tenon")(torch.ones(1 << 20), torch.zeros(1 << 20))
    (graph,) = [g for g in tenon.stats()["graphs"] if g["calls"] > 0]
    assert graph["tier"] == "native" and graph["kernels"] == 2
    assert graph["planned_bytes"] < 1 << 16  # no array of differences


@pytest.mark.parametrize("dim", [0, 1, None])
def test_equal_numbers_have_no_variance(dim, tenon):
    """Eager's is exactly zero, and what divides by it infinite or NaN."""
    x = torch.full((1000, 300), 0.1) if dim is None else torch.linspace(-3, 7, 600)[:300].expand(1000, 300).clone()
    x = x.t().contiguous() if dim == 1 else x
    function = lambda x: torch.var_mean(x, dim)
    var, mean = torch.compile(function, backend="tenon", dynamic=False)(x)
    eager = function(x)
    assert torch.equal(var, eager[0]) and not var.any()
    assert torch.equal(mean, eager[1].double().float()) or (mean - eager[1]).abs().max() <= 1e-7 * eager[1].abs().max()


def test_an_offset_costs_no_accuracy(tenon):
    """1,000 times the spread."""
    x = (1e3 + torch.randn(64, 3000)).contiguous()
    for function in (lambda x: x.var(1), lambda x: x.t().contiguous().var(0)):
        reference = x.double().var(1)
        found = torch.compile(function, backend="tenon", dynamic=False)(x)
        rmse = lambda y: (y.double() - reference).square().mean().sqrt().item()
        assert rmse(found) <= LIMIT * rmse(function(x))
