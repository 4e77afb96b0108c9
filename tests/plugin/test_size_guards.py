"""Dynamo's guards on sizes, decided by _C.size_guard, and the sizes that Dynamo no longer passes."""

import random

import pytest
import torch
import torch_tenon
from torch_tenon import _C, backend, passed_sizes, size_guards

pytestmark = pytest.mark.usefixtures("tenon")

X = torch.zeros(6, 8, 5)[:, 1:7]  # sizes 6, 6, 5; strides 40, 5, 1; offset 5
LOCALS = {"x": X, "n": 7, "m": -3, "big": 1 << 62, "half": 0.5, "flag": True, "several": [X, {"k": X}], "module": torch.nn.Linear(4, 3)}
NUMBERS = (
    *(f"L['x'].size()[{k}]" for k in range(3)),
    *(f"L['x'].stride()[{k}]" for k in range(3)),
    "L['x'].storage_offset()",
    "L['n']",
    "L['m']",
    "L['several'][0].size()[1]",
    "L['several'][1]['k'].stride()[0]",
    "L['module']._parameters['weight'].size()[0]",
    *map(str, range(10)),
)


def _guard(*expressions, otherwise=None):
    def fail(_):
        raise AssertionError("the guard was not decided natively")

    return _C.size_guard(*size_guards.compile_guard(expressions), otherwise or fail)


def _number(r: random.Random, depth: int) -> str:
    if depth == 0 or r.random() < 0.3:
        return r.choice(NUMBERS)
    a, b = _number(r, depth - 1), _number(r, depth - 1)
    form = r.choice(("({} + {})", "({} - {})", "({}*{})", "({} // {})", "({} % {})", "min({}, {})", "max({}, {}, 2)", "-({} + {})"))
    return form.format(a, b)


def _condition(r: random.Random, depth: int) -> str:
    if depth and r.random() < 0.4:
        a, b = _condition(r, depth - 1), _condition(r, depth - 1)
        return r.choice(("({} and {})", "({} or {})", "not ({} and {})")).format(a, b)
    compared = r.choice(("<", "<=", ">", ">=", "==", "!="))
    if r.random() < 0.2:
        return f"{_number(r, 1)} <= {_number(r, 2)} {compared} {_number(r, 2)}"
    return f"{_number(r, 3)} {compared} {_number(r, 2)}"


def test_a_guard_is_what_python_says():
    r, decided = random.Random(20261127), {True: 0, False: 0}
    for _ in range(3000):
        text = _condition(r, 2)
        try:
            wanted = bool(eval(text, {"L": LOCALS}))
        except ZeroDivisionError:
            continue
        # Both sides of "and" and "or" are computed: a division by zero on the one that Python leaves out is Python's to decide.
        assert _guard(text, otherwise=lambda _, wanted=wanted: wanted)(LOCALS) is wanted, text
        decided[wanted] += 1
    assert min(decided.values()) > 500, decided


def test_all_expressions_must_hold():
    true, false = "L['x'].size()[0] == 6", "L['x'].size()[1] == 7"
    assert _guard(true, true)(LOCALS) is True
    assert _guard(true, false)(LOCALS) is False
    assert _guard(false, true)(LOCALS) is False


