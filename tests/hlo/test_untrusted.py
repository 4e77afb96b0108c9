"""HLO text that nobody vouches for: what grows without bound is refused by a named budget, what is deep overflows no stack.

Each case runs in a child whose stack has a megabyte.
"""

import os
import pathlib
import subprocess
import sys

import pytest

CHILD = r"""
import faulthandler, importlib.util, pathlib, sys, time
faulthandler.enable()
import numpy as np
spec = importlib.util.spec_from_file_location("tenon_hlo", pathlib.Path(sys.argv[1]) / "hlo.py")
hlo = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hlo)

def refused(action, *wanted):
    try:
        action()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        assert all(w in text for w in wanted), text
        return
    raise AssertionError("not refused")

P, Q = "p = f32[4] parameter(0)", "q = pred[] parameter(1)"

def computation(name, *lines):
    return name + " {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"

def nested(n, *lines):
    "n computations; in each but the first BEFORE stands for the one before it."
    text = ["HloModule m\n", computation("c0", P, "ROOT r = f32[4] add(p, p)")]
    for k in range(1, n):
        text.append(computation(f"c{k}", P, *(line.replace("BEFORE", f"c{k - 1}") for line in lines)))
    return "".join(text)

def chain(n, line):
    lines = ["HloModule chain\nENTRY e {\n  w = f32[4] parameter(1)\n  v0 = f32[4] parameter(0)"]
    lines += [f"  v{k} = {line(k)}" for k in range(1, n)]
    lines.append(f"  ROOT r = f32[4] negate(v{n - 1})\n}}\n")
    return "\n".join(lines)
"""

