"""hlo-opt and hlo-run from the command line: exit codes, messages, NumPy files."""

import json

import numpy as np
import pytest

from hlo.command_line import run

MODULE = """HloModule m
ENTRY e {
  x = f32[2,3] parameter(0)
  n = s32[2] parameter(1)
  s = f32[2,3] sine(x)
  ROOT r = (f32[2,3], s32[2]) tuple(s, n)
}
"""


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "m.hlo"
    path.write_text(MODULE)
    return path


@pytest.mark.parametrize("tool", ["hlo-opt", "hlo-run"])
def test_help_and_bad_usage(tool, module):
    assert run(tool, "--help").stdout.startswith(f"usage: {tool}")
    assert run(tool, "--help").returncode == 0
    for arguments in [[], ["--nonsense", module]]:
        done = run(tool, *arguments)
        assert done.returncode == 2 and "--help" in done.stderr


def test_opt_prints_what_it_parsed(module):
    done = run("hlo-opt", module)
    assert done.returncode == 0 and done.stdout == "HloModule m\n\nENTRY e {\n" + MODULE.split("{\n", 1)[1]
    assert run("hlo-opt", "-", stdin=MODULE).stdout == done.stdout
    done = run("hlo-opt", "--canonical", module)
    assert "ROOT v3 = (f32[2,3], s32[2]) tuple(v2, v1)" in done.stdout


def test_opt_refuses_with_line_and_column(module):
    module.write_text(MODULE.replace("sine(x)", "sine(y)"))
    done = run("hlo-opt", module)
    assert done.returncode == 1
    assert done.stderr == f"{module}: line 5, column 21: wanted an instruction defined before, got 'y'\n"


@pytest.mark.parametrize("command", [("hlo-run", "--backend=cpu"), ("hlo-opt", "--stage=plans")])
def test_a_framework_call_of_a_wrong_form_is_an_error_not_an_abort(command, module):
    module.write_text(
        'HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n'
        '  ROOT odd = f32[4] custom-call(p), custom_call_target="aten.relu.default", backend_config={"args":5}\n}\n'
    )
    done = run(*command, module)
    assert done.returncode in (1, 3), done
    assert 'odd: wanted backend_config={"args":"(...)", ...}' in done.stderr, done.stderr


def test_opt_runs_passes(module):
    module.write_text(MODULE.replace("ROOT", "dead = f32[2,3] cosine(x)\n  ROOT"))
    assert "cosine" in run("hlo-opt", module).stdout
    done = run("hlo-opt", "--passes=dce", "--timing", module)
    assert done.returncode == 0 and "cosine" not in done.stdout and "dce  changed" in done.stderr
    done = run("hlo-opt", "--passes=no-such-pass", module)
    assert done.returncode == 1 and 'unknown pass "no-such-pass"' in done.stderr
    assert "dce" in run("hlo-opt", "--list-passes").stdout


def test_opt_prints_costs(module):
    done = run("hlo-opt", "--cost", module)
    first, head, *rows = done.stdout.splitlines()
    assert first == (
        "total: 0 flops, 6 transcendentals, 48 bytes moved; peak memory 56 bytes (arguments 32, output 32)"
    )
    assert len(rows) == 1 and rows[0].split() == ["0", "6", "48", "1", "sine", "s"]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_run_reads_and_writes_npz(module, tmp_path, save):
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    save(tmp_path / "in.npz", in1=np.array([3, -4], np.int32), in0=np.asfortranarray(x))
    done = run("hlo-run", "--backend=eval", f"--inputs={tmp_path}/in.npz", f"--save={tmp_path}/out.npz", module)
    assert done.returncode == 0, done.stderr
    out = np.load(tmp_path / "out.npz")
    np.testing.assert_allclose(out["out0"], np.sin(x), rtol=1e-6)
    np.testing.assert_array_equal(out["out1"], [3, -4])


def test_run_says_where_and_how_far(module, tmp_path):
    x = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
    want = np.sin(x)
    want[1, 2] += 0.5
    np.savez(tmp_path / "in.npz", in0=x, in1=np.zeros(2, np.int32))
    np.savez(tmp_path / "want.npz", out0=want, out1=np.zeros(2, np.int32))
    arguments = ["--backend=eval", f"--inputs={tmp_path}/in.npz", f"--expect={tmp_path}/want.npz", module]
    done = run("hlo-run", *arguments)
    assert done.returncode == 1
    first, second = done.stdout.splitlines()
    assert "1 of 6 elements off" in first and "[1,2]" in first and "abs 0.5" in first and "ULP" in first
    assert second == "eval output 1 s32[2]: equal"
    assert run("hlo-run", "--atol=1", *arguments).returncode == 0


