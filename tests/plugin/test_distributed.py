"""Tensor-parallel, sequence-parallel and fully sharded training on two gloo processes, as backend="tenon" compiles it: collectives are
steps of native programs, and what DTensors are beside their data goes around the executable."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch
from torch import fx

WORKER = pathlib.Path(__file__).with_name("distributed_worker.py")

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")


def _run(case, tmp_path):
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(WORKER), case, str(tmp_path / "store")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    graphs = json.loads(done.stdout.splitlines()[-1])
    assert graphs and all(g["tier"] == "native" for g in graphs), graphs
    return graphs


def _collectives(graph):
    """How often each was called."""
    return {op.split(".")[1]: n for op, n in graph["calls"].items() if op.startswith("_c10d_functional") and "wait" not in op}


# dynamic=True ends in PyTorch's own tracer for a tensor-parallel module (torch 2.13, under aot_eager too).
# Three training steps of a block: the partial results of out and down, and of what their inputs' gradients sum. Then one inference.
@pytest.mark.parametrize("case, wanted", [
    ("redistribute", [("forward", {"all_reduce": 2}), ("backward", {"all_gather_into_tensor": 2})]),
    ("tensor parallel", [("forward", {"all_reduce": 6}), ("backward", {"all_reduce": 12}), ("inference", {"all_reduce": 2})]),
    pytest.param("sequence parallel", [
        ("forward", {"all_gather_into_tensor": 3, "all_reduce": 3}), ("backward", {"reduce_scatter_tensor": 3}),
        ("inference", {"all_gather_into_tensor": 1, "all_reduce": 1})], marks=pytest.mark.slow),
    # Its hooks gather and scatter between the graphs: a layer each.
    pytest.param("fully sharded", [("forward", {}), ("forward", {}), ("backward", {}), ("backward", {}), ("inference", {})],
                 marks=pytest.mark.slow),
])  # fmt: skip
def test_two_processes(case, wanted, tmp_path):
    graphs = _run(case, tmp_path)
    assert [(g["kind"], _collectives(g)) for g in graphs] == wanted
    assert all(g["kernels"] for g in graphs)


class _Mesh:
    """Stands for what no kernel can read."""


def _graph():
    graph = fx.Graph()
    x, mesh, y, other = map(graph.placeholder, ("x", "mesh", "y", "other"))
    for node in (x, y):
        node.meta["val"] = torch.empty(3, device="meta")
    mesh.meta["val"], other.meta["val"] = _Mesh(), _Mesh()
    total = graph.call_function(torch.ops.aten.add.Tensor, (x, y))
    graph.output([mesh, total, other, None, mesh, y])
    return fx.GraphModule({}, graph)


def test_objects_go_around_the_executable():
    from torch_tenon import objects

    gm = _graph()
    assert objects.objects_of(gm) == [1, 3]
    seen = []

    def compile_graph(inner):
        seen.append(inner)
        return lambda inputs: list(inner(*inputs))

    call = objects.compile_without(gm, [1, 3], compile_graph)
    assert [n.name for n in seen[0].graph.find_nodes(op="placeholder")] == ["x", "y"]
    assert len(gm.graph.find_nodes(op="placeholder")) == 4, "the caller's graph stays as it is"
    x, y, mesh, other = torch.ones(3), torch.ones(3), _Mesh(), _Mesh()
    inputs = [x, mesh, y, other]
    found = call(inputs)
    assert found[0] is mesh and found[2] is other and found[3] is None and found[4] is mesh and found[5] is y
    assert torch.equal(found[1], x + y)


def test_objects_that_a_node_reads_stay():
    from torch_tenon import objects

    gm = _graph()
    mesh = gm.graph.find_nodes(op="placeholder")[1]
    with gm.graph.inserting_before(gm.graph.output_node()):
        gm.graph.call_function(print, (mesh,))
    assert objects.objects_of(gm) == [3]
