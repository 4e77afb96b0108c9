"""options={"freeze": True}: what hangs on parameters alone is computed once; the numbers stay eager's, whatever happens to them."""

import contextlib
import copy
import gc
import threading

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from models import zoo
from torch_tenon._check_model import check_model
from torch_tenon.testing import compare

FREEZE = {"freeze": True, "fallback": "error"}


def _frozen(model, **options):
    torch._dynamo.reset()
    return torch.compile(model, backend="tenon", dynamic=False, fullgraph=True, options={**FREEZE, **options})


def _account(tenon):
    (graph,) = [g for g in tenon.stats()["graphs"] if g["calls"] > 0]
    return graph["frozen"], set(graph["aten_steps"])


def _check(found, model, x):
    with torch.no_grad():
        compare(found, model(x), copy.deepcopy(model).double()(x.double()), check_strides=True).raise_if_failed()


class _Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 5, padding=2, groups=width), nn.BatchNorm2d(width), nn.Hardswish(),
            nn.Conv2d(width, 2 * width, 1, stride=2), nn.GELU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * width, 10),
        )  # fmt: skip
        for m in self.body:
            if isinstance(m, nn.BatchNorm2d):
                nn.init.normal_(m.running_mean)
                nn.init.uniform_(m.running_var, 0.5, 2)

    def forward(self, x):
        return self.body(x)


@pytest.fixture
def net():
    torch.manual_seed(5)
    return _Net().eval(), torch.randn(2, 3, 17, 19)


def test_all_contractions_are_packed_and_nothing_is_left_to_libraries(net, tenon):
    model, x = net
    tenon.reset_stats()
    with torch.no_grad():
        compiled = _frozen(model)
        for _ in range(3):
            _check(compiled(x), model, x)
    account, steps = _account(tenon)
    assert account["sets"] == account["computed"] == 1 and account["values"] >= 4
    assert steps == set()
    sizes = sum(p.numel() for p in model.parameters()) * 4
    assert sizes * 0.9 < account["bytes"] < sizes * 1.5


@pytest.mark.parametrize("features, pixels, copied", [(512, 7, True), (64, 28, False)])
def test_a_kernel_copies_frozen_rows_that_lie_far_apart(features, pixels, copied, tenon, tmp_path):
    torch.manual_seed(0)
    model = nn.Conv2d(features, features, 3, padding=1).eval()
    x = torch.randn(4, features, pixels, pixels).contiguous(memory_format=torch.channels_last)
    tenon.reset_stats()
    with torch.no_grad():
        fast = _frozen(model, provider="generated", dump=str(tmp_path))
        _check(fast(x), model, x)
    (plans,) = tmp_path.glob("inference*.plans.txt")
    (plan,) = [line for line in plans.read_text().splitlines() if line.startswith("  contraction ")]
    assert (" packed " in plan) == copied, plan
    account, steps = _account(tenon)
    assert account["values"] == 1 and steps == set()


@pytest.mark.parametrize("name", ["resnet_tiny", "mobilenetv3", "densenet", "gpt_tiny", "dlrm"])
def test_models(name, tenon):
    """By the accuracy rule; the kernels of the libraries are gone where weights are their operands."""
    if name == "densenet":
        from models import nets

        torch.manual_seed(0)
        model, args = nets.calibrate(nets.DenseNet((2, 3, 2, 2)).eval(), torch.randn(1, 3, 64, 64)), (torch.randn(1, 3, 64, 64),)
    else:
        model, args = zoo.CASES[name].build()
    graphs = []

    @contextlib.contextmanager
    def measured():
        tenon.reset_stats()
        yield
        graphs.extend(g for g in tenon.stats()["graphs"] if g["calls"] > 0 and g["frozen"])

    check_model(model.eval(), args, options=FREEZE, measure=measured()).raise_if_failed()
    assert graphs and all(g["frozen"]["values"] > 0 for g in graphs)
    assert "host.convolution" not in {op for g in graphs for op in g["aten_steps"]}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_other_types_are_computed_once_too(dtype, tenon):
    torch.manual_seed(5)
    model, x = _Net().eval().to(dtype), torch.randn(2, 3, 17, 19, dtype=dtype)
    _check_wide = copy.deepcopy(model).double()
    tenon.reset_stats()
    with torch.no_grad():
        found = _frozen(model)(x)
        compare(found, model(x), _check_wide(x.double())).raise_if_failed()
    assert _account(tenon)[0]["computed"] == 1  # of the batch norms


