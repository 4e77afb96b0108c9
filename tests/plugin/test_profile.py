"""torch_tenon.profile() and the ranges in torch.profiler: what is recorded is what ran. Nothing here judges how long it took."""

import json
import threading

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity

pytestmark = pytest.mark.by_aten(tier="any")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(16, 64), nn.LayerNorm(64), nn.Linear(64, 16)

    def forward(self, x):
        return self.down(torch.nn.functional.gelu(self.norm(self.up(x))))


def _compiled(function, *inputs, **options):
    """Compiled and run once, products by the library on every machine; what it said of its steps: name -> kind."""
    import torch_tenon.registry

    options.setdefault("provider", "host.matmul")
    before = {r.id for r in torch_tenon.registry.records()}
    compiled = torch.compile(function, backend="tenon", dynamic=False, options=options)
    with torch.no_grad():
        compiled(*inputs)
    (record,) = [r for r in torch_tenon.registry.records() if r.id not in before]
    return compiled, record


def test_every_step_as_often_as_it_ran(tenon):
    x = torch.randn(8, 16)
    f, record = _compiled(Net(), x)
    with torch.no_grad(), tenon.profile() as p:
        for _ in range(5):
            f(x)
    found = p.to_dict()
    (program,) = found["programs"]
    assert program["name"] == f"{record.kind}_{record.id}" and program["calls"] == 5
    planned = record.info["steps"]
    assert [(s["name"], s["kind"], s["bytes"], s["flops"]) for s in program["steps"]] == [
        (s["name"], s["kind"], s["bytes"], s["flops"]) for s in planned
    ]
    assert all(s["count"] == 5 and s["ns"] > 0 and s["executions"] == 1 for s in program["steps"])
    assert sum(s["ns"] for s in program["steps"]) <= program["ns"] <= found["inside_ns"] * (1 + 1e-9) <= found["wall_ns"]
    assert sum(s["share"] for s in program["steps"]) <= 1 + 1e-9
    assert found["dropped"] == 0 and found["roof"]["f32_gflop_per_s"] > 0
    assert p.rows() == [{"program": program["name"], **s} for s in program["steps"]]


def test_work_of_known_steps(tenon):
    def f(a, b, x):
        return a @ b, x * 2 + 1

    inputs = torch.randn(32, 48), torch.randn(48, 64), torch.randn(1000)
    g, _ = _compiled(f, *inputs)
    with torch.no_grad(), tenon.profile() as p:
        g(*inputs)
    steps = {s["kind"]: s for s in p.rows()}
    assert steps["call"]["flops"] == 2 * 32 * 48 * 64 and steps["call"]["bytes"] == 4 * (32 * 48 + 48 * 64 + 32 * 64)
    assert steps["kernel"]["bytes"] == 2 * 4 * 1000 and steps["kernel"]["flops"] == 2 * 1000
    for step in steps.values():
        assert step["gb_per_s"] * step["ns"] == pytest.approx(step["bytes"])
        assert step["gflop_per_s"] * step["ns"] == pytest.approx(step["flops"])


def test_products_and_convolutions_of_aten(tenon):
    conv = nn.Conv2d(6, 8, 3, groups=2)

    def f(x, a, b):
        return conv(x), a @ b

    inputs = torch.randn(2, 6, 9, 9), torch.randn(5, 7), torch.randn(7, 3)
    g, record = _compiled(f, *inputs, tier="eager_program")
    assert record.tier == "eager_program"
    with torch.no_grad(), tenon.profile() as p:
        g(*inputs)
    flops = {s["op"]: s["flops"] for s in p.rows()}
    assert flops["aten.convolution.default"] == 2 * (2 * 8 * 7 * 7) * (3 * 3 * 3)
    assert flops["aten.mm.default"] == 2 * 5 * 7 * 3


