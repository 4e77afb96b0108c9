"""tenon's partitioner against PyTorch's, what it leaves to it, and what it must not do (docs/architecture/partition.md)."""

import contextlib
import copy
import gc
import logging
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from conftest import _import_error
from models import nets, zoo

if _import_error() is not None:
    pytest.skip(_import_error(), allow_module_level=True)

from torch_tenon import _torch_private, backend, first_call, partition, registry  # noqa: E402
from torch_tenon.pure_graphs import effects_of  # noqa: E402
from torch_tenon.testing import check_model  # noqa: E402


def _square(outputs):
    return sum(output.float().square().mean() for output in pytree.tree_leaves(outputs))


@contextlib.contextmanager
def _both(monkeypatch):
    """Cuts every joint graph twice; what each saves: a list of ((names, bytes) of tenon's, of PyTorch's)."""
    found, own = [], partition.partition

    def cut(joint, inputs, *, num_fwd_outputs, static_lifetime_input_indices=None, **kwargs):
        with unset_fake_temporarily():  # its constants are real tensors
            again = copy.deepcopy(joint)
        static = frozenset(static_lifetime_input_indices or ())
        parts = own(joint, inputs, num_fwd_outputs=num_fwd_outputs, static_lifetime_input_indices=static_lifetime_input_indices)
        theirs, _ = _torch_private.min_cut_rematerialization_partition(
            again, inputs, num_fwd_outputs=num_fwd_outputs, static_lifetime_input_indices=static_lifetime_input_indices
        )
        saved = partition._returned(theirs)[num_fwd_outputs:]
        assert parts[0].meta[partition.CUT].by == "own", parts[0].meta[partition.CUT].reason
        found.append((parts[0].meta[partition.CUT], len(saved), partition._saved_bytes(theirs, saved, static)))
        return parts

    monkeypatch.setattr(backend, "partition", cut)
    yield found


def _traced(model, args, loss):
    """One training call with the graphs run by Python: only how they were cut is asked."""

    def run(graph, inputs, kind):
        def call(values):
            return list(graph(*values))

        call._boxed_call = True
        return call

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend.training_backend(run, own=False), dynamic=False)
    loss(compiled(*args)).backward()


def _rows():
    """The benchmarks' training rows, where their models aren't the zoo's."""
    x = torch.randn(1, 3, 64, 64)
    return {
        "densenet121": lambda: (nets.DenseNet(), (x,), zoo.class_loss),
        "gcn": lambda: (nets.GCN(), (torch.randn(100, 64), torch.randint(0, 100, (2, 1000)), torch.rand(1000)), zoo.class_loss),
        "lstmcell": lambda: (nets.LSTMCellLoop(), (torch.randn(32, 16, 64),), _square),
    }


_QUICK_ROWS = ("lstmcell", "gcn")
# Cholesky's check is an operator with an effect: PyTorch cuts such graphs.
_CUT_BY_TORCH = ("gaussian_process",)


def _cases():
    quick = {name for name, case in zoo.CASES.items() if case.quick} | set(_QUICK_ROWS)
    return [pytest.param(n, marks=() if n in quick else pytest.mark.models) for n in (*zoo.CASES, *_rows()) if n not in _CUT_BY_TORCH]


def _build(name):
    if name in zoo.CASES:
        case = zoo.CASES[name]
        return *case.make_train(), case.loss or _square
    torch.manual_seed(1234)
    return _rows()[name]()


@pytest.mark.by_aten(tier="any")
@pytest.mark.parametrize("name", _cases())
def test_saves_no_more_than_torch(name, monkeypatch, capsys):
    model, args, loss = _build(name)
    with _both(monkeypatch) as found:
        _traced(model, args, loss)
    assert found
    for cut, count, size in found:
        with capsys.disabled():
            print(f"\n{name}: {cut.saved} values, {cut.saved_bytes} bytes; PyTorch's min-cut {count}, {size}", flush=True)
        assert cut.saved_bytes <= size


