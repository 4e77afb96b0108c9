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
        """tenon's own compile of a graph, inside of which LLVM's part is what its other phases leave over. phases_ms() -> the graph's
        compile_ms: wall clock, but of one thread alone, so CPU time if the machine isn't overloaded."""
        before = self.seconds["tenon"]
        with self.phase("tenon"):
            yield
        took = self.seconds["tenon"] - before
        own = min(took, 1e-3 * _without_llvm(phases_ms()))
        self.seconds["tenon"] += own - took
        self.seconds["llvm"] += took - own


def _without_llvm(compile_ms: dict[str, float]) -> float:
    if "llvm" not in compile_ms:
        return compile_ms.get("total", float("inf"))  # nothing was generated
    phases = sum(ms for phase, ms in compile_ms.items() if phase != "total")
    total = compile_ms.get("total", phases)
    return total if phases > total else total - compile_ms["llvm"]  # else they are those of an equal graph that was compiled before


def remaining(first_s: float, warm_s: float, graphs) -> dict[str, float]:
    """ALL_PHASES of a model's first call: its CPU seconds, a warm call's, and the "first_call_s" of its graphs (stats())."""
    told = {phase: sum(g["first_call_s"][phase] for g in graphs if g.get("first_call_s")) for phase in PHASES}
    return {"dynamo": max(0.0, first_s - warm_s - sum(told.values())), **told}
