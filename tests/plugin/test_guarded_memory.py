"""The guard under PyTorch's tensors works, and kernels stay inside their operands under it (runtime/guarded_memory.h)."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODES = {"1": "ends", "2": "begins"}


def _run(guard, *command):
    environment = {**os.environ, "TENON_GUARD": guard, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)


@pytest.mark.parametrize("guard", MODES)
def test_a_tensor_faults_beyond_its_memory(guard, tenon):
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "import ctypes, conftest, torch\n"
        "x = torch.empty(5, 3)\n"
        "assert x.isnan().all(), 'what is allocated is poison'\n"
        "where = x.data_ptr() + (60 if conftest.GUARD == '1' else -1)\n"
        "print('inside', flush=True)\n"
        "ctypes.string_at(where, 1)\n"
        "print('outside')"
    )
    ran = _run(guard, "-c", code)
    assert ran.stdout == "inside\n" and ran.returncode == -11, ran.stdout + ran.stderr  # SIGSEGV


@pytest.mark.parametrize("guard", MODES)
def test_kernels_stay_inside(guard, tenon):
    ran = _run(guard, "-m", "pytest", "-q", "tests/plugin/test_reads_inside.py", "tests/plugin/test_edge_cases.py")
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
