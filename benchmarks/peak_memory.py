"""Peak memory of a model's second call by the allocator's own reports, against eager's.

    python benchmarks/peak_memory.py [--model resnet50,gpt_small_b4s64] [--backends tenon,inductor] [--malloc]

PyTorch's profiler hears every allocation and release of the CPU allocator. Recording starts before
the first call, compilation included, so what a backend keeps between calls (arena, folded
constants) counts; the peak is taken within the second call. Weights and inputs exist before.
--malloc: what the third call takes from malloc at its highest, whoever asks for it, beyond what is held.
"""

import argparse
import ctypes
import gc
import os
import pathlib
import subprocess
import sys
import tempfile

import environment

environment.find_packages()
import rows
import torch
from models import zoo
from torch.profiler import ProfilerActivity, profile, record_function

LIMIT = 1.05


def peak(call) -> tuple[int, int]:
    """(peak within the second call, held when it starts), in bytes above the start."""
    gc.collect()
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        call()
        gc.collect()
        with record_function("second_call"):
            call()
    return peak_of(prof.profiler.kineto_results.events())


def peak_of(events) -> tuple[int, int]:
    window = next(e for e in events if e.name() == "second_call")
    start, end = window.start_ns(), window.start_ns() + window.duration_ns()
    live = high = held = 0
    reports = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    for when, delta in reports:
        if when > end:
            break
        live += delta
        if when < start:
            held = high = live
        else:
            high = max(high, live)
    return high, held


def taken(call) -> int:
    """Bytes that the third call takes from malloc, of a process that count_malloc.cc is preloaded into."""
    counts = ctypes.CDLL(None)
    counts.counted_live.restype = counts.counted_peak.restype = ctypes.c_int64
    with torch.no_grad():
        call()
        call()
        gc.collect()
        before = counts.counted_live()
        counts.counted_restart()
        call()
    return counts.counted_peak() - before


def build(name: str):
    torch.manual_seed(1234)
    if name in rows.ROWS:
        model, args = rows.ROWS[name].make()
        return (model.eval() if isinstance(model, torch.nn.Module) else model), args
    if name == "resnet50":
        model, args = zoo.resnet50(batch=1, size=224)
        return model.eval(), args
    return zoo.CASES[name].make()


def measure_malloc(name: str, backends: list[str]) -> bool:
    model, args = build(name)
    parts = [f"eager {taken(lambda: model(*args)) / 2**20:.2f} MiB"]
    for backend in backends:
        torch._dynamo.reset()
        compiled = torch.compile(model, backend=backend, dynamic=False)
        parts.append(f"{backend} {taken(lambda: compiled(*args)) / 2**20:.2f} MiB")
    print(f"{name}, taken by the third call: {', '.join(parts)}", flush=True)
    return False


def measure(name: str, backends: list[str]) -> bool:
    model, args = build(name)
    eager, held = peak(lambda: model(*args))
    mib = 2**20
    print(f"{name}, second call: eager {eager / mib:.2f} MiB (held before {held / mib:.2f})")
    missed = False
    for backend in backends:
        torch._dynamo.reset()
        try:
            compiled = torch.compile(model, backend=backend, dynamic=False)
            found, held = peak(lambda: compiled(*args))
        except Exception as error:
            print(f"{backend} did not run: {type(error).__name__}: {str(error).splitlines()[0]}")
            missed |= backend == "tenon"
            continue
        ratio = found / eager
        line = f"{backend} {found / mib:.2f} MiB (held before {held / mib:.2f}), {ratio:.3f} x eager"
        if backend == "tenon":
            missed |= ratio > LIMIT
            line += f", limit {LIMIT}: {'met' if ratio <= LIMIT else 'LOST'}"
        print(line, flush=True)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet50", help="cases of tests/models, rows of rows.py; several: each in a process of its own")
    parser.add_argument("--backends", default="tenon,inductor")
    parser.add_argument("--malloc", action="store_true", help="what a call takes from malloc; wants a C++ compiler")
    options = parser.parse_args()
    names, backends = options.model.split(","), options.backends.split(",")
    counted = options.malloc and "count_malloc" in os.environ.get("LD_PRELOAD", "")
    if len(names) == 1 and options.malloc == counted:
        return (measure_malloc if counted else measure)(names[0], backends)
    one = [sys.executable, __file__, "--backends", options.backends, *(["--malloc"] if options.malloc else []), "--model"]
    with tempfile.TemporaryDirectory() as directory:
        environ = dict(os.environ)
        if options.malloc:
            library = os.path.join(directory, "count_malloc.so")
            source = pathlib.Path(__file__).with_name("count_malloc.cc")
            subprocess.run(["c++", "-std=c++20", "-O2", "-shared", "-fPIC", str(source), "-o", library], check=True)
            environ["LD_PRELOAD"] = library
        return max([subprocess.run([*one, name], env=environ).returncode for name in names])


if __name__ == "__main__":
    sys.exit(main())
