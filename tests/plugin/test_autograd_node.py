"""Training calls by tenon's node of autograd and by AOTAutograd's wrapper around the same programs: eager's gradients, hooks and errors.

`same` runs a scenario on an eager model and on its compiled twin; `ran` says what ran: who took the graphs, and how often
(docs/architecture/autograd.md)."""

import contextlib
import copy
import gc
import os
import re
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

from conftest import GUARD, ROOT

pytestmark = pytest.mark.usefixtures("tenon")


@pytest.fixture(params=["own", "stock"])
def node(request):
    return request.param


@pytest.fixture
def ran(graphs_ran_natively):
    """What became of the training graphs: asserts that `node` took all of them, and the sums of their counts."""

    def check(node, reason="", **counts):
        found = [r.autograd.stats() for r in graphs_ran_natively if r.kind == "forward"]
        assert found and {f["node"] for f in found} == {node}, found
        assert all(re.search(reason, f["reason"]) for f in found), found
        if node == "own":
            sums = {name: sum(f[name] for f in found) for name in found[0] if name not in ("node", "reason")}
            assert {**sums, **counts} == sums

    return check


def compiled(target, node="own", **options):
    return torch.compile(target, backend="tenon", options={"autograd": node, "fallback": "error", **options})


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8))


def same(drive, node="own", make=mlp, **tolerance):
    """drive(model, call): what it returns is compared; `call` is the model, or its compiled form."""
    torch.manual_seed(0)
    model = make()
    twin = copy.deepcopy(model)
    torch.manual_seed(1)
    wanted = drive(model, model)
    torch.manual_seed(1)
    found = drive(twin, compiled(twin, node))
    torch.testing.assert_close(*(torch.utils._pytree.tree_map(_comparable, v) for v in (found, wanted)), **tolerance)
    return found


def _comparable(value):
    return torch.tensor(list(value.encode())) if isinstance(value, str) else value


def gradients(model):
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def words(error, drive, *args):
    with pytest.raises(error) as caught:
        drive(*args)
    return str(caught.value)


# ---- gradients ------------------------------------------------------------------------------------


