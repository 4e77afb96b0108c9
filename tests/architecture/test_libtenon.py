"""libtenon.so as built: exports the C seam and nothing else, and knows no torch (DESIGN, D4)."""

import importlib.util
import os
import pathlib
import re
import subprocess

import pytest


def foreign_exports(nm_output):
    """Names that `nm -D --defined-only` lists beyond tenon_*."""
    names = [line.split()[-1] for line in nm_output.splitlines() if line.strip()]
    return [name for name in names if not name.startswith("tenon_")]


def torch_or_python_libraries(readelf_output):
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", readelf_output)
    return [name for name in needed if re.match(r"lib(torch|c10|python|gomp)", name)]


@pytest.fixture(scope="module")
def libtenon():
    spec = importlib.util.find_spec("torch_tenon")
    path = pathlib.Path(spec.origin).parent / "libtenon.so" if spec and spec.origin else None
    if path is None or not path.exists():
        reason = f"libtenon.so is not built: {path}"
        if os.environ.get("TENON_REQUIRE_EXTENSION"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_exports(libtenon):
    symbols = output("nm", "-D", "--defined-only", str(libtenon))
    assert "tenon_" in symbols
    assert foreign_exports(symbols) == []


def test_no_torch(libtenon):
    dynamic = output("readelf", "-d", str(libtenon))
    assert "(NEEDED)" in dynamic
    assert torch_or_python_libraries(dynamic) == []


def test_planted_violations():
    assert foreign_exports("0 T tenon_run\n0 W _ZN4llvm6ModuleD1Ev\n") == ["_ZN4llvm6ModuleD1Ev"]
    line = " 0x1 (NEEDED)  Shared library: [{}]\n"
    assert torch_or_python_libraries(line.format("libtorch_cpu.so")) == ["libtorch_cpu.so"]
    assert torch_or_python_libraries(line.format("libz.so.1")) == []
