"""What ran in a test of the plugin is asserted, not only what came out."""

import collections
import re
import threading

import pytest

from conftest import _import_error
from plugin.checking import STAND_IN


_recorded = []


@pytest.fixture(scope="session")
def recorded():
    """The calls of each row of aten.def that are run in CI (aten_calls.QUOTA)."""
    from plugin import aten_calls

    _recorded.append(aten_calls.record_all())
    return _recorded[-1]


def pytest_terminal_summary(terminalreporter):
    for found in _recorded:
        run = collections.Counter(call.dtype for calls in found.calls.values() for call in calls)
        of = ", ".join(f"{str(d)[6:]} {n}/{n + found.left_out[d]}" for d, n in run.items())
        terminalreporter.write_line(f"operator samples kept of those met (the others: make test-slow): {of}")


@pytest.fixture(autouse=True)
def graphs_ran_natively(request, monkeypatch):
    """Every graph that the test compiles is native and has no framework step but those by design (a library
    contraction, convolution or attention; random bits). What is otherwise on purpose is marked:

    @pytest.mark.by_aten(tier="eager_program", reason="regex")   every graph, or those the reason matches
    @pytest.mark.by_aten(steps={"aten.sort.stable"})             these overloads may be framework steps
    @pytest.mark.by_aten(tier="any")                             says for itself what ran

    Compiles of subprocesses aren't seen."""
    if STAND_IN or _import_error() is not None:
        yield
        return
    from torch_tenon import registry

    records, lock, new_record = [], threading.Lock(), registry.new_record

    def note(*args):
        record = new_record(*args)
        with lock:
            records.append(record)
        return record

    monkeypatch.setattr(registry, "new_record", note)
    yield records
    mark = request.node.get_closest_marker("by_aten")
    expected = mark.kwargs if mark else {}
    tier, steps, reason = (expected.get(k, d) for k, d in (("tier", "native"), ("steps", ()), ("reason", "")))
    if tier == "any":
        return
    fallen = [r for r in records if r.tier != "native"]
    strays = [r for r in fallen if tier == "native" or not re.search(reason, r.reason)]
    assert not strays, "not native: " + "; ".join(f"{r.kind} graph, {list(r.nodes)}: {r.reason}" for r in strays)
    assert fallen or tier == "native", "no graph was an eager program; take the mark away"
    unexpected = {
        (step["op"], step["reason"], step["source"])
        for record in records if record.tier == "native"
        for step in record.framework_steps() if step["op"] not in steps
    }  # fmt: skip
    assert not unexpected, f"framework steps: {unexpected}"