def test_gradients_accumulate(node, ran):
    def drive(model, call):
        for scale in (1.0, 2.0, -0.5):
            call(torch.randn(4, 16)).square().sum().mul(scale).backward()
        return gradients(model)

    same(drive, node)
    ran(node, forwards=3, backwards=3, accumulated=12, by_aten=0, stock_calls=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("width", [3, 40])
def test_gradients_are_added_into_any_memory(node, ran, dtype, width):
    """Into the tensors that were there, one count of a write each, whatever lies in them: transposed, in a window, shared by two
    leaves, and of more numbers than the node adds by itself."""
    lays = (
        lambda g: g, lambda g: g.t().contiguous().t(), lambda g: torch.zeros(2 * width, 2 * width, dtype=dtype)[::2, 1::2].copy_(g),
        lambda g: g.view_as(g),
    )  # fmt: skip

    def drive(model, call):
        parameters = [p for p in model.parameters() if p.dim() == 2]
        seen, common = [], torch.ones(width, width, dtype=dtype)
        for p, lay in zip(parameters, lays):
            p.grad = lay(torch.full_like(p, 0.5))
        parameters[4].grad = parameters[5].grad = common
        for _ in range(3):
            before = [(p.grad, p.grad._version) for p in parameters]
            call(torch.ones(2, width, dtype=dtype)).sum().backward()
            for p, (grad, version) in zip(parameters, before):
                assert p.grad is grad
                seen.append(grad._version - version)
        return [p.grad for p in parameters], torch.tensor(seen)

    make = lambda: nn.Sequential(*(nn.Linear(width, width) for _ in range(6))).to(dtype)
    same(drive, node=node, make=make, **({"rtol": 0.05, "atol": 0.05} if dtype == torch.bfloat16 else {}))
    ran(node, accumulated=36)


def test_a_gradient_that_overlaps_the_one_that_is_there(node, ran):
    """The tangent itself is the gradient, and lies partly in the memory it would be added to: refused, as by eager."""

    def drive(call):
        buffer = torch.arange(12.0)
        x = torch.zeros(8, requires_grad=True)
        x.grad = buffer[:8]
        call(x).backward(buffer[4:])

    model = lambda x: x + 1
    wanted = words(RuntimeError, drive, model)
    assert "refer to a single memory location" in wanted
    assert words(RuntimeError, drive, compiled(model, node)) == wanted
    ran(node, backwards=1)


def test_two_forwards_and_one_backward(node, ran):
    def drive(model, call):
        (call(torch.randn(4, 16)).sum() + call(torch.randn(4, 16)).square().sum()).backward()
        return gradients(model)

    same(drive, node)
    ran(node, forwards=2, backwards=2)


def test_parameters_shared_with_eager(node, ran):
    def drive(model, call):
        x = torch.randn(4, 16)
        (call(x).sum() + model[0](x).square().sum()).backward()
        return gradients(model)

    same(drive, node)
    ran(node, accumulated=2)  # those of the other layer


def test_autograd_grad_touches_no_leaf(node, ran):
    def drive(model, call):
        x = torch.randn(4, 16, requires_grad=True)
        loss = call(x).square().sum()
        found = torch.autograd.grad(loss, [x, *model.parameters()], retain_graph=True)
        found += torch.autograd.grad(loss, [model[0].bias])
        return found, x.grad, gradients(model)

    same(drive, node)
    ran(node, backwards=2, accumulated=0)


def test_backward_for_some_inputs(node, ran):
    def drive(model, call):
        x = torch.randn(4, 16, requires_grad=True)
        call(x).square().sum().backward(inputs=[x, model[2].weight])
        return x.grad, gradients(model)

    same(drive, node)
    ran(node, backwards=1, accumulated=0)


def test_inputs_with_a_history(node, ran):
    def drive(model, call):
        x = torch.randn(4, 16, requires_grad=True)
        h = x.sin()
        h.retain_grad()
        y = call(h)
        y.retain_grad()
        y.square().sum().backward()
        return x.grad, h.grad, y.grad, gradients(model)

    same(drive, node)
    ran(node, backwards=1)


def test_frozen_parameters(node, ran):
    def make():
        model = mlp()
        model[0].requires_grad_(False)
        return model

    def drive(model, call):
        x = torch.randn(4, 16, requires_grad=True)
        call(x).square().sum().backward()
        return x.grad, gradients(model)

    same(drive, node, make)
    ran(node, accumulated=3)


def test_retain_graph(node, ran):
    def drive(model, call):
        loss = call(torch.randn(4, 16)).square().sum()
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)
        loss.backward()
        loss = call(torch.randn(4, 16)).square().sum()  # after one that kept nothing
        loss.backward(retain_graph=True)
        return gradients(model)

    same(drive, node)
    ran(node, backwards=4, accumulated=4)


class _Outputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 8), nn.Linear(16, 8)

    def forward(self, x):
        a, b = self.a(x), self.b(x)
        return a.sin(), b.cos(), a.argmax(-1), b.detach() * 2


def test_outputs_that_nobody_uses(node, ran):
    def drive(model, call):
        first, _, positions, detached = call(torch.randn(4, 16))
        first.square().sum().backward()
        # the graph gives zeros where eager gives nothing: as AOTAutograd's wrapper
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
        return positions, detached.requires_grad, positions.requires_grad, grads

    same(drive, node, _Outputs)
    ran(node, backwards=1)