def test_run_refuses_inputs_that_do_not_fit(module, tmp_path):
    np.savez(tmp_path / "in.npz", in0=np.zeros((3, 2), np.float32), in1=np.zeros(2, np.int32))
    done = run("hlo-run", "--backend=eval", f"--inputs={tmp_path}/in.npz", module)
    assert done.returncode == 3 and "input 0: wanted f32[2,3] (<f4), got <f4[3,2]" in done.stderr
    (tmp_path / "bad.npz").write_bytes(b"PK not a zip")
    done = run("hlo-run", "--backend=eval", f"--inputs={tmp_path}/bad.npz", module)
    assert done.returncode == 3 and "not a zip file" in done.stderr


def test_run_compares_the_backends(module):
    done = run("hlo-run", "--seed=7", module)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cpu output 0 f32[2,3]:" in done.stdout


# ---- hlo-opt: stages, cases, JSON
STAGES = ["hlo", "plans", "buffers", "program", "llvm", "optimized-llvm", "assembly"]


def _json_lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_opt_lists_stages_and_passes():
    assert [line.split()[0] for line in run("hlo-opt", "--list-stages").stdout.splitlines()] == STAGES
    assert [s["name"] for s in json.loads(run("hlo-opt", "--list-stages", "--json").stdout)["stages"]] == STAGES
    passes = json.loads(run("hlo-opt", "--list-passes", "--json").stdout)
    assert set(passes["default_pipeline"]) <= {p["name"] for p in passes["passes"]}


@pytest.mark.parametrize("stage", STAGES)
def test_opt_shows_a_stage_alone(stage, module):
    says = {"hlo": "HloModule", "plans": "loop loops=", "buffers": "arena", "program": 'program "m" native',
            "llvm": "define void @k0", "optimized-llvm": "define void @k0", "assembly": "k0:"}  # fmt: skip
    done = run("hlo-opt", f"--stage={stage}", module)
    assert done.returncode == 0 and says[stage] in done.stdout
    (line,) = _json_lines(run("hlo-opt", f"--stage={stage}", "--json", module))
    assert line["ok"] and {s["stage"] for s in line["stages"]} == {stage}


def test_opt_stages_of_an_isa(module):
    assert "zmm" not in run("hlo-opt", "--stage=assembly", "--isa=avx2", module).stdout
    assert "ymm" not in run("hlo-opt", "--stage=assembly", "--isa=sse4", module).stdout
    done = run("hlo-opt", "--stage=plans", "--isa=mmx", module)
    assert done.returncode == 1 and "mmx" in done.stderr


def test_opt_diffs_between_passes(module):
    module.write_text(MODULE.replace("ROOT", "dead = f32[2,3] cosine(x)\n  ROOT"))
    done = run("hlo-opt", "--diff", "--passes=dce", module)
    assert "--- 00.input.hlo\n+++ 01.dce.hlo\n" in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith(("+", "-")) and line[1:3] not in ("--", "++")] == [
        "-  dead = f32[2,3] cosine(x)"
    ]


def test_opt_dumps_stages_to_files(module, tmp_path):
    done = run("hlo-opt", f"--dump-to={tmp_path / 'out'}", module)
    assert done.returncode == 0 and done.stdout == ""
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert {"00.input.hlo", "plans.txt", "buffers.txt", "program.txt", "llvm.0.emitted.ll", "llvm.0.ll", "llvm.0.s"} <= names


CASES = f"""{MODULE}
// -----
HloModule bad
ENTRY e {{
  x = f32[2] parameter(0)
  ROOT y = f32[2] sine(z)
}}
// -----

// -----
{MODULE}"""


def test_opt_splits_input(module):
    module.write_text(CASES)
    done = run("hlo-opt", "--split-input", module)
    assert done.returncode == 1 and done.stdout.count("HloModule m") == 2
    line = CASES[: CASES.index("sine(z)")].count("\n") + 1
    assert done.stderr == f"{module}:10: line {line}, column 24: wanted an instruction defined before, got 'z'\n"
    # Without the bad one all is well, and what is printed can be read again.
    module.write_text("// -----\n".join(part for part in CASES.split("// -----\n") if "bad" not in part))
    done = run("hlo-opt", "--split-input", module)
    assert done.returncode == 0 and run("hlo-opt", "--split-input", "-", stdin=done.stdout).stdout == done.stdout


