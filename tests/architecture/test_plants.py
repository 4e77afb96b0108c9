"""Planted bugs live in tools/lab: what ships knows a hook for them, and one of the GPU for what it emits, and no bug."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHIPPED = ["hlo", "passes", "backends", "runtime", "torch_plugin"]
HOOK = {"backends/driver/compile.h", "backends/driver/compile.cc", "backends/gpu/gpu.h", "backends/gpu/gpu.cc"}


def _mentions(word):
    found = {}
    for folder in SHIPPED:
        for path in [*(ROOT / folder).rglob("*.cc"), *(ROOT / folder).rglob("*.h"), *(ROOT / folder).rglob("*.py")]:
            lines = [line for line in path.read_text().splitlines() if re.search(word, line, re.IGNORECASE)]
            if lines:
                found[str(path.relative_to(ROOT))] = lines
    return found


def test_the_compiler_knows_its_hooks():
    assert set(_mentions(r"sabotage")) == HOOK
    assert len(_mentions(r"sabotage")["backends/driver/compile.cc"]) == 2, "after the passes, and on the program"
    assert len(_mentions(r"sabotage")["backends/gpu/gpu.cc"]) == 2, "in the key, and behind emission"


def test_no_bug_is_planted_in_the_compiler_itself():
    assert set(_mentions(r"\bplant(s|ed)?\b")) <= {"backends/driver/compile.h", "backends/gpu/gpu.h", "passes/pipeline.h"}