@pytest.mark.parametrize("tangent", [
    lambda y: torch.randn(8, 4).t(), lambda y: torch.ones(()).expand(4, 8), lambda y: torch.randn(4, 16)[:, ::2],
    lambda y: torch.randn(4, 8)[::1], lambda y: torch.randn(4, 8, dtype=torch.cfloat).imag,
    lambda y: torch.complex(torch.randn(4, 8), torch.randn(4, 8)).conj().imag,
], ids=["transposed", "expanded", "strided", "dense", "of a complex", "negated"])  # fmt: skip
def test_tangents_in_any_memory(tangent, node, ran):
    def drive(model, call):
        y = call(torch.randn(4, 16))
        y.backward(tangent(y))
        return gradients(model)

    same(drive, node)
    ran(node, backwards=1, by_aten=0)


def test_sparse_tangents(ran):
    def drive(model, call):
        y = call(torch.randn(4, 16)).sin()  # sin's formula takes a sparse gradient
        torch.autograd.backward(y, torch.randn(4, 8).relu().to_sparse() if call is not model else torch.randn(4, 8).relu())
        return gradients(model)

    with contextlib.suppress(NotImplementedError):
        same(drive)
    node = compiled(lambda x: x * 3)
    x = torch.randn(4, 8, requires_grad=True)
    tangent = torch.randn(4, 8).relu()
    torch.autograd.backward(node(x), tangent.to_sparse())
    torch.testing.assert_close(x.grad, tangent * 3)
    ran("own", by_aten=0)


def test_batched_gradients_never_reach_kernels(node, ran):
    """torch.autograd.grad(is_grads_batched=True) gives the node tensors of vmap."""

    def drive(model, call):
        x = torch.randn(2, 16, requires_grad=True)
        y = call(x)
        rows = torch.randn(5, *y.shape)
        many = torch.autograd.grad(y, [x, *model.parameters()], rows, is_grads_batched=True, retain_graph=True)
        return many, torch.autograd.grad(y.sum(), x)

    same(drive, node)
    ran(node, backwards=2, by_aten=1)


# ---- hooks ----------------------------------------------------------------------------------------


def test_hooks_run_as_in_eager(node, ran):
    def drive(model, call):
        events = []
        weight, bias = model[0].weight, model[2].bias
        note = lambda name: lambda grad: events.append((name, grad.detach().clone()))
        weight.register_hook(note("parameter"))
        weight.register_hook(lambda grad: grad * 2)
        bias.register_post_accumulate_grad_hook(lambda p: events.append(("accumulated", p.grad.clone())))
        x = torch.randn(4, 16, requires_grad=True)
        x.register_hook(note("input"))
        for _ in range(2):
            y = call(x)
            y.register_hook(note("output"))
            y.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
            y.square().sum().backward()
        return sorted(events, key=lambda e: e[0]), gradients(model), x.grad

    same(drive, node)
    ran(node, backwards=2, accumulated=4)  # two leaves without a hook, twice


def test_hooks_of_nodes(node, ran):
    """On the node itself, and on a leaf's AccumulateGrad, as DDP has them."""

    def drive(model, call):
        events = []
        leaf = model[0].weight
        accumulator = leaf.view_as(leaf).grad_fn.next_functions[0][0]
        accumulator.register_hook(lambda *_: events.append("accumulated"))
        y = call(torch.randn(4, 16))
        y.grad_fn.register_prehook(lambda grads: events.append(f"before {len(grads)}"))
        y.grad_fn.register_hook(lambda grads, given: events.append("after"))
        y.square().sum().backward()
        return sorted(events), gradients(model)

    same(drive, node)
    ran(node, accumulated=0)  # what stands behind the node sees all its gradients


def test_an_accumulator_that_somebody_holds(node, ran):
    def drive(model, call):
        leaf = model[0].weight
        edge = torch.autograd.graph.get_gradient_edge(leaf)
        call(torch.randn(4, 16)).square().sum().backward()
        return edge.output_nr, gradients(model)

    same(drive, node)
    ran(node, accumulated=3)