def test_writes_are_seen(net, tenon):
    model, x = net
    with torch.no_grad():
        compiled = _frozen(model)
        _check(compiled(x), model, x)
        model.body[0].weight.mul_(2)
        _check(compiled(x), model, x)
        model.body[4].running_var.add_(1)
        _check(compiled(x), model, x)
        model.load_state_dict(_Net().state_dict())
        _check(compiled(x), model, x)
        model.body[10].weight = nn.Parameter(torch.randn(10, 512))
        _check(compiled(x), model, x)
        torch.optim.SGD(model.parameters(), lr=0.1)
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        _check(compiled(x), model, x)


def test_writes_behind_pytorchs_back_need_a_refresh(net, tenon):
    model, x = net
    with torch.no_grad():
        compiled = _frozen(model)
        before = compiled(x)
        model.body[0].weight.data.numpy()[:] *= 2  # no version counter tells
        assert torch.equal(compiled(x), before)
        tenon.refresh()
        _check(compiled(x), model, x)


def test_modules_that_share_a_graph_have_a_set_each(tenon):
    torch.manual_seed(5)
    layers = [_Net().eval() for _ in range(4)]
    x = torch.randn(2, 3, 17, 19)
    torch._dynamo.reset()
    tenon.reset_stats()
    run = torch.compile(lambda layer, x: layer(x), backend="tenon", options=FREEZE)
    with torch.no_grad():
        for _ in range(2):
            for layer in layers:
                _check(run(layer, x), layer, x)
    accounts = [g["frozen"] for g in tenon.stats()["graphs"] if g["calls"] > 0]
    assert sum(a["computed"] for a in accounts) == 4


def test_memory_that_comes_back_is_no_old_parameter(tenon):
    """A parameter whose storage is freed and whose address is given to the next one: the values belong to the storage, which is kept."""
    model, x = nn.Linear(64, 48).eval(), torch.randn(5, 64)
    with torch.no_grad():
        compiled = _frozen(model)
        for _ in range(20):
            model.weight.data = torch.randn(48, 64)
            gc.collect()
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)


def test_it_is_explained(net, tenon):
    model, x = net
    with torch.no_grad():
        told = tenon.explain(model, x, options=FREEZE)
    assert "frozen: " in str(told) and "computed 1 times" in str(told)
    providers = {r["reason"].split(";")[0] for g in told.graphs for r in g["remarks"] if r["kind"] == "provider"}
    assert providers == {"generated"}


def test_threads_compute_it_once(net, tenon):
    model, x = net
    tenon.reset_stats()
    results = []
    with torch.no_grad():
        compiled = _frozen(model)
        compiled(x)
        tenon.refresh()
        before = _account(tenon)[0]["computed"]

        def work():
            with torch.no_grad():
                results.extend(compiled(x) for _ in range(5))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert len(results) == 20
    for found in results:
        _check(found, model, x)
    assert _account(tenon)[0]["computed"] == before + 1


def test_dynamic_sizes(net, tenon):
    model, _ = net
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(model, backend="tenon", dynamic=True, options=FREEZE)
        for batch in (2, 3, 5, 2):
            x = torch.randn(batch, 3, 17, 19)
            _check(compiled(x), model, x)


