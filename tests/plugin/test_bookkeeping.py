"""What is kept of graphs and programs, and what it is found again by."""

import gc
import json
import pathlib
import re
import shutil
import subprocess

import pytest
import torch

GRAPH = """graph "g{n}" {{
  %x = input f32[{n},8]{{8,1}}
  %y = aten.exp.default(%x) -> f32[{n},8]{{8,1}}
  return (%y)
}}
"""


def _compile(n, **options):
    from torch_tenon import _C

    return _C.compile(_C.Graph.parse(GRAPH.format(n=n)), options, [])


def _cache():
    from torch_tenon import _C

    return json.loads(_C.cache_stats())


def test_the_thread_count_is_no_part_of_the_key(tenon):
    _compile(101, threads=1)
    before = _cache()
    _compile(101, threads=2)
    after = _cache()
    assert after["compiles"] == before["compiles"] and after["hits"] == before["hits"] + 1


def test_changing_the_thread_count_compiles_no_graph_again(tenon, backend):
    function, x = lambda t: torch.tanh(t) * 5 - t.sigmoid(), torch.randn(17, 5)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        torch.testing.assert_close(torch.compile(function, backend=backend)(x), function(x))
        before = _cache()["compiles"]
        torch.set_num_threads(2)
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(function, backend=backend)(x), function(x))
        assert _cache()["compiles"] == before
    finally:
        torch.set_num_threads(threads)


def test_the_key_has_the_isa_that_is_used_not_the_one_that_is_asked_for(tenon):
    _compile(102)
    before = _cache()
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    best = "avx512" if "avx512bw" in flags and "avx512dq" in flags and "avx512vl" in flags else "avx2" if "avx2" in flags else "sse4"
    # A level by its name is the level alone: the host's best is the same code only where it has no extensions beyond it.
    extended = best == "avx512" and any(f in flags for f in ("avx512_bf16", "avx512_fp16", "avx512_vnni", "avx512vbmi"))
    _compile(102, isa=best)
    assert _cache()["compiles"] == before["compiles"] + extended
    before = _cache()
    if best != "sse4":
        _compile(102, isa="sse4")
        assert _cache()["compiles"] == before["compiles"] + 1 and _cache()["last_miss"] == "target"


def test_the_build_id_is_the_linkers(tenon):
    from torch_tenon import _C

    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("no readelf")
    library = pathlib.Path(tenon.__file__).parent / "libtenon.so"
    notes = subprocess.run([readelf, "-n", str(library)], capture_output=True, text=True, check=True).stdout
    (linked,) = re.findall(r"Build ID: ([0-9a-f]+)", notes)
    assert _C.build_id().endswith(linked)


def test_a_module_is_printed_once_for_its_key_and_a_repro_still_has_it(tenon, tmp_path):
    executable = _compile(103, inject_fault="invalid-ir", repro_dir=str(tmp_path), cache=False)
    assert json.loads(executable.info())["tier"] == "eager_program"
    (text,) = [path.read_text() for path in tmp_path.glob("*.hlo")]
    assert "invalid LLVM IR" in text.splitlines()[0] and "exponential" in text


def test_the_cache_is_bounded_in_bytes(tenon):
    cache = _cache()
    assert cache["max_bytes"] == 512 << 20 and 0 <= cache["bytes"] <= cache["max_bytes"]


def test_records_of_dead_graphs_are_bounded_and_counts_stay_exact(tenon):
    from torch_tenon import registry

    tenon.reset_stats()
    live = {g["id"] for g in tenon.stats()["graphs"]}
    x, runs = torch.randn(3, 8), 0
    for n in range(registry._MOST_RETIRED + 60):
        record = registry.new_record("inference", {"aten.exp.default": 1})
        executable = _compile(3)
        record.attach(executable)
        for _ in range(1 + n % 3):
            executable([x])
            runs += 1
        del executable
    gc.collect()
    stats = tenon.stats()
    mine = [g for g in stats["graphs"] if g["id"] not in live]
    assert len(mine) <= registry._MOST_RETIRED + 2
    assert stats["forgotten"]["graphs"] + len(mine) == registry._MOST_RETIRED + 60
    assert stats["forgotten"]["calls"] + sum(g["calls"] for g in mine) == runs
    assert all("info" not in vars(record) for record in registry.records()), "parsed JSON is kept"
    tenon.reset_stats()
    assert tenon.stats()["forgotten"] == {"graphs": 0, "calls": 0, "run_ns": 0}


@pytest.mark.by_aten(tier="any")  # makes records of its own
def test_records_of_graphs_that_ran_from_python_are_bounded_too(tenon):
    from torch_tenon import registry
    from torch_tenon.compiler import run_from_python
    from torch_tenon.options import Options

    def program():
        graph = torch.fx.Graph()
        graph.output((graph.call_function(torch.ops.aten.neg.default, (graph.placeholder("x"),)),))
        record = registry.new_record("inference", {"aten.neg.default": 1})
        return run_from_python(torch.fx.GraphModule({}, graph), record, Options(), "a test's")

    tenon.reset_stats()
    others = {g["id"] for g in tenon.stats()["graphs"]}
    kept, runs = program(), 0
    for n in range(registry._MOST_RETIRED + 40):
        last = program()
        for _ in range(1 + n % 2):
            torch.testing.assert_close(last([torch.ones(2)]), [-torch.ones(2)])
            runs += 1
    del last
    gc.collect()
    kept([torch.ones(2)])
    registry.new_record("inference", {})
    stats = tenon.stats()
    mine = [g for g in stats["graphs"] if g["id"] not in others]
    assert len(mine) <= registry._MOST_RETIRED + 2  # the newest, the one in use and the one just made
    assert stats["forgotten"]["graphs"] >= 40
    assert stats["forgotten"]["calls"] + sum(g["calls"] for g in mine) == runs + 1
    tenon.reset_stats()
    ids = [g["id"] for g in tenon.stats()["graphs"]]
    assert kept.record.id in ids, "a graph that is in use is kept"
