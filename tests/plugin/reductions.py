"""Reductions whose accuracy is measured: RMSE against float64, tenon's over eager's.

Data are offset by 100 times their spread, where a chain of additions is at its worst. A case's
error is taken over all elements of its results and over several seeds; a result of few elements
takes more seeds. Shared by test_reduction_accuracy.py and tools/dev/reduction_accuracy.py.
"""

import dataclasses
from typing import Callable

import torch
import torch.nn.functional as F

CASES: dict[str, "Case"] = {}


@dataclasses.dataclass
class Case:
    name: str
    function: Callable  # of the inputs: a tensor or a tuple of them
    shapes: tuple  # of the inputs
    offset: float = 100.0
    seeds: int = 3
    quick: bool = True  # part of every test run; the rest is measured by `make test-slow` and the tool
    dtypes: tuple = (torch.float32, torch.bfloat16, torch.float16)

    def inputs(self, seed: int, dtype: torch.dtype) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        return [
            (self.offset + torch.randn(shape, generator=generator)).to(dtype) for shape in self.shapes
        ]


def _case(name, function, *shapes, **fields):
    CASES[name] = Case(name, function, shapes, **fields)


F32 = (torch.float32,)

_case("sum of 10^7", lambda x: x.sum(), (10_000_000,), seeds=8, quick=False, dtypes=F32)
_case("mean of 10^7", lambda x: x.mean(), (10_000_000,), seeds=8, quick=False)
_case("sum of 10^6", lambda x: x.sum(), (1_000_000,), seeds=12, dtypes=F32)
_case("sum of 999,983 (a prime)", lambda x: x.sum(), (999_983,), seeds=12, dtypes=F32)
_case("mean of 10^6", lambda x: x.mean(), (1_000_000,), seeds=12)
_case("mse_loss of 3*10^6", F.mse_loss, (3_000_000,), (3_000_000,), seeds=8, quick=False, dtypes=F32)
_case("mse_loss of 300,000", F.mse_loss, (300_000,), (300_000,), seeds=12)
_case("std of 3*10^6", lambda x: x.std(), (3_000_000,), seeds=8, quick=False, dtypes=F32)
_case("std of 300,000", lambda x: x.std(), (300_000,), seeds=12, dtypes=F32)
_case("norm of 10^6", lambda x: x.norm(), (1_000_000,), seeds=12, dtypes=F32)
_case("logsumexp of 10^6", lambda x: x.logsumexp(0), (1_000_000,), seeds=12)
_case("sum of rows 8x400,000", lambda x: x.sum(1), (8, 400_000), dtypes=F32)
_case("sum of rows 512x1,000", lambda x: x.sum(1), (512, 1000), dtypes=F32)
_case("mean of rows 64x30,000", lambda x: x.mean(1), (64, 30_000))
_case("var of rows 512x1,000", lambda x: x.var(1), (512, 1000))
_case("norm of rows 64x30,000", lambda x: x.norm(dim=1), (64, 30_000), dtypes=F32)
_case("logsumexp of rows 64x30,000", lambda x: x.logsumexp(1), (64, 30_000))
_case("softmax of rows 16x50,000", lambda x: x.softmax(1), (16, 50_000), offset=0.0)
_case("sum of columns 100,000x32", lambda x: x.sum(0), (100_000, 32), dtypes=F32)
_case("sum of columns 100,000x3", lambda x: x.sum(0), (100_000, 3), dtypes=F32)
_case("sum of columns 1,000x512", lambda x: x.sum(0), (1000, 512), dtypes=F32)
_case("mean of columns 20,000x100", lambda x: x.mean(0), (20_000, 100))
_case("var of columns 65,536x32", lambda x: x.var(0), (65_536, 32), dtypes=F32)
_case("norm of columns 20,000x100", lambda x: x.norm(dim=0), (20_000, 100), dtypes=F32)
_case("sum of a middle dim 8x20,000x40", lambda x: x.sum(1), (8, 20_000, 40), dtypes=F32)
_case("sum of outer and inner dims 64x16x3,136", lambda x: x.sum((0, 2)), (64, 16, 3136), dtypes=F32)
_case("var_mean of outer and inner dims 64x16x784", lambda x: torch.var_mean(x, (0, 2)), (64, 16, 784), dtypes=F32)
_case("cumsum of 5,000", lambda x: x.cumsum(0), (5_000,), dtypes=(torch.float32, torch.bfloat16))
_case("cumsum of 10^6", lambda x: x.cumsum(0), (1_000_000,), dtypes=F32)
_case("cumsum of columns 5,000x40", lambda x: x.cumsum(0), (5_000, 40), dtypes=F32)
_case("cumprod of 4,000", lambda x: (1 + x * 1e-3).cumprod(0), (4_000,), offset=0.0, dtypes=F32)
_case("logcumsumexp of 20,000", lambda x: x.logcumsumexp(0), (20_000,))


