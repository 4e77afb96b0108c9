"""The runner for a machine with a GPU (tools/gpu-runner): packed, unpacked and run in rehearsal, on the fake driver."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TENON_BUILD_DIR") or ROOT / "build" / "release")
FAKE = BUILD / "tests" / "fake" / "libcuda.so.1"
REHEARSAL = ["--rehearse", f"--libcuda={FAKE}"]

pytestmark = pytest.mark.skipif(not FAKE.exists(), reason="no fake libcuda in build/ (or TENON_BUILD_DIR)")


def _run(*command, cwd=None, **environment):
    return subprocess.run([*map(str, command)], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True)


def _results(folder):
    return json.loads((folder / "results.json").read_text()), (folder / "results.md").read_text()


def test_a_rehearsal(tmp_path):
    done = _run(BUILD / "bin" / "gpu-runner", *REHEARSAL, f"--out={tmp_path}", "--every=16", "--megabytes=4")
    assert done.returncode == 0, done.stdout + done.stderr
    results, page = _results(tmp_path)
    checks = results["checks"]
    assert results["rehearsal"] and checks["right"] >= 25 and checks["wrong"] == [] and checks["not_run"] == 0
    timed = ["matrix product", "attention", "causal attention", "copy by a kernel", "layer norm", "softmax", "sums of rows",
             "sums of columns", "sum of all", "transpose", "scan of rows"]  # fmt: skip
    types = lambda name: ("f32", "bf16", "f16") if "attention" in name else ("f32", "bf16")
    assert [t["name"] for t in results["times"]] == [name for name in timed for _ in types(name)]
    assert all(t["error"] == "" and t["launches"] >= 1 and t["us"] > 0 for t in results["times"])
    assert page.startswith("## Rehearsal: emulated GPU") and "no figure here is a GPU's" in page
    assert "GB/s |" in page and "under 80 %" not in page


def test_what_fails_is_told(tmp_path):
    runner = [BUILD / "bin" / "gpu-runner", f"--out={tmp_path}", "--every=40", "--only=checks"]
    none = _run(*runner, "--libcuda=/no/libcuda.so.1")
    assert none.returncode == 3 and "CUDA: no driver: /no/libcuda.so.1" in none.stderr
    refused = _run(*runner, f"--libcuda={FAKE}")  # PTX, which the fake doesn't take
    assert refused.returncode == 1 and "CUDA_ERROR_INVALID_PTX" in refused.stdout
    assert "* wrong: " in _results(tmp_path)[1]
    # From a process' tenth launch on every kernel fails, and the GPU with it: what was right before stays right, the next process has
    # the next check, none hangs.
    for _ in range(4):  # whether a process is gone already when it is given a number is chance
        lost = _run(*runner, *REHEARSAL, "--jobs=1", TENON_FAKE_CUDA_FAIL="kernel:700:9")
        checks = _results(tmp_path)[0]["checks"]
        assert lost.returncode == 1 and checks["right"] >= 2 and "CUDA_ERROR_ILLEGAL_ADDRESS" in lost.stdout
        assert len(checks["wrong"]) >= 2 and checks["not_run"] == 0, "each process loses one check"
        assert checks["right"] > len(checks["wrong"]), "and a new one goes on"
    late = _run(*runner, *REHEARSAL, "--seconds=1", "--every=1")
    assert late.returncode == 1 and _results(tmp_path)[0]["checks"]["not_run"] > 0
    assert _run(*runner, "--evry=3").returncode == 2


@pytest.mark.slow
def test_the_package(tmp_path):
    package = tmp_path / "runner.tar.zst"
    packed = _run(ROOT / "tools" / "dev" / "pack_gpu_runner.sh", package, BUILD=str(BUILD))
    assert packed.returncode == 0, packed.stdout + packed.stderr
    assert package.stat().st_size < 60 << 20
    assert _run("tar", "--zstd", "-xf", package, cwd=tmp_path).returncode == 0
    done = _run(tmp_path / "gpu-runner" / "run.sh", *REHEARSAL, "--every=16", "--megabytes=4", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    fuzz = [tmp_path / "gpu-runner" / "fuzz.sh", "--target=gpu-rehearsed", "--modules=20"]
    done = _run(*fuzz, cwd=tmp_path, LD_LIBRARY_PATH=str(FAKE.parent))
    assert done.returncode == 0, done.stdout + done.stderr
    assert _results(tmp_path)[0]["checks"]["wrong"] == []
    small = _run(ROOT / "tools" / "dev" / "pack_gpu_runner.sh", package, BUILD=str(BUILD), LIMIT_MB="1")
    assert small.returncode == 1 and "more than 1 MB" in small.stderr
