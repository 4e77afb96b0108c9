"""explain(...).to_html(): one page with every graph of the model."""

import json
import re

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.by_aten(tier="any")


def _document(page):
    return json.loads(re.search(r'<script type="application/json" id="report">(.*?)</script>', page, re.S)[1])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(16, 64), nn.LayerNorm(64), nn.Linear(64, 16)

    def forward(self, x):
        return self.down(torch.nn.functional.gelu(self.norm(self.up(x))))


def test_forward_and_backward(tenon, tmp_path):
    net = Net()
    explanation = tenon.explain(lambda x: net(x).sum().backward(), torch.randn(8, 16))
    page = explanation.to_html(tmp_path / "net.html")
    assert (tmp_path / "net.html").read_text(encoding="utf-8") == page and page.startswith("<!DOCTYPE html>")
    document = _document(page)
    graphs = document["graphs"]
    assert [g["kind"] for g in graphs] == ["forward", "backward"]
    for graph in graphs:
        program, profile = graph["program"], graph["profile"]
        assert program["tier"] == "native" and graph["module"]["instructions"] and graph["input"]["instructions"]
        assert len(profile["steps"]) == sum(len(r["steps"]) for r in program["regions"])
        assert all(s["count"] > 0 for s in profile["steps"]), "profiled, every step of it"
        assert len(profile["trace"]) == len(profile["steps"])
        assert graph["code"] == {}
        names = {i["name"] for i in graph["module"]["instructions"]}
        kernels = {s["name"] for s in program["regions"][0]["steps"] if s["kind"] == "kernel"}
        assert kernels and kernels <= names
    assert any("self.norm" in line for line in graphs[0]["source_lines"].values())
    assert "report" not in explanation.to_dict()
    first = document["model"]["first_call_s"]
    assert list(first) == ["dynamo", "aot", "partition", "tenon", "llvm"] and all(s > 0 for s in first.values())


def test_code_when_asked_for(tenon):
    explanation = tenon.explain(Net(), torch.randn(8, 16), options={"report": "code"})
    (graph,) = _document(explanation.to_html())["graphs"]
    kernels = {k["symbol"] for k in graph["program"]["kernels"]}
    assert kernels <= set(graph["code"])
    for shared in set(graph["code"]) - kernels:  # what kernels of the machine call
        assert any(f"@{shared}" in graph["code"][k]["llvm"] or f'@"{shared}' in graph["code"][k]["llvm"] for k in kernels), shared
    assert all("define" in c["llvm"] and "ret" in c["assembly"] for c in graph["code"].values())
    with pytest.raises(Exception, match="report"):
        tenon.explain(Net(), torch.randn(8, 16), options={"report": "all"})


def test_eager_programs_are_steps_with_reasons(tenon):
    explanation = tenon.explain(Net(), torch.randn(8, 16), options={"tier": "eager_program"})
    (graph,) = _document(explanation.to_html())["graphs"]
    assert "module" not in graph and graph["program"]["tier"] == "eager_program" and graph["program"]["reason"]
    steps = [s for r in graph["program"]["regions"] for s in r["steps"]]
    assert {"aten.addmm.default", "aten.gelu.default", "aten.native_layer_norm.default"} <= {s["op"] for s in steps}
    assert all(s["count"] > 0 and s["ns"] > 0 for s in graph["profile"]["steps"])


def test_graph_breaks(tenon):
    def f(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    document = _document(tenon.explain(f, torch.randn(4)).to_html())
    assert len(document["graphs"]) == 2 and document["title"] == "f" and len(document["model"]["breaks"]) == 1


def test_in_a_notebook(tenon):
    frame = tenon.explain(Net(), torch.randn(8, 16))._repr_html_()
    assert frame.startswith("<iframe") and "<script" not in frame
