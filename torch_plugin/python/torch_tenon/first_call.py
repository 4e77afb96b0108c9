"""What a first call costs: CPU seconds of the process, by who takes them.

    aot         AOTAutograd: traces forward and backward to ATen operators
    partition   cuts the joint graph in two (docs/architecture/partition.md)
    tenon       export, lowering, passes, planning
    llvm        code of the kernels: LLVM's threads, and linking

"dynamo" is what remains of a first call when these and a warm call are taken away: `remaining`. CPU seconds, not wall clock, so that
other processes don't count; another busy thread of this process does.
"""

from __future__ import annotations

import contextlib
import time
from typing import Iterator

PHASES = ("aot", "partition", "tenon", "llvm")
ALL_PHASES = ("dynamo", *PHASES)


class Spent:
    """Of one graph of Dynamo's, its backward included. A phase within a phase counts for itself alone."""

    def __init__(self):
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._open: list[str] = []
        self._since = 0.0

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._switch()
        self._open.append(name)
        try:
            yield
        finally:
            self._switch()
            self._open.pop()

    def _switch(self) -> None:
        now = time.process_time()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    @contextlib.contextmanager
    def compile(self, phases_ms) -> Iterator[None]:
        """tenon's own compile of a graph; phases_ms() -> its compile_ms, wall clock, by which LLVM's part is told from the rest."""
        before = self.seconds["tenon"]
        with self.phase("tenon"):
            yield
        llvm = _llvm_of(self.seconds["tenon"] - before, phases_ms())
        self.seconds["tenon"] -= llvm
        self.seconds["llvm"] += llvm


def _llvm_of(took: float, compile_ms: dict[str, float]) -> float:
    """The other phases have one thread, so their wall clock is CPU time and LLVM, which has several, took what they leave over. On a
    machine with more to do than cores wall clock is longer: then LLVM's share of it counts."""
    total = compile_ms.get("total", 0.0)
    if "llvm" not in compile_ms or sum(ms for phase, ms in compile_ms.items() if phase != "total") > total:
        return 0.0  # nothing was generated, or these are the phases of an equal graph that was compiled before
    llvm = compile_ms["llvm"]
    return max(took - 1e-3 * (total - llvm), took * llvm / total)


def remaining(first_s: float, warm_s: float, graphs) -> dict[str, float]:
    """ALL_PHASES of a model's first call: its CPU seconds, a warm call's, and the "first_call_s" of its graphs (stats())."""
    told = {phase: sum(g["first_call_s"][phase] for g in graphs if g.get("first_call_s")) for phase in PHASES}
    return {"dynamo": max(0.0, first_s - warm_s - sum(told.values())), **told}
