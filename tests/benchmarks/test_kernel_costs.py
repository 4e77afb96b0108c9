"""Rank correlation by hand and on real kernels; the picture parses."""

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


def test_a_picture_of_real_kernels(tenon):
    kernels = kernel_costs.measure("softmax_12x128x128", freeze=False)
    assert kernels and all(k["predicted_ns"] > 0 and k["measured_ns"] > 0 and k["plan"] for k in kernels)
    drawn = ElementTree.fromstring(kernel_costs.svg(kernels, 0.5))
    assert len(drawn.findall("{http://www.w3.org/2000/svg}circle")) == len(kernels)


def test_rows_that_there_are_not(capsys):
    with pytest.raises(SystemExit):
        kernel_costs.main(["--rows", "nothing"])
    assert "no row nothing" in capsys.readouterr().err
