"""Kernels that choose among values that they read: nothing outside of an operand may be touched, even where it isn't chosen.

Other types and instruction sets: tests/backends/choose.hlo. Run as it is, this compares with eager. Under TENON_GUARD
(tests/plugin/test_guarded_memory.py) a read outside ends the process.
"""

import pytest
import torch
import torch.nn.functional as F


def _permuted(*shape):
    """A tensor of this shape whose first dim is the fastest in memory."""
    order = (*range(1, len(shape)), 0)
    tensor = torch.randn([shape[d] for d in order])
    return tensor.permute([order.index(d) for d in range(len(shape))])


def _cat_channels_last(a, b, c, d):
    return torch.cat([a * 1, b * 2, c * 3, d * 4], 1).contiguous(memory_format=torch.channels_last)


def _shifted_windows(x):  # Swin: rolled, cut into windows, channels last
    n, c, h, w = x.shape
    y = x.permute(0, 2, 3, 1).roll((-3, -3), (1, 2))
    return y.reshape(n, h // 4, 4, w // 4, 4, c).transpose(2, 3).contiguous() * 2


CASES = {
    "cat channels last": (_cat_channels_last, lambda: [torch.randn(2, 64, 16, 16) for _ in range(4)]),
    "cat channels last, odd": (_cat_channels_last, lambda: [torch.randn(2, c, 9, 11) for c in (5, 1, 17, 8)]),
    "cat along rows": (lambda a, b: torch.cat([a * 2, b]).t().contiguous(), lambda: [torch.randn(n, 37) for n in (13, 30)]),
    "roll of a permuted tensor": (lambda x: x.roll(3, 0).clamp(-0.7, 0.9), lambda: [_permuted(65, 3, 33)]),
    "roll along the fastest dim": (lambda x: x.roll(5, -1) + 1, lambda: [torch.randn(7, 33)]),
    "shifted windows": (_shifted_windows, lambda: [torch.randn(1, 5, 16, 16)]),
    "pad of a permuted tensor": (lambda x: F.pad(x * 2, (3, 2, 1, 4)) - 1, lambda: [_permuted(33, 21, 17)]),
    "negative pad": (lambda x: F.pad(x.t() * 2, (3, -2, -1, 4)).contiguous(), lambda: [torch.randn(33, 21)]),
    "reflected": (lambda x: F.pad(x, (3, 3, 2, 2), mode="reflect") * 2, lambda: [torch.randn(2, 3, 17, 19)]),
    "flip of a permuted tensor": (lambda x: x.flip(0, 2) * 2, lambda: [_permuted(19, 5, 37)]),
    "stack, transposed": (lambda a, b: torch.stack([a, b], -1).permute(2, 1, 0).contiguous(), lambda: [torch.randn(21, 35) for _ in "ab"]),
    "strided slices": (lambda x: torch.cat([x[:, ::2], x[:, 1::2]], 1).t() + 1, lambda: [torch.randn(33, 35)]),
    "rows by index": (lambda x, i: x.t()[i] * 2, lambda: [torch.randn(17, 40), torch.tensor([0, 39, 5, 39])]),
    "gather": (lambda x, i: x.gather(1, i).t().contiguous(), lambda: [torch.randn(17, 9), torch.randint(9, (17, 33))]),
    "windows": (lambda x: F.max_pool2d(x, 3, 2, 1) + F.avg_pool2d(x, 3, 2, 1), lambda: [torch.randn(2, 3, 19, 23)]),
    "unfold": (lambda x: x.unfold(1, 5, 2) * 2, lambda: [torch.randn(9, 33)]),
    "rows": (lambda x: torch.softmax(x, -1) + F.layer_norm(x, (x.shape[-1],)), lambda: [torch.randn(5, 67)]),
    "columns": (lambda x: (x.sum(0), x.amax(0), x.var(0)), lambda: [torch.randn(67, 37)]),
    "middle": (lambda x: x.sum(1), lambda: [torch.randn(5, 33, 19)]),
    "upsampled": (lambda x: F.interpolate(x, scale_factor=2, mode="nearest") * 2, lambda: [torch.randn(1, 3, 7, 9)]),
    "triangle of a transposed tensor": (lambda x: x.t().tril(-1) + 1, lambda: [torch.randn(35, 35)]),
    "scatter_add": (lambda x, i, s: x.t().scatter_add(1, i, s),
                    lambda: [torch.randn(9, 17), torch.randint(9, (17, 33)), torch.randn(17, 33)]),
    "rotated halves": (lambda x: torch.cat([-x[..., 9:], x[..., :9]], -1).transpose(1, 2).contiguous(),
                       lambda: [torch.randn(2, 11, 3, 18)]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_inside(case, dtype, tenon):
    function, make = CASES[case]
    tenon.reset_stats()
    inputs = [x if x.dtype == torch.int64 else x.to(dtype) for x in make()]
    found = torch.compile(function, backend="tenon")(*inputs)
    (graph,) = [g for g in tenon.stats()["graphs"] if g["calls"]]
    assert (graph["tier"], graph["aten_steps"]) == ("native", {}), (graph["reason"], graph["aten_steps"])
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(found, function(*inputs), **close)
