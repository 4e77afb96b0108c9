"""Training calls of dynamic sizes by tenon's node of autograd and by AOTAutograd's wrapper.

docs/architecture/autograd.md, "Dynamic sizes".
"""

import copy

import pytest
import torch
import torch.nn as nn

from plugin.test_autograd_node import gradients, mlp, node, ran, words

__all__ = ["node", "ran"]  # fixtures

pytestmark = pytest.mark.usefixtures("tenon")


def over_sizes(drive, ran, make=mlp, sizes=((2, 3), (5, 4), (3, 9)), node="own", **counts):
    """drive(model, call, *size) for each of the sizes: what it returns, and the model's gradients, against eager; two programs in all."""
    torch.manual_seed(0)
    model = make()
    twin = copy.deepcopy(model)
    call = torch.compile(twin, backend="tenon", dynamic=True, options={"autograd": node})
    for size in sizes:
        found = []
        for module, function in ((model, model), (twin, call)):
            torch.manual_seed(1)
            found.append((drive(module, function, *size), gradients(module)))
        torch.testing.assert_close(*found)
    ran(node, **counts)


def test_dynamic_sizes(node, ran):
    def drive(model, call, batch, length):
        x = torch.randn(batch, length, 16, requires_grad=True)
        call(x).square().sum().backward()
        return x.grad

    over_sizes(drive, ran, node=node, **({"forwards": 3, "backwards": 3, "stock_calls": 0, "by_aten": 0} if node == "own" else {}))


def test_a_loss_whose_gradient_divides_by_all_elements(node, ran):
    """A number of two sizes, of which the graph asks as numel alone."""

    def drive(model, call, batch, length):
        out = call(torch.randn(batch, length, 16), torch.randn(batch, length, 8))
        out.backward()
        return out.detach()

    over_sizes(drive, ran, make=_Fit, node=node, **({"forwards": 3, "backwards": 3, "by_aten": 0} if node == "own" else {}))


class _Fit(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x, y):
        return nn.functional.mse_loss(self.layer(x), y)


def test_dynamic_sizes_with_the_graph_kept(node, ran):
    def drive(model, call, batch, length):
        out = call(torch.randn(batch, length, 16))
        out.sum().backward(retain_graph=True)
        out.square().sum().backward()

    over_sizes(drive, ran, node=node)


class _Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x):
        return self.layer(x), self.layer(x.sin()).transpose(0, 1), x.shape[1]


def test_dynamic_sizes_and_an_output_without_gradient(node, ran):
    """Its tangent is zeros of the sizes that the output had."""

    def drive(model, call, batch, length):
        x = torch.randn(batch, length, 16)
        a, b, number = call(x)
        assert number == length
        (a if length % 2 else b).square().sum().backward()
        return b.detach()

    over_sizes(drive, ran, _Two, node=node)


def test_dynamic_sizes_and_strides_of_tangents(node, ran):
    """Gradients that lie otherwise than outputs are copied into the strides that the backward was compiled for."""

    def drive(model, call, batch, length):
        x = torch.randn(batch, length, 16)
        out = call(x)
        out.backward(torch.randn(length, batch, 8).transpose(0, 1))
        call(x).backward(torch.ones(()).expand(batch, length, 8))

    over_sizes(drive, ran, node=node)


class _Sized(nn.Module):
    """The backward needs sizes that no tensor of its inputs has."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(16))

    def forward(self, x):
        return (x * self.w).sum(-1).mean(1) * x.shape[1]


def test_dynamic_sizes_that_the_backward_needs(node, ran):
    def drive(model, call, batch, length):
        x = torch.randn(batch, length, 16, requires_grad=True)
        call(x).square().sum().backward()
        return x.grad

    over_sizes(drive, ran, _Sized, node=node)


def test_dynamic_sizes_of_hooks_and_threads(ran):
    """saved_tensors_hooks see the saved tensors of each size; sizes are of the call that a backward belongs to."""

    def drive(model, call, batch, length):
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t):
            first = call(torch.randn(batch, length, 16))
        second = call(torch.randn(batch + 1, length, 16))
        second.sum().backward()
        first.sum().backward()
        assert packed

    over_sizes(drive, ran, by_aten=0, stock_calls=0)


def test_dynamic_sizes_mark_outputs(ran):
    """An output whose size changes is dynamic at once in the next graph that gets it."""
    model, call = mlp(), None
    call = torch.compile(model, backend="tenon", dynamic=True)
    out = call(torch.randn(5, 16))
    assert getattr(out, "_dynamo_propagated_dynamic_indices", None) == {0}
    ran("own")


def test_dynamic_sizes_and_gradients_of_transforms(ran):
    """Batched tangents: the backward runs node by node by ATen, with this call's sizes."""

    def drive(model, call, batch, length):
        x = torch.randn(batch, length, 16, requires_grad=True)
        out = call(x)
        return torch.autograd.grad(out, x, torch.randn(3, *out.shape), is_grads_batched=True)

    over_sizes(drive, ran, by_aten=3)


def test_dynamic_sizes_and_a_size_of_one(ran):
    """Another graph of Dynamo's, which has its own node."""

    def drive(model, call, batch, length):
        call(torch.randn(batch, length, 16)).square().sum().backward()

    over_sizes(drive, ran, sizes=((2, 3), (1, 3), (4, 1), (7, 5)))


def test_an_undefined_check_of_versions(ran):
    """What the backward reads has been written since: eager's error, at any size."""
    function = torch.compile(lambda x: (x.sin() * x).exp(), backend="tenon", dynamic=True)
    for n in (3, 5):
        x = torch.randn(n, 4, requires_grad=True)
        leaf = x * 1
        out = function(leaf)
        leaf.detach().add_(1)
        assert "modified by an inplace operation" in words(RuntimeError, out.sum().backward)
    ran("own")
