"""From made-up figures to judgements, Markdown, table and picture."""

import io
import re
import xml.etree.ElementTree as ElementTree

import picture
import pytest
import report as reports

ABOUT = {"row": "row_a", "what": "", "mode": "infer", "bar": ("eager", 1.0)}
SVG = "{http://www.w3.org/2000/svg}"


def _run(ratio, eager=(1e-3, 1e-3, 1e-3), ok=True, **more):
    accuracy = {"ok": ok, "failures": [] if ok else ["out: RMSE 3 > 1 (eager | 2)"], "bound_used": 3.0}
    return {"eager_s": list(eager), "peer_s": [ratio * e for e in eager], "first_call_s": 1.5, "phases_s": {}, "graphs": None,
            "peak_mib": 300.0, "imports_mib": 200.0, "accuracy": accuracy, **more}  # fmt: skip


def _summary(runs, failures=None, computes=lambda peer: True, **about):
    return reports.summarise(ABOUT | about, runs, failures or {}, computes)


def _report(*summaries, missing=None):
    return {"machine": {"cpu": "a | b"}, "settings": {"blocks": 3, "rounds": 2}, "missing": missing or {}, "rows": list(summaries)}


def test_the_best_peer_is_the_quickest_right_one():
    found = _summary({"tenon": [_run(0.6)], "jax": [_run(0.5)], "onnxruntime": [_run(0.1, ok=False)]})
    assert found["best"] == {"peer": "jax", "ratio": pytest.approx(0.5)}
    assert found["tenon_over_best"]["median"] == pytest.approx(1.2)
    assert found["peers"]["onnxruntime"]["wrong"] and not found["peers"]["jax"]["wrong"]


def test_eager_is_best_where_nobody_beats_it():
    found = _summary({"tenon": [_run(1.5)], "jax": [_run(1.1)], "eager": [_run(0.99)]})
    assert found["best"] == {"peer": "eager", "ratio": 1.0}  # by definition, whatever it was beside itself
    assert found["tenon_over_best"]["median"] == pytest.approx(1.5)


def test_what_computes_nothing_is_nobodys_best():
    runs = {"tenon": [_run(0.9)], "aot_alloc": [_run(0.2, accuracy=None)]}
    found = _summary(runs, computes=lambda peer: peer != "aot_alloc", bar=("aot_alloc", 1.2))
    assert found["best"]["peer"] == "eager"
    assert found["bar_met"] == {"peer": "aot_alloc", "factor": 1.2, "ratio": pytest.approx(4.5), "met": False}
    assert "LOST" in reports.bar_cell(found)


@pytest.mark.parametrize(("slow", "noisy"), [(1.25e-3, False), (1.6e-3, True)])
def test_noise_is_marked(slow, noisy):
    eager = [1e-3] * 6 + [slow] * 3
    found = _summary({"tenon": [_run(0.5, eager)], "jax": [_run(0.5)]})
    assert found["peers"]["tenon"]["noisy"] is noisy and found["peers"]["jax"]["noisy"] is False
    assert reports.cell(found["peers"]["tenon"]).endswith("~") is noisy
    assert not reports.cell(found["peers"]["jax"]).endswith("~")
    quiet = _summary({"tenon": [_run(0.5, eager)]})
    assert quiet["noisy"] is noisy and ("NOISY" in reports.eager_cell(quiet)) is noisy


def test_a_process_that_is_slow_throughout_is_noisy():
    """Every block alike, so p90/p10 says nothing: a core was kept by another program."""
    found = _summary({"tenon": [_run(0.5), _run(0.5)], "jax": [_run(0.5), _run(0.1, [8e-3] * 3)]})["peers"]
    assert found["jax"]["noisy"] and found["jax"]["eager_slowed"] == pytest.approx(8.0)
    assert not found["tenon"]["noisy"] and found["tenon"]["eager_slowed"] == pytest.approx(1.0)


def test_processes_count_together_and_the_first_ones_call_is_the_first():
    found = _summary({"tenon": [_run(0.5), _run(0.7, first_call_s=0.2, peak_mib=310.0)]})["peers"]["tenon"]
    assert found["ratio"]["low"] == pytest.approx(0.5) and found["ratio"]["high"] == pytest.approx(0.7)
    assert found["first_call_s"] == 1.5 and found["later_first_calls_s"] == [0.2]
    assert (found["peak_mib"], found["above_imports_mib"]) == (310.0, 110.0)


def test_a_failing_peer_is_a_cell():
    failures = {"jax": "first call: not expressible: foo.default", "openvino": "took longer than 5 s"}
    found = _summary({"tenon": [_run(0.5)], "jax": [], "openvino": []}, failures)
    assert reports.cell(found["peers"]["jax"]) == "n/e" and reports.cell(found["peers"]["openvino"]) == "failed"
    assert reports.cell(found["peers"].get("inductor")) == "–"
    assert found["best"]["peer"] == "eager"
    text = reports.markdown(_report(found))
    assert "- row_a, jax: first call: not expressible: foo.default" in text and "- row_a, openvino: took longer" in text


