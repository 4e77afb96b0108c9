"""What the compiler can't take runs as in eager, with its reason in stats(); with fallback="error" the message says what and where."""

import contextlib
import re
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from torch_tenon.testing import compare

pytestmark = pytest.mark.usefixtures("tenon")


def _last(tenon):
    return tenon.stats()["graphs"][-1]


# --- compiles that fail -----------------------------------------------------------------------


@pytest.mark.by_aten(tier="eager_program", reason="the compile failed: .*no_such_pass")
def test_a_request_that_libtenon_refuses(tenon):
    options = {"passes": ["no_such_pass"]}
    x = torch.randn(5)
    assert torch.equal(torch.compile(lambda t: t * 2, backend="tenon", options=options)(x), x * 2)


@pytest.mark.by_aten(tier="eager_program", reason="the (compile|export) failed: .planted")
@pytest.mark.parametrize("name", ["export", "_compile"])
def test_any_error_of_a_compile_is_a_reason(name, monkeypatch, caplog):
    from torch_tenon import compiler

    def fail(*args, **kwargs):
        raise KeyError("planted")

    monkeypatch.setattr(compiler, name, fail)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(3, 4)
    compiled = torch.compile(model, backend="tenon")
    torch.testing.assert_close(compiled(x), model(x))
    compiled(x).sum().backward()
    assert any("planted" in record.getMessage() for record in caplog.records)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="planted"):
        torch.compile(model, backend="tenon", options={"fallback": "error"})(x)


def _jagged(*lengths, grad=False):
    parts = [torch.randn(n, 4) for n in lengths]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=grad)


@pytest.mark.by_aten(tier="any")  # native where the sizes reach us as numbers
@pytest.mark.parametrize("function", [lambda t: (t * 2).sin(), lambda t: F.layer_norm(t, (4,)) + t], ids=["pointwise", "norm"])
def test_jagged_nested_tensors(function, graphs_ran_natively):
    compiled = torch.compile(function, backend="tenon")
    for lengths in ((3, 5), (2, 2, 6), (1, 7)):
        nested = _jagged(*lengths)
        for found, wanted in zip(compiled(nested).unbind(), function(nested).unbind(), strict=True):
            torch.testing.assert_close(found, wanted)
    trained, twin = _jagged(3, 5, grad=True), None
    twin = trained.detach().clone().requires_grad_()
    compiled(trained).values().square().sum().backward()
    function(twin).values().square().sum().backward()
    torch.testing.assert_close(trained.grad.values(), twin.grad.values())
    assert graphs_ran_natively


# --- symbols ----------------------------------------------------------------------------------




