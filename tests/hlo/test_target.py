"""torch_tenon.hlo on the emulated GPU, which only test builds have (libtenon_lab)."""

import os
import subprocess
import sys

import numpy as np
import pytest

SOFTMAX = """HloModule softmax
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT m = f32[] maximum(a, b) }
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[5,300] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[5] reduce(x, low), dimensions={1}, to_apply=max
  n = f32[5,300] broadcast(m), dimensions={0}
  d = f32[5,300] subtract(x, n)
  p = f32[5,300] exponential(d)
  t = f32[5] reduce(p, zero), dimensions={1}, to_apply=sum
  u = f32[5,300] broadcast(t), dimensions={0}
  ROOT r = f32[5,300] divide(p, u)
}
"""


@pytest.mark.parametrize("target", ["gpu-emulated", "gpu-emulated:sm_80"])
def test_a_module_runs_on_the_emulated_gpu(emulated, hlo, target):
    x = np.random.default_rng(0).normal(size=(5, 300)).astype(np.float32)
    (want,) = hlo.evaluate(SOFTMAX, [x])
    for _ in range(2):
        (got,) = hlo.run(SOFTMAX, [x], target=target)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)
    assert emulated.placement(hlo.Module(SOFTMAX), target)["host"] == 0


def test_targets_of_one_module_are_apart(emulated, hlo):
    module = hlo.Module(SOFTMAX)
    x = np.ones((5, 300), np.float32)
    (there,), (here,) = module.run([x], target="gpu-emulated"), module.run([x])
    np.testing.assert_allclose(there, here, rtol=1e-6)


def test_errors_are_the_librarys(emulated, hlo):
    with pytest.raises(ValueError, match="wanted one of sm_75, "):
        hlo.run(SOFTMAX, [np.ones((5, 300), np.float32)], target="gpu-emulated:sm_1")
    with pytest.raises(ValueError, match="input 0: wanted f32"):
        hlo.run(SOFTMAX, [np.ones((5, 300), np.float64)], target="gpu-emulated")


def test_a_refused_target_does_not_run_on_the_cpu(emulated, hlo):
    module = hlo.Module(SOFTMAX)
    for _ in range(2):
        with pytest.raises(ValueError, match="wanted one of sm_75, "):
            module.run([np.ones((5, 300), np.float32)], target="gpu-emulated:sm_1")


def test_other_targets_are_refused(hlo):
    with pytest.raises(ValueError, match='target: wanted "cpu", got "tpu"'):
        hlo.run(SOFTMAX, [np.ones((5, 300), np.float32)], target="tpu")


def test_without_the_library_the_error_says_so(hlo):
    """As of a wheel: a child, since this process may have loaded it."""
    program = f"from torch_tenon import hlo\nhlo.run({SOFTMAX!r}, [], target='gpu-emulated')"
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                           env=os.environ | {"TENON_LAB_LIBRARY": "/nowhere/libtenon_lab.so"})
    last = child.stderr.strip().splitlines()[-1]
    assert last.startswith('NotImplementedError: target "gpu-emulated": the emulated GPU is a part of test builds only'), last
    assert "/nowhere/libtenon_lab.so" in last


def test_the_product_has_no_emulator(emulated, hlo):
    words = b"wanted gpu-emulated or gpu-emulated:MODEL"
    assert words in hlo._lab_path().read_bytes()
    assert words not in hlo._library_path().read_bytes()
