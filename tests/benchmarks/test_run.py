"""The run over rows, rounds and peers, with processes that are made up."""

import json
import sys
import types

import pair
import peers
import pytest
import rows
import run
from rich.console import Console

GOOD = {"eager_s": [1e-3, 1e-3], "peer_s": [5e-4, 5e-4], "first_call_s": 1.0, "phases_s": {}, "graphs": 1,
        "peak_mib": 20.0, "imports_mib": 10.0, "accuracy": {"ok": True, "failures": [], "bound_used": 0.1}}  # fmt: skip
ROW = types.SimpleNamespace(name="row_a", what="", mode="infer", bar=None, needs=())


@pytest.fixture
def processes(monkeypatch):
    """What was started, (row, peer, judged); `answers` by peer: an exception to raise."""
    started = types.SimpleNamespace(log=[], answers={})

    def fake(row, peer, settings, judge, caches, tick):
        started.log.append((row, peer, judge))
        if error := started.answers.get(peer):
            raise error
        return GOOD

    monkeypatch.setattr(pair, "run", fake)
    return started


def _measure(tmp_path, names, rounds, kept, until=float("inf")):
    run.measure_row(ROW, names, rounds, pair.Settings(), tmp_path, lambda peer: True, lambda what: None, kept.append, until)


def test_processes_take_turns_over_rounds_and_are_judged_once(processes, tmp_path):
    kept = []
    _measure(tmp_path, ["a", "b", "c"], 2, kept)
    assert [peer for _, peer, _ in processes.log] == ["a", "b", "c", "b", "c", "a"]
    assert [judge for _, _, judge in processes.log] == [True] * 3 + [False] * 3
    assert len(kept) == 6 and len(kept[-1]["peers"]["a"]["runs"]) == 2


def test_a_failing_peer_is_not_tried_again_and_stops_no_one(processes, tmp_path):
    processes.answers["b"] = pair.Failure("first call: ValueError: no")
    kept = []
    _measure(tmp_path, ["a", "b"], 3, kept)
    assert [peer for _, peer, _ in processes.log] == ["a", "b", "a", "a"]
    assert kept[-1]["peers"]["b"] == {"failure": "first call: ValueError: no"} and "ratio" in kept[-1]["peers"]["a"]


def test_time_that_is_up_is_no_failure_of_a_peer(processes, tmp_path):
    kept = []
    with pytest.raises(run.TimeUp):
        _measure(tmp_path, ["a"], 1, kept, until=0.0)
    assert processes.log == [] and kept == []


def _main(monkeypatch, tmp_path, *arguments):
    monkeypatch.setattr(run.environment, "reexec_pinned", lambda threads: None)
    monkeypatch.setattr(sys, "argv", ["run.py", "--json", str(tmp_path / "a.json"), "--markdown", str(tmp_path / "a.md"),
                                      "--picture", str(tmp_path / "a.svg"), "--peers", "eager,nobody", *arguments])  # fmt: skip
    return run.main()


def test_a_run_writes_json_markdown_and_picture(processes, monkeypatch, tmp_path, capsys):
    assert _main(monkeypatch, tmp_path, "--rows", "chain20,sort_1M", "--rounds", "1") == 0
    report = json.loads((tmp_path / "a.json").read_text())
    assert [row["row"] for row in report["rows"]] == ["chain20_1M", "sort_1M", "argsort_1M"] and report["ending"] == "complete"
    assert "no peer of that name" in report["missing"]["nobody"]
    assert "**nobody was not run**" in (tmp_path / "a.md").read_text() and (tmp_path / "a.svg").read_text().startswith("<svg")
    assert "nobody is left out" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["run.py", "--from-json", str(tmp_path / "a.json"), "--markdown", str(tmp_path / "b.md")])
    assert run.main() == 0
    assert (tmp_path / "b.md").read_text() == (tmp_path / "a.md").read_text()


def test_ctrl_c_keeps_what_was_measured(processes, monkeypatch, tmp_path):
    real = pair.run

    def interrupted(row, *rest):
        if row == "sort_1M":
            raise KeyboardInterrupt
        return real(row, *rest)

    monkeypatch.setattr(pair, "run", interrupted)
    assert _main(monkeypatch, tmp_path, "--rows", "chain20,sort_1M", "--rounds", "1") == 130
    report = json.loads((tmp_path / "a.json").read_text())
    assert [row["row"] for row in report["rows"]] == ["chain20_1M"]
    assert report["ending"] == "interrupted" and report["left_out"] == ["sort_1M", "argsort_1M"]
    assert "Not all was measured" in (tmp_path / "a.md").read_text()


def test_check_fails_on_what_tenon_gets_wrong(monkeypatch):
    summary = {"row": "a", "noisy": False, "bar_met": None, "peers": {"tenon": {"failure": "x"}}, "reaches_backend": None, "eager_ms": None,
               "best": {"peer": "eager", "ratio": 1.0}, "tenon_over_best": None}  # fmt: skip
    report = {"ending": "complete", "left_out": [], "rows": [summary]}
    for check, status in ((True, 1), (False, 0)):
        assert run.conclude(types.SimpleNamespace(check=check), Console(quiet=True), report) == status


def test_rows_are_measured_by_those_that_have_their_mode():
    everyone = list(peers.PEERS)
    train = run.plan(rows.ROWS["gpt_small_b4s64_train"], everyone, peers.PEERS, quick=False)
    assert "jax" in train and not {"onnxruntime", "openvino", "inductor_frozen"} & set(train)
    assert "aot_alloc" in run.plan(rows.ROWS["call_2op_8f"], ["tenon"], peers.PEERS, quick=False)
    assert run.plan(rows.ROWS["call_2op_8f"], ["tenon"], peers.PEERS, quick=True) == ["tenon"]
    assert run.plan(rows.ROWS["chain20_1M"], ["tenon", "jax"], {"tenon": peers.PEERS["tenon"]}, quick=False) == ["tenon"]


def test_quick_is_a_subset_with_a_budget():
    options = run.parse(["--quick"])
    assert options.budget <= 300 and options.rounds == 1
    assert 3 <= sum(row.quick for row in rows.ROWS.values()) <= 8
    assert run.parse([]).budget == float("inf")


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(peers.PEERS, "absent", peers.Peer("absent", "", None, ("no_such_module.at_all", "torch")))
    assert peers.available()["absent"] == "not installed: no_such_module.at_all"
    assert peers.available()["eager"] == ""
