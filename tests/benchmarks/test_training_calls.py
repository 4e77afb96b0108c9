"""The script measures what it says: all sides, both parts, ratios of blocks."""

import pytest
import training_calls


def test_a_short_run(tenon, capsys):
    options = training_calls.parse(["--blocks", "2", "--windows", "1", "--window-ms", "0.2"])
    tenon.reset_stats()
    found = training_calls.measure(1, options)
    training_calls.show(found)
    assert list(found["us"]) == list(training_calls.SIDES)
    assert all(part["median"] > 0 and len(part["blocks"]) == 2 for side in found["us"].values() for part in side.values())
    pairs = zip(found["us"]["tenon own"]["both"]["blocks"], found["us"]["tenon stock"]["both"]["blocks"])
    ratios = sorted(own / stock for own, stock in pairs)
    assert found["own/stock"]["tenon"]["both"]["median"] == pytest.approx(sum(ratios) / 2)
    nodes = [g["autograd"]["node"] for g in tenon.stats()["graphs"] if g["calls"] > 0 and g["kind"] == "forward"]
    assert sorted(nodes) == ["own", "stock"]
    assert "own / stock" in capsys.readouterr().out
