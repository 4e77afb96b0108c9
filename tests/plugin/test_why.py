"""torch_tenon.why: what was compiled again, which guard failed, what to change."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torch_tenon
from plugin.checking import STAND_IN

pytestmark = [pytest.mark.usefixtures("tenon"), pytest.mark.skipif(STAND_IN, reason="about tenon's reports")]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch._dynamo.utils.clear_compilation_metrics()


def _graphs(f):
    return [reason for reason in torch_tenon.why(f) if reason.what == "graph"]


def test_a_size_that_changes():
    def f(x):
        return x.sum(0) * 2

    compiled = torch.compile(f, backend="tenon")
    for n in (3, 4, 5, 6):
        compiled(torch.randn(n, 4))
    (reason,) = _graphs(f)
    assert (reason.wanted, reason.seen) == ("3", "4") and "mark_dynamic(x, 0)" in reason.advice
    assert "test_why.py" in reason.where and reason.where.endswith(", f")
    assert _graphs(compiled) == [reason] and _graphs(lambda x: x) == []


@pytest.mark.parametrize(
    "calls, failed, advice",
    [
        (((torch.ones(3), 2), (torch.ones(3), 5)), "k == 2", "Python's"),
        (((torch.ones(3), 2), (torch.ones(3), 5), (torch.ones(3), 2.5)), "check_type_id(k", "alike"),
        (((torch.ones(3), 2), (torch.ones(3).double(), 2)), "dtype mismatch", "alike"),
        (((torch.ones(3), 2), (torch.ones(3, 1), 2)), "rank mismatch", "alike"),
        (((torch.ones(3), 2), (torch.ones(4), 2), (torch.ones(1), 2)), "2 <= x.size()[0]", "mark_unbacked"),
    ],
)
def test_other_guards(calls, failed, advice):
    def f(x, k):
        return x * k

    compiled = torch.compile(f, backend="tenon")
    for x, k in calls:
        compiled(x, k)
    reason = _graphs(f)[-1]
    assert failed in reason.failed and advice in reason.advice, reason


def test_the_state_around_a_call():
    def f(x):
        return x * 2

    compiled = torch.compile(f, backend="tenon")
    compiled(torch.ones(3))
    with torch.no_grad():
        compiled(torch.ones(3))
    (reason,) = _graphs(f)
    assert "grad_mode" in reason.failed and "state" in reason.advice, reason


def test_an_attribute_of_a_module():
    class Switched(nn.Module):
        def __init__(self):
            super().__init__()
            self.on = True

        def forward(self, x):
            return x * 2 if self.on else x + 1

    model = Switched()
    compiled = torch.compile(model, backend="tenon")
    compiled(torch.ones(3))
    model.on = False
    compiled(torch.ones(3))
    (reason,) = _graphs(model)
    assert reason.failed == "self.on == True" and "self.on" in reason.advice and "test_why.py" in reason.source
    assert "because self.on == True" in str(torch_tenon.why(compiled))


def test_a_module_of_pytorchs():
    """Dynamo compiles it as a function of its own."""
    compiled = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()), backend="tenon")
    for n in (3, 4):
        compiled(torch.randn(n, 8))
    (reason,) = _graphs(compiled)
    assert (reason.wanted, reason.seen) == ("3", "4")


@pytest.mark.by_aten(tier="any")
def test_programs_of_exact_sizes_and_steps():
    compiled = torch.compile(lambda x: F.max_pool1d(x, 2, ceil_mode=True, return_indices=True)[1] * 2, backend="tenon", dynamic=True)
    compiled(torch.randn(3, 5))
    (step,) = [r for r in torch_tenon.why() if r.what == "step" and "aten.max_pool2d" in r.where][-1:]
    assert "symbolic size" in step.failed and "exact" in step.advice
    exact = torch.compile(lambda x: x * 3, backend="tenon", dynamic=True, options={"sizes": "exact"})
    exact(torch.randn(3, 5))
    program = [r for r in torch_tenon.why() if r.what == "program"][-1]
    assert program.failed == "asked for by the options" and "= 3" in program.seen and "symbolic" in program.advice


def test_a_call_that_guards_refuse():
    """The very words of the guard."""
    from torch_tenon import registry

    compiled = torch.compile(lambda x: x * 4, backend="tenon", dynamic=True)
    compiled(torch.randn(4, 3))
    record = registry.records()[-1]
    numbers = sum(row["kind"] == 1 for row in record.info["inputs"])
    x = torch.randn(1, 3)
    (y,) = record.executable([*[*x.shape][:numbers], x])
    torch.testing.assert_close(y, x * 4)
    program = [r for r in torch_tenon.why() if r.what == "program"][-1]
    assert "refused by the program for all sizes" in program.failed and "1" in program.failed, program


def test_nothing_was_compiled_again():
    def f(x):
        return x + 1

    torch.compile(f, backend="tenon")(torch.ones(2))
    assert str(torch_tenon.why(f)).find("graph:") == -1
