"""Operators that no kernel is made of: each is one step of its own, and the graph around it is compiled."""

import contextlib
import gc
import re
import warnings
import weakref

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

from plugin.checking import same_as_eager

NAMESPACE = "tenon_odd_ops"
_kept, _calls = [], []


def _operator(name, mutates=(), tags=(), fake=torch.empty_like):
    def define(function):
        op = torch.library.custom_op(f"{NAMESPACE}::{name}", function, mutates_args=mutates, tags=tags)
        op.register_fake(fake)
        return op

    return define


@_operator("scale", fake=lambda x, k: torch.empty_like(x))
def scale(x: torch.Tensor, k: float) -> torch.Tensor:
    return x * k


@_operator("sines", fake=lambda xs, name: [torch.empty_like(x) for x in xs])
def sines(xs: list[torch.Tensor], name: str) -> list[torch.Tensor]:
    return [x.sin() for x in xs]


@_operator("add_to", mutates=("out",), fake=lambda out, x: None)
def add_to(out: torch.Tensor, x: torch.Tensor) -> None:
    out.add_(x)


@_operator("double_and_add", mutates=("a",), fake=lambda a, x: torch.empty_like(x))
def double_and_add(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    a.mul_(2)
    return x + a


@_operator("add_to_all", mutates=("outs",), fake=lambda outs, x: None)
def add_to_all(outs: list[torch.Tensor], x: torch.Tensor) -> None:
    for out in outs:
        out.add_(x)


@_operator("keep", fake=lambda x: torch.empty_like(x))
def keep(x: torch.Tensor) -> torch.Tensor:
    _kept.append(x)
    return x + 1


@_operator("transposed", tags=(torch.Tag.needs_fixed_stride_order,), fake=lambda x: torch.empty_like(x))
def transposed(x: torch.Tensor) -> torch.Tensor:
    assert x.stride() == (1, x.shape[0]), f"wanted columns, got strides {x.stride()}"
    return x.clone()


@_operator("repeated", fake=lambda x: torch.empty_like(x))
def repeated(x: torch.Tensor) -> torch.Tensor:
    assert x.stride() == (0, 1), f"wanted one row, repeated, got strides {x.stride()}"
    return x.clone(memory_format=torch.contiguous_format)


@_operator("note", fake=lambda x, name: torch.empty_like(x))
def note(x: torch.Tensor, name: str) -> torch.Tensor:
    _calls.append(name)
    return x + 1


@_operator("refuse_negative", mutates=("out",), fake=lambda out, x: None)
def refuse_negative(out: torch.Tensor, x: torch.Tensor) -> None:
    _calls.append("refuse_negative")
    if x.min() < 0:
        raise ValueError("wanted nothing negative")
    out.add_(x)


def _steps(records) -> list[dict]:
    """Of the last graph."""
    return records[-1].info["steps"]


def _calls_of(records) -> list[str]:
    return [step["op"] for step in _steps(records) if step["kind"] == "call"]


# --- operators of other libraries -----------------------------------------------------------------


def test_an_operator_between_kernels(backend, tenon, graphs_ran_natively):
    same_as_eager(lambda x: scale(x.sin(), 2.5).cos() * 3, torch.randn(8, 16), backend=backend)
    (step,) = [s for s in _steps(graphs_ran_natively) if s["kind"] == "call"]
    assert step["op"] == f"{NAMESPACE}.scale.default" and step["reason"].startswith("custom")
    assert sum(s["kind"] == "kernel" for s in _steps(graphs_ran_natively)) == 2
    graph = tenon.stats()["graphs"][-1]
    assert graph["aten_steps"][f"{NAMESPACE}.scale.default"]["count"] == graph["calls"] > 0


def test_a_users_operator_is_no_fallback(tenon):
    x = torch.randn(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = torch.compile(lambda x: scale(x + 1, 2.0), backend="tenon", options={"fallback": "error"})
        torch.testing.assert_close(compiled(x), (x + 1) * 2)


def test_lists_of_tensors(backend):
    same_as_eager(lambda x: sum(sines([x.sin(), x + 1], "two")).exp(), torch.randn(8, 16), backend=backend)


def test_what_it_keeps_stays_as_it_was(backend):
    """An operand in planned memory, which the next kernel or call writes over."""
    def f(x):
        return keep(x.exp()).sin() * 2

    compiled = torch.compile(f, backend=backend)
    for _ in range(3):
        _kept.clear()
        x = torch.randn(64, 64)
        torch.testing.assert_close(compiled(x), (x.exp() + 1).sin() * 2)
        compiled(torch.zeros(64, 64))
        torch.testing.assert_close(_kept[0], x.exp())


def test_what_it_keeps_of_a_librarys_result_stays_as_it_was(backend, graphs_ran_natively):
    """A convolution's tensor, which elementwise kernels write over where nobody else has it."""
    def f(x, w, m):
        y = torch.conv2d(x, w, padding=1)
        return keep(y), torch.matmul(y.relu() * 2 - 1, m)

    x, w, m = torch.randn(4, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(8, 16)
    for _ in range(2):
        _kept.clear()
        same_as_eager(f, x, w, m, backend=backend)
        for k in _kept:
            torch.testing.assert_close(k, torch.conv2d(x.to(k.dtype), w.to(k.dtype), padding=1))
    assert f"{NAMESPACE}.keep.default" in _calls_of(graphs_ran_natively)
    assert "host.convolution" in _calls_of(graphs_ran_natively), "else it lies in planned memory, of which the operator gets a copy"


def test_an_operator_of_a_librarys_name_that_is_gone(backend):
    """The dispatcher frees what a handle points to, and may put another operator there."""
    def run(names):
        with torch.library._scoped_library(f"{NAMESPACE}_gone", "FRAGMENT") as library:
            for name in names:
                factor = {"doubled": 2, "tripled": 3}[name]
                library.define(f"{name}(Tensor x) -> Tensor")
                library.impl(name, lambda x, factor=factor: x * factor, "CPU")
                library.impl(name, torch.empty_like, "Meta")
            torch._dynamo.reset()
            f = torch.compile(lambda x: getattr(torch.ops, f"{NAMESPACE}_gone").doubled(x + 1) * 2, backend=backend)
            return f(torch.ones(10))

    for names in (["doubled", "tripled"], ["tripled", "doubled"]) * 2:
        assert torch.equal(run(names), torch.full((10,), 8.0)), names


def test_a_backward_whose_inputs_are_given_away_is_not_run_again():
    """Then the user hears what the operator did, not that an input is missing. Early backwards are careful and keep theirs."""
    doubles = False

    @torch.library.custom_op(f"{NAMESPACE}::sometimes_f64", mutates_args=())
    def sometimes_f64(g: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (g * y).double() if doubles else g * y

    sometimes_f64.register_fake(lambda g, y: torch.empty_like(g))

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.sin()
            ctx.save_for_backward(y)
            return y * 2

        @staticmethod
        def backward(ctx, g):
            return sometimes_f64(g, *ctx.saved_tensors).float()

    compiled = torch.compile(lambda x, w: (Sine.apply(x * w) * torch.tanh(x * w)).sum(), backend="tenon")
    for doubles in (False, False, True):
        x, w = (torch.randn(40000, requires_grad=True) for _ in range(2))
        loss = compiled(x, w)
        if doubles:
            with pytest.raises(RuntimeError, match=r"sometimes_f64.*compiled as f32\[40000\], the operator returned f64"):
                loss.backward()
        else:
            loss.backward()
            assert x.grad is not None


def test_what_a_failed_call_keeps(backend):
    seen = []

    @torch.library.custom_op(f"{NAMESPACE}::fail", mutates_args=())
    def fail(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        raise ValueError("on purpose")

    fail.register_fake(torch.empty_like)
    compiled = torch.compile(lambda x: fail(x.exp()) + 1, backend=backend)
    x = torch.randn(32, 32)
    with pytest.raises(ValueError, match="on purpose"):
        compiled(x)
    with pytest.raises(ValueError, match="on purpose"):
        compiled(torch.zeros(32, 32))
    torch.testing.assert_close(seen[0], x.exp())


def test_strides_are_what_it_was_traced_with(backend):
    same_as_eager(lambda x: transposed((x + 1).t()) * 2, torch.randn(16, 8), backend=backend)
    # A value that the compiler would rather have in rows.
    same_as_eager(lambda x: transposed(torch.softmax(x, -1).t()) * 2, torch.randn(16, 8), backend=backend)


@pytest.mark.parametrize("dynamic", (False, True))
def test_rows_that_repeat_one(backend, dynamic):
    """An expanded operand is one to the operator too; what the graph made of one number is none."""
    f = lambda x: repeated((x + 1).expand(4, x.shape[0])) * 2
    compiled = torch.compile(f, backend=backend, dynamic=dynamic)
    for n in (8, 5):
        torch.testing.assert_close(compiled(x := torch.randn(n)), f(x))
    same_as_eager(lambda x: transposed(torch.ones_like(x).t()) * 2, torch.randn(16, 8), backend=backend)


def test_a_step_brings_its_operand_into_rows_that_repeat_one(tenon):
    """Where the operand lies otherwise than the call was traced: here a matrix of equal rows."""
    from torch_tenon import _C

    text = """graph "g" {
  %x = input f32[4,3]{3,1}
  %y = tenon_odd_ops.repeated.default(%x{0,1}) -> f32[4,3]{3,1}
  return (%y)
}
"""
    row = torch.randn(3)
    (y,) = _C.compile(_C.Graph.parse(text), {}, [])([row.repeat(4, 1)])
    assert torch.equal(y, row.expand(4, 3))


def test_calls_keep_their_order(backend):
    def f(x):
        a = note(x * 2, "first")
        b = note(x * 3, "second")
        c = note(b, "third")
        return a + 1, c

    for run in (f, torch.compile(f, backend=backend)):
        _calls.clear()
        run(torch.randn(4))
        assert _calls == ["first", "second", "third"]


def test_equal_calls_are_not_merged(backend):
    compiled = torch.compile(lambda x: note(x, "a") + note(x, "a"), backend=backend)
    _calls.clear()
    compiled(torch.randn(4))
    assert _calls == ["a", "a"]


def test_ordered_effects(backend, graphs_ran_natively):
    effects = pytest.importorskip("torch._higher_order_ops.effects")

    @torch.library.custom_op(f"{NAMESPACE}::effect", mutates_args=())
    def effect(x: torch.Tensor) -> torch.Tensor:
        _calls.append("effect")
        return x + 1

    effect.register_fake(torch.empty_like)
    if hasattr(effect, "register_effect"):
        effect.register_effect(effects._EffectType.ORDERED)
    else:
        effects._register_effectful_op(f"{NAMESPACE}::effect", effects._EffectType.ORDERED)
    x = torch.randn(6)
    _calls.clear()
    torch.testing.assert_close(torch.compile(lambda x: effect(effect(x.sin()).cos()), backend=backend)(x), (x.sin() + 1).cos() + 1)
    assert _calls == ["effect", "effect"]
    assert _calls_of(graphs_ran_natively) == [f"{NAMESPACE}.effect.default"] * 2


# --- operators that change their arguments ----------------------------------------------------------


def test_changes_a_temporary(backend, graphs_ran_natively):
    def f(x):
        out = x.sin() * 2
        add_to(out, x)
        return out.cos()

    same_as_eager(f, torch.randn(8, 16), backend=backend)
    assert _calls_of(graphs_ran_natively) == [f"{NAMESPACE}.add_to.default"]
    assert not any(s["kind"] == "copy" for s in _steps(graphs_ran_natively)), "the old value dies there"


def test_changes_what_is_read_later(backend, graphs_ran_natively):
    def f(x):
        old = x.sin() * 2
        new = old.clone()
        add_to(new, x)
        return new * old

    same_as_eager(f, torch.randn(8, 16), backend=backend)


def test_changes_parts(backend, graphs_ran_natively):
    def f(x):
        out = torch.zeros(4, 16)
        add_to(out[1], x)
        r = double_and_add(out[:, 3], x[:4])
        add_to(out.t()[2:5, 1:3], torch.ones(3, 2))
        return out.cos(), r

    same_as_eager(f, torch.randn(16), backend=backend)
    assert len(_calls_of(graphs_ran_natively)) == 3


def test_changes_a_list(backend):
    def f(x):
        a, b = x + 1, x * 2
        add_to_all([a, b], x.sin())
        return a - b

    same_as_eager(f, torch.randn(3, 5), backend=backend)


def test_changes_an_input_where_it_lies(backend, graphs_ran_natively):
    """As a cache is updated: nothing of its size is copied, whatever follows."""
    def f(cache, x):
        add_to(cache[3], x.sin())
        return scale(cache.sum(0), 2.0)  # may fail

    same_as_eager(f, torch.randn(8, 16), torch.randn(16), backend=backend)
    remarks = graphs_ran_natively[-1].info["remarks"]
    assert any("updated-in-place" in str(r) for r in remarks)
    compiled = torch.compile(f, backend=backend)
    for _ in range(3):
        cache, x = torch.randn(8, 16), torch.randn(16)
        wanted = cache.clone()
        result, expected = compiled(cache, x), f(wanted, x)
        torch.testing.assert_close(cache, wanted)
        torch.testing.assert_close(result, expected)


def test_several_inputs_each_by_its_own_call(backend):
    def f(a, b, x):
        add_to(a, x)
        double_and_add(b, a * 2)
        add_to(a, b)
        return a + b

    compiled = torch.compile(f, backend=backend)
    for _ in range(3):
        a, b, x = torch.randn(8), torch.randn(8), torch.randn(8)
        wanted = [a.clone(), b.clone()]
        result, expected = compiled(a, b, x), f(*wanted, x)
        torch.testing.assert_close([a, b, result], [*wanted, expected])


@pytest.mark.by_aten(tier="eager_program", reason="shares memory")
def test_the_input_overlaps_another(backend):
    def f(a, x):
        add_to(a, x * 2)
        return a.sum()

    compiled = torch.compile(f, backend=backend, dynamic=False)
    for low in (32, 0, 8, 32):
        base = torch.randn(64)
        wanted = base.clone()
        result, expected = compiled(base[:16], base[low : low + 16]), f(wanted[:16], wanted[low : low + 16])
        torch.testing.assert_close([base, result], [wanted, expected])


def test_an_error_after_a_change_is_not_done_again(backend):
    """A check that fails behind the operator: the input keeps what eager would have left there, once."""
    def f(a, x, index):
        y = note(x, "once")
        add_to(a, y)
        return a[index + scale(a, 0.0).long()]

    compiled = torch.compile(f, backend=backend)
    good, bad = torch.tensor([1, 2, 0, 1]), torch.tensor([1, 2, 9, 1])
    for _ in range(2):  # the first run makes new values elsewhere
        compiled(torch.zeros(4), torch.zeros(4), good)
    a, wanted, x = torch.ones(4), torch.ones(4), torch.rand(4)
    _calls.clear()
    with pytest.raises(IndexError):
        compiled(a, x, bad)
    assert _calls == ["once"]
    with pytest.raises(IndexError):
        f(wanted, x, bad)
    torch.testing.assert_close(a, wanted)


def test_nothing_is_called_where_a_check_has_failed(backend):
    """The run is done again by ATen, for eager's error: then the operator has not run yet."""
    compiled = torch.compile(lambda x, index: note(x, "once")[index] + 1, backend=backend)
    x = torch.randn(4)
    compiled(x, torch.tensor([1, 3]))
    _calls.clear()
    with pytest.raises(IndexError, match="out of (range|bounds)"):
        compiled(x, torch.tensor([1, 4]))
    assert _calls == ["once"]


def test_its_error_is_the_callers(backend):
    def f(a, x):
        refuse_negative(a, x)
        return a * 2

    compiled = torch.compile(f, backend=backend)
    for x, fails in ((torch.rand(4), False), (torch.rand(4), False), (-torch.rand(4) - 1, True), (torch.rand(4), False)):
        a, wanted = torch.ones(4), torch.ones(4)
        _calls.clear()
        if fails:
            with pytest.raises(ValueError, match="wanted nothing negative"):
                compiled(a, x)
            assert _calls == ["refuse_negative"]
            torch.testing.assert_close(a, wanted)
        else:
            torch.testing.assert_close(compiled(a, x), f(wanted, x))
            torch.testing.assert_close(a, wanted)


def test_memory_with_gaps(backend):
    """Called from Python, as a function."""
    base = torch.randn(8, 32)

    def f(a, x):
        add_to(a, x)
        return a * 2

    compiled = torch.compile(f, backend=backend)
    a, wanted, x = base[:, ::2].clone(), base[:, ::2].clone(), torch.randn(8, 16)
    torch.testing.assert_close(compiled(a, x), f(wanted, x))
    torch.testing.assert_close(a, wanted)


@pytest.mark.by_aten(tier="eager_program", reason="asked for")
def test_written_arguments_by_the_eager_program(backend):
    def f(x):
        out = torch.zeros(4, 16)
        add_to(out[1], x)
        r = double_and_add(out[2], x)
        return out.cos() + r, out

    x = torch.randn(16)
    compiled = torch.compile(f, backend=backend, options={"tier": "eager_program"})
    for found, wanted in zip(compiled(x), f(x)):
        torch.testing.assert_close(found, wanted)


# --- higher-order operators -------------------------------------------------------------------------


def _python_steps(records) -> list[str]:
    return [re.sub(r"^python\.\d+\.", "", op) for op in _calls_of(records) if op.startswith("python.")]


@pytest.mark.by_aten(tier="any")  # a Python step in each
@pytest.mark.parametrize("predicate", [1.0, -1.0])
def test_cond(backend, predicate, graphs_ran_natively):
    def f(x, p):
        return torch.cond(p.sum() > 0, lambda x: (x.sin() + 1) * 2, lambda x: x.cos() - 1, (x * 2,)).exp()

    same_as_eager(f, torch.randn(8, 16), torch.full((3,), predicate), backend=backend)
    assert _python_steps(graphs_ran_natively) == ["higher_order.cond"]
    same_as_eager(f, torch.randn(8, 16, requires_grad=True), torch.full((3,), predicate), backend=backend, train=True)
    assert all(r.tier == "native" for r in graphs_ran_natively)


@pytest.mark.by_aten(tier="any")
def test_while_loop(backend, graphs_ran_natively):
    from torch._higher_order_ops import while_loop

    def f(x):
        _, y = while_loop(lambda i, y: i < 5, lambda i, y: (i + 1, y.sin() + y), (torch.tensor(0), x * 2))
        return y + 1

    x = torch.randn(8, 16)
    torch.testing.assert_close(torch.compile(f, backend=backend)(x), torch.compile(f, backend="eager")(x))
    assert _python_steps(graphs_ran_natively) == ["higher_order.while_loop"] and graphs_ran_natively[-1].tier == "native"


@pytest.mark.by_aten(tier="any")
@pytest.mark.parametrize("steps, called", [(8, []), (500, ["higher_order.scan"])], ids=["unrolled", "called"])
def test_scan(backend, steps, called, graphs_ran_natively):
    from torch._higher_order_ops import scan

    def step(carry, y):
        new = carry * 0.5 + y
        return new, new.sin()

    def f(x):
        last, all_of_them = scan(step, torch.zeros(16), x)
        return last + 1, all_of_them * 2

    x = torch.randn(steps, 16)
    torch.testing.assert_close(torch.compile(f, backend=backend)(x), torch.compile(f, backend="eager")(x))
    assert _python_steps(graphs_ran_natively) == called and graphs_ran_natively[-1].tier == "native"


def test_associative_scan(backend):
    from torch._higher_order_ops import associative_scan

    f = lambda x: associative_scan(lambda a, b: a * b + b, x.sin(), 0, combine_mode="generic") + 1
    x = torch.randn(8, 16)
    torch.testing.assert_close(torch.compile(f, backend=backend)(x), torch.compile(f, backend="eager")(x))


def test_flex_attention(backend):
    """What it is made of is compiled with what stands around."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    causal = create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 64, 64, device="cpu")
    slope = torch.randn(4)

    def masked(q, k, v):
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j) * 0.1, block_mask=causal) * 2

    def grouped(q, k, v):
        return flex_attention(q + 1, k, v, score_mod=lambda s, b, h, i, j: s * slope[h], enable_gqa=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # flex_attention's, of eager
        q, k, v = torch.randn(1, 4, 64, 16), torch.randn(1, 2, 64, 16), torch.randn(1, 2, 64, 16)
        same_as_eager(masked, q[:, :2], k, v, backend=backend)
        same_as_eager(grouped, q, k, v, backend=backend)


def test_nested_regions(backend):
    linear = nn.Linear(16, 16)

    @torch.compiler.nested_compile_region
    def region(x):
        return linear(x).sin() * 2 + 1

    compiled = torch.compile(lambda x: region(region(x)).cos().sum(), backend=backend)
    x, y = torch.randn(8, 16, requires_grad=True), None
    compiled(x).backward()
    y = x.detach().clone().requires_grad_()
    wanted = [p.grad for p in linear.parameters()]
    linear.zero_grad()
    region(region(y)).cos().sum().backward()
    torch.testing.assert_close([x.grad, *wanted], [y.grad, *(p.grad for p in linear.parameters())])


@pytest.mark.by_aten(tier="any")
def test_a_check_that_fails_beside_a_python_step(backend):
    """The graph is run again by ATen, Python steps included, so that the error is eager's."""
    def f(x, p, index):
        y = torch.cond(p.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
        return y[index]

    compiled = torch.compile(f, backend=backend)
    x, p = torch.randn(4), torch.ones(1)
    torch.testing.assert_close(compiled(x, p, torch.tensor([3, 0])), x.sin()[[3, 0]])
    for _ in range(2):
        with pytest.raises(IndexError, match="out of (range|bounds)"):
            compiled(x, p, torch.tensor([4]))


@pytest.mark.by_aten(tier="any")
def test_callables_die_with_their_graph(backend, monkeypatch):
    from torch_tenon import export

    alive = []
    register = export._C.register_callable

    class Recorder:
        def __getattr__(self, name):
            return getattr(_C, name)

        def register_callable(self, call):
            alive.append(weakref.ref(call))
            return register(call)

    _C = export._C
    monkeypatch.setattr(export, "_C", Recorder())
    compiled = torch.compile(lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)), backend=backend)
    compiled(torch.ones(4))
    assert [ref() is not None for ref in alive] == [True]
    del compiled
    torch._dynamo.reset()
    gc.collect()
    assert [ref() for ref in alive] == [None]


# --- random states, sparse tensors, errors of linear algebra ------------------------------------------


def test_checkpointing_with_dropout(backend, graphs_ran_natively):
    """The backward draws again what the forward drew: the state is saved and restored by steps of the program."""
    torch.manual_seed(3)
    block = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.3), nn.GELU(), nn.Linear(16, 16), nn.Dropout(0.1))

    def f(x):
        x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False).sum()

    compiled = torch.compile(f, backend=backend)
    for seed in range(3):
        results = []
        for run in (f, compiled):
            torch.manual_seed(seed)
            x = torch.linspace(-1, 1, 8 * 16).reshape(8, 16).requires_grad_()
            block.zero_grad()
            run(x).backward()
            results.append([x.grad, *(p.grad.clone() for p in block.parameters()), torch.rand(3)])
        torch.testing.assert_close(*results)
    calls = [op for r in graphs_ran_natively for op in (s["op"] for s in r.info["steps"] if s["kind"] == "call")]
    assert calls.count("tenon.rng_state") == 4 and calls.count("tenon.swap_rng_state") == 8
    assert not any(op.startswith("python.") for op in calls)


@pytest.mark.by_aten(steps={"aten._sparse_coo_tensor_with_dims_and_tensors.default"})
def test_sparse_gradients(backend):
    embedding = nn.Embedding(100, 16, sparse=True)
    reference = nn.Embedding(100, 16, sparse=True)
    reference.load_state_dict(embedding.state_dict())
    compiled = torch.compile(lambda i: embedding(i).sin().sum(), backend=backend)
    for _ in range(3):
        index = torch.randint(0, 100, (8,))
        for module, run in ((embedding, compiled), (reference, lambda i: reference(i).sin().sum())):
            module.weight.grad = None
            run(index).backward()
        assert embedding.weight.grad.is_sparse
        torch.testing.assert_close(embedding.weight.grad.coalesce(), reference.weight.grad.coalesce())
        kept = embedding.weight.grad
    compiled(torch.zeros(8, dtype=torch.long)).backward()  # its memory is nobody else's
    assert kept.is_sparse


@pytest.mark.by_aten(steps={"aten.linalg_inv_ex.default", "aten._linalg_check_errors.default"})
def test_errors_of_linear_algebra(backend):
    compiled = torch.compile(lambda x: torch.linalg.inv(x + 1) * 2, backend=backend)
    x = torch.randn(4, 4)
    torch.testing.assert_close(compiled(x), torch.linalg.inv(x + 1) * 2)
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        compiled(torch.zeros(4, 4))
    torch.testing.assert_close(compiled(x), torch.linalg.inv(x + 1) * 2)


# --- collectives ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _one_process_group(tmp_path):
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_functional_collectives(tmp_path, backend, graphs_ran_natively):
    import torch.distributed._functional_collectives as collectives

    with _one_process_group(tmp_path) as group:
        def f(x):
            total = collectives.all_reduce(x * 2, "sum", group) + 1
            return total, collectives.all_gather_tensor(total, 0, group) * 3

        compiled = torch.compile(f, backend=backend)
        for _ in range(3):
            x = torch.randn(400, 30)
            for found, wanted in zip(compiled(x), f(x)):
                assert torch.equal(found, wanted)
        calls = _calls_of(graphs_ran_natively)
        wanted = [f"_c10d_functional.{op}.default" for op in ("all_reduce", "all_gather_into_tensor")]
        assert [c for c in calls if "wait" not in c] == wanted
