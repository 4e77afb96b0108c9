"""Planted bugs live in tools/lab: what ships knows one hook for them, and no bug."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHIPPED = ["hlo", "passes", "backends", "runtime", "torch_plugin"]
HOOK = {"backends/driver/compile.h", "backends/driver/compile.cc"}


def _mentions(word):
    found = {}
    for folder in SHIPPED:
        for path in [*(ROOT / folder).rglob("*.cc"), *(ROOT / folder).rglob("*.h"), *(ROOT / folder).rglob("*.py")]:
            lines = [line for line in path.read_text().splitlines() if re.search(word, line, re.IGNORECASE)]
            if lines:
                found[str(path.relative_to(ROOT))] = lines
    return found


def test_the_compiler_knows_one_hook():
    assert set(_mentions(r"sabotage")) == HOOK
    assert len(_mentions(r"sabotage")["backends/driver/compile.cc"]) == 2, "after the passes, and on the program"


def test_no_bug_is_planted_in_the_compiler_itself():
    assert set(_mentions(r"\bplant(s|ed)?\b")) <= {"backends/driver/compile.h", "passes/pipeline.h"}
