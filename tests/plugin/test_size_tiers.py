"""Programs for some sizes beside the one for all: which sizes get one, and who takes a call (docs/architecture/sizes.md, tiers)."""

import json
import re
import threading

import pytest
import torch
from torch import nn

from plugin.checking import same_gradients

pytestmark = pytest.mark.usefixtures("tenon")

TRIAL = 400  # calls in which a trial ends for certain: a coin tosses eight of each side


@pytest.fixture
def tiers(monkeypatch):
    """tiers(worth, hot_ns, most_bytes): sizes are hot at once, or after so much time, and of the programs for them those stay whose
    share of the time is at most `worth`."""
    from torch_tenon import dynamic

    def set_(worth, hot_ns=0.0, most_bytes=1 << 30):
        monkeypatch.setattr(dynamic, "WORTH", worth)
        monkeypatch.setattr(dynamic, "MOST_HOT_BYTES", most_bytes)
        monkeypatch.setattr(dynamic.DynamicGraph, "_hot_ns", lambda self, record: hot_ns)

    return set_


KEPT, DROPPED = float("inf"), 0.0


def f(x):
    return (x * 2 + 1).sin().sum(-1) + x.shape[0]


def _compiled(function=f, **options):
    return torch.compile(function, backend="tenon", dynamic=True, options=options)


def _call(compiled, *shape, function=f, times=1):
    for _ in range(times):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), function(x))


def _kinds(records):
    return [r.sizes.split(" (")[0] for r in records]


def test_hot_sizes_have_a_program_of_their_own(tiers, graphs_ran_natively):
    tiers(KEPT)
    compiled = _compiled()
    _call(compiled, 5, 7, times=TRIAL)
    everything, own = graphs_ran_natively
    assert everything.sizes.startswith("all ")
    assert own.sizes.endswith("(hot)") and "= 5" in own.sizes and "= 7" in own.sizes
    assert len(everything.tiers) == 1 and "kept" in everything.tiers[0]
    calls = own.raw_stats()["calls"], everything.raw_stats()["calls"]
    assert sum(calls) == TRIAL
    _call(compiled, 5, 7, times=20)
    assert (own.raw_stats()["calls"], everything.raw_stats()["calls"]) == (calls[0] + 20, calls[1])
    _call(compiled, 6, 7)
    assert own.raw_stats()["calls"] == calls[0] + 20


def test_what_is_no_faster_is_dropped_and_not_tried_again(tiers, graphs_ran_natively):
    tiers(DROPPED)
    compiled = _compiled()
    _call(compiled, 5, 7, times=2 * TRIAL)
    everything, own = graphs_ran_natively
    assert len(everything.tiers) == 1 and "dropped" in everything.tiers[0]
    assert own.executable is None  # gone


def test_the_coin_does_not_follow_the_sizes(tiers, graphs_ran_natively):
    tiers(DROPPED)
    compiled = _compiled()
    for _ in range(TRIAL):
        _call(compiled, 5, 7)
        _call(compiled, 9, 7)
    verdicts = graphs_ran_natively[0].tiers
    assert any("= 5" in v for v in verdicts) and any("= 9" in v for v in verdicts), verdicts


def test_a_trial_whose_sizes_do_not_come_again_ends(tiers, graphs_ran_natively):
    tiers(KEPT)
    compiled = _compiled()
    while len(graphs_ran_natively) < 2:
        _call(compiled, 5, 7)
    for n in range(1024 + 100):
        _call(compiled, 6 + n, 7)
    assert "did not come again" in graphs_ran_natively[0].tiers[0]


@pytest.mark.by_aten(steps={"aten.sort.default", "aten.sort.stable"})
def test_a_symbol_that_never_changes_becomes_a_number(tiers, graphs_ran_natively):
    tiers(KEPT, hot_ns=5e7)

    def sorted_rows(x):
        return (x + 1).sort(-1)[0]

    compiled = _compiled(sorted_rows)
    for n in range(2 * TRIAL):
        _call(compiled, 20 + n % 200, 40, function=sorted_rows)
    guarded = [r for r in graphs_ran_natively if "any" in r.sizes]
    assert len(guarded) == 1 and "= 40" in guarded[0].sizes, _kinds(graphs_ran_natively)
    before = guarded[0].raw_stats()["calls"]
    assert not guarded[0].framework_steps()  # sorted natively, which the program for all sizes can't
    _call(compiled, 3000, 40, function=sorted_rows)
    assert guarded[0].raw_stats()["calls"] == before + 1
    _call(compiled, 3000, 41, function=sorted_rows)
    assert guarded[0].raw_stats()["calls"] == before + 1