# --- what comes out -------------------------------------------------------------------------


def _cut_of(records):
    (forward,) = [r for r in records if r.kind == "forward"]
    return forward.cut


def _train(function, *args, **options):
    torch._dynamo.reset()
    out = torch.compile(function, backend="tenon", options=options)(*args)
    (out if isinstance(out, torch.Tensor) else sum(o.sum() for o in out)).sum().backward()
    return out


class Mixed(nn.Module):
    """Products, reductions, long chains of pointwise ops, views, a tuple, a buffer that is written and read by the backward."""

    def __init__(self):
        super().__init__()
        self.up, self.norm, self.batch, self.down = nn.Linear(16, 32), nn.LayerNorm(32), nn.BatchNorm1d(32), nn.Linear(16, 4)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        y = self.batch(self.norm(F.gelu(self.up(x)))) * self.count
        a, b = y.chunk(2, -1)
        value, _ = torch.max(a.view(-1, 2, 8), dim=1)
        return F.log_softmax(self.down(torch.sigmoid(a) * torch.tanh(b)), -1), value.exp().mul(2).add(1).log()


@pytest.mark.parametrize("partitioner", ["own", "torch"])
def test_gradients(partitioner, graphs_ran_natively):
    torch.manual_seed(0)
    options = {"partitioner": partitioner}
    report = check_model(Mixed().train(), (torch.randn(64, 16, requires_grad=True),), train=True, options=options)
    assert not report.failures, report
    cuts = [r.cut for r in graphs_ran_natively if r.kind == "forward"]
    assert cuts and {cut.by for cut in cuts} == {partitioner}
    assert all(("asked for" in cut.reason) == (partitioner == "torch") for cut in cuts)


def test_random_numbers_are_drawn_once(graphs_ran_natively):
    x = torch.randn(64, 64, requires_grad=True)
    out = _train(lambda x: F.dropout(torch.tanh(x), 0.5) * torch.rand_like(x).exp(), x)
    kept = x.grad != 0
    assert torch.equal(kept, out != 0) and 0.3 < kept.float().mean() < 0.7
    scale = out.detach() / torch.tanh(x.detach())
    torch.testing.assert_close(x.grad, scale * (1 - torch.tanh(x.detach()) ** 2))
    assert _cut_of(graphs_ran_natively).by == "own"


def test_equal_nodes_are_one_but_for_signed_zeros_and_outputs(graphs_ran_natively):
    x = torch.rand(8, requires_grad=True)
    zeros, same, again = _train(lambda x: (1 / (x * 0.0) - 1 / (x * -0.0), x.exp() + 1, x.exp() + 1), x)
    assert torch.equal(zeros, torch.full((8,), torch.inf))
    assert same.data_ptr() != again.data_ptr(), "outputs are memory of their own"
    assert _cut_of(graphs_ran_natively).by == "own"


def _joint(inputs):
    """A joint graph of `inputs` primals and a tangent, and a function that adds a node to it."""
    graph = torch.fx.Graph()

    def add(target, *args, val=None):
        node = graph.call_function(target, args)
        node.meta["val"] = torch.empty(4) if val is None else val
        return node

    primals = [graph.placeholder(f"primals_{k}") for k in range(1, inputs + 1)]
    tangent = graph.placeholder("tangents_1")
    for node in (*primals, tangent):
        node.meta["val"] = torch.empty(4)
    return graph, primals, tangent, add


def _parts(graph, outputs):
    graph.output(tuple(outputs))
    joint = torch.fx.GraphModule(nn.Module(), graph)
    return partition._cut(joint, 1, frozenset())