def test_post_hooks_of_the_node_see_the_gradients_that_it_added(ran):
    """A hook behind the node gets what is left for the engine; so a node with hooks adds nothing itself."""
    model = mlp()
    y = compiled(model)(torch.randn(4, 16))
    seen = []
    y.grad_fn.register_hook(lambda grads, given: seen.extend(g for g in grads if g is not None))
    y.sum().backward()
    assert sorted(tuple(g.shape) for g in seen) == sorted(tuple(p.shape) for p in model.parameters())
    ran("own", accumulated=0)


# ---- errors ---------------------------------------------------------------------------------------


def test_a_second_backward_is_eagers_error(node, ran):
    def drive(model, call):
        loss = call(torch.randn(4, 16)).square().sum()
        loss.backward()
        return words(RuntimeError, loss.backward)

    model = mlp()
    assert drive(model, model) == drive(model, compiled(model, node))
    ran(node)


def test_a_saved_tensor_that_was_written(node, ran):
    def drive(function, w):
        x = torch.randn(3, requires_grad=True)
        y = function(x, w)
        w.add_(1)
        return words(RuntimeError, y.sum().backward)

    function = lambda x, w: x * w
    wanted, found = (drive(f, torch.randn(3)) for f in (function, compiled(function, node)))
    assert found == wanted and "is at version 1; expected version 0" in found
    ran(node)


def test_a_saved_output_that_was_written(node, ran):
    function = lambda x: x.exp()
    y = compiled(function, node)(torch.randn(3, requires_grad=True))
    with torch.no_grad():
        y.add_(1)
    assert "modified by an inplace operation" in words(RuntimeError, y.sum().backward)
    ran(node)


def test_double_backward_is_refused_in_aotautograds_words(node, ran):
    x = torch.randn(4, requires_grad=True)
    y = compiled(lambda t: t.sin() * t, node)(x)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    torch.testing.assert_close(first, x.cos() * x + x.sin())
    assert first.requires_grad
    for again in (first.sum().backward, lambda: torch.autograd.grad(first.sum(), x)):
        assert "torch.compile with aot_autograd does not currently support double backward" in words(RuntimeError, again)
    ran(node)


def test_double_backward_of_a_tangent_passed_on(ran):
    """A gradient that is the tangent itself keeps its own history."""
    x, scale = torch.randn(4, requires_grad=True), torch.ones(4, requires_grad=True)
    y = compiled(lambda t: t + 1)(x)
    tangent = scale * 2
    (grad,) = torch.autograd.grad(y, x, tangent, create_graph=True)
    assert grad is not tangent and "double backward" in words(RuntimeError, grad.sum().backward)
    torch.testing.assert_close(torch.autograd.grad(tangent.sum(), scale)[0], torch.full((4,), 2.0))
    ran("own")


def test_a_check_that_fails_is_eagers_error(node, ran):
    table = nn.Embedding(5, 4)
    call = compiled(lambda i: table(i).sin(), node)
    call(torch.tensor([1, 2])).sum().backward()
    assert "index out of range" in words(IndexError, call, torch.tensor([1, 7]))
    call(torch.tensor([3, 4])).sum().backward()
    ran(node)


def test_inference_tensors_cannot_be_saved(node, ran):
    with torch.inference_mode():
        w = torch.randn(3)
    function = lambda x, w: x * w
    x = torch.randn(3, requires_grad=True)
    assert words(RuntimeError, compiled(function, node), x, w) == words(RuntimeError, function, x, w)
    ran(node)


def test_deterministic_algorithms_asked_for_in_between(node, ran):
    y = compiled(lambda t: t.sin(), node)(torch.randn(3, requires_grad=True))
    torch.use_deterministic_algorithms(True)
    try:
        assert "use_deterministic_algorithms(False) was set" in words(RuntimeError, y.sum().backward)
    finally:
        torch.use_deterministic_algorithms(False)
    ran(node)


