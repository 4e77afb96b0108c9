"""The call seam (docs/architecture/seam.md): graphs cross as structs, and a compile makes and reads no text."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from conftest import ROOT


def test_a_cpp_program_builds_compiles_and_runs_a_graph(tenon):
    build = pathlib.Path(tenon.__file__).parents[2]  # build/<preset>/python/torch_tenon/__init__.py
    libraries = pathlib.Path(torch.__file__).parent / "lib"
    environment = os.environ | {"LD_LIBRARY_PATH": f"{libraries}:{build / 'python' / 'torch_tenon'}"}
    ran = subprocess.run([build / "tests" / "tenon_cpp_graph"], env=environment, capture_output=True, text=True, timeout=240)
    assert (ran.returncode, ran.stdout) == (0, "ok\n"), ran.stderr


def _layer(x, w, b):
    y = torch.nn.functional.gelu(x @ w + b)
    return [torch.softmax(y, -1), y.sum(0), y.t()]


def _counted(tenon, function, inputs, **options):
    """What a compile of the function and a run of it printed and parsed."""
    from torch_tenon import _C

    graph = make_fx(function)(*inputs)
    before = _C.text_counts()
    # Passes that are verified are compared by text.
    run = tenon.compile_graph(graph, inputs, fallback="allow", options={"verify_passes": False, **options})
    want = graph(*inputs)
    for got, wanted in zip(run(list(inputs)), want, strict=True):
        torch.testing.assert_close(got, wanted)
    return run, {name: count - before[name] for name, count in _C.text_counts().items()}


NOTHING = dict.fromkeys(("graphs_printed", "graphs_parsed", "modules_printed", "modules_parsed"), 0)


@pytest.mark.by_aten(tier="any")
@pytest.mark.parametrize("options", [{}, {"cache": False}, {"tier": "eager_program"}])
def test_a_compile_prints_and_parses_no_program(tenon, options):
    inputs = torch.randn(9, 16), torch.randn(16, 8), torch.randn(8)
    for times in range(2):  # the second time from the cache
        run, counts = _counted(tenon, _layer, inputs, **options)
        assert run.record.tier == options.get("tier", "native")
        counts.pop("json_parsed")  # of fusions, one object each
        assert counts == NOTHING, f"compile {times}"


@pytest.mark.by_aten(steps={"aten.sort.default", "aten.sort.stable"})
def test_a_framework_calls_arguments_are_no_json_on_the_way(tenon):
    inputs = (torch.randn(6, 40),)
    run, counts = _counted(tenon, lambda x: list(torch.sort(x, dim=0, descending=True)), inputs, disable_lowering=["*"])
    assert [step["op"] for step in run.record.info["steps"] if step["kind"] == "call"], "a framework step was wanted"
    assert counts == NOTHING | {"json_parsed": 0}


def test_the_same_graph_is_known_before_it_is_lowered(tenon):
    from torch_tenon import _C, registry

    inputs = torch.randn(11, 16), torch.randn(16, 8), torch.randn(8)
    runs = [_counted(tenon, _layer, inputs)[0] for _ in range(2)]
    cache = registry.stats()["cache"]
    tenon.compile_graph(make_fx(_layer)(*inputs), inputs)
    after = registry.stats()["cache"]
    assert (after["compiles"], after["hits"]) == (cache["compiles"], cache["hits"] + 1)
    other = tenon.compile_graph(make_fx(lambda x, w, b: _layer(x, w, b)[:2])(*inputs), inputs)
    assert registry.stats()["cache"]["compiles"] == cache["compiles"] + 1
    _C.cache_clear()
    tenon.compile_graph(make_fx(_layer)(*inputs), inputs)
    assert registry.stats()["cache"]["compiles"] == cache["compiles"] + 2
    del runs, other


@pytest.mark.parametrize("change", ["number", "dtype", "size", "stride", "literal", "output"])
def test_graphs_that_differ_in_one_thing_are_told_apart(tenon, change):
    """By the results, where another graph's program would give others, and by the cache's count."""
    from torch_tenon import _C, registry

    text = """graph "g" {
  %x = input f32[7,3]{3,1}
  %l = literal f32[3]{1} [1.0, 2.0, 3.0]
  %y = aten.add.Tensor(%x, %l, 2) -> f32[7,3]{3,1}
  %z = aten.mul.Tensor(%y, %y) -> f32[7,3]{3,1}
  return (%z)
}
"""
    changed = {
        "number": text.replace("%l, 2)", "%l, 3)"),
        "dtype": text.replace("f32", "f64"),
        "size": text.replace("[7,", "[8,"),
        "stride": text.replace("input f32[7,3]{3,1}", "input f32[7,3]{1,7}"),
        "literal": text.replace("3.0]", "-3.0]"),
        "output": text.replace("return (%z)", "return (%y)"),
    }[change]
    assert changed != text
    compile_text = lambda t: _C.compile(_C.Graph.parse(t), {}, [])
    first = compile_text(text)
    before = registry.stats()["cache"]
    again, second = compile_text(text.replace('"g"', '"another name"').replace("%y", "%renamed")), compile_text(changed)
    after = registry.stats()["cache"]
    assert (after["hits"] - before["hits"], after["compiles"] - before["compiles"]) == (1, 1)
    del first, again, second


def test_nothing_on_the_way_knows_json():
    """By what files include. Texts for people (explain, stats, reports) are made in the files that are named."""
    texts = {"torch_plugin/libtenon/tenon_c.cc", "torch_plugin/libtenon/hlo_c.cc"}
    wrong = []
    for folder in ("torch_plugin", "backends/program", "backends/driver"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix not in (".cc", ".h") or str(path.relative_to(ROOT)) in texts:
                continue
            if re.search(r'#include [<"](hlo/json\.h|nlohmann/)', path.read_text()):
                wrong.append(str(path.relative_to(ROOT)))
    assert not wrong
    python = ROOT / "torch_plugin" / "python" / "torch_tenon"
    for name in ("export.py", "compiler.py", "dynamic.py", "options.py"):
        assert not re.search(r"^(import|from) (json|zlib)", (python / name).read_text(), re.MULTILINE), name


def test_the_extension_is_imported_before_torch(tenon):
    code = "import sys; from torch_tenon import _C; assert 'torch' not in sys.modules; print(_C.text_counts()['graphs_parsed'])"
    environment = os.environ | {"PYTHONPATH": str(pathlib.Path(tenon.__file__).parents[1]),
                                "LD_LIBRARY_PATH": str(pathlib.Path(torch.__file__).parent / "lib")}  # fmt: skip
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=240)
    assert (ran.returncode, ran.stdout) == (0, "0\n"), ran.stderr


def test_arguments_of_every_kind_cross_as_they_are(tenon):
    from torch_tenon import _C

    graph = _C.Graph("g")
    x = torch.randn(3, 4).t()
    graph.input("x", x)
    graph.literal("l", torch.tensor([1.5, float("-inf"), -0.0]))
    args = [_C.Value("x"), None, 5, -(2**63), 1.0, 1e-5, float("nan"), True, 1 + 2j, 'a "b"\n', [1, (2, _C.Value("x")), []], torch.bfloat16,
            torch.strided, torch.device("cpu"), torch.device("cuda:1"), torch.preserve_format, torch.channels_last]  # fmt: skip
    graph.node("aten.odd.default", args, ["y"], [x], False, "layer.0", "net.py:3")
    graph.node("aten.copy_.default", [_C.Value("x"), _C.Value("y"), False], ["z"], [], True, "", "")
    windows = [_C.Window(("y", [2, 3], [1, 4], 2)), [_C.Window(("x", None, [1, 4], 0))]]
    graph.node("my.store.default", windows, ["n"], [x], False, "", "", ["y"])
    graph.returns([_C.Value("y"), None, 7, _C.Value("z")])
    text = graph.text()
    assert text == """graph "g" {
  %x = input f32[4,3]{1,4}
  %l = literal f32[3]{1} [1.5, -inf, -0.0]
  %y = aten.odd.default(%x, none, 5, -9223372036854775808, 1.0, 1e-05, nan, true, complex(1.0,2.0), "a \\"b\\"\\n", [1, [2, %x], []], \
dtype:bf16, layout:strided, device:cpu, device:cuda:1, format:preserve, format:channels_last) -> f32[4,3]{1,4} @ "layer.0" "net.py:3"
  %z = aten.copy_.default(%x, %y, false) -> alias %x
  %n = my.store.default(%y[2,3]{1,4}+2, [%x{1,4}]) writes(%y) -> f32[4,3]{1,4}
  return (%y, none, sym(7), %z)
}
"""
    assert _C.Graph.parse(text).text() == text


@pytest.mark.parametrize(
    "build, told",
    [
        (lambda g, c: g.input("a b", torch.ones(2)), "wanted a value's name"),
        (lambda g, c: g.input("y", "text"), "wanted a dense CPU tensor, an int or None, got str"),
        (lambda g, c: g.input("y", torch.ones(2).to_sparse()), "wanted a dense CPU tensor"),
        (lambda g, c: g.input("y"), "wanted a name and a value, got 1"),
        (lambda g, c: g.literal("y", torch.ones(2, 3).t()), "dense and row-major"),
        (lambda g, c: g.literal("y", 3), "wanted a name and a tensor"),
        (lambda g, c: g.node("aten.neg.default", [c.Value("q")], ["y"], [torch.ones(2)], False, "", ""), "unknown value %q"),
        (lambda g, c: g.node("aten.neg.default", [object()], ["y"], [torch.ones(2)], False, "", ""), "of an operator, got object"),
        (lambda g, c: g.node("aten.neg.default", ["a\0b"], ["y"], [torch.ones(2)], False, "", ""), "an argument of an operator, got str"),
        (lambda g, c: g.node("aten.neg.default", [2**64], ["y"], [torch.ones(2)], False, "", ""), "an argument of an operator, got int"),
        (lambda g, c: g.node("aten.neg.default", [c.Value("x")], ["y"], [], False, "", ""), "1 names for 0 results"),
        (lambda g, c: g.node("aten.neg.default", c.Value("x"), ["y"], [torch.ones(2)], False, "", ""), "wanted a list"),
        (lambda g, c: g.node("my.op.default", [c.Value("x")], ["y"], [torch.ones(3)], False, "", "", ["x"]), "wanted its dtype, sizes"),
        (lambda g, c: g.node("my.op.default", [1], ["y"], [torch.ones(2)], False, "", "", ["x"]), "tensors that the operator is given"),
        (lambda g, c: g.node("my.op.default", [c.Window(("x", [1], [], 0))], ["y"], [1], False, "", ""), "a view of a tensor wants"),
        (lambda g, c: g.node("my.op.default", [c.Window(("x",))], ["y"], [1], False, "", ""), "wanted Window"),
        (lambda g, c: g.node("aten.neg.default", []), "wanted 7 or 8 arguments, got 2"),
        (lambda g, c: g.returns([2.5]), "wanted a value, none, a number or a SymInt to return, got 2.5"),
        (lambda g, c: c.compile(g, {}, []), "wanted a graph with its return"),
        (lambda g, c: c.compile("text", {}, []), "wanted a Graph, got str"),
        (lambda g, c: c.compile(g, {"isa": object()}, []), "wanted an argument"),
        (lambda g, c: c.compile(g, "{}", []), "must be dict"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(tenon, build, told):
    from torch_tenon import _C

    graph = _C.Graph("g")
    graph.input("x", torch.ones(2))
    with pytest.raises((RuntimeError, TypeError, ValueError), match=re.escape(told)):
        build(graph, _C)