def test_equal_nodes_are_merged():
    aten = torch.ops.aten
    graph, (x,), tangent, add = _joint(1)
    ones = [add(aten.tanh.default, x) for _ in range(2)]
    integers, floats = add(aten.mul.Tensor, ones[0], 2), add(aten.mul.Tensor, ones[1], 2.0)
    draws = [add(aten.rand_like.default, x) for _ in range(2)]
    total = add(aten.add.Tensor, add(aten.add.Tensor, integers, floats), add(aten.add.Tensor, *draws))
    forward, backward = _parts(graph, [total, add(aten.mul.Tensor, tangent, ones[1])])
    targets = [n.target for n in forward.graph.nodes if n.op == "call_function"]
    assert targets.count(aten.tanh.default) == 1
    assert targets.count(aten.mul.Tensor) == 2, "2 isn't 2.0"
    assert targets.count(aten.rand_like.default) == 2
    forward.graph.lint()
    backward.graph.lint()


# --- what goes to PyTorch's min-cut ---------------------------------------------------------


def _checkpointed(x):
    return checkpoint(lambda y: torch.sin(torch.cos(y) * 2), x, use_reentrant=False) * 2


@contextlib.contextmanager
def _config(name, value):
    with torch._functorch.config.patch({name: value}):
        yield


@pytest.mark.parametrize(
    "function, around, reason",
    [
        (_checkpointed, contextlib.nullcontext, "annotation 'recompute'|higher-order"),
        (lambda x: x.sin().cos(), lambda: _config("activation_memory_budget", 0.5), "config.activation_memory_budget is set"),
        (lambda x: x.sin().cos(), lambda: _config("ban_recompute_reductions", False), "config.ban_recompute_reductions is set"),
    ],
)
def test_what_is_left_to_torch(function, around, reason, graphs_ran_natively):
    x = torch.randn(16, requires_grad=True)
    with around():
        _train(function, x)
    cut = _cut_of(graphs_ran_natively)
    assert cut.by == "torch"
    assert re.search(reason, cut.reason), cut.reason
    expected = x.detach().clone().requires_grad_()
    function(expected).sum().backward()
    torch.testing.assert_close(x.grad, expected.grad)


def test_dynamic_sizes_are_left_to_torch(graphs_ran_natively):
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: (x.sin() * x).exp(), backend="tenon", dynamic=True)
    compiled(torch.randn(5, 3, requires_grad=True)).sum().backward()
    cut = _cut_of(graphs_ran_natively)
    assert cut.by == "torch" and cut.saved_bytes == -1 and ("dynamic sizes" in cut.reason or "SymInt" in cut.reason)


def test_a_failing_partitioner_is_told_and_costs_nothing(monkeypatch, caplog, graphs_ran_natively):
    monkeypatch.setattr(partition._Description, "cut", lambda self: (1 / 0))
    x = torch.randn(16, requires_grad=True)
    with caplog.at_level(logging.WARNING, "tenon"):
        _train(lambda x: x.sin().cos(), x)
    torch.testing.assert_close(x.grad, -x.sin().sin() * x.cos())
    assert "the partitioner failed: division by zero" in _cut_of(graphs_ran_natively).reason


def test_settings_are_those_of_this_torch():
    """A setting that PyTorch renames would no longer be seen."""
    config = torch._functorch.config
    for name, value in _torch_private._PARTITIONER_SETTINGS.items():
        assert getattr(config, name) == value, name


def test_explain_says_who_cut(tenon):
    model = nn.Linear(8, 8)
    told = str(tenon.explain(lambda x: model(x).sin(), torch.randn(2, 8)))
    assert "cut: tenon's partitioner; " in told
    assert "first call, CPU s: dynamo " in told
    told = str(tenon.explain(lambda x: model(x).sin(), torch.randn(2, 8), options={"partitioner": "torch"}))
    assert "cut: PyTorch's min-cut because asked for by the options; " in told


def test_the_option_is_checked():
    with pytest.raises(Exception, match="partitioner"):
        torch.compile(lambda x: x + 1, backend="tenon", options={"partitioner": "other"})(torch.ones(2))


# --- around a compile -----------------------------------------------------------------------


