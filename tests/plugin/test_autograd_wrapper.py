"""Which training calls go to AOTAutograd's wrapper instead of tenon's node, and who says so.

docs/architecture/autograd.md, "What goes to AOTAutograd's wrapper".
"""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn as nn

from conftest import ROOT
from plugin.test_autograd_node import compiled, gradients, mlp, node, ran, same

__all__ = ["node", "ran"]  # fixtures

pytestmark = pytest.mark.usefixtures("tenon")


class _Returns(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.randn(4, 16)), function

    def forward(self, x):
        return self.function(x, self.weight)


def _writes(x, w):
    x.mul_(2)
    return x * w


@pytest.mark.parametrize("function, reason", [
    (lambda x, w: (x * w, x.t()), "output 1 is a view of an input"),
    (lambda x, w: ((y := (x * w).exp()), y[1:], y.view(-1)), "output 1 is a view of another output|views of one another"),
    (_writes, "an input that autograd sees is written"),
], ids=["view of an input", "views of each other", "written input"])  # fmt: skip
def test_what_the_node_does_not_take(function, reason, ran):
    def drive(model, call):
        x = torch.randn(4, 16, requires_grad=True)
        out = call(x * 1)
        out = out if isinstance(out, tuple) else (out,)
        sum(o.square().sum() for o in out).backward()
        return x.grad, gradients(model), [o.detach() for o in out]

    same(drive, make=lambda: _Returns(function))
    ran("stock", reason=reason)


def test_an_input_as_output(node, ran):
    def drive(model, call):
        x = torch.randn(4, 16, requires_grad=True)
        y, same_x = call(x)
        (y + same_x).sum().backward()
        return same_x is x, x.grad, gradients(model)

    same(drive, node, lambda: _Returns(lambda x, w: (x * w, x)))
    ran(node)


def test_an_unsafe_view_as_output(node, ran):
    def drive(model, call):
        x = torch.randn(4, 16, requires_grad=True)
        y = call(x)
        y.mul_(2)  # no view: may be written
        y.sum().backward()
        return x.grad, gradients(model)

    same(drive, node, lambda: _Returns(lambda x, w: (x + w).view(2, 32)))
    ran(node)


def test_a_buffer_that_the_graph_writes(node, ran):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4))
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x):
            self.seen.add_(x.detach())
            return x * self.weight * self.seen

    def drive(model, call):
        for _ in range(3):
            call(torch.randn(4)).sum().backward()
        return model.seen.clone(), gradients(model)

    same(drive, node, Counts)
    ran(node)


def test_grad_mode_on_inside_of_off(ran):
    def function(x):
        with torch.enable_grad():
            return x.sin() * x

    call = compiled(function)
    x = torch.randn(4, requires_grad=True)
    with torch.no_grad():
        y = call(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, x.cos() * x + x.sin())
    ran("stock", reason="grad mode was off")


def test_versions_without_a_node_have_the_wrapper(monkeypatch, ran):
    from torch_tenon import _C

    monkeypatch.setattr(_C, "AUTOGRAD_NODE", False)
    same(lambda model, call: (call(torch.randn(4, 16)).sum().backward(), gradients(model))[1])
    ran("stock", reason="the extension has no node for torch 2")


def test_the_environment_chooses():
    code = """
import torch, torch_tenon
torch.compile(torch.nn.Linear(2, 2), backend="tenon")(torch.randn(1, 2)).sum().backward()
print([g["autograd"] for g in torch_tenon.stats()["graphs"] if g["kind"] == "forward"])
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "TENON_AUTOGRAD": "stock"}
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "'stock'" in done.stdout and "asked for by the options" in done.stdout, done.stdout + done.stderr


def test_it_is_explained(tenon):
    model, x = mlp(), torch.randn(4, 16)
    assert "autograd: tenon's node" in str(tenon.explain(model, x))
    told = str(tenon.explain(model, x, options={"autograd": "stock"}))
    assert "autograd: AOTAutograd's wrapper because asked for by the options" in told


def test_a_forward_alone_compiles_no_backward(graphs_ran_natively):
    y = compiled(mlp())(torch.randn(4, 16))
    assert [r.kind for r in graphs_ran_natively] == ["forward"]
    y.sum().backward()
    assert [r.kind for r in graphs_ran_natively] == ["forward", "backward"]