CASES = {
    "calls that double": r"""
def module(n, combine):
    text = nested(n, "a = f32[4] call(p), to_apply=BEFORE", "b = f32[4] call(a), to_apply=BEFORE", f"ROOT r = f32[4] {combine}(b, a)")
    return hlo.Module(text + computation("ENTRY e", P, f"ROOT r = f32[4] call(p), to_apply=c{n - 1}"))
large = module(40, "add")
refused(large.compile, "MemoryError", "more than 1000000 instructions, the budget of inline-calls")
refused(lambda: large.run_passes(["inline-calls"]), "the budget of inline-calls")
small, x = module(10, "subtract"), np.arange(4, dtype=np.float32)
np.testing.assert_array_equal(small.run([x])[0], small.evaluate([x])[0])
""",
    "sizes below their bounds": r"""
def cut(*lines, x="f32[9,5] parameter(0)"):
    "d: the first of x's nine rows, as many as parameter 1 says."
    return hlo.Module("\n".join([
        "HloModule m\nadd { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }",
        "two { a = f32[] parameter(0)\n b = f32[] parameter(1)\n c = f32[] parameter(2)\n d = f32[] parameter(3)",
        " s = f32[] add(a, c)\n t = f32[] add(b, d)\n ROOT u = (f32[], f32[]) tuple(s, t) }",
        "lt { a = f32[] parameter(0)\n b = f32[] parameter(1)\n c = f32[] parameter(2)\n d = f32[] parameter(3)",
        " ROOT s = pred[] compare(a, b), direction=LT }",
        f"ENTRY e {{\n  x = {x}\n  n = s32[] parameter(1)\n  z = f32[] constant(0)\n  k = s32[] constant(0)",
        "  d = f32[<=9,5] set-dimension-size(x, n), dimensions={0}", *lines, "}"]))

x = np.arange(45, dtype=np.float32).reshape(9, 5)
args, d = [x, np.int32(4)], x[:4]
for want, *lines in (
    (np.concatenate([d, d], 1), "ROOT r = f32[<=9,10] concatenate(d, d), dimensions={1}"),
    (np.pad(d, ((1, 1), (0, 0))), "ROOT r = f32[<=11,5] pad(d, z), padding=1_1x0_0"),
    (d + np.pad(d, ((1, 0), (0, 0)))[:-1], "ROOT r = f32[<=9,5] reduce-window(d, z), window={size=2x1 pad=1_0x0_0}, to_apply=add"),
    (d[::-1], "ROOT r = f32[<=9,5] reverse(d), dimensions={0}"),
    (d.T, "ROOT r = f32[5,<=9] transpose(d), dimensions={1,0}"),
    (d[:, :2], "m = s32[] constant(2)", "ROOT r = f32[<=9,<=5] set-dimension-size(d, m), dimensions={1}"),
    (d @ d.T, "ROOT r = f32[<=9,<=9] dot(d, d), lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
    (d[3:, :2], "i = s32[] constant(7)", "ROOT r = f32[1,2] dynamic-slice(d, i, k), dynamic_slice_sizes={1,2}"),
):
    module = cut(*lines)
    np.testing.assert_array_equal(module.evaluate(args)[0], want, str(lines))
    np.testing.assert_array_equal(module.run(args)[0], want, str(lines))

sizes = "of sizes below the bounds"
for why, *lines in (
    (sizes, "ROOT r = f32[8,5] dynamic-slice(d, k, k), dynamic_slice_sizes={8,5}"),
    (sizes, "ROOT r = f32[<=9,5] dynamic-update-slice(d, x, k, k)"),
    (sizes, "ROOT r = (f32[9,5], f32[9,5]) sort(x, d), dimensions={0}, to_apply=lt"),
    (sizes, "ROOT r = (f32[5], f32[5]) reduce(x, d, z, z), dimensions={0}, to_apply=two"),
    (sizes, "i = s32[1] constant({0})", "ROOT r = f32[1,7,5] gather(d, i), offset_dims={1,2}, collapsed_slice_dims={}, "
     "start_index_map={0}, index_vector_dim=1, slice_sizes={7,5}"),
    ("different sizes", "ROOT r = f32[9,5] maximum(x, d)"),
):
    refused(lambda: cut(*lines).evaluate(args), why)

# A bounded parameter: a program is made for the sizes that come, if it is one.
given = [d]
for line in ("f32[8,5] slice(d), slice={[0:8], [0:5]}", "f32[45] reshape(d)", "f32[3,9,5] broadcast(d), dimensions={1,2}"):
    module = hlo.Module("HloModule m\nENTRY e {\n  d = f32[<=9,5] parameter(0)\n  ROOT r = " + line + "\n}")
    refused(lambda: module.run(given), "verify_shape")
    if "broadcast" not in line:
        refused(lambda: module.evaluate(given))
""",
    "branches that double": r"""
both = "a = f32[4] conditional(q, p, p), branch_computations={BEFORE, BEFORE}"
text = nested(40, "q = s32[] constant(0)", both, "ROOT r = f32[4] add(a, p)")
entry = computation("ENTRY e", P, "q = s32[] parameter(1)", "ROOT r = f32[4] conditional(q, p, p), branch_computations={c39, c39}")
module = hlo.Module(text + entry)
refused(lambda: module.run_passes(["flatten-control-flow"]), "more than 1000000 instructions, the budget of flatten-control-flow")
refused(module.compile, "the budget of flatten-control-flow")
""",
    "branches twenty thousand deep": r"""
choice = "conditional(q, p, p), true_computation={}, false_computation=c0"
text = nested(20000, "q = pred[] constant(true)", "ROOT a = f32[4] " + choice.format("BEFORE"))
module = hlo.Module(text + computation("ENTRY e", P, Q, "ROOT r = f32[4] " + choice.format("c19999")))
refused(lambda: module.run_passes(["flatten-control-flow"]), "control flow is nested deeper than 150")
refused(module.compile, "nested deeper than 150")
refused(lambda: module.evaluate([np.zeros(4, np.float32), np.bool_(True)]), "nest deeper than 150")
""",
    "calls a hundred thousand deep": r"""
text = nested(100000, "ROOT a = f32[4] call(p), to_apply=BEFORE")
module = hlo.Module(text + computation("ENTRY e", P, "ROOT r = f32[4] call(p), to_apply=c99999"))
module.verify()
x = np.arange(4, dtype=np.float32)
refused(lambda: module.evaluate([x]), "nest deeper than 150")
try:
    np.testing.assert_array_equal(module.run([x])[0], x + x)
except MemoryError as error:  # a budget has a name
    assert "budget" in str(error) or "at most" in str(error), error
""",
    "a chain of a million": r"""
module = hlo.Module(chain(10**6, lambda k: f"f32[4] add(v{k - 1}, w)"))
module.verify()
x, w = np.zeros(4, np.float32), np.ones(4, np.float32)
np.testing.assert_array_equal(module.evaluate([x, w])[0], np.full(4, -(10**6 - 1), np.float32))
assert len(module.text()) > 10**7
refused(module.compile, "MemoryError", "instructions; the CPU backend compiles at most 200000")
module.cost()
del module
""",
    "a chain of a hundred thousand": r"""
module = hlo.Module(chain(10**5, lambda k: f"f32[4] add(v{k - 1}, w)"))
x, w = np.zeros(4, np.float32), np.ones(4, np.float32)
np.testing.assert_array_equal(module.evaluate([x, w])[0], np.full(4, -(10**5 - 1), np.float32))
""",
    "a chain of twenty thousand": r"""
x, w = np.linspace(-1, 1, 4, dtype=np.float32), np.full(4, .5, np.float32)
two = lambda k: f"f32[4] {('add', 'multiply', 'subtract')[k % 3]}(v{k - 1}, w)"
one = lambda k: f"f32[4] {('negate', 'abs', 'copy')[k % 3]}(v{k - 1})"
for line in (one, two):
    module = hlo.Module(chain(20000, line))
    np.testing.assert_array_equal(module.run([x, w])[0], module.evaluate([x, w])[0])
""",
    "a chain of reshapes and transposes": r"""
def line(k):
    before = f"(v{k - 1})"
    steps = ["f32[2,2] reshape" + before, "f32[2,2]{0,1} transpose" + before + ", dimensions={1,0}"]
    return [*steps, "f32[2,2]{1,0} copy" + before, "f32[4] reshape" + before][(k - 1) % 4]
module = hlo.Module(chain(8001, line))
x, w = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
np.testing.assert_array_equal(module.run([x, w])[0], module.evaluate([x, w])[0])
""",
    "a fusion of a hundred thousand": r"""
lines = ["HloModule m\nf {\n  v0 = f32[4] parameter(0)\n  w = f32[4] parameter(1)"]
lines += [f"  v{k} = f32[4] add(v{k - 1}, w)" for k in range(1, 100000)]
lines.append('  ROOT r = f32[4] negate(v99999)\n}\nENTRY e {\n  a = f32[4] parameter(0)\n  b = f32[4] parameter(1)\n'
             '  ROOT r = f32[4] fusion(a, b), kind=kLoop, calls=f, backend_config={"form":"loop"}\n}\n')
module = hlo.Module("\n".join(lines))
x, w = np.zeros(4, np.float32), np.ones(4, np.float32)
np.testing.assert_array_equal(module.evaluate([x, w])[0], np.full(4, -99999, np.float32))
try:
    np.testing.assert_array_equal(module.run([x, w])[0], np.full(4, -99999, np.float32))
except MemoryError as error:
    assert "at most 1000 make a kernel" in str(error), error
""",
}


SLOW = {"a chain of a million"}


@pytest.mark.parametrize("case", [pytest.param(case, marks=pytest.mark.slow if case in SLOW else ()) for case in CASES])
def test_is_refused_or_right(tenon, case):
    package = pathlib.Path(tenon.__file__).parent
    done = subprocess.run(
        ["bash", "-c", 'ulimit -s 1024; exec "$@"', "bash", sys.executable, "-c", CHILD + CASES[case], str(package)],
        env=os.environ | {"TENON_LIBRARY": str(package / "libtenon.so")},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.returncode}\n{done.stderr[-3000:]}"