def test_a_row_of_which_nothing_ran():
    found = _summary({"tenon": []}, {"tenon": "start: no such thing"})
    assert found["eager_ms"] is None and found["tenon_over_best"] is None and found["bar_met"] is None
    text = reports.markdown(_report(found))
    assert "| row_a | – | failed |" in text and "tenon ran no row" in text


def test_a_row_that_reaches_no_backend_is_marked_and_counts_in_no_mean():
    reached, not_reached = (_summary({"tenon": [_run(ratio, graphs=graphs)]}) for ratio, graphs in ((0.5, 1), (1.0, 0)))
    assert (reached["reaches_backend"], not_reached["reaches_backend"]) == (True, False)
    assert reports.row_cell(not_reached) == "row_a (reaches no backend)" and reports.row_cell(reached) == "row_a"
    assert "over 1 rows: tenon 0.5 x eager" in reports.means([reached, not_reached])
    assert any("no graph of it reached tenon" in line for line in reports.problems([not_reached]))


def test_markdown_has_every_row_and_peer():
    phases = {"dynamo": 1.0, "aot": 0.25, "tenon": 0.05, "llvm": 0.2}
    runs = {"tenon": [_run(0.5, phases_s=phases)], "onnxruntime": [_run(0.4, ok=False)], "eager": [_run(1.0)]}
    text = reports.markdown(_report(_summary(runs), missing={"openvino": "not installed: openvino"}))
    assert "| row | eager ms | tenon | onnxruntime | eager again | best | tenon / best | bar |" in text
    assert "| row_a | 1 | 0.5 [0.5, 0.5] | wrong (0.4 [0.4, 0.4]) | 1 [1, 1] | E 1 | 0.5 [0.5, 0.5] | met: 0.50 of eager (<= 1.0) |" in text
    assert "**openvino was not run**: not installed: openvino" in text
    assert "1.50 = dynamo 1.00 + aot 0.25 + tenon 0.05 + llvm 0.20" in text
    assert "300 (100)" in text and "row_a, onnxruntime, wrong: out: RMSE 3 > 1" in text
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith(("| row |", "| row_a |"))}
    assert widths == {5, 9}  # first call and memory have four cells, the first table eight


def test_the_terminals_table_is_drawn():
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=200).print(reports.table([_summary({"tenon": [_run(0.5, reading_s=[4e-4])], "jax": [_run(0.4, ok=False)]})]))
    assert "0.5 [0.5, 0.5]" in out.getvalue() and "wrong" in out.getvalue() and "80% of reading" in out.getvalue()


def test_the_picture_is_svg_with_a_mark_for_each():
    noisy = [1e-3] * 6 + [2e-3] * 3
    first = _summary({"tenon": [_run(0.05)], "jax": [_run(3.0, ok=False)], "inductor": [_run(0.7, noisy)]})
    second = _summary({"tenon": [_run(1.0, graphs=0)], "jax": []}, {"jax": "failed"}, row="b<2>")
    root = ElementTree.fromstring(picture.svg(_report(first, second)))
    titles = [t.text for t in root.iter(f"{SVG}title")]
    assert sum(t.startswith("row_a: ") for t in titles) == 3 and sum(t.startswith("b<2>: ") for t in titles) == 1
    marks = {mark.find(f"{SVG}title").text.split()[1]: mark for mark in root.iter() if mark.find(f"{SVG}title") is not None
             and mark.find(f"{SVG}title").text.startswith("row_a: ")}  # fmt: skip
    assert marks["jax"].get("fill") == "none" and marks["tenon"].get("fill") != "none"
    assert float(marks["inductor"].get("opacity")) < 1 == float(marks["tenon"].get("opacity"))
    texts = [t.text for t in root.iter(f"{SVG}text")]
    assert "b<2> *" in texts and "1" in texts
    assert "prefers-color-scheme:dark" in root.find(f"{SVG}style").text


def test_the_axis_is_logarithmic_and_holds_everything():
    axis = picture.Axis([0.03, 4.0], 0.0, 100.0)
    assert axis.low <= 0.03 and axis.high >= 4.0
    assert axis.place(axis.low) == 0.0 and axis.place(axis.high) == pytest.approx(100.0)
    assert axis.place(0.4) - axis.place(0.2) == pytest.approx(axis.place(2.0) - axis.place(1.0))
    assert 1 in axis.ticks()


def test_a_picture_of_nothing():
    ElementTree.fromstring(picture.svg(_report()))
