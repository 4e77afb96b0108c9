"""The backend itself: tiers, training, dynamic shapes, options, exceptions, accounting."""

import logging
import subprocess
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from conftest import ROOT
from plugin.checking import same_as_eager, same_gradients

pytestmark = pytest.mark.usefixtures("tenon")
_EAGER = pytest.mark.by_aten(tier="eager_program", reason="asked for by the options")
TIERS = ["native", pytest.param("eager_program", marks=_EAGER)]


def _graphs(tenon):
    return tenon.stats()["graphs"]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return x + self.down(F.gelu(self.up(self.norm(x)))) * self.calls


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("train", [False, True])
def test_block_and_its_buffer(tier, train):
    same_as_eager(Block(), torch.randn(4, 7, 16), backend="tenon", train=train, options={"tier": tier})


@pytest.mark.by_aten(tier="eager_program", reason="asked for by the options")
def test_eager_program_is_bit_equal_to_eager(tenon):
    model, x = Block().eval(), torch.randn(4, 7, 16)
    compiled = torch.compile(model, backend="tenon", options={"tier": "eager_program"})
    with torch.no_grad():
        wanted, found = model(x), None
        model.calls.zero_()
        found = compiled(x)
    assert torch.equal(found, wanted)
    graph = _graphs(tenon)[-1]
    assert graph["tier"] == "eager_program" and "options" in graph["reason"]


def test_entry_point_needs_no_import():
    code = "import torch; print('tenon' in torch._dynamo.list_backends())"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT,
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.stdout.strip() == "True", done.stderr


