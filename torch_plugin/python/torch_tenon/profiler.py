"""torch_tenon.profile: what the compiled graphs' runs cost, step by step."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

from . import _C

_SHOWN_ROWS = 20  # of each program


class profile:
    """Records what every thread runs of tenon's programs:

        with torch_tenon.profile() as p:
            model(x)
        print(p)                        # p.table(rows=None) for all steps
        p.chrome_trace("trace.json")    # https://ui.perfetto.dev

    One at a time in a process. Run the model once before: what compiles inside of the block counts as time outside of tenon's programs.
    max_events: room for so many of the timeline's events, 40 bytes each; the table needs none."""

    def __init__(self, *, max_events: int = 200_000):
        if not isinstance(max_events, int) or isinstance(max_events, bool) or max_events < 0:
            raise ValueError(f"torch_tenon.profile: max_events: wanted a number from 0 on, got {max_events!r}")
        self._max_events = max_events
        self._state = "not begun"
        self._recorded = None

    def __enter__(self) -> profile:
        if self._state != "not begun":
            raise RuntimeError("torch_tenon.profile: a profile records once; make a new one for a new recording")
        try:
            _C.profile_start(self._max_events)
        except RuntimeError as error:
            raise RuntimeError(f"torch_tenon.profile: {error} (profiles don't nest, whatever thread began the other)") from None
        self._state = "recording"
        return self

    def __exit__(self, *unused: Any) -> None:
        self._recorded = _C.profile_stop()
        self._state = "done"

    def _text(self, what: str, *more: Any) -> str:
        if self._recorded is None:
            why = "it is still being recorded: read it after the `with` block" if self._state == "recording" else (
                "nothing was recorded: use it as `with torch_tenon.profile() as p:`")
            raise RuntimeError(f"torch_tenon.profile: {why}")
        return _C.profile_text(self._recorded, what, *more)

    def table(self, rows: int | None = _SHOWN_ROWS) -> str:
        """A line for each step of each program, the dearest `rows` first (None: all); docs/profiling.md explains the columns."""
        return self._text("table", rows or 0)

    def to_dict(self) -> dict[str, Any]:
        """The same and more for tools: runtime/profile/profile.h tells the keys."""
        return json.loads(self._text("json"))

    def rows(self) -> list[dict[str, Any]]:
        """The steps of all programs, each with the name of its "program"."""
        return [{"program": p["name"], **step} for p in self.to_dict()["programs"] for step in p["steps"]]

    def chrome_trace(self, path: str | os.PathLike) -> None:
        """Writes the timeline for Perfetto or chrome://tracing: a track for each thread, pieces of kernels on those that ran them."""
        pathlib.Path(path).write_text(self._text("trace"), encoding="utf-8")

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<torch_tenon.profile, {self._state}>"
