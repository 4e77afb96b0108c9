"""Eager and one peer in a process of their own: blocks that take turns, and what becomes of a peer that fails."""

import pathlib

import pair
import peers
import pytest
import rows

FAKES = str(pathlib.Path(__file__).with_name("fake_peers.py"))
SETTINGS = pair.Settings(blocks=2, block_ms=1, pause_ms=0, threads=1, timeout_s=300, also=(FAKES,))


class Recorder:
    def __init__(self, name, log, seconds):
        self.name, self.log, self.seconds = name, log, seconds

    def timed(self, count):
        self.log.append((self.name, count))
        return self.seconds


def test_sides_take_turns_and_who_begins_changes():
    log = []
    eager, peer = Recorder("eager", log, 0.001), Recorder("peer", log, 0.004)
    found = pair.take_turns(eager, peer, pair.Settings(blocks=3, block_ms=20, pause_ms=0), lambda what: None)
    assert found["counts"] == {"eager_s": 20, "peer_s": 5}  # as many calls as fill a block
    assert [entry for entry in log if entry[1] > 2] == [
        ("eager", 20), ("peer", 5), ("peer", 5), ("eager", 20), ("eager", 20), ("peer", 5),
    ]  # fmt: skip
    assert (found["eager_s"], found["peer_s"]) == ([0.001] * 3, [0.004] * 3)
    assert "reading_s" not in found


def test_a_call_longer_than_a_block_is_timed_once():
    log = []
    found = pair.take_turns(Recorder("a", log, 5.0), Recorder("b", log, 1e-9), pair.Settings(blocks=1, pause_ms=0), lambda what: None)
    assert found["counts"] == {"eager_s": 1, "peer_s": 600_000}  # and a clock that says nothing doesn't count for ever


@pytest.mark.parametrize("name", ["lstmcell_T32_b16_train", "adam50_foreach", "call_2op_8f_grad"])
def test_eager_is_right_beside_itself_in_every_mode(name):
    found = pair.measure(rows.ROWS[name], peers.PEERS["eager"], pair.Settings(1, 1, 0), True, lambda what: None, lambda stage: None)
    assert found["accuracy"]["ok"], found["accuracy"]
    assert len(found["peer_s"]) == 1 and found["phases_s"] == {} and found["graphs"] is None


def _run(peer, tmp_path, judge=True, ticks=None, **changes):
    settings = pair.dataclasses.replace(SETTINGS, **changes)
    return pair.run("fake_row", peer, settings, judge, tmp_path, (ticks if ticks is not None else []).append)


def test_two_peers_of_one_row(tmp_path):
    ticks = []
    right = _run("FakeStep", tmp_path, ticks=ticks)
    assert right["accuracy"]["ok"], right
    assert len(right["eager_s"]) == len(right["peer_s"]) == 2 and min(right["eager_s"]) > 0
    assert right["peak_mib"] >= right["imports_mib"] > 10
    assert right["first_call_s"] >= 0 and right["graphs"] == 0 and set(right["phases_s"]) == {"run"}
    assert ticks == ["compiles", "is judged", "block 1 of 2", "block 2 of 2"]
    wrong = _run("WrongStep", tmp_path)
    assert not wrong["accuracy"]["ok"] and "RMSE" in wrong["accuracy"]["failures"][0]


def test_values_are_judged_when_asked_for(tmp_path):
    assert "accuracy" not in _run("WrongStep", tmp_path, judge=False)


@pytest.mark.parametrize(
    ("peer", "changes", "reason"),
    [
        ("FailingStep", {}, "first call: ValueError: no such operator"),
        ("InexpressibleStep", {}, "first call: not expressible: aten.foo.default"),
        ("DyingStep", {}, "the process ended with SIGSEGV: what a library prints"),
        ("HangingStep", {"timeout_s": 6}, "took longer than 6 s"),
        ("NoSuchPeer", {}, "start: KeyError: 'NoSuchPeer'"),
    ],
)
def test_what_fails_says_why(peer, changes, reason, tmp_path):
    with pytest.raises(pair.Failure) as failure:
        _run(peer, tmp_path, **changes)
    assert str(failure.value).startswith(reason.partition(": what")[0])