def test_importing_changes_nothing():
    code = """
import sys, torch
before = set(sys.modules), dict(torch.library.__dict__), torch.get_default_dtype()
import torch_tenon
assert not [m for m in set(sys.modules) - before[0] if not m.startswith("torch_tenon")]
assert "torch_tenon._C" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT,
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_dropout_draws_eagers_numbers():
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    x = torch.randn(64, 8)
    compiled = torch.compile(model, backend="tenon")
    torch.manual_seed(3)
    wanted = model(x)
    torch.manual_seed(3)
    torch.testing.assert_close(compiled(x), wanted)


# --- dynamic shapes ---------------------------------------------------------------------------


def test_dynamic_sizes_compile_once_each(tenon):
    compiled = torch.compile(
        lambda t: torch.tanh(t).sum(-1) + t.shape[0], backend="tenon", dynamic=True, options={"sizes": "exact"}
    )
    tenon.reset_stats()
    known = {g["id"] for g in _graphs(tenon)}
    for _ in range(3):
        for n in (2, 5, 9):
            x = torch.randn(n, 6)
            torch.testing.assert_close(compiled(x), torch.tanh(x).sum(-1) + n)
    ours = [g for g in _graphs(tenon) if g["id"] not in known]
    assert len(ours) == 3 and [g["calls"] for g in ours] == [3, 3, 3]


def test_dynamic_training():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    compiled = torch.compile(model, backend="tenon", dynamic=True)
    for n in (3, 4, 11):
        x = torch.randn(n, 6, requires_grad=True)
        same_gradients(model, compiled, x)


@pytest.mark.by_aten(tier="eager_program", reason="sets of sizes")
def test_beyond_the_bound_runs_by_aten(tenon, monkeypatch):
    from torch_tenon import dynamic

    monkeypatch.setattr(dynamic, "MAX_SPECIALIZATIONS", 2)
    compiled = torch.compile(lambda t: t * 2 + t.shape[0], backend="tenon", dynamic=True, options={"sizes": "exact"})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in (2, 3, 4, 5):
            x = torch.randn(n, 3)
            torch.testing.assert_close(compiled(x), x * 2 + n)
    assert sum("sets of sizes" in str(w.message) for w in caught) == 1
    beyond = [g for g in _graphs(tenon) if "sets of sizes" in g["reason"]]
    assert len(beyond) == 1 and beyond[0]["calls"] == 2


@pytest.mark.by_aten(steps={"aten.nonzero.default"})
@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_sizes_that_depend_on_data():
    x = torch.tensor([1.0, 0.0, 2.0, 0.0])
    compiled = torch.compile(lambda t: torch.nonzero(t) * 2, backend="tenon")
    assert torch.equal(compiled(x), torch.nonzero(x) * 2)


# --- what has no text -------------------------------------------------------------------------


@pytest.mark.by_aten(tier="any")
def test_higher_order_operator(tenon):
    def f(flag, x):
        return torch.cond(flag.sum() > 0, lambda t: t.sin() + 1, lambda t: t.cos(), (x,)) * 2

    x = torch.randn(5)
    compiled = torch.compile(f, backend="tenon")
    for flag in (torch.ones(1), -torch.ones(1)):
        torch.testing.assert_close(compiled(flag, x), f(flag, x))
    assert any(s.startswith("python.") for g in _graphs(tenon) for s in g["aten_steps"])


def test_python_operator_and_its_exception():
    @torch.library.custom_op("tenon_tests::refuse_negative", mutates_args=())
    def refuse_negative(x: torch.Tensor) -> torch.Tensor:
        if (x < 0).any():
            raise FileNotFoundError("negative")
        return x.clone()

    refuse_negative.register_fake(torch.empty_like)
    compiled = torch.compile(lambda t: refuse_negative(t * 2) + 1, backend="tenon")
    x = torch.rand(4)
    torch.testing.assert_close(compiled(x), x * 2 + 1)
    with pytest.raises(FileNotFoundError, match="negative"):
        compiled(-x)
    torch.testing.assert_close(compiled(x), x * 2 + 1)


_LINALG_STEPS = {"aten.linalg_cholesky_ex.default", "aten._linalg_check_errors.default"}


@pytest.mark.parametrize("tier", [pytest.param("native", marks=pytest.mark.by_aten(steps=_LINALG_STEPS)),
                                  pytest.param("eager_program", marks=_EAGER)])
def test_aten_exceptions_are_eagers(tier):
    compiled = torch.compile(torch.linalg.cholesky, backend="tenon", options={"tier": tier})
    with pytest.raises(torch._C._LinAlgError):
        compiled(-torch.eye(3))


# --- options and accounting -------------------------------------------------------------------


def test_options_are_checked():
    from torch_tenon.options import Options

    with pytest.raises(ValueError, match="known: fallback, tier, isa"):
        Options.make(None, {"no_such": 1})
    with pytest.raises(TypeError, match="'threads': wanted int"):
        Options.make(None, {"threads": "2"})
    with pytest.raises(TypeError, match="list of strings"):
        Options.make(None, {"disable_passes": "fuse"})
    with pytest.raises(ValueError, match="unknown mode 'fastest'"):
        Options.make("fastest", None)
    assert Options.make("max-autotune", {"isa": "avx2"}).for_compiler() == {"isa": "avx2"}


def test_dump(tmp_path):
    x = torch.randn(4)
    torch.compile(lambda t: t * 2 + 1, backend="tenon", options={"dump": str(tmp_path)})(x)
    names = [p.name for p in tmp_path.iterdir()]
    assert any(n.endswith(".aten") for n in names), names


@pytest.mark.by_aten(steps={"aten.tanh.default"})
def test_disabled_lowering_is_an_aten_step(tenon):
    options = {"disable_lowering": ["aten.tanh.default"]}
    x = torch.randn(9)
    compiled = torch.compile(lambda t: torch.tanh(t * 2) + 1, backend="tenon", options=options)
    torch.testing.assert_close(compiled(x), torch.tanh(x * 2) + 1)
    graph = _graphs(tenon)[-1]
    assert graph["tier"] == "native", graph["reason"]
    assert graph["aten_steps"]["aten.tanh.default"]["count"] == 1


def test_stats_and_reset(tenon):
    compiled = torch.compile(lambda t: (t @ t).relu(), backend="tenon")
    x = torch.randn(8, 8)
    compiled(x)
    graph = _graphs(tenon)[-1]
    assert graph["kind"] == "inference" and graph["nodes"]["aten.mm.default"] == 1
    assert graph["calls"] == 1 and graph["run_ns"] > 0 and graph["compile_ms"]["total"] > 0
    tenon.reset_stats()
    compiled(x)
    compiled(x)
    again = next(g for g in _graphs(tenon) if g["id"] == graph["id"])
    assert again["calls"] == 2
    del compiled
    torch._dynamo.reset()
    import gc

    gc.collect()
    dead = next(g for g in _graphs(tenon) if g["id"] == graph["id"])
    assert dead["calls"] == 2, "counters outlive their graph until the reset"
    tenon.reset_stats()
    assert graph["id"] not in {g["id"] for g in _graphs(tenon)}


def test_equal_graphs_share_an_executable_and_count_apart(tenon):
    x = torch.randn(8)
    graph = make_fx(lambda t: [torch.sin(t) * 3.25])(x)
    first = tenon.compile_graph(graph, [x], fallback="allow")
    hits = tenon.stats()["cache"]["hits"]
    second = tenon.compile_graph(graph, [x], fallback="allow")
    assert tenon.stats()["cache"]["hits"] == hits + 1
    first([x])
    second([x])
    second([x])
    assert [g["calls"] for g in _graphs(tenon)[-2:]] == [1, 2]


def test_inputs_are_released_and_the_list_emptied(tenon):
    x = torch.randn(4)
    run = tenon.compile_graph(make_fx(lambda t: [t + 1])(x), [x], fallback="allow")
    inputs = [torch.randn(4)]
    run(inputs)
    assert inputs == []


def test_explain(tenon):
    report = tenon.explain(Block().eval(), torch.randn(1, 3, 16), options={"provider": "host.matmul"})
    text, data = str(report), report.to_dict()
    assert "graphs" in text and "compile ms" in text
    assert data["graphs"][0]["nodes"]
    assert "clusters" in text and data["graphs"][0]["library_calls"]
    assert abs(sum(s["share"] for k in ("clusters", "library_calls", "aten_steps", "copies")
                   for s in data["graphs"][0][k]) - 1) < 0.01  # fmt: skip


def test_log(caplog):
    with caplog.at_level(logging.INFO, logger="tenon"):
        torch.compile(lambda t: t - 3, backend="tenon")(torch.randn(2))
    assert any("inference" in r.getMessage() for r in caplog.records)


def test_graph_text_round_trips_names_and_numbers(tenon):
    from torch_tenon.export import export

    x = torch.randn(2, 3)
    graph = make_fx(lambda t: [torch.ops.aten.add.Tensor(t, t, alpha=1e-05), t.max(1)[0]])(x)
    text = export(graph, "g").text
    assert 'graph "g"' in text and "1e-05" in text
    assert "%max_1.0, %max_1.1 = aten.max.dim(%t_1, 1, false) -> f32[2]{1}, s64[2]{1}" in text
