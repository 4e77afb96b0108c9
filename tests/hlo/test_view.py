"""The page that shows a module: what it holds, and, where there is a chromium, what it draws."""

import html
import json
import re
import shutil
import subprocess

import pytest

from hlo.command_line import run
from hlo.test_tools import LOOP

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
EVIL = "</script><script>document.title='x'</script>&amp;\\\"ü"
MODULE = """HloModule view
max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = f32[] maximum(a, b) }
ENTRY e {
  x = f32[8,64] parameter(0)
  w = f32[64,64] parameter(1)
  low = f32[] constant(-inf)
  y = f32[8,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="EVIL" source_file="net.py" source_line=7}
  top = f32[8] reduce(y, low), dimensions={1}, to_apply=max
  top_b = f32[8,64] broadcast(top), dimensions={0}
  d = f32[8,64] subtract(y, top_b)
  r = f32[8,64] exponential(d), metadata={source_file="net.py" source_line=8}
  z = f32[8,64] dot(r, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT q = f32[8,64] tanh(z)
}
""".replace("EVIL", EVIL)


def _page(tmp_path, text, *arguments, returncode=0):
    source, page = tmp_path / "m.hlo", tmp_path / "m.html"
    source.write_text(text)
    done = run("hlo-opt", f"--html={page}", *arguments, source)
    assert done.returncode == returncode, done.stderr
    return page


def _document(page):
    return json.loads(re.search(r'<script type="application/json" id="report">(.*?)</script>', page.read_text(), re.S)[1])


def _draw(page, fragment=""):
    """The page's elements after its program ran, and what it complained of."""
    if CHROMIUM is None:
        pytest.skip("no chromium: the page isn't drawn")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0", "--window-size=1400,900",
               "--virtual-time-budget=4000", "--dump-dom", f"file://{page}#{fragment}"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert complaints == [] and 'data-ready="yes"' in done.stdout, complaints
    return done.stdout.split("</script>", 1)[1]  # (without the data)


def test_the_document(tmp_path):
    document = _document(_page(tmp_path, MODULE, "--provider=host.matmul"))
    assert (document["schema"], document["version"], document["title"]) == ("tenon-report", 1, str(tmp_path / "m.hlo"))
    (graph,) = document["graphs"]
    assert {i["name"] for i in graph["input"]["instructions"]} == set("x w low y top top_b d r z q".split())
    assert graph["program"]["tier"] == "native" and graph["profile"] is None
    y = next(i for i in graph["input"]["instructions"] if i["name"] == "y")
    assert y["op_name"] == EVIL.replace('\\"', '"') and y["source"] == "net.py:7"
    kinds = [s["kind"] for s in graph["program"]["regions"][0]["steps"]]
    assert kinds == ["call", "kernel", "call", "kernel"]


def test_what_cannot_be_compiled_is_shown_with_the_reason(tmp_path):
    text = "HloModule m\nENTRY e { x = f32[4] parameter(0)\n ROOT y = f32[4] sine(x) }"
    page = _page(tmp_path, text, "--passes=dce", returncode=1)
    (graph,) = _document(page)["graphs"]
    assert graph["program"] is None and "fus" in graph["error"] and len(graph["module"]["instructions"]) == 2
    drawn = _draw(page)
    assert html.escape(graph["error"], quote=False)[:30] in drawn


def test_several_modules_in_one_page(tmp_path):
    page = _page(tmp_path, MODULE + "// -----\n" + MODULE.replace("view", "other"), "--split-input")
    assert [g["name"] for g in _document(page)["graphs"]] == ["view", "other"]
    assert "<option" in _draw(page, "graph=1")


def test_the_graph_draws_every_instruction(tmp_path):
    page = _page(tmp_path, MODULE)
    names = {i["name"] for i in _document(page)["graphs"][0]["module"]["instructions"]}
    drawn = _draw(page, "open=all")
    assert set(re.findall(r'data-name="([^"]*)"', drawn)) == names
    assert "<title>x</title>" not in drawn
    # Closed, a fusion hides what is in it.
    inside = set(re.findall(r'data-name="([^"]*)"', drawn)) - {"x", "w", "y", "z"}
    assert len(inside) > 5


@pytest.mark.parametrize("pane, wanted", [
    ("buffers", 'id="arena"'), ("costs", "roofline"), ("steps", "library: dot"), ("remarks", "fused"),
    ("source", "net.py"), ("kernels", 'data-kernel="k0"'), ("overview", "assign-layout"),
])  # fmt: skip
def test_panes(tmp_path, pane, wanted):
    page = _page(tmp_path, MODULE)
    drawn = _draw(page, f"pane={pane}")
    assert f'data-pane="{pane}"' in drawn and wanted in drawn
    if pane == "buffers":
        values = _document(page)["graphs"][0]["program"]["values"]
        rows = set(re.findall(r'<tr data-value="(\d+)"', drawn))
        assert rows == {str(k) for k, v in enumerate(values) if v["kind"] != "error_word"}


