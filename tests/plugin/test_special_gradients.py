"""NaN and infinities through activations and pointwise losses: results and gradients have them where eager's vectors have them.

Left out: gelu(inf), which MKL's vectors make NaN.
"""

import pytest
import torch
import torch.nn.functional as F
import torch_tenon

ROWS = {
    "elu": F.elu,
    "selu": F.selu,
    "celu": F.celu,
    "hardswish": F.hardswish,
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "hardsigmoid": F.hardsigmoid,
    "softplus": F.softplus,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "logsigmoid": F.logsigmoid,
    "silu": F.silu,
    "mish": F.mish,
    "threshold": lambda x: F.threshold(x, 0.1, 0.2),
    "relu": F.relu,
    "softsign": F.softsign,
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "abs": torch.abs,
    "smooth_l1": lambda x: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none"),
    "huber": lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none"),
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "fmax": lambda x: torch.fmax(x, x.flip(0)),
    "softmax": lambda x: torch.softmax(x.reshape(8, -1), -1),
    "log_softmax": lambda x: torch.log_softmax(x.reshape(8, -1), -1),
    "amax": lambda x: x.reshape(8, -1).amax(-1),
    "logsumexp": lambda x: x.reshape(8, -1).logsumexp(-1),
    "bce_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, torch.zeros_like(x), reduction="none"),
}


def kinds(t):
    """0 where finite, 1 where NaN, 2 and 3 where inf and -inf."""
    return t.isnan() * 1 + t.isposinf() * 2 + t.isneginf() * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ROWS)
def test_as_eagers(name, dtype):
    function = ROWS[name]
    torch.manual_seed(0)
    start = torch.randn(2048).to(dtype)
    start[::7], start[3::31], start[5::37], start[6::41] = float("nan"), float("inf"), -float("inf"), 0.0
    kept = []
    for call in (function, torch.compile(function, backend="tenon")):
        x = start.clone().requires_grad_()
        y = call(x)
        weights = torch.linspace(0.5, 1.5, y.numel()).to(dtype).reshape(y.shape)
        kept.append((y.detach(), *torch.autograd.grad(y, x, weights)))
    assert {g["kind"] for g in torch_tenon.stats()["graphs"][-2:]} == {"forward", "backward"}
    for eager, tenon in zip(*kept):
        torch.testing.assert_close(kinds(tenon), kinds(eager), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("norm, shape", [
    (lambda: torch.nn.LayerNorm(8), (5, 8)), (lambda: torch.nn.GroupNorm(2, 4), (5, 4, 2, 3)),
    (lambda: torch.nn.BatchNorm2d(4), (16, 4, 8, 8)), (lambda: torch.nn.InstanceNorm2d(4, affine=True), (5, 4, 3, 3)),
], ids=["layer", "group", "batch", "instance"])  # fmt: skip
def test_norms_of_halves_with_f32_parameters(norm, shape, dynamic, dtype, tenon):
    """What autocast makes. ATen keeps their statistics in f32, which its fake kernels don't say."""
    torch._dynamo.reset()
    x, weights = torch.randn(shape).to(dtype) + 4, torch.linspace(0.1, 1, torch.Size(shape).numel()).view(shape).to(dtype)

    def gradients(module, like, run):
        given = x.to(like).requires_grad_()
        (run(given) * weights.to(like)).sum().backward()
        return [given.grad, *(p.grad for p in module.parameters())]

    wide, module, twin = norm().double(), norm(), norm()
    right, eager = gradients(wide, torch.float64, wide), gradients(module, dtype, module)
    found = gradients(twin, dtype, torch.compile(twin, backend="tenon", dynamic=dynamic))
    for r, e, f in zip(right, eager, found, strict=True):
        assert f.dtype == e.dtype
        assert (f.double() - r).abs().max() <= 2 * (e.double() - r).abs().max() + 1e-5 * r.abs().max()
