"""Rank correlation by hand and on real kernels; the picture parses."""

import json
import math
import xml.etree.ElementTree as ElementTree

import kernel_costs
import pytest


def test_ranks_share_ties():
    assert kernel_costs.ranks([30, 10, 20]) == [2, 0, 1]
    assert kernel_costs.ranks([5, 5, 1]) == [1.5, 1.5, 0]


def test_spearman():
    assert kernel_costs.spearman([1, 2, 3, 4], [10, 100, 1000, 10000]) == pytest.approx(1)
    assert kernel_costs.spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert kernel_costs.spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    assert math.isnan(kernel_costs.spearman([1, 1, 1], [1, 2, 3])) and math.isnan(kernel_costs.spearman([1, 2], [1, 2]))


def test_intervals_hold_the_correlation():
    kernels = [{"row": "a", "predicted_ns": x, "measured_ns": x * (2 if x % 3 else 1)} for x in range(1, 40)]
    found = kernel_costs.described([kernels])
    assert found["low"] <= found["rho"] <= found["high"] and found["low"] > 0.5


def test_rows_cases_and_their_training():
    assert kernel_costs.row_of("softmax_12x128x128").mode == "infer"
    assert kernel_costs.row_of("resnet18_b4_train").mode == "train"
    assert kernel_costs.row_of("gat_train").mode == "train" and kernel_costs.row_of("gat").mode == "infer"
    assert kernel_costs.row_of("nothing") is None and kernel_costs.row_of("nothing_train") is None
    assert all(kernel_costs.row_of(name) for name in kernel_costs.ROWS) and set(kernel_costs.FREEZE) <= set(kernel_costs.ROWS)


def test_a_picture_and_a_table_of_real_kernels(tenon, tmp_path, capsys):
    written = [tmp_path / name for name in ("costs.json", "costs.md", "costs.svg")]
    args = ["--rows", "rms_rope_32x128x64", "--json", str(written[0]), "--markdown", str(written[1]), "--picture", str(written[2])]
    assert kernel_costs.main(args) == 0
    report = json.loads(written[0].read_text())
    assert report["kernels"] and report["summary"]["all"]["kernels"] == len(report["kernels"])
    assert all(k["predicted_ns"] > 0 and k["measured_ns"] > 0 and k["plan"] and k["steps"] > 0 for k in report["kernels"])
    drawn = ElementTree.fromstring(written[2].read_text())
    assert len(drawn.findall("{http://www.w3.org/2000/svg}circle")) == len(report["kernels"])
    assert "| rms_rope_32x128x64 |" in written[1].read_text()
    capsys.readouterr()
    assert kernel_costs.main(["--from-json", str(written[0])]) == 0
    assert f"{len(report['kernels'])} kernels" in capsys.readouterr().out


def test_a_training_step_has_kernels_of_both_ways(tenon):
    kernels = kernel_costs.measure("lstmcell_T32_b16_train", freeze=False)
    assert len(kernels) > 5 and all(k["predicted_ns"] > 0 for k in kernels)


def test_rows_that_there_are_not(capsys):
    with pytest.raises(SystemExit):
        kernel_costs.main(["--rows", "nothing"])
    assert "no row nothing" in capsys.readouterr().err
