"""What first calls cost, at the end of a run."""

import json
import pathlib

from models import judging


def pytest_terminal_summary(terminalreporter):
    if not judging.FIRST_CALLS:
        return
    terminalreporter.section("first calls, CPU seconds (torch_tenon/first_call.py)")
    for line in judging.first_call_table(judging.FIRST_CALLS):
        terminalreporter.write_line(line)
    build = pathlib.Path(__file__).resolve().parents[2] / "build"
    if build.is_dir():
        rows = [{"model": name, "what": what, **spent} for (name, what), spent in judging.FIRST_CALLS.items()]
        (build / "first_calls.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