@pytest.mark.parametrize("of", ["TenonBackward", "CompiledFunctionBackward"])
def test_anomaly_mode(of, ran):
    node = "own" if of == "TenonBackward" else "stock"
    call = compiled(lambda x: x.sqrt(), node)
    with pytest.warns(UserWarning, match="Anomaly Detection"), torch.autograd.detect_anomaly():
        y = call(torch.zeros(3, requires_grad=True))
        with pytest.warns(UserWarning, match=f"Error detected in {of}"):
            assert f"Function '{of}' returned nan values" in words(RuntimeError, lambda: (y * 0).sum().backward())
    ran(node, accumulated=0)


# ---- memory ---------------------------------------------------------------------------------------


def _resident_mib():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.skipif(GUARD != "0", reason="guarded memory's allocator tells the profiler nothing")
def test_what_was_saved_is_freed_by_the_backward(ran):
    call = compiled(lambda x: x.exp().sin())
    x = torch.randn(8 << 20, requires_grad=True)  # 32 MiB, as much saved
    for backward in (True, False):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
            loss = call(x).sum()
            if backward:
                loss.backward(inputs=[x])
            x.grad = None
        events = profiler.profiler.kineto_results.events()
        held = sum(e.nbytes() for e in events if e.name() == "[memory]") / 2**20  # while the loss lives
        assert held < 1 if backward else held >= 32
        del loss
    ran("own")


@pytest.mark.parametrize("end", ["backward", "dropped", "kept", "failed"])
def test_nothing_leaks(end, ran):
    def function(x, out):
        return (x.exp() * out).sin()

    call = compiled(function)
    out = torch.randn(1 << 18)

    def once():
        x = torch.randn(1 << 18, requires_grad=True)
        y = call(x.sin(), out)
        z = call(y, y)  # an output as input: its history is this graph's
        if end == "backward":
            z.sum().backward()
        elif end == "kept":
            z.sum().backward(retain_graph=True)
        elif end == "failed":
            with torch.no_grad():
                y.add_(1)
            words(RuntimeError, z.sum().backward)
            del y, z
            gc.collect()  # frames that the exception knows

    for _ in range(10):
        once()
    gc.collect()
    before = _resident_mib()
    gc.disable()  # by counting alone
    try:
        for _ in range(60):
            once()
    finally:
        gc.enable()
    assert _resident_mib() - before < 16, "an MiB is saved several times a round"
    ran("own")


def test_a_graph_outlives_what_compiled_it(ran):
    def make():
        model = mlp()
        return model, compiled(model)(torch.randn(4, 16)).square().sum()

    model, loss = make()
    torch._dynamo.reset()
    gc.collect()
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    ran("own", backwards=1)


def test_graphs_that_nobody_has_are_freed(node, graphs_ran_natively):
    def work():
        compiled(mlp(), node)(torch.randn(4, 16)).sum().backward()

    work()
    torch._dynamo.reset()
    gc.collect()
    assert len(graphs_ran_natively) == 2 and not any(r.alive for r in graphs_ran_natively)
    if node == "own":  # the counts outlive the graph
        assert graphs_ran_natively[0].stats()["autograd"]["backwards"] == 1


# ---- modes ----------------------------------------------------------------------------------------


def test_without_gradients_in_between(node, ran):
    def drive(model, call):
        x = torch.randn(4, 16)
        call(x).sum().backward()
        with torch.no_grad():
            outputs = [call(x)]
        with torch.inference_mode():
            outputs.append(call(x).clone())
        call(x).sum().backward()
        return [o.requires_grad for o in outputs], [o.clone() for o in outputs], gradients(model)

    same(drive, node)
    ran(node, forwards=2, backwards=2)


class _Statistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(8 * 36, 4))

    def forward(self, x):
        return self.body(x)


def test_batch_norm_and_dropout(node, ran):
    def drive(model, call):
        versions = []
        for _ in range(3):
            before = model.body[1].num_batches_tracked._version
            call(torch.randn(2, 3, 8, 8)).square().sum().backward()
            versions.append(model.body[1].num_batches_tracked._version - before)
        return versions, gradients(model), list(model.buffers())

    same(drive, node, _Statistics, rtol=1e-4, atol=1e-5)
    ran(node, forwards=3, backwards=3)