@pytest.mark.by_aten(steps={"aten.sort.default", "aten.sort.stable"})
@pytest.mark.parametrize("worth", [KEPT, DROPPED])
def test_a_trial_of_sizes_of_which_none_comes_twice(tiers, graphs_ran_natively, worth):
    tiers(worth, hot_ns=1e7)

    def sorted_rows(x):
        return (x + 1).sort(-1)[0]

    compiled = _compiled(sorted_rows)
    for n in range(5, 5 + 1024 + 2 * TRIAL):
        _call(compiled, n, 4, function=sorted_rows)
    (guarded,) = [r for r in graphs_ran_natively if "any" in r.sizes]
    (verdict,) = [v for v in graphs_ran_natively[0].tiers if "any" in v]
    assert ("kept" if worth is KEPT else "dropped") in verdict and "of the time" in verdict
    assert (guarded.executable is not None) == (worth is KEPT)


def test_at_most_seven_of_which_the_oldest_goes(tiers, graphs_ran_natively):
    tiers(KEPT)
    compiled = _compiled()
    for n in range(2, 12):
        _call(compiled, n, 7, times=TRIAL)
    everything = graphs_ran_natively[0]
    alive = [r for r in graphs_ran_natively[1:] if r.executable is not None]
    assert len(alive) <= 7 and sum("made room" in v for v in everything.tiers) >= 2
    assert any("= 11" in r.sizes for r in alive) and not any("= 2," in r.sizes or "= 2 " in r.sizes for r in alive)
    for n in range(2, 12):
        _call(compiled, n, 7)


def test_their_arenas_are_bounded(tiers, graphs_ran_natively):
    tiers(KEPT, most_bytes=-1)
    compiled = _compiled()
    for n in (5, 6, 8):
        _call(compiled, n, 7, times=TRIAL)
    assert sum(r.executable is not None for r in graphs_ran_natively[1:]) == 1


def test_what_a_program_declines_goes_to_the_one_for_all(tiers, graphs_ran_natively, monkeypatch):
    """The last line of defence: a program that stands where its sizes are not."""
    from torch_tenon import dynamic

    tiers(KEPT)
    specialize = dynamic.DynamicGraph.specialize
    monkeypatch.setattr(dynamic.DynamicGraph, "specialize", lambda self, sizes: specialize(self, tuple(n + 1 for n in sizes)))
    compiled = _compiled()
    _call(compiled, 5, 7, times=1024 + 50)
    everything, other = graphs_ran_natively
    assert (everything.raw_stats()["calls"], other.raw_stats()["calls"]) == (1024 + 50, 0)
    assert len(everything.tiers) == 1 and "did not come again" in everything.tiers[0]  # its trial has ended


def test_refused_sizes_are_dispatched_without_python(tiers, graphs_ran_natively, monkeypatch):
    """Called past Dynamo's guards: what the program for all sizes refuses has an exact program, which C++ finds the second time."""
    from torch_tenon import dynamic

    compiled = torch.compile(lambda x, y: x * 2 + y, backend="tenon", dynamic=True)
    x = torch.randn(5, 7)
    compiled(x, x + 1)
    (everything,) = graphs_ran_natively
    seen, call = [], dynamic.DynamicGraph.__call__
    monkeypatch.setattr(dynamic.DynamicGraph, "__call__", lambda self, *args: seen.append(args[1]) or call(self, *args))
    x, y = torch.randn(1, 7), torch.randn(1, 7)
    inputs = _placeholders(everything.executable, x, y)
    for _ in range(3):
        torch.testing.assert_close(everything.executable(list(inputs))[0], x * 2 + y)
    assert len(seen) == 1 and "refused by the program for all sizes" in seen[0]
    assert len(graphs_ran_natively) == 2 and graphs_ran_natively[1].raw_stats()["calls"] == 3


