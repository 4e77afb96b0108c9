"""What a benchmark process is pinned to, and the machine it runs on.

glibc's mmap threshold drifts with a process's history and makes temporaries' page faults up to 20 times
dearer, so it is pinned; thread counts have to be set before a runtime is loaded; and a process gets as
many cores as threads, or the scheduler moves pools about. Everything that starts a measured process asks here.
"""

import importlib.util
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
PINNED = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),  # the largest value glibc accepts
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}
# What the runtimes' pools read: OpenMP, MKL, XLA (its CPU client's pool), oneTBB's users.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")


def pinned(threads: int) -> dict[str, str]:
    """Variables of a process that is measured on so many threads."""
    return PINNED | {name: str(threads) for name in THREAD_VARIABLES}


def measure_apart(threads: int, *arguments: str) -> dict | str:
    """The JSON object that this program, run with these arguments in a pinned process of its own, prints last; else how that failed."""
    done = subprocess.run([sys.executable, sys.argv[0], *arguments], env=os.environ | pinned(threads), capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout.strip().splitlines()[-1])
    said = done.stderr.strip().splitlines()
    return f"failed: {said[-1] if said else done.returncode}"


def reexec_pinned(threads: int) -> None:
    """The process executes itself once more where its environment isn't the pinned one."""
    wanted = pinned(threads)
    if any(os.environ.get(key) != value for key, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | wanted)


def find_packages() -> None:
    """The models of the tests and, where torch_tenon isn't installed, its sources: torch_tenon.testing needs no more."""
    if str(ROOT / "tests") not in sys.path:
        sys.path.insert(0, str(ROOT / "tests"))
    if importlib.util.find_spec("torch_tenon") is None:
        sys.path.append(str(ROOT / "torch_plugin" / "python"))


def choose_cores(threads: int, allowed: set[int] | None = None, siblings=None) -> list[int]:
    """`threads` of the cores that this process may use, no two of them one physical core as long as there are others."""
    allowed = sorted(os.sched_getaffinity(0) if allowed is None else allowed)
    siblings = siblings or _siblings
    seen, first, second = set(), [], []
    for core in allowed:
        physical = siblings(core)
        (second if physical in seen else first).append(core)
        seen.add(physical)
    return (first + second)[:threads]


def _siblings(core: int) -> str:
    path = pathlib.Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    return path.read_text().strip() if path.exists() else str(core)


def machine(threads: int) -> dict:
    import torch

    cpu = platform.processor()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": threads,
        "load": os.getloadavg()[0],
        "torch": torch.__version__,
        "python": platform.python_version(),
        "mmap_threshold": os.environ.get("MALLOC_MMAP_THRESHOLD_", "not pinned"),
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def memory_mib() -> dict[str, float]:
    """This process's resident memory, now and at most so far."""
    found = {}
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key in ("VmRSS", "VmHWM"):
            found[key] = int(value.split()[0]) / 1024
    return {"now": found["VmRSS"], "peak": found["VmHWM"]}


def forget_peak() -> None:
    """From now on the peak is counted anew (proc(5), clear_refs)."""
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass  # the peak of the imports stays in the figure