def test_pieces_and_the_timeline(tenon, tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        x = torch.randn(1 << 20)
        f, _ = _compiled(lambda x: torch.tanh(x) * 2, x)
        with torch.no_grad(), tenon.profile() as p:
            for _ in range(3):
                f(x)
    finally:
        torch.set_num_threads(threads)
    (row,) = p.rows()
    assert row["pieces"] == 2 and row["busy_ns"] > 0
    p.chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    of = {cat: [e for e in spans if e["cat"] == cat] for cat in ("call", "step", "piece")}
    assert [len(of[cat]) for cat in ("call", "step", "piece")] == [3, 3, 6]
    assert {e["name"] for e in of["step"] + of["piece"]} == {row["name"]}
    assert {e["tid"] for e in spans} == {e["tid"] for e in events if e["ph"] == "M"}

    def within(inner, outers):  # times are written to the ns
        ends = [(o["ts"], o["ts"] + o["dur"]) for o in outers]
        return any(b - 0.002 <= inner["ts"] and inner["ts"] + inner["dur"] <= e + 0.002 for b, e in ends)

    assert all(within(s, of["call"]) for s in of["step"]) and all(within(q, of["step"]) for q in of["piece"])
    assert of["step"][0]["args"]["bytes"] == row["bytes"] == 2 * 4 * (1 << 20)


def test_forward_and_backward_and_their_groups(tenon):
    net = Net()
    step = torch.compile(lambda x: net(x).sum(), backend="tenon")
    step(torch.randn(8, 16)).backward()
    with tenon.profile() as p:
        step(torch.randn(8, 16)).backward()
    assert sorted(q["name"].split("_")[0] for q in p.to_dict()["programs"]) == ["backward", "forward"]
    assert all(s["count"] == 1 for s in p.rows())


def test_many_threads(tenon):
    x = torch.randn(8, 16)
    f, record = _compiled(Net(), x)
    executable = record._executable()
    inputs = [p.detach() for p in f.parameters()]
    shapes = [tuple(i["dims"]) for i in record.info["inputs"]]
    args = [x if s == (8, 16) else next(p for p in inputs if tuple(p.shape) == s) for s in shapes]
    with tenon.profile() as p:
        threads = [threading.Thread(target=lambda: [executable(tuple(args)) for _ in range(20)]) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    (program,) = p.to_dict()["programs"]
    assert program["calls"] == 80 and all(s["count"] == 80 for s in program["steps"])


def test_the_timeline_is_bounded(tenon, tmp_path):
    x = torch.randn(8, 16)
    f, _ = _compiled(Net(), x)
    with torch.no_grad(), tenon.profile(max_events=4) as p:
        for _ in range(3):
            f(x)
    found = p.to_dict()
    assert found["events"] == 4 and found["dropped"] > 0 and all(s["count"] == 3 for s in p.rows())
    assert f"lacks {found['dropped']} events" in str(p)
    p.chrome_trace(tmp_path / "t.json")
    trace = json.loads((tmp_path / "t.json").read_text())
    assert len([e for e in trace["traceEvents"] if e["ph"] == "X"]) == 4 and trace["otherData"]["dropped"] == found["dropped"]


def test_the_table(tenon):
    x = torch.randn(8, 16)
    f, record = _compiled(Net(), x)
    with torch.no_grad(), tenon.profile() as p:
        f(x)
    text = str(p)
    assert text == p.table() and f"{record.kind}_{record.id}: 1 calls" in text and "between steps" in text
    for wanted in ("share", "GB/s", "GFLOP/s", "roof", "host.matmul", "outside"):
        assert wanted in text
    assert "in 2 more" in p.table(rows=len(p.rows()) - 2) and "more" not in p.table(rows=None)


def test_misuse_is_told(tenon, tmp_path):
    p = tenon.profile()
    with pytest.raises(RuntimeError, match="with torch_tenon.profile"):
        p.table()
    with p:
        with pytest.raises(RuntimeError, match="after the `with` block"):
            p.chrome_trace(tmp_path / "t.json")
        with pytest.raises(RuntimeError, match="don't nest"):
            with tenon.profile():
                pass
    with pytest.raises(RuntimeError, match="make a new one"):
        with p:
            pass
    assert p.rows() == [] and "outside" in str(p)
    with pytest.raises(ValueError, match="max_events"):
        tenon.profile(max_events=-1)
    with pytest.raises(ZeroDivisionError):
        with tenon.profile() as q:
            1 / 0
    assert q.rows() == [], "an error ends the recording"
    with tenon.profile():
        pass


def _names(profiler):
    events = profiler.function_events if isinstance(profiler, torch.autograd.profiler.profile) else profiler.events()
    return [e.name for e in events if e.name.startswith("tenon::")]


def test_ranges_in_torch_profiler(tenon):
    x = torch.randn(8, 16)
    f, record = _compiled(Net(), x)
    with torch.no_grad(), torch.profiler.profile(activities=[ProfilerActivity.CPU]) as q:
        f(x)
        f(x)
    steps = [f"tenon::{s['name']}" for s in record.info["steps"]]
    call = f"tenon::{record.kind}_{record.id}"
    assert sorted(_names(q)) == sorted(2 * ([call] + steps))
    events = {e.name: e for e in q.events()}
    for name in steps:
        parent = events[name].cpu_parent
        assert parent.name == call and parent.time_range.start <= events[name].time_range.start
    products = [e for e in q.events() if e.name in ("aten::addmm", "aten::mm")]
    assert products and all(e.cpu_parent.name in steps for e in products), "what ATen does lies in its step"
    with torch.no_grad():
        f(x)
    assert len(_names(q)) == 2 * (1 + len(steps))


def test_ranges_in_the_autograd_profiler_and_in_backward(tenon):
    net = Net()
    step = torch.compile(lambda x: net(x).sum(), backend="tenon")
    x = torch.randn(8, 16)
    step(x).backward()
    with torch.autograd.profiler.profile() as q:
        step(x).backward()
    names = _names(q)
    assert any(n.startswith("tenon::forward_") for n in names) and any(n.startswith("tenon::backward_") for n in names)
