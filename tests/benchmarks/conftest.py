"""The modules of benchmarks/ by their names, which its scripts use too; last in the path, so that they hide nothing."""

import pathlib
import sys

import pytest
import torch

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))


@pytest.fixture(autouse=True)
def _one_thread():
    """Where cores are short, hundreds of parallel regions cost minutes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
