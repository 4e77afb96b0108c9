"""Medians, intervals and the noise mark, on made-up numbers."""

import random

import intervals
import pytest


def _rounds(means, blocks=20, spread=0.02, seed=5):
    generator = random.Random(seed)
    return [[mean * generator.uniform(1 - spread, 1 + spread) for _ in range(blocks)] for mean in means]


def test_a_ratio_is_taken_block_by_block():
    # Both sides drift alike; the ratio of the medians would be 3, that of every block is 2.
    found = intervals.ratio([[2.0, 6.0, 8.0]], [[1.0, 3.0, 4.0]])
    assert found == {"median": 2.0, "low": 2.0, "high": 2.0}


def test_blocks_belong_together():
    with pytest.raises(ValueError):
        intervals.ratio([[1.0, 2.0]], [[1.0]])


def test_the_interval_holds_the_median_and_little_more():
    found = intervals.described(_rounds([1.0, 1.0, 1.0]))
    assert 0.98 < found["low"] <= found["median"] <= found["high"] < 1.02
    assert found["low"] < found["high"]


def test_processes_that_disagree_widen_the_interval():
    # reduce_cols once had 0.80, 0.97, 0.95, 1.06 and 1.15 in five processes, and within each next to nothing.
    found = intervals.described(_rounds([0.80, 0.97, 0.95, 1.06, 1.15], spread=0.005))
    assert found["low"] < 0.9 and found["high"] > 1.05


def test_a_slower_build_is_told_from_an_equal_one():
    before = _rounds([1.0] * 5, seed=1)
    assert intervals.ratio(_rounds([1.1] * 5, seed=2), before)["low"] > 1.05
    assert intervals.ratio(_rounds([1.0] * 5, seed=3), before)["high"] < 1.05


def test_a_quotient_of_two_ratios():
    found = intervals.quotient(_rounds([0.6] * 3, seed=1), _rounds([0.5] * 3, seed=2))
    assert found["low"] < 1.2 < found["high"] and 1.15 < found["low"] and found["high"] < 1.25


def test_intervals_are_the_same_each_time():
    rounds = _rounds([1.0, 1.1])
    assert intervals.interval(rounds) == intervals.interval(rounds)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [([5.0], 1.0), ([1.0, 1.0, 1.0], 1.0), (list(range(10, 21)), 19 / 11), ([1.0, 2.0], 1.9 / 1.1)],
)
def test_spread_is_p90_over_p10(values, wanted):
    assert intervals.spread(values) == pytest.approx(wanted)


def test_geometric_mean():
    assert intervals.geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert intervals.geometric_mean([0.5, 0.5, 4.0]) == pytest.approx(1.0)