def _symbolic_graph(shape_of, function, example):
    """make_fx's graph of `function`, with the input's sizes replaced by expressions of one symbol."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    one = mode.from_tensor(
        torch.empty(example), symbolic_context=StatelessSymbolicContext([DimDynamic.DYNAMIC])
    )
    with mode:
        fake = shape_of(one.shape[0])
    return make_fx(function, tracing_mode="real")(fake)


def test_a_symbol_that_occurs_only_in_derived_sizes(tenon):
    graph = _symbolic_graph(lambda n: torch.empty(2 * n + 1, 3), lambda t: [t * 2 + t.shape[0]], 5)
    run = tenon.compile_graph(graph, [])
    for n in (5, 6, 9):
        x = torch.randn(2 * n + 1, 3)
        torch.testing.assert_close(run([x])[0], x * 2 + len(x))
    assert not hasattr(run, "specializations")  # one program, which solves 2 * n + 1


def test_a_derived_size_that_cannot_be_solved_is_known_as_a_whole(tenon):
    graph = _symbolic_graph(lambda n: torch.empty(n // 2 + 1, 3), lambda t: [t * 2], 8)
    run = tenon.compile_graph(graph, [])
    x = torch.randn(4, 3)
    torch.testing.assert_close(run([x])[0], x * 2)


def test_a_symbolic_offset_is_no_size(graphs_ran_natively):
    def cut(base, start):
        window = base[start : start + 4]
        torch._dynamo.graph_break()
        return window * 2 + 1

    compiled, base = torch.compile(cut, backend="tenon", dynamic=True), torch.randn(50)
    for start in (5, 6, 9, 20):
        assert torch.equal(compiled(base, start), cut(base, start))
    multiplied = [r for r in graphs_ran_natively if "aten.mul.Tensor" in r.nodes]
    assert len(multiplied) == 1 and multiplied[0].raw_stats()["calls"] == 4


@pytest.mark.by_aten(steps=("aten.as_strided.default",))  # of a number that follows from the call
def test_an_offset_that_an_operator_asks_for():
    def cut(base, start):
        window = base[start : start + 4]
        torch._dynamo.graph_break()
        return window.as_strided((2,), (1,), window.storage_offset() + 1) * 2

    compiled, base = torch.compile(cut, backend="tenon", dynamic=True), torch.randn(50)
    for start in (5, 6, 9):
        assert torch.equal(compiled(base, start), cut(base, start))


# --- operators that aren't what their fake kernel says ------------------------------------------


def _bag(weight, index, offsets, scale):
    return F.embedding_bag(index, weight, offsets, mode="sum", include_last_offset=True, per_sample_weights=scale)


@pytest.mark.by_aten(tier="any")  # bfloat16's second and later results have other sizes than the fake kernel says
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_embedding_bag_of_an_unlike_fake_kernel(dtype):
    def step(function):
        torch.manual_seed(0)
        weight, scale = torch.randn(777, 8, dtype=dtype), torch.rand(10, dtype=dtype)
        weight, scale = weight.requires_grad_(), scale.requires_grad_()
        index, offsets = torch.randint(0, 777, (10,)), torch.tensor([0, 3, 7, 10])
        for _ in range(3):
            out = function(weight, index, offsets, scale)
            out.square().sum().backward()
        return out.detach(), weight.grad, scale.grad

    for found, wanted in zip(step(torch.compile(_bag, backend="tenon")), step(_bag)):
        torch.testing.assert_close(found, wanted)


@pytest.fixture
def liar():
    """aten.histc's stand-in: an ATen overload without lowering whose fake kernel is wrong in dims."""
    library = torch.library.Library("aten", "FRAGMENT")
    library.define("tenon_test_liar(Tensor x) -> Tensor")
    library.impl("tenon_test_liar", lambda x: torch.cat([x, x]), "CPU")
    torch.library.register_fake("aten::tenon_test_liar", lambda x: torch.empty_like(x), lib=library)
    yield torch.ops.aten.tenon_test_liar.default
    library._destroy()


@pytest.mark.by_aten(tier="eager_program", reason=r"tenon_test_liar.*result 0 was compiled as f32\[4\], the operator returned f32\[8\]")
def test_a_result_of_another_size_runs_as_in_eager(liar, tenon, caplog):
    graph = torch.fx.symbolic_trace(lambda x: [torch.ops.aten.mul.Tensor(liar(x), 2)])
    run = tenon.compile_graph(graph, [torch.randn(4)], fallback="allow")
    assert _last(tenon)["tier"] == "native"
    for _ in range(3):
        x = torch.randn(4)
        assert torch.equal(run([x])[0], torch.cat([x, x]) * 2)
    assert _last(tenon)["tier"] == "eager_program"
    assert sum("runs by ATen from now on" in r.getMessage() for r in caplog.records) == 1


@pytest.mark.by_aten(tier="eager_program", reason="tenon_test_liar")
def test_random_numbers_are_drawn_once_all_the_same(liar, tenon):
    graph = torch.fx.symbolic_trace(lambda x: [liar(torch.ops.aten.rand_like.default(x))])
    x = torch.randn(4)
    run = tenon.compile_graph(graph, [x], fallback="allow")
    torch.manual_seed(5)
    found = [run([x])[0], torch.rand(3)]
    torch.manual_seed(5)
    drawn = torch.rand_like(x)
    assert torch.equal(found[0], torch.cat([drawn, drawn])) and torch.equal(found[1], torch.rand(3))


