"""The process that tenon lives in: its signals, its forks, its threads, and an LLVM that gives up in it."""

import os
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT

SHIM = ROOT / "tests" / "plugin" / "process_shim.c"

COMMON = """
import ctypes, json, os, sys, threading, time
import torch
import torch_tenon
from torch_tenon import _C

shim = ctypes.CDLL(sys.argv[1])

def graph(k, ops=6):
    "Text of a graph that no other number gives."
    lines = [f'graph "g{k}" {{', f"  %v0 = input f32[{k + 1},40]{{40,1}}"]
    for i in range(ops):
        lines.append(f"  %v{i + 1} = aten.{('exp', 'tanh', 'sin')[i % 3]}.default(%v{i}) -> f32[{k + 1},40]{{40,1}}")
        if i % 2:  # a reduction cuts kernels
            lines.append(f"  %r{i} = aten.sum.dim_IntList(%v{i + 1}, [1], true, none) -> f32[{k + 1},1]{{1,1}}")
    lines.append("  return (%v" + str(ops) + "".join(f", %r{i}" for i in range(ops) if i % 2) + ")")
    return "\\n".join(lines) + "\\n}\\n"

def compiled(k, ops=6, **options):
    return _C.compile(_C.Graph.parse(graph(k, ops)), {"cache": False, **options}, [])

def tier(executable):
    info = json.loads(executable.info())
    return info["tier"], info["reason"]

def right(executable, k, ops=6):
    x = torch.linspace(-1, 1, (k + 1) * 40).reshape(k + 1, 40)
    want = x
    for i in range(ops):
        want = (torch.exp, torch.tanh, torch.sin)[i % 3](want)
    torch.testing.assert_close(executable([x])[0], want)
"""


@pytest.fixture(scope="session")
def shim(tmp_path_factory):
    compiler = next((c for c in ("cc", "gcc", "clang", "clang-22") if shutil.which(c)), None)
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("shim") / "libprocess_shim.so"
    flags = ["-O1", "-shared", "-fPIC", "-Wall", "-Werror"]
    subprocess.run([compiler, *flags, str(SHIM), "-o", str(library), "-ldl", "-lpthread"], check=True)
    return str(library)