def test_saved_tensors_hooks(node, ran):
    calls = []

    def drive(model, call):
        packed = []

        def pack(tensor):
            packed.append(tensor.shape)
            return tensor.clone()

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor * 1):
            y = call(torch.randn(4, 16))
        calls.append(len(packed))
        y.square().sum().backward()
        call(torch.randn(4, 16)).sum().backward()
        return gradients(model)

    same(drive, node)
    assert calls[1] > 0
    ran(node, backwards=2)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_around_the_call(reentrant, node, ran):
    def drive(model, call):
        x = torch.randn(4, 16, requires_grad=True)
        for _ in range(2):
            checkpoint(call, x, use_reentrant=reentrant).square().sum().backward()
        return x.grad, gradients(model)

    same(drive, node)
    ran(node)


def test_graph_breaks(node, ran):
    class Breaks(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 8)

        def forward(self, x):
            h = self.first(x).tanh()
            torch._dynamo.graph_break()
            return self.second(h)

    def drive(model, call):
        x = torch.randn(4, 16, requires_grad=True)
        call(x).square().sum().backward()
        return x.grad, gradients(model)

    same(drive, node, Breaks)
    ran(node, forwards=2, backwards=2)


def test_autocast(node, ran):
    def drive(model, call):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = call(torch.randn(4, 16))
        y.float().square().sum().backward()
        return y.dtype == torch.bfloat16, [g.dtype == torch.float32 for g in gradients(model)], gradients(model)

    same(drive, node, rtol=0.1, atol=0.1)
    ran(node, backwards=1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.complex64], ids=str)
def test_other_types(dtype, node, ran):
    def drive(model, call):
        x = torch.randn(4, 16, dtype=dtype, requires_grad=True)
        y = call(x)
        (y.abs() if dtype.is_complex else y).sum().backward()
        return x.grad, gradients(model)

    loose = {} if dtype in (torch.float64, torch.complex64) else {"rtol": 0.05, "atol": 0.05}
    same(drive, node, lambda: mlp().to(dtype), **loose)
    ran(node, accumulated=5)


def test_mixed_types(node, ran):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.scale = nn.Embedding(10, 8), nn.Parameter(torch.randn(8, dtype=torch.float64))

        def forward(self, index, x):
            return (self.table(index).bfloat16() * x).double() * self.scale, index + 1

    def drive(model, call):
        x = torch.randn(3, 8, dtype=torch.bfloat16, requires_grad=True)
        y, following = call(torch.tensor([1, 5, 1]), x)
        y.sum().backward()
        return following, x.grad, gradients(model)

    same(drive, node, Mixed, rtol=0.05, atol=0.05)
    ran(node, accumulated=3)


def test_an_optimizer(node, ran):
    def drive(model, call):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = call(torch.randn(8, 16)).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.detach())
        return losses, [p.detach() for p in model.parameters()]

    same(drive, node)
    ran(node, forwards=5, backwards=5, accumulated=20)


# ---- threads --------------------------------------------------------------------------------------


def _in_threads(count, work):
    failures = []

    def guarded(index):
        try:
            work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_threads_train_one_model(node, ran):
    torch.manual_seed(0)
    model = mlp()
    data = torch.randn(6, 20, 4, 16)
    model(data.flatten(0, 2)).square().sum().backward()
    wanted = gradients(model)
    model.zero_grad(set_to_none=False)
    call = compiled(model, node)
    call(data[0, 0])
    _in_threads(6, lambda i: [call(x).square().sum().backward() for x in data[i]])
    torch.testing.assert_close(gradients(model), wanted, rtol=1e-4, atol=1e-4)
    ran(node, forwards=121, backwards=120)


def test_threads_share_a_kept_graph(ran):
    x = torch.randn(64, requires_grad=True)
    y = compiled(lambda t: t.sin() * t.exp())(x).sum()
    (wanted,) = torch.autograd.grad(y, x, retain_graph=True)

    def work(index):
        for _ in range(50):
            torch.testing.assert_close(torch.autograd.grad(y, x, retain_graph=True)[0], wanted)

    _in_threads(4, work)
    ran("own", backwards=201)