def _placeholders(executable, *tensors):
    """What the graph takes: SymInts, each a size of the first tensor, and the tensors."""
    kinds = [i["kind"] for i in json.loads(executable.info())["inputs"]]
    sizes, rest = iter(tensors[0].shape), iter(tensors)
    return [next(sizes) if kind == 1 else next(rest) for kind in kinds]


def test_threads_see_one_program_or_the_other(tiers, graphs_ran_natively):
    tiers(KEPT)
    compiled, failed = _compiled(), []
    _call(compiled, 4, 7)

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        try:
            for _ in range(300):
                n = int(torch.randint(2, 14, (), generator=generator))
                x = torch.randn(n, 7, generator=generator)
                torch.testing.assert_close(compiled(x), f(x))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]
    assert any("kept" in v for v in graphs_ran_natively[0].tiers)


class Means(nn.Module):
    """Of the rows: the backward reads how many there were, a number that the forward saves."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 8)

    def forward(self, x):
        return self.linear(x).tanh().mean(0)


@pytest.mark.parametrize("model", [nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)), Means()], ids=["layers", "means"])
def test_training_takes_them_forward_and_backward(tiers, graphs_ran_natively, model):
    tiers(KEPT)
    compiled = torch.compile(model, backend="tenon", dynamic=True)
    for k in range(TRIAL):
        x = torch.randn(4 if k % 5 else 9, 6, requires_grad=True)
        same_gradients(model, compiled, x)
    hot = {r.kind for r in graphs_ran_natively if "hot" in r.sizes and r.raw_stats()["calls"] > 20}
    assert hot == {"forward", "backward"}


def test_a_compile_that_fails_loses_nothing(tiers, graphs_ran_natively, monkeypatch):
    from torch_tenon import dynamic

    tiers(KEPT)

    def fails(*args):
        raise RuntimeError("planted")

    monkeypatch.setattr(dynamic, "compile_static", fails)
    _call(_compiled(), 5, 7, times=50)
    assert len(graphs_ran_natively) == 1


@pytest.mark.parametrize("way", ["option", "deterministic"])
def test_who_wants_one_program_has_one(tiers, graphs_ran_natively, way):
    tiers(KEPT)
    compiled = _compiled(**({"sizes": "one"} if way == "option" else {}))
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(way == "deterministic")
    try:
        _call(compiled, 5, 7, times=50)
    finally:
        torch.use_deterministic_algorithms(deterministic)
    assert len(graphs_ran_natively) == 1


def test_sizes_that_are_not_hot_have_none(graphs_ran_natively):
    _call(_compiled(), 5, 7, times=50)
    assert len(graphs_ran_natively) == 1


def test_why_and_explain_tell(tiers, graphs_ran_natively, tenon):
    tiers(KEPT)
    compiled = _compiled()
    _call(compiled, 5, 7, times=TRIAL)
    told = [r for r in tenon.why() if r.failed == "hot"]
    assert told and "one" in told[0].advice
    from torch_tenon.explanation import _describe, _graph_lines

    lines = [_graph_lines(_describe(record), None) for record in graphs_ran_natively]
    assert any(line.startswith("  tier: ") and "kept" in line for line in lines[0])
    hits = [int(re.search(r"sizes: .*; (\d+) calls", "\n".join(told))[1]) for told in lines]
    assert len(hits) == 2 and min(hits) > 0 and sum(hits) == TRIAL


def test_bad_readers_are_refused(graphs_ran_natively):
    compiled = _compiled()
    _call(compiled, 5, 7)
    executable = graphs_ran_natively[0].executable
    for readers in ([("width", 0, 0)], [("size", 99, 0)], [("size", 0, -1)]):
        with pytest.raises(ValueError, match="a reader of the sizes: wanted"):
            executable.set_sizes(readers, 1.0, 1.0, 0, None, None)
    with pytest.raises(TypeError, match="wanted an Executable"):
        executable.add_program((5,) * 2, object())
    with pytest.raises(ValueError, match="wanted 2 numbers, got 1"):
        executable.add_program((5,), executable)