@pytest.mark.by_aten(tier="any")
def test_the_collector_runs_again_after_a_compile(monkeypatch):
    seen = []

    def cut(*args, **kwargs):
        seen.append(gc.isenabled())
        raise ValueError("planted")

    monkeypatch.setattr(backend, "partition", cut)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="planted"):
        torch.compile(lambda x: x.sin(), backend="tenon")(torch.randn(3, requires_grad=True))
    assert seen == [False] and gc.isenabled()
    gc.disable()
    try:
        with backend.no_collections():
            assert not gc.isenabled()
        assert not gc.isenabled(), "who had switched it off keeps it off"
    finally:
        gc.enable()


@pytest.mark.by_aten(tier="any")
def test_graphs_are_printed_where_a_log_wants_them(caplog, monkeypatch):
    from torch._functorch._aot_autograd import graph_compile
    from torch._logging._internal import trace_log

    before, inside = graph_compile._log_joint_graph, []
    monkeypatch.setattr(trace_log, "handlers", [])  # pytest's own
    with _torch_private._no_graph_texts():
        inside.append(graph_compile._log_joint_graph)
    with caplog.at_level(logging.INFO, graph_compile.aot_joint_log.name):
        with _torch_private._no_graph_texts():
            inside.append(graph_compile._log_joint_graph)
    assert graph_compile._log_joint_graph is before
    assert inside[0] is not before and inside[1] is before


def test_llvm_is_told_from_the_rest_of_a_compile():
    phases = {"passes": 20.0, "llvm": 80.0, "total": 100.0}
    assert first_call._llvm_of(0.18, phases) == pytest.approx(0.16)  # two threads
    assert first_call._llvm_of(0.05, phases) == pytest.approx(0.04)  # half of the time the machine did something else
    assert first_call._llvm_of(0.05, phases | {"total": 40.0}) == 0  # of the cache
    assert first_call._llvm_of(0.05, {"passes": 20.0, "total": 50.0}) == 0


def test_seconds_of_a_first_call(tenon):
    x = torch.randn(16, 16, requires_grad=True)
    _train(lambda x: (x @ x).sin(), x)
    (forward,) = [r for r in registry.records() if r.kind == "forward" and r.alive][-1:]
    spent = forward.stats()["first_call_s"]
    assert set(spent) == {"aot", "partition", "tenon", "llvm"} and all(s > 0 for s in spent.values())
    before = dict(spent)
    _train(lambda x: (x @ x).cos(), x)
    assert forward.stats()["first_call_s"] == before, "another graph's"


# --- the run for metadata -------------------------------------------------------------------


def _without_a_run(function, *args, grad=True):
    """Metadata as collected of the outputs alone and by running the graph; None where it must be run."""
    from torch._functorch import aot_autograd

    found, collect = [], aot_autograd.run_functionalized_fw_and_collect_metadata

    def compare(gm, inputs):
        effects = effects_of(gm)
        if effects is None:
            found.append(None)
            return gm.forward

        def both(function, **kwargs):
            def run(*values):
                alone, run = made(function, **kwargs)(*values), collect(function, **kwargs)(*values)
                found.append((_told(alone), _told(run)))  # now: AOTAutograd adds to it
                return run

            return run

        with _torch_private.metadata_of(effects):
            made = aot_autograd.run_functionalized_fw_and_collect_metadata
            aot_autograd.run_functionalized_fw_and_collect_metadata = both
            return _torch_private.aot_compile(gm, inputs, fw_compiler=_nop, bw_compiler=_nop, inference_compiler=_nop)

    torch._dynamo.reset()
    with torch.set_grad_enabled(grad):
        torch.compile(function, backend=compare, dynamic=False)(*args)
    assert aot_autograd.run_functionalized_fw_and_collect_metadata is collect
    (only,) = found
    return only


def _nop(graph, inputs):
    def call(values):
        return list(graph(*values))

    call._boxed_call = True
    return call