def test_python_runs_while_kernels_do(ran):
    model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(6)))
    call = compiled(model)
    x = torch.randn(1024, 1024, requires_grad=True)
    call(x).sum().backward()
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.wait(0.0005):
            ticks.append(time.perf_counter())

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        spans = []
        for run in (lambda: call(x), None):
            began = time.perf_counter()
            y = run() if run else y.backward(torch.ones(1024, 1024))
            spans.append((began, time.perf_counter()))
    finally:
        stop.set()
        thread.join()
    for began, ended in spans:
        inside = sum(began < t < ended for t in ticks)
        assert inside > (ended - began) / 0.02, "a tick each 20 ms: the GIL was held"
    ran("own")


# ---- what surrounds it ----------------------------------------------------------------------------


def test_compiled_autograd_throughout(ran):
    """While it is on, forwards take AOTAutograd's wrapper, which it inlines."""
    eager = torch.compile(backend="eager")

    def drive(model, call):
        with torch._dynamo.compiled_autograd._enable(eager) if call is not model else contextlib.nullcontext():
            for _ in range(2):
                call(torch.randn(4, 16)).square().sum().backward()
        return gradients(model)

    same(drive)
    ran("own", forwards=0, stock_calls=2)


def test_compiled_autograd_for_the_backward(ran):
    eager = torch.compile(backend="eager")

    def drive(model, call):
        for _ in range(3):
            loss = call(torch.randn(4, 16)).square().sum()
            with torch._dynamo.compiled_autograd._enable(eager) if call is not model else contextlib.nullcontext():
                loss.backward()
        return gradients(model)

    same(drive)
    ran("own", forwards=3, backwards=3, stock_calls=0)


DDP = """
import copy, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import torch_tenon

class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).tanh()
        return x

def work(rank, world, path, order, width):
    dist.init_process_group("gloo", store=dist.FileStore(path, world), rank=rank, world_size=world)
    torch.manual_seed(0)
    model = Net(width)
    twin = copy.deepcopy(model)
    options = {"backend": "tenon", "options": {"fallback": "error"}}
    eager = DistributedDataParallel(model, bucket_cap_mb=1)
    if order == "compile the wrapper":
        wrapped = DistributedDataParallel(twin, bucket_cap_mb=1)
        call = torch.compile(wrapped, **options)
    else:
        call = wrapped = DistributedDataParallel(torch.compile(twin, **options), bucket_cap_mb=1)
    torch.manual_seed(rank + 1)
    for step in range(4):
        x = torch.randn(8, width)
        for run, whole in ((eager, eager), (call, wrapped)):
            whole.require_backward_grad_sync = step != 2  # as no_sync() has it
            run(x).square().sum().backward()
    for p, q in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(q.grad, p.grad)
    forwards = [g["autograd"] for g in torch_tenon.stats()["graphs"] if g["kind"] == "forward"]
    assert forwards and all(f["node"] == "own" for f in forwards), forwards
    assert sum(f["accumulated"] for f in forwards) == 0, "DDP holds the leaves' accumulators"
    print(f"{len(forwards)} graphs", flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    world, path, order, width = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    torch.multiprocessing.spawn(work, (world, path, order, width), nprocs=world)
"""


@pytest.mark.parametrize("world, order, width, graphs", [
    (1, "compile the wrapper", 16, 1), (2, "compile the module", 16, 1), (2, "compile the wrapper", 600, 4),
], ids=["alone", "module", "a graph for each bucket"])  # fmt: skip
def test_ddp(world, order, width, graphs, tmp_path):
    script = tmp_path / "ddp.py"
    script.write_text(DDP)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(script), str(world), str(tmp_path / "store"), order, str(width)], env=env, cwd=ROOT,
                          capture_output=True, text=True, timeout=240)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count(f"{graphs} graphs") == world, done.stdout


