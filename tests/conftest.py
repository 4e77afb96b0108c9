"""Shared fixtures: which backend is under test, and what happens without the extension."""

import ctypes
import importlib.util
import logging
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
if importlib.util.find_spec("torch_tenon") is None:
    # Not installed: torch_tenon.testing works from the source tree, the rest reports its absence.
    sys.path.append(str(ROOT / "torch_plugin" / "python"))
# Every pipeline of every test verifies the module after each pass that changed it (passes/pipeline.h). TENON_VERIFY=0: none.
os.environ.setdefault("TENON_VERIFY", "1")


def _guard_tensors():
    """TENON_GUARD=1: every CPU tensor ends where memory begins that may not be touched; 2: begins behind such memory."""
    import torch  # noqa: F401  (the library needs its symbols)
    import torch_tenon

    build = pathlib.Path(torch_tenon.__file__).parents[2]  # build/<preset>/python/torch_tenon/__init__.py
    ctypes.CDLL(str(build / "tests" / "libtenon_guard.so")).tenon_guard_tensors()


GUARD = os.environ.get("TENON_GUARD") or "0"
if GUARD != "0":
    _guard_tensors()



def _import_error():
    """None if torch_tenon with its extension can be imported, else the reason."""
    try:
        import torch_tenon

        torch_tenon.stats()
    except Exception as error:  # an extension built for another torch fails in any way it likes
        return f"torch_tenon is not usable: {type(error).__name__}: {error}"
    return None


@pytest.fixture(scope="session")
def tenon():
    """The torch_tenon module. Absent: skip with the reason; fail where it must be there."""
    reason = _import_error()
    if reason is not None:
        if os.environ.get("CI") or os.environ.get("TENON_REQUIRE_EXTENSION"):
            pytest.fail(reason)
        pytest.skip(reason)
    import torch_tenon

    return torch_tenon


@pytest.fixture(scope="session")
def backend(request) -> str:
    """tenon, or what TENON_TEST_BACKEND names in order to prove the harness itself."""
    name = os.environ.get("TENON_TEST_BACKEND", "tenon")
    if name == "tenon":
        request.getfixturevalue("tenon")
    return name


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    if torch := sys.modules.get("torch"):  # tests without torch stay quick
        # pytest's log capture would make torch print every graph it touches, for minutes.
        logging.getLogger("torch.__trace").setLevel(logging.WARNING)
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch.manual_seed(0)
    yield