@pytest.mark.parametrize(
    "text",
    [
        "L['big']*4 > 0",  # beyond 64 bits
        "L['x'].size()[0] % (L['n'] - 7) == 0",
        "L['half'] <= 1",
        "L['flag'] <= 1",
        "L['nowhere'] <= 1",
        "L['several'][5].size()[0] <= 1",
        "L['x'].size()[3] <= 1",
        "L['module'].size()[0] <= 1",
        "L['module'].absent.size()[0] <= 1",
    ],
)
def test_what_is_not_of_integers_is_left_to_dynamos_guard(text):
    asked = []
    for answer in (True, False):
        guard = _guard(text, otherwise=lambda locals_, answer=answer: asked.append(locals_) or answer)
        assert guard(LOCALS) is answer
    assert asked == [LOCALS, LOCALS]
    with pytest.raises(ZeroDivisionError):
        _guard(text, otherwise=lambda _: 1 // 0)(LOCALS)


@pytest.mark.parametrize(
    "text",
    ["L['x'].size()[0] / 2 == 3", "L['x'].item() <= 1",
     "G['x'] <= 1", "math.floor(L['n']) <= 1", "L['n'] in (1, 2)", "L['n'] <= 0.5", "x ="],
)
def test_other_expressions_leave_the_guard_as_it_is(text):
    assert size_guards.compile_guard(["2 <= L['x'].size()[0]", text]) is None


@pytest.mark.parametrize(
    "args",
    [
        ((("x", ()),), ((1, "size", 0),), (), None),
        ((("x", ()),), ((0, "width", 0),), (), None),
        ((("x", ()),), ((0, "size", -1),), (), None),
        ((), (), (("number", 0),), None),
        ((), (), (("constant", 1), ("+", 0)), None),
        ((), (), (("power", 0),), None),
    ],
)
def test_code_that_is_none_is_refused(args):
    with pytest.raises(ValueError, match="size_guard: wanted"):
        _C.size_guard(*args)


class _Seen:
    """What Dynamo's graphs and guards became, while a test runs."""

    def __init__(self, monkeypatch):
        self.inputs, self.guards = [], []
        take_out, native = passed_sizes.take_out, size_guards._native

        def taking_out(gm, example_inputs):
            kept = take_out(gm, example_inputs)
            self.inputs.append([type(x).__name__ for x in kept])
            return kept

        def making(expressions, guard):
            self.guards.append(native(expressions, guard))
            return self.guards[-1]

        monkeypatch.setattr(backend.passed_sizes, "take_out", taking_out)
        monkeypatch.setattr(size_guards, "_native", making)

    def all_native(self) -> bool:
        return bool(self.guards) and all(g.__name__ == "size_guard" for g in self.guards)


@pytest.fixture
def seen(monkeypatch):
    torch._dynamo.reset()
    return _Seen(monkeypatch)


@pytest.mark.by_aten(tier="any")
def test_sizes_come_from_tensors(seen, graphs_ran_natively):
    f = lambda x, y, n: (x @ y).relu() * x.shape[1] + torch.arange(y.shape[1]) + n
    compiled = torch.compile(f, backend="tenon", dynamic=True)
    for a, b, c, n in ((4, 6, 5, 9), (9, 3, 8, 11), (2, 7, 2, 9)):
        inputs = torch.randn(a, b), torch.randn(b, c), n
        torch.testing.assert_close(compiled(*inputs), f(*inputs))
    (kinds,) = seen.inputs
    assert len(kinds) == 3 and kinds.count("SymInt") == 1, kinds
    assert len(graphs_ran_natively) == 1 and seen.all_native()


@pytest.mark.by_aten(tier="any")
def test_sizes_of_what_is_written(seen):
    def f(x, y):
        x.resize_(x.shape[0], 2) if x.shape[1] == 1 else x.add_(x.shape[0])
        return x * x.shape[1] + y.sum(0)

    compiled = torch.compile(f, backend="tenon", dynamic=True)
    for n, m in ((4, 6), (9, 3)):
        x, y = torch.randn(n, m), torch.randn(5, m)
        mine, eagers = x.clone(), x.clone()
        torch.testing.assert_close(compiled(mine, y), f(eagers, y))
        torch.testing.assert_close(mine, eagers)
    assert all("SymInt" not in kinds for kinds in seen.inputs)


@pytest.mark.by_aten(tier="any")
def test_sizes_of_tensors_in_containers_and_of_one_twice(seen):
    f = lambda xs, named, again: xs[0] * xs[0].shape[0] + xs[1].sum() * xs[1].shape[0] + named["y"] * named["y"].shape[1] + again.shape[0]
    compiled = torch.compile(f, backend="tenon", dynamic=True)
    for n, m, k in ((4, 6, 3), (9, 5, 8), (7, 2, 4)):
        x = torch.randn(n, m)
        inputs = [x, torch.randn(k, 2)], {"y": torch.randn(n, m)}, x
        torch.testing.assert_close(compiled(*inputs), f(*inputs))
    assert len(seen.inputs) == 1 and "SymInt" not in seen.inputs[0], seen.inputs
    assert seen.guards and not seen.all_native()  # "is", which says that it is one tensor, is no expression of integers
    other = torch.randn(5, 4)  # no longer the same tensor
    inputs = [torch.randn(3, 4), torch.randn(2, 2)], {"y": torch.randn(3, 4)}, other
    torch.testing.assert_close(compiled(*inputs), f(*inputs))


@pytest.mark.by_aten(tier="any")
def test_training_takes_sizes_from_tensors(seen):
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.GELU(), torch.nn.Linear(5, 3))
    f = lambda x: (model(x) / x.shape[0]).sum() * x.shape[1]
    compiled = torch.compile(f, backend="tenon", dynamic=True)
    for n in (8, 3, 20):
        x = torch.randn(n, 6, requires_grad=True)
        (mine,) = torch.autograd.grad(compiled(x), x)
        (eagers,) = torch.autograd.grad(f(x), x)
        torch.testing.assert_close(mine, eagers)
    assert all("SymInt" not in kinds for kinds in seen.inputs)


@pytest.mark.by_aten(tier="any")
@pytest.mark.parametrize(
    "call",
    [(torch.randn(4, 5), torch.randn(4, 6)), (torch.randn(5, 4).t(), torch.randn(4, 5)), (torch.randn(1, 5), torch.randn(1, 5))],
    ids=["sizes", "strides", "one"],
)
def test_a_call_that_violates_one_goes_elsewhere(seen, call):
    f = lambda x, y: x.exp() + (y if y.shape[1] == x.shape[1] else y[:, :1])
    compiled = torch.compile(f, backend="tenon", dynamic=True)
    torch.testing.assert_close(compiled(torch.ones(3, 7), torch.ones(3, 7)), f(torch.ones(3, 7), torch.ones(3, 7)))
    torch.testing.assert_close(compiled(torch.ones(8, 9), torch.ones(8, 9)), f(torch.ones(8, 9), torch.ones(8, 9)))
    assert len(seen.inputs) == 1 and seen.all_native()
    torch.testing.assert_close(compiled(*call), f(*call))
    assert len(seen.inputs) == 2  # Dynamo traced again
    assert torch_tenon.why(compiled) is not None


def test_other_backends_keep_their_guards(seen):
    compiled = torch.compile(lambda x: x + x.shape[0], backend="eager", dynamic=True)
    compiled(torch.ones(3, 4))
    assert seen.guards == [] and seen.inputs == []