# --- messages -----------------------------------------------------------------------------------

X = torch.randn(5, 4)
BAD = torch.tensor([0, 7, 2])
_WRONG_INDEX = {
    "index": lambda x, i: x[i] * 2,
    "index_select": lambda x, i: x.index_select(0, i) + 1,
    "embedding": lambda x, i: F.embedding(i, x) * 2,
    "gather": lambda x, i: torch.gather(x, 0, i[:, None].expand(3, 4)) + 1,
    "index_add": lambda x, i: x.index_add(0, i, torch.ones(3, 4)) + 1,
    "divide": lambda x, i: torch.div(i, i - i, rounding_mode="floor") + 1,
}


@pytest.mark.parametrize("name", _WRONG_INDEX)
def test_an_error_of_a_check_is_eagers_to_the_letter(name):
    function = _WRONG_INDEX[name]
    with pytest.raises(Exception) as eager:
        function(X, BAD)
    compiled = torch.compile(function, backend="tenon")
    for _ in range(2):
        with pytest.raises(type(eager.value), match=f"^{re.escape(str(eager.value))}$"):
            compiled(X, BAD)


def test_a_failed_check_leaves_inputs_and_the_program_as_they_were(graphs_ran_natively):
    def f(x, i):
        y = x[i] * 2
        x.add_(1)
        return y

    compiled, x = torch.compile(f, backend="tenon"), X.clone()
    for _ in range(2):
        with pytest.raises(IndexError):
            compiled(x, BAD)
        assert torch.equal(x, X)
    assert torch.equal(compiled(x, BAD % 5), X[BAD % 5] * 2) and torch.equal(x, X + 1)
    assert [r.tier for r in graphs_ran_natively] == ["native"]


def test_a_dump_folder_that_cannot_be_written_is_said(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    options = {"dump": str(tmp_path / "file" / "folder")}
    torch.compile(lambda t: t + 1, backend="tenon", options=options)(torch.randn(3))
    assert any("can't be written" in r.getMessage() and "folder" in r.getMessage() for r in caplog.records)


@pytest.mark.by_aten(tier="any")
def test_the_message_for_what_has_no_text_names_op_and_cause(tenon):
    from torch_tenon.export import NotExpressible, export

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    nested = graph.call_function(torch.ops.higher_order.run_and_save_rng_state, (torch.ops.aten.max.dim, x, 0))
    pair = graph.call_function(__import__("operator").getitem, (nested, 1))
    x.meta["val"] = torch.empty(3)
    nested.meta["val"] = (torch.empty(8), (torch.empty(()), torch.empty(())))
    pair.meta["val"] = nested.meta["val"][1]
    graph.output([pair])
    with pytest.raises(NotExpressible, match=r"output 0 .* result\[1\] of .*run_and_save_rng_state, which is a tuple"):
        export(torch.fx.GraphModule({}, graph), "g")


def test_fallback_error_accepts_what_is_by_design():
    def f(x, weight):
        y = F.conv1d(F.dropout(x, 0.3), weight) @ torch.randn(7, 5)
        return F.scaled_dot_product_attention(y[None], y[None], y[None])

    options = {"fallback": "error"}
    args = torch.randn(2, 3, 9), torch.randn(4, 3, 3)
    compiled = torch.compile(f, backend="tenon", options=options)
    torch.manual_seed(1)
    wanted = f(*args)
    torch.manual_seed(1)
    torch.testing.assert_close(compiled(*args), wanted)


@pytest.mark.by_aten(tier="any")
def test_fallback_error_names_the_source_line():
    def f(x):
        return torch.linalg.svdvals(x * 2) + 1

    line = f.__code__.co_firstlineno + 1
    with pytest.raises(Exception, match=rf"svd\S* \(test_never_fails.py:{line}\): no lowering"):
        torch.compile(f, backend="tenon", options={"fallback": "error"})(torch.randn(3, 3))