def test_details_of_an_instruction(tmp_path):
    drawn = _draw(_page(tmp_path, MODULE), "select=y")
    aside = drawn.split("<aside>", 1)[1]
    assert "host.matmul" in aside and "net.py:7" in aside and html.escape(EVIL.replace('\\"', '"'), quote=False) in aside


def test_three_thousand_instructions(tmp_path):
    lines = ["HloModule big", "ENTRY e {", "  v0 = f32[16] parameter(0)"]
    lines += [f"  v{k} = f32[16] {('sine', 'cosine', 'tanh')[k % 3]}(v{k - 1})" for k in range(1, 3000)]
    page = _page(tmp_path, "\n".join(lines + ["  ROOT r = f32[16] negate(v2999)", "}"]))
    drawn = _draw(page, "module=1")
    assert 10 <= drawn.count('data-key="g') <= 200, "groups, not 3,000 nodes"
    drawn = _draw(page, "module=1&open=all")
    assert len(set(re.findall(r'data-name="([^"]*)"', drawn))) == 3001


def test_loops_are_boxes_and_rows_of_the_timeline(tmp_path):
    source, page = tmp_path / "loop.hlo", tmp_path / "loop.html"
    source.write_text(LOOP)
    assert run("hlo-run", "--profile", f"--html={page}", source).returncode == 0
    (graph,) = _document(page)["graphs"]
    order = [graph["program"]["regions"][r]["steps"][s]["kind"] for r, s in graph["program"]["order"]]
    loop = order.index("while")
    assert order[loop + 1 :].count("kernel") >= 2, "what the loop runs stands behind it"
    drawn = _draw(page)
    assert ">condition</text>" in drawn and ">body</text>" in drawn and 'data-name="w"' in drawn
    timeline = _draw(page, "pane=timeline")
    assert timeline.count('class="live"') == len(graph["profile"]["trace"])
    assert timeline.count('class="piece"') == len(graph["profile"]["pieces"])


SOFTMAX = """HloModule m
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] add(a, b) }
max { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT r = f32[] maximum(a, b) }
ENTRY e {
  x = f32[4096,2000] parameter(0)
  low = f32[] constant(-inf)
  m = f32[4096] reduce(x, low), dimensions={1}, to_apply=max
  mb = f32[4096,2000] broadcast(m), dimensions={0}
  d = f32[4096,2000] subtract(x, mb)
  e = f32[4096,2000] exponential(d)
  zero = f32[] constant(0)
  s = f32[4096] reduce(e, zero), dimensions={1}, to_apply=add
  b = f32[4096,2000] broadcast(s), dimensions={0}
  ROOT r = f32[4096,2000] divide(e, b)
}
"""


# On a GPU: how each kernel is launched, and how full it makes a multiprocessor.
@pytest.mark.parametrize("target, most_threads, shared, row", [("sm_90", 2048, 228 << 10, 1500), ("sm_75", 1024, 64 << 10, 2000)])
def test_launches_of_a_device(tmp_path, target, most_threads, shared, row):
    page = _page(tmp_path, SOFTMAX.replace("2000", str(row)), f"--target={target}")
    (graph,) = _document(page)["graphs"]
    (step,) = graph["program"]["regions"][0]["steps"]
    assert (step["grid"], step["block"]) == ([4096, 1, 1], [128, 1, 1]) and "range" not in step
    assert step["shared_bytes"] >= 4 * row, "a row is kept"
    (occupancy,) = graph["occupancy"].values()
    by_threads, by_shared = most_threads // 128, shared // (step["shared_bytes"] + 1024)  # 1 KiB a block is the hardware's
    assert (by_shared < by_threads) == (target == "sm_75"), "each bound is met once"
    assert (occupancy["blocks"], occupancy["most_threads"]) == (min(by_threads, by_shared), most_threads)
    assert occupancy["threads"] == 128 * occupancy["blocks"]
    assert "grid 4096, block 128" in _draw(page, "pane=kernels")
    assert "occupancy" in _draw(page, "pane=steps")


def test_the_host_has_no_launches(tmp_path):
    (graph,) = _document(_page(tmp_path, SOFTMAX))["graphs"]
    assert "occupancy" not in graph and "grid" not in graph["program"]["regions"][0]["steps"][0]
