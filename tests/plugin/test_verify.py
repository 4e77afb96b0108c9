"""A pass that breaks the module, or misreports what it did, is caught in everything that tests compile through torch.compile."""

import os
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.by_aten(tier="any")  # each test says what ran

FAULTS = {  # the faulty pass (backends/driver/faulty_pass.h) -> what the reason says
    "broken-module": "pass broken-module: verify_names",
    "silent-change": "pass silent-change changed the module and said it did not",
    "false-change": "pass false-change said it changed the module and did not",
}


def _function(x):
    return torch.softmax(x * 2, -1) + 1


def _compiled(tenon, tmp_path, options):
    """The graph's record; the result is right in any case."""
    tenon.reset_stats()
    x = torch.randn(5, 7)
    found = torch.compile(_function, backend="tenon", options={"repro_dir": str(tmp_path), "cache": False, **options})(x)
    torch.testing.assert_close(found, _function(x))
    return max(tenon.stats()["graphs"], key=lambda graph: graph["id"])  # others may live on


@pytest.mark.parametrize("fault", FAULTS)
def test_caught(fault, tenon, tmp_path):
    graph = _compiled(tenon, tmp_path, {"inject_fault": fault})
    assert graph["tier"] == "eager_program" and FAULTS[fault] in graph["reason"], graph["reason"]


@pytest.mark.parametrize("fault", FAULTS)
def test_not_looked_at_without_the_switch(fault, tenon, tmp_path):
    graph = _compiled(tenon, tmp_path, {"inject_fault": fault, "verify_passes": False})
    assert graph["tier"] == "native" and "verify" not in graph["compile_ms"]


def test_every_compile_of_a_test_is_verified(tenon, tmp_path):
    assert "verify" in _compiled(tenon, tmp_path, {})["compile_ms"]
    assert "passes: verified each" in str(tenon.explain(_function, torch.randn(3, 4)))
    assert "passes: not verified" in str(tenon.explain(_function, torch.randn(3, 4), options={"verify_passes": False, "cache": False}))


@pytest.mark.parametrize("asked, caught", [("1", True), ("0", False)])
def test_the_environment_decides(asked, caught, tenon, tmp_path):
    code = (
        "import torch, torch_tenon\n"
        f"options = {{'inject_fault': 'broken-module', 'repro_dir': {str(tmp_path)!r}}}\n"
        "torch.compile(torch.tanh, backend='tenon', options=options)(torch.ones(3))\n"
        "print(torch_tenon.stats()['graphs'][0]['tier'])"
    )
    environment = {**os.environ, "TENON_VERIFY": asked, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert ran.stdout.split() == ["eager_program" if caught else "native"], ran.stderr
