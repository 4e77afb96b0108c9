"""Batch norm of a training step has eager's bits.

Behind a batch of few values a last bit turns ReLUs over, and then no gradient is near that of eager:
the nets of models/small_cnns.py, one image a step.
"""

import pytest
import torch

SHAPES = [(1, 58, 8, 8), (4, 24, 17, 17), (1, 1024, 2, 2), (2, 48, 1, 5), (8, 16, 56, 56)]


def _normalized(x, weight, bias):
    mean, var = torch.zeros(x.shape[1]), torch.ones(x.shape[1])
    y, save_mean, save_rstd, *_ = torch.ops.aten._native_batch_norm_legit_functional(
        x, weight, bias, mean, var, True, 0.1, 1e-5
    )
    return y, save_mean, save_rstd


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_training_step_has_eagers_bits(shape, affine, tenon):
    if not any(isa in torch.backends.cpu.get_cpu_capability() for isa in ("AVX2", "AVX512")):
        pytest.skip("ATen's kernels contract products and sums only where the machine has FMA")
    generator = torch.Generator().manual_seed(7)
    draw = lambda *dims: torch.randn(dims, generator=generator)
    weight, bias = (draw(shape[1]), draw(shape[1])) if affine else (None, None)
    arguments = (draw(*shape) * 3 + 1, weight, bias)
    tenon.reset_stats()
    found = torch.compile(_normalized, backend="tenon", dynamic=False)(*arguments)
    (graph,) = [g for g in tenon.stats()["graphs"] if g["calls"] > 0]
    assert graph["tier"] == "native" and not graph["aten_steps"]
    for name, mine, eagers in zip(("y", "mean", "rstd"), found, _normalized(*arguments)):
        assert torch.equal(mine, eagers), f"{name}: {int((mine != eagers).sum())} of {mine.numel()} differ"