def test_training_freezes_nothing(tenon):
    model, twin, x = nn.Linear(8, 8), nn.Linear(8, 8), torch.randn(4, 8)
    twin.load_state_dict(model.state_dict())
    tenon.reset_stats()
    compiled = _frozen(model)
    for m in (compiled, twin):
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            m(x).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(model.weight, twin.weight)
    assert all(g["frozen"] is None for g in tenon.stats()["graphs"])


def test_buffers_that_the_model_writes_are_not_frozen(tenon):
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(4))
            self.linear = nn.Linear(4, 16)

        def forward(self, x):
            self.seen.add_(1)
            return self.linear(x * self.seen.exp())

    model, twin, x = Counts(), Counts(), torch.randn(3, 4)
    twin.load_state_dict(model.state_dict())
    with torch.no_grad():
        compiled = _frozen(model)
        for _ in range(4):
            torch.testing.assert_close(compiled(x), twin(x), rtol=1e-4, atol=1e-5)
    assert torch.equal(model.seen, twin.seen)


def test_infinite_weights_and_the_padding(tenon):
    """Taps in the padding add nothing (HLO's definition); eager adds 0 * weight, which is NaN for an infinite one: docs/freezing.md."""
    conv = nn.Conv2d(8, 16, 3, padding=1).eval()
    with torch.no_grad():
        conv.weight[3, 2, 0, 0] = float("inf")
        x = torch.randn(1, 8, 6, 7)
        found, want = _frozen(conv)(x), conv(x)
        conv.weight[3, 2, 0, 0] = 0
        without = conv(x)
    inside = (slice(None), slice(None), slice(1, None), slice(1, None))
    assert torch.equal(found[inside].isinf(), want[inside].isinf()) and not found.isnan().any()
    torch.testing.assert_close(found[:, :, 0], without[:, :, 0])
    torch.testing.assert_close(found[:, :, :, 0], without[:, :, :, 0])


def test_providers_forced_beside_it(net, tenon):
    model, x = net
    for provider, libraries in {"generated": set(), "host.convolution": {"host.convolution"}}.items():
        tenon.reset_stats()
        with torch.no_grad():
            _check(_frozen(model, provider=provider)(x), model, x)
        account, steps = _account(tenon)
        assert account["computed"] == 1 and steps & {"host.convolution"} == libraries


def test_a_view_of_a_parameter_as_result(tenon):
    class Gives(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 5))

        def forward(self, x):
            return self.weight.t(), (self.weight * 2).exp(), F.linear(x, self.weight)

    model, x = Gives(), torch.randn(2, 5)
    with torch.no_grad():
        for found, want in zip(_frozen(model)(x), model(x), strict=True):
            torch.testing.assert_close(found, want)


class _Scaled(nn.Module):
    """A frozen value without dims."""

    def __init__(self):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.75))

    def forward(self, x):
        return x * (self.temperature.exp() + 1)


def test_a_frozen_number(tenon):
    model, x = _Scaled(), torch.randn(7)
    tenon.reset_stats()
    with torch.no_grad():
        _check(_frozen(model)(x), model, x)
    assert _account(tenon)[0]["values"] == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_an_empty_batch(dtype, tenon):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    model = model.eval().to(dtype)
    with torch.no_grad():
        found = _frozen(model)(torch.randn(0, 3, 9, 9, dtype=dtype))
    assert found.shape == (0, 4) and found.dtype == dtype


def test_statistics_that_eagers_batch_norm_writes(tenon):
    """It leaves their version counters as they were."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU()).eval()
    x = torch.randn(2, 3, 16, 16)
    frozen = _frozen(model)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(frozen(x), model(x))
            versions = [b._version for b in model.buffers() if b.is_floating_point()]
            model.train()(x * 3 + 1)
            model.eval()
            assert versions == [b._version for b in model.buffers() if b.is_floating_point()], "PyTorch counts: no need to look at them"
        torch.testing.assert_close(frozen(x), model(x))
    assert tenon.stats()["graphs"][-1]["frozen"]["computed"] == 4