def _by_index(add):
    """add(zeros, index, x): rows of x that have one index are summed."""
    return lambda x: add(torch.zeros(100, x.shape[1], dtype=x.dtype), torch.arange(x.shape[0]) * 7919 % 100, x)


_case("index_add of 20,000x16 into 100", _by_index(lambda y, i, x: y.index_add(0, i, x)), (20_000, 16))
_case("index_add by 1/3 of 20,000x16 into 100", _by_index(lambda y, i, x: y.index_add(0, i, x, alpha=1 / 3)), (20_000, 16))
_case("scatter_add of 20,000x16 into 100", _by_index(lambda y, i, x: y.scatter_add(0, i[:, None].expand_as(x), x)), (20_000, 16))
_case("index_put of 20,000x16 into 100", _by_index(lambda y, i, x: y.index_put((i,), x, accumulate=True)), (20_000, 16))


def _batch_norm(x):
    """Output and running statistics."""
    channels = x.shape[1]
    mean, var = torch.zeros(channels, dtype=x.dtype), torch.ones(channels, dtype=x.dtype)
    y, save_mean, save_rstd, mean, var = torch.ops.aten._native_batch_norm_legit_functional(
        x, None, None, mean, var, True, 0.1, 1e-5
    )
    return y, save_mean, save_rstd, mean, var


def _batch_norm_backward(grad, x, mean, rstd):
    rstd = 1 + rstd.abs()
    return torch.ops.aten.native_batch_norm_backward(
        grad, x, None, None, None, mean, rstd, True, 1e-5, [True, True, True]
    )


_case("batch norm 16x24x56x56", lambda x: _batch_norm(x)[1:], (16, 24, 56, 56), dtypes=F32)
_case("batch norm, few values 1x256x2x2", lambda x: _batch_norm(x)[1:], (1, 256, 2, 2), dtypes=F32)
_case(
    "batch norm backward 8x24x28x28", _batch_norm_backward,
    (8, 24, 28, 28), (8, 24, 28, 28), (24,), (24,), offset=1.0, dtypes=F32,
)  # fmt: skip
_case("layer norm 64x768", lambda x: F.layer_norm(x, (768,)), (64, 768), offset=1.0)
_case("group norm 4x32x32x32", lambda x: F.group_norm(x, 8), (4, 32, 32, 32), offset=1.0)
_case(
    "group norm 4x32x32x32, channels last",
    lambda x: F.group_norm(x.to(memory_format=torch.channels_last), 8), (4, 32, 32, 32), offset=1.0,
)  # fmt: skip


def _flat(values) -> list[torch.Tensor]:
    return [values] if isinstance(values, torch.Tensor) else list(values)


def _squared(found, reference) -> tuple[list[float], list[int]]:
    """Sums of squared errors and numbers of elements, per result."""
    errors = [f.double() - r for f, r in zip(_flat(found), _flat(reference))]
    assert all(e.isfinite().all() for e in errors), "a result isn't finite"
    return [e.square().sum().item() for e in errors], [e.numel() for e in errors]


@dataclasses.dataclass
class Measured:
    tenon: list[float]  # RMSE against float64, per result
    eager: list[float]

    @property
    def ratio(self) -> float:
        """The worst result's. Where eager is exact, tenon must be."""
        return max(
            t / e if e > 0 else (0.0 if t == 0 else float("inf")) for t, e in zip(self.tenon, self.eager)
        )


def measure(case: Case, dtype: torch.dtype, compile_function: Callable) -> Measured:
    """`compile_function` makes tenon's callable of the case's function."""
    compiled = compile_function(case.function)
    totals: dict[str, list[float]] = {}
    counts: list[float] = []
    for seed in range(case.seeds):
        inputs = case.inputs(seed, dtype)
        reference = case.function(*[x.double() for x in inputs])
        for name, function in (("tenon", compiled), ("eager", case.function)):
            squares, elements = _squared(function(*inputs), reference)
            totals[name] = [a + b for a, b in zip(totals.get(name, [0.0] * len(squares)), squares)]
        counts = [a + b for a, b in zip(counts or [0] * len(elements), elements)]
    rmse = {name: [(s / n) ** 0.5 for s, n in zip(sums, counts)] for name, sums in totals.items()}
    return Measured(rmse["tenon"], rmse["eager"])
