"""Which graphs there are, and what their runs cost: behind torch_tenon.stats()."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import threading
import weakref
from typing import Any, Callable


# How the reasons of such steps start; torch_plugin/aten/aten.def says which ops these are, and operators of other libraries are "custom".
_BY_DESIGN = ("library", "random", "custom")


class Autograd:
    """Of a forward: what runs its training calls, "own" or "stock" (then why), and how often (docs/architecture/autograd.md)."""

    def __init__(self, node: str, reason: str, counts: Callable[[bool], dict[str, int]] = lambda reset: {}):
        self.node, self.reason, self.counts = node, reason, counts

    def stats(self) -> dict[str, Any]:
        return {"node": self.node, "reason": self.reason, **self.counts(False)}


class GraphRecord:
    """One graph: what was compiled, and its runs since the last reset. Thread-safe."""

    _ids = itertools.count()

    def __init__(self, kind: str, nodes: dict[str, int]):
        self.id = next(GraphRecord._ids)
        self.kind, self.nodes = kind, nodes
        self.tier, self.reason = "eager_program", ""
        self.kernels = self.planned_bytes = 0
        self.compile_ms: dict[str, float] = {}
        self.sizes = ""  # of graphs with symbols: "all s0, s1", or which they are and why not all
        self.part = ""  # of a graph in parts, whose sizes data decide: "1 of 2, decides u0"
        self.tiers: list[str] = []  # of a program for many sizes: what trials said of others beside it
        self.compiled = False  # else it runs from Python
        self.autograd: Autograd | None = None  # of forwards
        self.cut: Any = None  # of forwards: partition.Cut
        self.first_call: Any = None  # of forwards, for their backward too, and of inference graphs: first_call.Spent
        self.by_aten: dict[str, int] = {}  # calls of a native graph that went by ATen: why, and how many
        self._executable: weakref.ref | None = None
        self._program: weakref.ref | None = None  # what runs it from Python
        self._python_runs = collections.Counter()  # of graphs that run from Python
        self._last_words: dict[str, Any] | None = None

    def attach(self, executable) -> None:
        """Follows an _C.Executable; its last counters are kept when it dies."""
        self.compiled = True
        self._executable = weakref.ref(executable)
        self.tier, self.reason, self.kernels, self.planned_bytes, compile_ms = executable.summary()
        self.compile_ms.update(compile_ms)
        executable.record = self

    def follow(self, program) -> None:
        """The graph runs from Python as long as `program` lives."""
        self._program = weakref.ref(program)

    def framework_steps(self) -> list[dict[str, Any]]:
        """The steps {"op", "reason", "source", ...} that ATen runs, as planned, but for those by design: the library's
        contraction, convolution or attention is the fast one, only ATen's generator has its bits, and a user's operator is what it is."""
        calls = [step for step in self.info.get("steps", ()) if step["kind"] == "call"]
        return [step for step in calls if not step["reason"].startswith(_BY_DESIGN)]

    def give_up(self, reason: str) -> None:
        """The compiled program isn't used any more."""
        self.tier, self.reason = "eager_program", reason

    def note_passing(self, reason: str) -> bool:
        """A call went by ATen. True: the first one for this reason."""
        with _lock:
            self.by_aten[reason] = self.by_aten.get(reason, 0) + 1
            return self.by_aten[reason] == 1

    @property
    def info(self) -> dict[str, Any]:
        """What was compiled, all steps and plans: asked for anew each time, since it is large; {} without a live executable."""
        return {} if self.executable is None else json.loads(self.executable.info())

    @property
    def executable(self):
        """The _C.Executable while it is alive, else None."""
        return self._executable() if self._executable is not None else None

    @property
    def frozen(self) -> dict[str, int] | None:
        """What is computed once, under the option "freeze": {"values", "bytes", "sets", "computed"}; None: nothing."""
        return None if self.executable is None else self.executable.frozen()

    def retire(self, stats: str) -> None:
        self._last_words = json.loads(stats)
        self._executable = None

    def count_python_run(self, ns: int) -> None:
        self._python_runs.update(calls=1, ns=ns)

    @property
    def alive(self) -> bool:
        return any(ref is not None and ref() is not None for ref in (self._executable, self._program))

    @property
    def retired(self) -> bool:
        """What ran it, executable or Python program, has died."""
        return self._last_words is not None or (self._program is not None and self._program() is None)

    def raw_stats(self, reset: bool = False) -> dict[str, Any]:
        """libtenon's counters: calls, run_ns, steps, kernels, copies."""
        executable = self.executable
        if executable is not None:
            return json.loads(executable.stats(reset))
        empty = {"calls": 0, "run_ns": 0, "steps": [], "kernels": [], "copies": []}
        stats = self._last_words or {
            **empty,
            "calls": self._python_runs["calls"],
            "run_ns": self._python_runs["ns"],
        }
        if reset:
            self._last_words = None if self._last_words is None else empty
            self._python_runs.clear()
        return stats

    def report(self) -> dict[str, Any] | None:
        """This graph's part of a report; None if no executable is alive."""
        executable = self.executable
        return None if executable is None else json.loads(executable.report())

    def stats(self) -> dict[str, Any]:
        raw = self.raw_stats()
        steps: dict[str, dict[str, Any]] = {}
        for step in raw["steps"]:
            if step["count"] == 0:
                continue
            entry = steps.setdefault(step["op"], {"count": 0, "ns": 0, "reason": step["reason"]})
            entry["count"] += step["count"]
            entry["ns"] += step["ns"]
        if not self.compiled:
            for op, count in self.nodes.items():  # run from Python: every node ran in each call
                steps[op] = {"count": count * raw["calls"], "ns": 0, "reason": self.reason}
        return {
            "id": self.id,
            "kind": self.kind,
            "tier": self.tier,
            "reason": self.reason,
            "sizes": self.sizes,
            "part": self.part,
            "tiers": list(self.tiers),
            "nodes": dict(self.nodes),
            "calls": raw["calls"],
            "run_ns": raw["run_ns"],
            "aten_steps": steps,
            "by_aten": dict(self.by_aten),
            "kernels": self.kernels,
            "compile_ms": dict(self.compile_ms),
            "planned_bytes": self.planned_bytes,
            "arena_bytes": raw.get("arena_bytes", 0),
            "frozen": self.frozen,
            "autograd": self.autograd.stats() if self.autograd is not None else None,
            "cut": dataclasses.asdict(self.cut) if self.cut is not None else None,
            "first_call_s": dict(self.first_call.seconds) if self.first_call is not None else None,
        }