def run(code, shim, *args, preload=False, timeout=240, **environment):
    env = os.environ | {"PYTHONPATH": os.pathsep.join([p for p in sys.path if p]), **environment}
    if preload:
        env["LD_PRELOAD"] = shim
    done = subprocess.run(
        [sys.executable, "-c", COMMON + code, shim, *args], env=env, cwd=ROOT, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done


# ---- LLVM gives up --------------------------------------------------------------------------

GIVES_UP = """
repros = sys.argv[2]
reasons = []
for k in range(4):
    broken = compiled(k, inject_fault="fatal-error", repro_dir=repros)
    reasons.append(tier(broken))
    right(broken, k)
    if k < 2:  # the next one is native again
        sound = compiled(10 + k)
        assert tier(sound)[0] == "native", tier(sound)
        right(sound, 10 + k)
assert [t for t, _ in reasons] == ["eager_program"] * 4, reasons
for k in range(3):
    assert "injected fatal error" in reasons[k][1] and f"parked, {k + 1} of at most 3" in reasons[k][1], reasons
assert "LLVM gave up 3 times in this process" in reasons[3][1], reasons
refused = compiled(20)
assert tier(refused)[0] == "eager_program" and "LLVM gave up 3 times" in tier(refused)[1]
right(refused, 20)
"""


def test_a_fatal_error_of_llvm_costs_a_thread_and_the_third_is_the_last(tenon, shim, tmp_path):
    run(GIVES_UP, shim, str(tmp_path))
    first_lines = [path.read_text().splitlines()[0] for path in tmp_path.glob("*.aten")]
    assert sum("injected fatal error" in line for line in first_lines) == 3, first_lines
    assert list(tmp_path.glob("*.hlo")), "a repro for hlo-run"


FORKS_AFTER = """
broken = compiled(1, inject_fault="fatal-error", repro_dir=sys.argv[2])
assert "injected fatal error" in tier(broken)[1]
child = os.fork()
if child == 0:
    code = 1
    try:
        sound = compiled(2)
        assert tier(sound)[0] == "native", tier(sound)
        right(sound, 2)
        code = 0
    finally:
        os._exit(code)
began = time.monotonic()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_a_parked_thread_holds_up_no_fork(tenon, shim, tmp_path):
    run(FORKS_AFTER, shim, str(tmp_path))


# ---- signals --------------------------------------------------------------------------------

OWN_HANDLER = """
assert shim.shim_fault(1) == 1
seen = [0, 0]
done = threading.Event()
def faulting():
    while not done.is_set():
        seen[0] += 50
        seen[1] += shim.shim_fault(50)
thread = threading.Thread(target=faulting)
thread.start()
for k in range(12):
    executable = compiled(k, ops=12)
    assert tier(executable)[0] == "native", tier(executable)
    right(executable, k, ops=12)
done.set()
thread.join()
assert seen[0] == seen[1] > 0, seen
assert shim.shim_handler_is_ours()
"""


def test_another_threads_faults_reach_its_own_handler(tenon, shim):
    """As a garbage collector or a database has them: the access is made again once the handler has mapped the page."""
    run(OWN_HANDLER, shim)


LATE_HANDLER = """
import faulthandler, signal
done = threading.Event()
def compiling():
    k = 0
    while not done.is_set():
        compiled(k % 50, ops=12)
        k += 1
thread = threading.Thread(target=compiling)
thread.start()
for _ in range(20):
    time.sleep(.02)
    faulthandler.enable()  # in the middle of a compile
done.set()
thread.join()
print("crashing", flush=True)
ctypes.string_at(8)  # the process ends, with faulthandler's story
"""


def test_a_handler_installed_during_compiles_stays(tenon, shim):
    env = os.environ | {"PYTHONPATH": os.pathsep.join([p for p in sys.path if p])}
    done = subprocess.run(
        [sys.executable, "-c", COMMON + LATE_HANDLER, shim], env=env, cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert "crashing" in done.stdout, done.stdout + done.stderr
    assert done.returncode == -11 and "Fatal Python error: Segmentation fault" in done.stderr, (done.returncode, done.stderr)
    assert "string_at" in done.stderr, done.stderr


# ---- forks ----------------------------------------------------------------------------------

FORK = """
from plugin.forks import code_of_child
right(compiled(60), 60)  # all that torch imports and starts at first use
done = threading.Event()
count = [0]
def compiling(base):
    while not done.is_set():
        compiled(base + count[0] % 20, ops=30)
        count[0] += 1
threads = [threading.Thread(target=compiling, args=(100 * t,)) for t in range(2)]
for thread in threads:
    thread.start()
codes = []
while count[0] < 2 and all(thread.is_alive() for thread in threads):
    time.sleep(.01)
for n in range(6):
    time.sleep(.013 * (n % 5))  # another place of the compile each time
    def work():
        executable = compiled(n)
        assert tier(executable)[0] == "native", tier(executable)
        right(executable, n)
    codes.append(code_of_child(work, 60))
done.set()
for thread in threads:
    thread.join()
assert codes == [0] * 6, codes
assert count[0] > 5, count
"""


def test_a_child_forked_while_other_threads_compile_compiles_and_runs(tenon, shim):
    run(FORK, shim, OMP_NUM_THREADS="1")


# ---- threads that can't be had --------------------------------------------------------------

NO_THREADS = """
torch.set_num_threads(1)
k = 0
made = set()
for refused in range(6):  # the first, second, ... thread that a compile asks for
    shim.shim_refuse_threads(refused, 1)
    executable = compiled(k, ops=12, compile_threads=3)
    asked = shim.shim_thread_calls()
    shim.shim_refuse_threads(-1, 0)
    what, why = tier(executable)
    made.add(what)
    assert what == "native" or "no thread to be had" in why, (what, why)
    right(executable, k, ops=12)
    k += 1
shim.shim_refuse_threads(0, 1000000)  # none at all
executable = compiled(k)
shim.shim_refuse_threads(-1, 0)
what, why = tier(executable)
assert what == "eager_program" and "no thread to be had: Resource temporarily unavailable" in why, (what, why)
right(executable, k)
executable = compiled(k + 1)  # and there are threads again
assert tier(executable)[0] == "native", tier(executable)
right(executable, k + 1)
assert made == {"native"}, made  # a thread less is a slower compile
"""


def test_a_thread_that_cannot_be_had_never_ends_the_process(tenon, shim):
    run(NO_THREADS, shim, preload=True, OMP_NUM_THREADS="1")


# ---- Ctrl-C ---------------------------------------------------------------------------------

CTRL_C = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in what runs behind it
interrupted = 0
began = time.monotonic()
for attempt in range(20):
    timer = threading.Timer(.15 + .05 * attempt, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        executable = compiled(7, ops=4000, compile_threads=1)  # seconds of LLVM
        timer.join()
    except KeyboardInterrupt:
        interrupted += 1
    else:
        try:
            time.sleep(1)  # the signal was late
        except KeyboardInterrupt:
            pass
    if interrupted == 3:
        break
assert interrupted == 3, interrupted
sound = compiled(8)
assert tier(sound)[0] == "native", tier(sound)
right(sound, 8)
assert not os.listdir(sys.argv[2]), "no repro of what was interrupted"
"""


def test_ctrl_c_ends_a_long_compile_and_the_next_one_works(tenon, shim, tmp_path):
    run(CTRL_C, shim, str(tmp_path), TENON_REPRO_DIR=str(tmp_path))


ENDLESS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in what runs behind it
import numpy as np
from torch_tenon import hlo

def loop(limit):
    return f'''HloModule m
cond {{
  s = (s64[], f32[8]) parameter(0)
  i = s64[] get-tuple-element(s), index=0
  n = s64[] constant({limit})
  ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
  s = (s64[], f32[8]) parameter(0)
  i = s64[] get-tuple-element(s), index=0
  one = s64[] constant(1)
  x = f32[8] get-tuple-element(s), index=1
  next = s64[] add(i, one)
  y = f32[8] sine(x)
  ROOT r = (s64[], f32[8]) tuple(next, y)
}}
ENTRY e {{
  x = f32[8] parameter(0)
  z = s64[] constant(0)
  t = (s64[], f32[8]) tuple(z, x)
  ROOT w = (s64[], f32[8]) while(t), condition=cond, body=body
}}
'''

x = np.linspace(-1, 1, 8, dtype=np.float32)
endless = hlo.Module(loop(2**62))
endless.compile()
for _ in range(2):
    timer = threading.Timer(.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        endless.run([x])
        raise SystemExit("it ended")
    except KeyboardInterrupt:
        pass
    timer.join()
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
# A handler of the user's own is called, and nothing of ours is left in its place.
called = []
signal.signal(signal.SIGINT, lambda *_: called.append(1))
timer = threading.Timer(.3, lambda: os.kill(os.getpid(), signal.SIGINT))
timer.start()
try:
    endless.run([x])
    raise SystemExit("it ended")
except InterruptedError:
    pass
assert called == [1]
want = x
for _ in range(5):
    want = np.sin(want)
count, found = hlo.run(loop(5), [x])
assert count == 5
np.testing.assert_allclose(found, want, rtol=1e-6)
right(compiled(3), 3)
"""


def test_ctrl_c_ends_an_endless_loop(tenon, shim):
    run(ENDLESS, shim)