def test_opt_json_has_everything(module):
    module.write_text(CASES)
    done = run("hlo-opt", "--split-input", "--json", "--pipeline", "--remarks", "--timing", "--plan", module)
    first, bad, last = _json_lines(done)
    assert done.returncode == 1 and first["ok"] and last["ok"] and (first["case"], last["case"]) == (0, 2)
    assert not bad["ok"] and bad["error"]["code"] == "INVALID_ARGUMENT" and (bad["error"]["line"], bad["error"]["column"]) == (13, 24)
    assert {"pass", "ms", "changed"} <= set(first["timings"][0]) and isinstance(first["remarks"], list)
    names = {name for a in first["plan"]["allocations"] for name in a["values"]}
    assert "x" in names and first["plan"]["arena_bytes"] == "64"
    (line,) = _json_lines(run("hlo-opt", "--json", "--cost", module.with_name("m.hlo"), "--split-input"))[:1]
    assert line["cost"]["total"]["transcendentals"] == 6
    missing = run("hlo-opt", "--json", module.with_name("missing.hlo"))
    assert missing.returncode == 1 and json.loads(missing.stdout)["error"]["code"] == "NOT_FOUND"
    assert run("hlo-opt", "--stage=nonsense", module).returncode == 2


# ---- hlo-run: what runs cost
DOT = """HloModule dot
ENTRY e {
  x = f32[8,16] parameter(0)
  y = f32[16,4] parameter(1)
  d = f32[8,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[8,4] tanh(d), metadata={source_file="net.py" source_line=3}
}
"""


def test_run_bench(module):
    module.write_text(DOT)
    done = run("hlo-run", "--bench", "--isa=sse4", "--threads=1", module)
    head, compiled, ran = done.stdout.splitlines()
    assert done.returncode == 0 and head == "sse4, 1 threads"
    assert compiled.startswith("compile ") and all(f" {phase} " in compiled for phase in ("passes", "plan", "llvm"))
    assert all(word in ran for word in ("min", "median", "90%"))
    (line,) = _json_lines(run("hlo-run", "--bench", "--json", "--repeat=30", module))
    times = line["bench"]["run_us"]
    assert line["ok"] and times["runs"] == 30 and 0 < times["min"] <= times["median"] <= times["p90"]
    assert line["bench"]["compile_ms"]["total"] >= line["bench"]["compile_ms"]["llvm"] > 0


def test_run_profile(module):
    module.write_text(DOT)
    done = run("hlo-run", "--profile", module)
    assert done.returncode == 0 and "host.matmul d" in done.stdout and "k0 fusion_t  [net.py:3]" in done.stdout
    (line,) = _json_lines(run("hlo-run", "--profile", "--json", "--repeat=10", module))
    steps = {s["name"]: s for s in line["profile"]["steps"]}
    assert set(steps) == {"d", "fusion_t"} and 0 < sum(s["share"] for s in steps.values()) <= 1
    assert steps["d"]["flops"] == 2 * 8 * 16 * 4 and steps["d"]["bytes"] == 4 * (8 * 16 + 16 * 4 + 8 * 4)
    assert all(s["executions"] == 1 and s["us"] > 0 and s["gb_per_s"] > 0 for s in steps.values())
    times = [s["us"] for s in line["profile"]["steps"]]
    assert times == sorted(times, reverse=True)
    assert all(0 < s["roof"] for s in steps.values()) and line["profile"]["roof"]["levels"][-1]["name"] == "memory"


def test_run_profile_writes_the_timeline(module, tmp_path):
    module.write_text(DOT)
    done = run("hlo-run", f"--profile={tmp_path / 't.json'}", "--repeat=10", module)
    assert done.returncode == 0 and "GFLOP/s f32" in done.stdout
    events = [e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e["ph"] == "X"]
    calls = [e for e in events if e["cat"] == "call"]
    assert len(calls) >= 11 and {e["name"] for e in events} == {"dot", "d", "fusion_t"}
    for name in ("d", "fusion_t"):
        assert len([e for e in events if e["cat"] == "step" and e["name"] == name]) == len(calls)
    assert run("hlo-run", f"--profile={tmp_path}/no/t.json", module).returncode == 3