_lock = threading.Lock()
_made = 0
_records: dict[int, GraphRecord] = {}
_MOST_RETIRED = 256
_forgotten = collections.Counter(graphs=0, calls=0, run_ns=0)


def new_record(kind: str, nodes: dict[str, int]) -> GraphRecord:
    record = GraphRecord(kind, nodes)
    global _made
    with _lock:
        _records[record.id] = record
        _made += 1
        retired = [r for r in _records.values() if r.retired]
        for old in retired[: max(0, len(retired) - _MOST_RETIRED)]:
            raw = old.raw_stats()
            _forgotten.update(graphs=1, calls=raw["calls"], run_ns=raw["run_ns"])
            del _records[old.id]
    return record


def count() -> int:
    """Graphs so far in this process, the forgotten ones included."""
    return _made


def records() -> list[GraphRecord]:
    with _lock:
        return list(_records.values())


def stats() -> dict[str, Any]:
    """Every graph that is alive, and of those that died since the last reset_stats() the 256 newest (see GraphRecord.stats); what the
    older ones add up to is under "forgotten"."""
    from . import _C

    cache = json.loads(_C.cache_stats())
    graphs = [r.stats() for r in records()]
    with _lock:
        forgotten = dict(_forgotten)
    return {"graphs": graphs, "forgotten": forgotten, "cache": cache}


def refresh() -> None:
    """Under the option "freeze": what was computed once is computed again at the next call. Needed after parameters were written
    to behind PyTorch's back (through .data, NumPy or another process); other writes are seen."""
    for record in records():
        if record.executable is not None:
            record.executable.refresh()


def reset_stats() -> None:
    """Zeroes counts and times, forgets dead graphs, keeps live ones."""
    with _lock:
        _forgotten.subtract(dict(_forgotten))
    for record in records():
        record.raw_stats(reset=True)
        if record.autograd is not None:
            record.autograd.counts(True)
        if not record.alive:
            with _lock:
                _records.pop(record.id, None)