@pytest.mark.by_aten(tier="eager_program")
@pytest.mark.parametrize("how", ["by ATen", "from Python"])
def test_programs_that_are_not_native(how, monkeypatch, node, ran):
    from torch_tenon import compiler

    def refuse(*unused):
        raise compiler.NotExpressible("a test's")

    options = {"tier": "eager_program"} if how == "by ATen" else {"fallback": "allow"}
    if how == "from Python":
        monkeypatch.setattr(compiler, "export", refuse)

    def drive(model, call):
        call = call if call is model else compiled(model, node, **options)
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
                call(torch.randn(4, 16)).square().sum().backward()
        return gradients(model)

    same(drive, node)
    ran(node, forwards=2, backwards=2, accumulated=8)


@pytest.mark.parametrize("dynamic", [True, None, False], ids=["dynamic", "automatic", "static"])
def test_a_backward_in_a_function_that_dynamo_traces(dynamic, monkeypatch):
    """The graph breaks there, and the engine runs while Dynamo looks at every frame: what compiles the backward is not its to trace."""
    from torch._dynamo.convert_frame import ConvertFrameAssert

    traced = []
    call = ConvertFrameAssert.__call__

    def spy(self, frame, *args, **kwargs):
        if os.sep + "torch_tenon" + os.sep in frame.f_code.co_filename:
            traced.append(frame.f_code.co_qualname)
        return call(self, frame, *args, **kwargs)

    monkeypatch.setattr(ConvertFrameAssert, "__call__", spy)
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))

    def step(x):
        loss = (x * weight).var(0).sum()
        loss.backward()
        gradient, weight.grad = weight.grad, None
        return loss.detach(), gradient

    compiled = torch.compile(step, backend="tenon", dynamic=dynamic)
    for n in (5, 9, 6, 33, 7):
        x = torch.arange(2.0 * n).view(n, 2)
        torch.testing.assert_close(compiled(x), step(x))
    assert not traced


@pytest.mark.parametrize("unused", [False, True], ids=["all outputs", "one unused"])
def test_compiled_autograd_of_the_backward_alone_and_dynamic_sizes(unused):
    from torch._dynamo import compiled_autograd

    def f(x):
        return (x * x).sum(), x * 2

    compiled = torch.compile(f, backend="tenon", dynamic=True)
    for n in (5, 6, 7, 5):
        x = torch.arange(1.0, n + 1, requires_grad=True)
        total, doubled = compiled(x)
        with compiled_autograd._enable(lambda gm: torch.compile(gm, backend="eager", dynamic=True)):
            (total if unused else total + doubled.square().sum()).backward()
        torch.testing.assert_close(x.grad, 2 * x.detach() * (1 if unused else 5))


@pytest.mark.parametrize("requires_grad", [False, True], ids=["inference", "training"])
def test_tangents_of_forward_mode_are_not_dropped(requires_grad):
    compiled = torch.compile(lambda x: x * x, backend="tenon")
    x = torch.tensor([1.0, 2.0], requires_grad=requires_grad)
    compiled(x)
    with torch.autograd.forward_ad.dual_level():
        with pytest.raises(NotImplementedError):
            compiled(torch.autograd.forward_ad.make_dual(x, torch.ones(2)))
    torch.testing.assert_close(compiled(x), x * x)


def test_tangents_of_a_gradient_are_not_dropped():
    """Forward over reverse: the dual tensor comes as the backward's input."""
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = torch.compile(lambda x: x * x * x, backend="tenon")(x)
    with torch.autograd.forward_ad.dual_level():
        gradient = torch.autograd.forward_ad.make_dual(torch.ones(2), torch.ones(2))
        with pytest.raises(NotImplementedError, match="has a tangent of forward-mode AD"):
            torch.autograd.grad(y, x, gradient, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(y, x, torch.ones(2))[0], 3 * x.detach() ** 2)
