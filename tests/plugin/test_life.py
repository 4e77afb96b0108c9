"""Threads, forks and long lives."""

import ctypes
import gc
import os
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

from conftest import ROOT


def _run_in_threads(count, work):
    failures = []

    def guarded(index):
        try:
            work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_eight_threads_run_one_executable(backend):
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).eval()
    compiled = torch.compile(model, backend=backend)
    inputs = [torch.randn(4, 32) for _ in range(8)]
    with torch.no_grad():
        wanted = [model(x) for x in inputs]
        compiled(inputs[0])

    def work(index):
        with torch.no_grad():
            for _ in range(50):
                torch.testing.assert_close(compiled(inputs[index]), wanted[index])

    _run_in_threads(8, work)


def test_threads_compile_while_others_run(backend):
    shared = torch.compile(lambda t: torch.tanh(t) * 2 + t.sum(), backend=backend)
    x = torch.randn(100)
    wanted = shared(x)

    def work(index):
        if index % 2:
            for _ in range(50):
                torch.testing.assert_close(shared(x), wanted)
        else:
            for factor in range(3):
                scale = float(index * 10 + factor)
                own = torch.compile(lambda t: torch.exp(-t.abs()) * scale, backend=backend)
                torch.testing.assert_close(own(x), torch.exp(-x.abs()) * scale)

    _run_in_threads(8, work)


def test_training_in_threads(backend):
    def work(index):
        torch.manual_seed(index)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
        x = torch.randn(5, 8)
        model(x).square().sum().backward()
        wanted = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        torch.compile(model, backend=backend)(x).square().sum().backward()
        for p, w in zip(model.parameters(), wanted):
            torch.testing.assert_close(p.grad, w)

    _run_in_threads(4, work)


FORK = """
import os, sys, torch
backend = sys.argv[1]
def first(t): return torch.tanh(t) * 2 + 1
def second(t): return torch.exp(-t.abs()).sum(0)
x = torch.randn(8, 16)
compiled = torch.compile(first, backend=backend)
torch.testing.assert_close(compiled(x), first(x))
child = os.fork()
if child == 0:
    code = 1
    try:
        torch.testing.assert_close(compiled(x), first(x))
        torch.testing.assert_close(torch.compile(second, backend=backend)(x), second(x))
        code = 0
    finally:
        os._exit(code)
_, status = os.waitpid(child, 0)
torch.testing.assert_close(compiled(x), first(x))
sys.exit(os.waitstatus_to_exitcode(status))
"""


def _subprocess(code, *args, timeout=120):
    env = os.environ | {"PYTHONPATH": os.pathsep.join([p for p in sys.path if p])}
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        env=env, cwd=ROOT, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def test_a_forked_child_compiles_and_runs(backend):
    done = _subprocess(FORK, backend)
    assert done.returncode == 0, done.stderr


INTERRUPT = """
import signal, sys, threading, torch
backend = sys.argv[1]
def big(t):
    for i in range(400):
        t = torch.sin(t) * (i + 1) + t.flip(0)
    return t
x = torch.randn(64)
small = lambda t: torch.tanh(t) + 1
torch.compile(small, backend=backend)(x)
threading.Timer(float(sys.argv[2]), lambda: signal.raise_signal(signal.SIGINT)).start()
try:
    torch.compile(big, backend=backend)(x)
except KeyboardInterrupt:
    print("interrupted")
torch._dynamo.reset()
torch.testing.assert_close(torch.compile(small, backend=backend)(x), small(x))
print("alive")
"""


@pytest.mark.parametrize("after", ["0.3", "1.0"])
def test_ctrl_c_during_a_compile(after, backend):
    done = _subprocess(INTERRUPT, backend, after)
    assert done.returncode == 0 and "alive" in done.stdout, done.stdout + done.stderr


def test_exit_while_compiled_code_is_alive(backend):
    code = """
import sys, torch
model = torch.nn.Linear(4, 4)
keep = torch.compile(model, backend=sys.argv[1])
out = keep(torch.randn(2, 4)).sum()
"""
    done = _subprocess(code, backend)
    assert done.returncode == 0, done.stderr


def _resident_mib():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.slow
def test_a_thousand_graphs_compiled_and_freed(tenon):
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.randn(64)

    def one(index):
        graph = make_fx(lambda t: [torch.tanh(t * float(index)) + torch.full((64,), index)])(x)
        run = tenon.compile_graph(graph, [x], fallback="allow")
        torch.testing.assert_close(run([x])[0], torch.tanh(x * index) + index)

    def free():
        tenon.cache_clear()  # what the cache keeps is bounded by its own rule, not freed
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what was freed isn't held

    for index in range(200):
        one(index)
    free()
    before = _resident_mib()
    for index in range(200, 1200):
        one(index)
    free()
    grown = _resident_mib() - before
    print(f"grown by {grown:.1f} MiB over 1000 graphs")
    assert grown < 20


def test_a_thousand_executables_leave_nothing_behind(tenon):
    """libtenon alone, without tracing: every compile makes other code, runs it and drops it."""
    from torch_tenon import _C

    def one(index):
        graph = (
            f'graph "g{index}" {{\n  %x = input f32[{index},8]{{8,1}}\n'
            f"  %y = aten.mul.Tensor(%x, %x) -> f32[{index},8]{{8,1}}\n"
            f"  %z = aten.exp.default(%y) -> f32[{index},8]{{8,1}}\n  return (%z)\n}}\n"
        )
        result = _C.compile(_C.Graph.parse(graph), {"cache": False}, [])([torch.ones(index, 8)])[0]
        assert result.shape == (index, 8) and abs(result[0, 0].item() - 2.7182817) < 1e-6

    def resident():
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        return _resident_mib()

    for index in range(1, 51):
        one(index)
    before = resident()
    for index in range(51, 1051):
        one(index)
    assert resident() - before < 4  # MiB; measured 0.0
