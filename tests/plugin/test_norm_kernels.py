"""Norms and what follows them elementwise are one kernel, in training with the statistics that it keeps; numbers by the accuracy rule."""

import pytest
import torch
import torch.nn.functional as F

from torch_tenon.testing import compare

CHANNELS = 24


def _rms(x, w, b):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w[: x.shape[-1]]


def _scale_and_shift(x, w, b):
    return F.silu(F.group_norm(x, 4, w, b) * (1 + w[None, :, None, None]) + b[None, :, None, None])


INFERENCE = {
    "group norm, silu": lambda x, w, b: F.silu(F.group_norm(x, 4, w, b)),
    "group norm, relu, residual": lambda x, w, b: F.relu(F.group_norm(x, 4, w, b)) + x,
    "group norm of a silu": lambda x, w, b: F.group_norm(F.silu(x), 4, w, b),
    "group norm, scale and shift": _scale_and_shift,
    "two group norms": lambda x, w, b: F.group_norm(F.silu(F.group_norm(x, 4, w, b)), 4, w, b),
    "layer norm, gelu": lambda x, w, b: F.gelu(F.layer_norm(x, x.shape[-1:], w[: x.shape[-1]])),
    "rms norm": _rms,
}


def _kernels(tenon, function, args, backward=False):
    """What ran: kernels of each graph. Judged against eager in f64."""
    torch._dynamo.reset()
    tenon.reset_stats()
    compiled = torch.compile(function, backend="tenon", dynamic=False, fullgraph=True)
    wide = [a.detach().double().requires_grad_(backward) for a in args]

    def run(f, arguments):
        y = f(*arguments)
        if not backward:
            return [y]
        grads = torch.autograd.grad((y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum(), arguments, allow_unused=True)
        return [y, *[g for g in grads if g is not None]]

    found = run(compiled, args)
    for tenons, eagers, exact in zip(found, run(function, args), run(function, wide), strict=True):
        compare(tenons.detach(), eagers.detach(), exact.detach())
    graphs = [g for g in tenon.stats()["graphs"] if g["calls"] > 0]
    assert not any(g["aten_steps"] for g in graphs)
    return [g["kernels"] for g in graphs]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", INFERENCE)
def test_of_inference(name, dtype, tenon):
    torch.manual_seed(0)
    args = torch.randn(2, CHANNELS, 9, 11).to(dtype), torch.randn(CHANNELS).to(dtype), torch.randn(CHANNELS).to(dtype)
    kernels = _kernels(tenon, INFERENCE[name], args)
    assert kernels == [1]


def test_of_instances(tenon):
    torch.manual_seed(0)
    args = torch.randn(2, CHANNELS, 9, 11), torch.randn(CHANNELS), torch.randn(CHANNELS)
    assert _kernels(tenon, lambda x, w, b: F.relu(F.instance_norm(x, weight=w, bias=b)), args) == [1]


TRAINING = {
    "layer norm": lambda x, w, b: F.layer_norm(x, x.shape[-1:], w[: x.shape[-1]], b[: x.shape[-1]]),
    "group norm, silu": INFERENCE["group norm, silu"],
    "rms norm": _rms,
    "softmax": lambda x, w, b: F.softmax(x * w[: x.shape[-1]], -1) + b[: x.shape[-1]],
}


@pytest.mark.parametrize("name", TRAINING)
def test_of_training(name, tenon):
    torch.manual_seed(0)
    args = [t.requires_grad_() for t in (torch.randn(2, CHANNELS, 9, 11), torch.randn(CHANNELS), torch.randn(CHANNELS))]
    forward, *_ = _kernels(tenon, TRAINING[name], args, backward=True)
    assert forward == 1


def test_of_sizes_that_are_symbols(tenon):
    torch.manual_seed(0)
    torch._dynamo.reset()
    tenon.reset_stats()
    function = INFERENCE["group norm, scale and shift"]
    compiled = torch.compile(function, backend="tenon", dynamic=True, fullgraph=True)
    w, b = torch.randn(CHANNELS), torch.randn(CHANNELS)
    for sizes in ((2, 9, 11), (5, 4, 3), (3, 16, 17)):
        args = torch.randn(sizes[0], CHANNELS, *sizes[1:]), w, b
        compare(compiled(*args), function(*args), function(*(a.double() for a in args)))
    (graph,) = [g for g in tenon.stats()["graphs"] if g["calls"] > 0]
    assert graph["calls"] == 3 and not graph["aten_steps"]