def test_run_json_compares_and_tells_errors(module):
    (line,) = _json_lines(run("hlo-run", "--json", module))
    assert line["ok"] and [c["within"] for c in line["compared"]] == [True, True]
    module.write_text(MODULE.replace("sine(x)", "sine(y)"))
    done = run("hlo-run", "--json", module)
    assert done.returncode == 3 and "defined before" in json.loads(done.stdout)["error"]["message"]
    assert run("hlo-run", "--bench", "--backend=eval", module).returncode == 2
    assert run("hlo-run", "--repeat=-1", module).returncode == 2


def test_run_writes_a_page_with_the_timeline(module, tmp_path):
    module.write_text(DOT)
    assert run("hlo-run", "--profile", f"--html={tmp_path / 'p.html'}", module).returncode == 0
    page = (tmp_path / "p.html").read_text()
    assert '"trace":[[0,' in page and "define void @k0" in page


LOOP = """HloModule loop
body { s = (s32[], f32[8]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[8] get-tuple-element(s), index=1
 one = s32[] constant(1)
 n = s32[] add(i, one)
 y = f32[8] tanh(x)
 ROOT t = (s32[], f32[8]) tuple(n, y) }
cond { s = (s32[], f32[8]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 k = s32[] constant(12)
 ROOT c = pred[] compare(i, k), direction=LT }
ENTRY main { x = f32[8] parameter(0)
 zero = s32[] constant(0)
 t = (s32[], f32[8]) tuple(zero, x)
 w = (s32[], f32[8]) while(t), condition=cond, body=body
 ROOT v = f32[8] get-tuple-element(w), index=1 }
"""


def test_run_profile_of_a_loop(module):
    module.write_text(LOOP)
    (line,) = _json_lines(run("hlo-run", "--profile", "--json", "--repeat=10", module))
    profile = line["profile"]
    main, condition, body = profile["regions"]
    assert main == profile["runs"] and condition == 13 * main and body == 12 * main
    loop = next(s for s in profile["steps"] if s["kind"] == "while")
    inside = [s for s in profile["steps"] if s["region"] > 0]
    assert loop["share"] is None and loop["us"] >= sum(s["us"] for s in inside)
    assert {s["executions"] for s in inside} == {12, 13}
    assert "region body: 12 runs a call" in run("hlo-run", "--profile", "--repeat=10", module).stdout


def test_given_plans(tmp_path):
    """What --stage=plans shows, changed, is what runs; what does not fit is refused by name."""
    module, plans = tmp_path / "m.hlo", tmp_path / "plans.txt"
    module.write_text("HloModule m\nENTRY e {\n  x = f32[1000] parameter(0)\n  ROOT y = f32[1000] sine(x)\n}\n")
    shown = run("hlo-opt", "--stage=plans", module).stdout
    assert "fusion_y:  // k0\n  loop loops=[0:1000]" in shown
    unroll = next(word for word in shown.split() if word.startswith("unroll="))

    def given(text):
        plans.write_text(text)
        return run("hlo-run", f"--plans={plans}", module), run("hlo-opt", f"--plans={plans}", "--stage=plans", module)

    for text in shown, shown.replace(unroll, "unroll=8"):
        ran, opened = given(text)
        assert ran.returncode == 0 and "equal within tolerance" in ran.stdout, ran.stderr
        assert opened.stdout == text
    for text, wanted in [
        (shown.replace(unroll, "unroll=3"), "fusion_y: kernel plan: vectors at once that are no power of two"),
        (shown.replace("0:1000", "0:1001"), "fusion_y: kernel plan: a loop's extent differs from its dims"),
        (shown.replace("loop loops", "loops"), "fusion_y: kernel plan: wanted a kind"),
        (shown.replace("fusion_y", "fusion_z"), "plans: there is no fusion fusion_z; there are fusion_y"),
        (shown.replace("fusion_y:", "fusion_y"), 'line 2: wanted "fusion, ...:"'),
        ("fusion_y:\n", "plans: none for fusion_y"),
    ]:
        for done in given(text):
            assert done.returncode != 0 and wanted in done.stderr + done.stdout, done
    done = run("hlo-run", f"--plans={tmp_path / 'none'}", module)
    assert done.returncode == 2 and "cannot open" in done.stderr
