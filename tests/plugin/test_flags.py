"""Process-wide flags that change what eager computes: precision of f32 products, deterministic algorithms, oneDNN, subnormal numbers. A
program compiled under one setting and called under another gives what eager gives there, or goes where that is so."""

import contextlib
import logging

import pytest
import torch
from torch import nn

from plugin.checking import same_as_eager

SUBNORMAL = torch.tensor([1e-40, -1e-40, 3e-39, 1e-38, 2e-38, 1.0, 0.0, -0.0]).repeat(16)


@contextlib.contextmanager
def _flushing():
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU cannot take subnormal numbers for zeros")
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def _of_subnormals(x):
    """Eager's log and square root read subnormal numbers even then; the rest takes them for zeros."""
    return x * 0.5, x + x, x.abs().log(), x.abs().sqrt(), torch.where(x == 0, 1.0, 2.0), x.sum(), torch.full((4,), 1e-40) * 0.5


def _equal(found, wanted):
    return all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_flushing_threads_get_eagers_numbers(backend, tenon, caplog):
    compiled = torch.compile(_of_subnormals, backend=backend)
    kept = compiled(SUBNORMAL)
    assert _equal(kept, _of_subnormals(SUBNORMAL))
    with _flushing():
        flushed = _of_subnormals(SUBNORMAL)
        assert not _equal(flushed, kept), "the flag changes nothing here: nothing is tested"
        with caplog.at_level(logging.WARNING, logger="torch_tenon"):
            for _ in range(2):
                assert _equal(compiled(SUBNORMAL), flushed)
    assert _equal(compiled(SUBNORMAL), kept)
    (graph,) = tenon.stats()["graphs"][-1:]
    assert graph["tier"] == "native" and graph["calls"] == 2, "the other calls are its own"
    ((reason, count),) = graph["by_aten"].items()
    assert count == 2 and "set_flush_denormal" in reason
    assert [r.getMessage().count(reason) for r in caplog.records if r.levelno >= logging.WARNING] == [1], "said once"
    with _flushing():
        assert f"calls: {reason}" in str(tenon.explain(_of_subnormals, SUBNORMAL))


def test_constants_are_those_of_all_modes(backend):
    """What is computed while a graph is compiled is not what the compiling thread would make of it."""
    torch._dynamo.reset()

    def f(x):
        return torch.full((4,), 1e-30) * torch.full((4,), 1e-10) + x * 0, torch.full((4,), 1e-40) * 2

    x = torch.zeros(4)
    compiled = torch.compile(f, backend=backend)
    with _flushing():
        assert _equal(compiled(x), f(x))
    assert _equal(compiled(x), f(x))
    assert f(x)[1].count_nonzero() == 4


def test_training_while_flushing(backend, tenon):
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    compiled = torch.compile(model, backend=backend)

    def gradients(call):
        model.zero_grad()
        call(SUBNORMAL[:32].reshape(4, 8)).square().sum().backward()
        return [p.grad.clone() for p in model.parameters()]

    before = {g["id"] for g in tenon.stats()["graphs"]}  # of which some may be gone below
    gradients(compiled)
    with _flushing():
        found, wanted = gradients(compiled), gradients(model)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)
    graphs = [g for g in tenon.stats()["graphs"] if g["id"] not in before]
    assert sorted(g["kind"] for g in graphs if g["by_aten"]) == ["backward", "forward"]


def test_errors_where_nothing_may_go_by_aten(backend, tenon):
    compiled = torch.compile(lambda x: x * 2 + 1, backend=backend, options={"fallback": "error"})
    compiled(SUBNORMAL)
    with _flushing(), pytest.raises(RuntimeError, match="set_flush_denormal"):
        compiled(SUBNORMAL)
    assert torch.equal(compiled(SUBNORMAL), SUBNORMAL * 2 + 1)


def test_hlo_keeps_subnormal_numbers(tenon):
    text = """HloModule m
ENTRY f {
  x = f32[128] parameter(0)
  h = f32[] constant(0.5)
  b = f32[128] broadcast(h), dimensions={}
  ROOT r = f32[128] multiply(x, b)
}"""
    for run in (tenon.hlo.run, tenon.hlo.evaluate):
        with _flushing():
            (found,) = run(text, [SUBNORMAL.numpy()])
        assert torch.equal(torch.from_numpy(found), SUBNORMAL * 0.5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x):
        return self.linear(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


@contextlib.contextmanager
def _precision(name):
    old = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(old)


@contextlib.contextmanager
def _deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


FLAGS = {
    "precision high": lambda: _precision("high"),
    "precision medium": lambda: _precision("medium"),
    "no oneDNN": lambda: torch.backends.mkldnn.flags(enabled=False),
    "deterministic": _deterministic,
}


@pytest.mark.parametrize("freeze", [False, True], ids=["", "frozen"])
@pytest.mark.parametrize("flag", FLAGS)
def test_compiled_before_called_after(flag, freeze, backend):
    """Products with fewer bits are eager's choice, not ours: the program is held to what eager computes with all of them."""
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(2, 3, 12, 12)
    compiled = torch.compile(model, backend=backend, options={"freeze": freeze})
    with torch.no_grad():
        exact = model.double()(x.double())
        model.float()
        for manager in (contextlib.nullcontext, FLAGS[flag], contextlib.nullcontext):
            with manager():
                found, eager = compiled(x), model(x)
            error, allowed = ((a - exact).square().mean().sqrt() for a in (found.double(), eager.double()))
            assert error <= 2 * allowed + 1e-5 * exact.square().mean().sqrt()


@pytest.mark.by_aten(steps={"aten.put.default", "aten.put_.default"}, tier="any")
def test_deterministic_algorithms_refuse_what_eager_refuses(backend):
    def f(x, i, v):
        return x.put(i, v) * 2

    args = torch.zeros(8), torch.tensor([1, 1, 2]), torch.ones(3)
    same_as_eager(f, *args, backend=backend)
    compiled = torch.compile(f, backend=backend)
    compiled(*args)
    with _deterministic():
        with pytest.raises(RuntimeError, match="deterministic") as wanted:
            f(*args)
        with pytest.raises(RuntimeError, match="deterministic") as found:
            compiled(*args)
    assert str(wanted.value).split(".")[0] in str(found.value)
