"""The trace of a graph with what _torch_private.quick_trace leaves out and without it: the same joint graphs."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

torch_tenon = pytest.importorskip("torch_tenon")

from models import zoo  # noqa: E402
from torch_tenon import _torch_private, backend, decompositions  # noqa: E402

pytestmark = pytest.mark.by_aten(tier="any")


def _described(value):
    if isinstance(value, (tuple, list)):
        return [_described(v) for v in value]
    return (value.shape, value.stride(), value.dtype, value.device, value.requires_grad) if isinstance(value, torch.Tensor) else value


_KEPT = ("stack_trace", "partitioner_tag", "autograd_backward", "original_aten")


def _text(gm):
    """A line for each node, which are numbered; names count nodes that are no more. A detach, which is nothing in such a graph, is what
    it detaches: torch functions that make tensors add one where a mode for torch functions is on."""
    numbers, lines = {}, []
    plain = lambda arguments: str(fx.map_arg(arguments, numbers.__getitem__))
    for n in gm.graph.nodes:
        if n.target is torch.ops.aten.detach.default:
            numbers[n] = numbers[n.args[0]]
            continue
        kept = [str(n.meta.get(key)) for key in _KEPT]
        lines.append((n.op, str(n.target), plain(n.args), plain(n.kwargs), _described(n.meta.get("val")), kept))
        numbers[n] = f"%{len(lines)}"
    return lines


def _joint(monkeypatch, quick, make):
    """Joint graphs of make() -> (function, inputs, loss or None)."""
    found, cut = [], backend.partition

    def note(joint, *args, **kwargs):
        found.append(_text(joint))
        return cut(joint, *args, **kwargs)

    torch.manual_seed(1234)
    function, args, loss = make()
    with monkeypatch.context() as patched:
        if not quick:
            patched.setattr(backend, "quick_trace", lambda symbolic: contextlib.nullcontext())
            patched.setattr(decompositions, "table", lambda: _torch_private.decompositions_for(tuple(decompositions.DECOMPOSITIONS)))
        patched.setattr(backend, "partition", note)
        torch._dynamo.reset()
        FakeTensorMode.cache_clear()
        result = torch.compile(function, backend="tenon", dynamic=False)(*args)
    return found, loss(result) if loss else result


@pytest.mark.parametrize("name", ["transformer4l", "gpt_tiny", "lstm_cells", "resnet18", "mobilenetv3", "densenet"])
def test_models(name, monkeypatch):
    case = zoo.CASES[name]
    make = lambda: (*case.make_train(), case.loss)
    (quick, a), (slow, b) = _joint(monkeypatch, True, make), _joint(monkeypatch, False, make)
    assert quick and quick == slow
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def _normed(x, training=True, dtype=torch.float32, statistics=True, affine=True):
    size = x.shape[1]
    statistic = lambda: torch.ones(size, dtype=dtype) if statistics else None
    weight = torch.ones(size, dtype=dtype, requires_grad=True) if affine else None
    return lambda: (
        lambda x, mean, variance, weight: F.batch_norm(x * 2, mean, variance, weight, weight, training=training),
        (x, statistic(), statistic(), weight),
        None,
    )


def _many(x):
    smooth = x.sigmoid() * x.tanh() * F.silu(x) * F.gelu(x) * F.gelu(x, approximate="tanh") * F.elu(x, 1.5)
    return smooth * F.relu(x) * F.hardswish(x) * F.hardsigmoid(x) * F.leaky_relu(x, 0.2) * (3 - x)


_IMAGE = torch.randn(2, 4, 3, 5)


@pytest.mark.parametrize(
    "make",
    [
        _normed(_IMAGE.requires_grad_()),
        _normed(torch.randn(2, 4, 3, 5)),
        _normed(torch.randn(6, 4, requires_grad=True)),
        _normed(torch.randn(2, 4, 3, 2, 2, requires_grad=True)),
        _normed(torch.randn(2, 1, 3, 5, requires_grad=True)),
        _normed(_IMAGE.detach().to(memory_format=torch.channels_last).requires_grad_()),
        _normed(_IMAGE.detach().transpose(2, 3).requires_grad_()),
        _normed(_IMAGE.detach()[:, :, :1].requires_grad_()),
        _normed(_IMAGE.detach().to(torch.bfloat16).requires_grad_()),
        _normed(_IMAGE.detach().double().requires_grad_(), dtype=torch.float64),
        _normed(_IMAGE.detach().requires_grad_(), training=False),
        _normed(_IMAGE.detach().requires_grad_(), statistics=False),
        _normed(_IMAGE.detach().requires_grad_(), affine=False),
        lambda: (lambda x: ((y := x * 2)[0].add_(1), x.view(-1)[::2] * y.sum())[1], (torch.randn(4, 4, requires_grad=True),), None),
        lambda: (_many, (torch.randn(3, requires_grad=True),), None),
        lambda: (torch.func.hessian(lambda y: (y.sin() * y.exp()).sum()), (torch.randn(3),), lambda h: h),  # zeros that have no memory
        lambda: (_many, (torch.randn(3, dtype=torch.bfloat16, requires_grad=True),), None),
    ],
)  # fmt: skip
def test_operators(make, monkeypatch):
    (quick, a), (slow, b) = _joint(monkeypatch, True, make), _joint(monkeypatch, False, make)
    assert quick == slow
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_everything_is_as_before_afterwards():
    from torch._decomp import decomposition_table
    from torch._subclasses import fake_tensor, functional_tensor
    from torch.fx.experimental import proxy_tensor

    parts = (proxy_tensor, functional_tensor, functional_tensor.FunctionalTensorMode, FakeTensorMode, fake_tensor.log)
    state = lambda: ([dict(vars(part)) for part in parts], dict(decomposition_table))
    before = state()
    with pytest.raises(KeyError), _torch_private.quick_trace(False):
        raise KeyError
    assert state() == before
    with _torch_private.quick_trace(True):
        assert state() == before