def _told(metadata):
    fields = {name: str(value) for name, value in vars(metadata).items()}
    return fields | {"traced_tangents": [(t.shape, t.stride(), t.dtype, t.requires_grad) for t in metadata.traced_tangents]}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", ["transformer4l", "gpt_tiny", "lstmcell", "resnet18", "mobilenetv3"])
def test_metadata_are_those_of_a_run(name, grad):
    model, args, _ = _build(name)
    made, run = _without_a_run(model, *args, grad=grad)
    assert made == run


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: (x * 2).sin(),
        lambda x, w: (x.detach() * 2, x.t().contiguous() @ w.t(), x > 0),
        lambda x, w: torch.stack([(x @ w.t()).sum(), w.mean()]),
        lambda x, w: x.mul(2).add_(1),
        lambda x, w: F.relu(x * 1, True),
        lambda x, w: F.relu(x * 1, inplace=True),
        lambda x, w: w.add_(1) * x,
        lambda x, w: F.batch_norm(x, w[0].clone(), w[1].clone(), None, None, False),
        lambda x, w: torch.zeros(4, 4).add_(x),  # learns to require gradients
        lambda x, w: ((y := x * 2).mul_(2), w.mul_(2) + y),
        lambda x, w: (w.mul_(2), w.add_(1), x + w)[2],
        lambda x, w: ((y := w.clone()), (z := y.view(16)), y.add_(x), z * 2)[3],
        lambda x, w: ((y := w.detach()), w.add_(1), y * x)[2],
        lambda x, w: ((y := w.view(16)), w.add_(1), y * 2)[2],
    ],
)
def test_metadata_of_small_graphs(function):
    made, run = _without_a_run(function, torch.randn(4, 4, requires_grad=True), torch.randn(4, 4))
    assert made == run


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: F.dropout(x * 1, 0.5, True, True),
        lambda x, w: F.embedding(torch.arange(2), w, max_norm=1.0) + x[:2],
        lambda x, w: F.batch_norm(x, w[0], w[1].abs(), training=True),
        lambda x, w: torch.sin(x, out=torch.empty(4, 4)),
        lambda x, w: x.t(),  # shares memory with an input
        lambda x, w: (y := x + 1, y.view(16)),  # outputs that share
        lambda x, w: (x + 1).view(16),  # a view
        lambda x, w: (x.contiguous(), x + 1),  # an input
        lambda x, w: (y := x + 1, y.contiguous()),  # twice the same
        lambda x, w: w.t().add_(1) + x,  # by a view
        lambda x, w: ((y := x + 1)[0].add_(1), y + 1)[1],
        lambda x, w: w.add_(1),  # returns what it writes
    ],
)
def test_what_must_be_run_for_its_metadata(function):
    x = torch.randn(4, 4)
    assert _without_a_run(function, x, torch.randn(4, 4)) is None


def test_a_write_that_autograd_sees_must_be_run_for_its_metadata():
    x = torch.randn(4, 4, requires_grad=True)
    assert _without_a_run(lambda x, w: (w.add_(x), x * 1)[1], x, torch.randn(4, 4)) is None


def test_graphs_are_run_for_metadata_only_where_they_must(monkeypatch, graphs_ran_natively):
    from torch._functorch import aot_autograd

    given, collect = [], aot_autograd.run_functionalized_fw_and_collect_metadata

    def note(function, **kwargs):
        given.append(function.__name__)
        return collect(function, **kwargs)

    monkeypatch.setattr(aot_autograd, "run_functionalized_fw_and_collect_metadata", note)
    x = torch.randn(4, requires_grad=True)
    _train(lambda x: torch.cos(torch.sin(x)), x)
    torch.testing.assert_close(x.grad, -x.sin().sin() * x.cos())
    _train(lambda x: (x * 1).view(4), x)
    assert given[0] == "make" and "make" not in given[1:]
