"""hlo-reduce and hlo-diff from the command line: exit codes, messages, files that replay."""

import json
import pathlib
import stat

import numpy as np
import pytest

from hlo.command_line import run

MODULE = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[6,10] parameter(0)
  y = f32[6,10] parameter(1)
  s = f32[6,10] sine(x)
  t = f32[6,10] subtract(s, y)
  p = f32[] constant(0)
  q = f32[6,10] pad(t, p), padding=1_-1x0_0
  n = f32[6,10] negate(q)
  ROOT r = (f32[6,10], f32[6]) tuple(n, reduce(n, p), dimensions={1}, to_apply=sum)
}
""".replace(
    "  ROOT r = (f32[6,10], f32[6]) tuple(n, reduce(n, p), dimensions={1}, to_apply=sum)",
    "  k = f32[6] reduce(n, p), dimensions={1}, to_apply=sum\n  ROOT r = (f32[6,10], f32[6]) tuple(n, k)",
)


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "m.hlo"
    path.write_text(MODULE)
    return path


@pytest.mark.parametrize("tool", ["hlo-reduce", "hlo-diff"])
def test_help_and_bad_usage(tool, module):
    assert run(tool, "--help").stdout.startswith(f"usage: {tool}")
    assert run(tool, "--help").returncode == 0
    for arguments in [[], ["--nonsense", module], [module, module, module]]:
        done = run(tool, *arguments)
        assert done.returncode == 2 and "--help" in done.stderr


def test_reduce_miscompare_replays(module, tmp_path):
    out = tmp_path / "small.hlo"
    done = run("hlo-reduce", "--plant=pad-off-by-one", f"--output={out}", "--json", module)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["instructions"] <= 3 and told["finished"] and told["steps"]
    assert told["instructions_before"] == 12
    assert "pad(" in out.read_text()
    inputs = np.load(told["inputs"])
    assert sorted(inputs) == [f"in{i}" for i in range(len(inputs))]
    replay = ["--no-excess-precision", f"--inputs={told['inputs']}", out]
    assert run("hlo-run", "--plant=6", *replay).returncode == 1
    assert run("hlo-run", *replay).returncode == 0


def test_reduce_says_that_nothing_fails(module):
    done = run("hlo-reduce", module)
    assert done.returncode == 1
    assert "doesn't fail as given: the results are the evaluator's" in done.stderr


def test_reduce_refuses_files(module, tmp_path):
    done = run("hlo-reduce", tmp_path / "absent.hlo")
    assert done.returncode == 3 and "cannot open" in done.stderr
    module.write_text(MODULE.replace("sine(x)", "sine(w)"))
    done = run("hlo-reduce", module)
    assert done.returncode == 3 and "line 6, column 22" in done.stderr
    module.write_text(MODULE)
    np.savez(tmp_path / "in.npz", in0=np.zeros((6, 10), np.float32))
    done = run("hlo-reduce", f"--inputs={tmp_path / 'in.npz'}", module)
    assert done.returncode == 3 and "wanted more than 1 inputs" in done.stderr


def test_reduce_refuses_options(module):
    for option in ["--plant=eleven", "--error=(", "--error", "--script", "--max-seconds=0"]:
        assert run("hlo-reduce", option, module).returncode == 2, option


def test_reduce_error(tmp_path):
    path = tmp_path / "m.hlo"
    path.write_text(
        """ENTRY e {
          x = f32[8] parameter(0)
          a = f32[8] tanh(x)
          c = f32[8] custom-call(a), custom_call_target="nobody.knows"
          ROOT r = f32[8] add(c, x)
        }"""
    )
    out = tmp_path / "small.hlo"
    done = run("hlo-reduce", "--error=nobody\\.knows", f"--output={out}", "--quiet", path)
    assert done.returncode == 0, done.stderr
    assert "custom-call" in out.read_text() and "tanh" not in out.read_text()
    done = run("hlo-reduce", "--error=something else", path)
    assert done.returncode == 1 and "nobody.knows" in done.stderr


def test_reduce_script(module, tmp_path):
    script = tmp_path / "interesting.sh"
    script.write_text('#!/bin/sh\ntest -e "${1%.hlo}.npz" && grep -q sine "$1"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    out = tmp_path / "small.hlo"
    done = run("hlo-reduce", f"--script={script}", f"--output={out}", module)
    assert done.returncode == 0, done.stderr
    assert out.read_text().count(" = ") == 2
    assert not list(pathlib.Path("/tmp").glob("hlo-reduce-*/candidate.hlo"))


def test_reduce_crash_and_timeout(module, tmp_path):
    # A process that takes longer than the limit counts as dead; this limit nothing can keep.
    out = tmp_path / "small.hlo"
    done = run("hlo-reduce", "--crash", "--timeout=0.0001", "--max-tries=40", f"--output={out}", module)
    assert done.returncode == 0, done.stderr
    done = run("hlo-reduce", "--crash", "--timeout=60", module)
    assert done.returncode == 1 and "ends well" in done.stderr


def test_list_plants():
    listed = run("hlo-reduce", "--list-plants").stdout.splitlines()
    assert len(listed) >= 20 and [int(line.split()[0]) for line in listed] == list(range(1, len(listed) + 1))


def test_diff_exit_codes_and_output(module, tmp_path):
    other = tmp_path / "other.hlo"
    other.write_text(MODULE.replace("sine(x)", "cosine(x)"))
    assert run("hlo-diff", module, module).returncode == 0
    assert run("hlo-diff", module, module).stdout == ""
    done = run("hlo-diff", module, other)
    assert done.returncode == 1
    assert "- s = f32[6,10] sine(x)\n+ s = f32[6,10] cosine(x)\n    opcode: sine -> cosine\n" in done.stdout
    told = json.loads(run("hlo-diff", "--json", module, other).stdout)
    assert (told["removed"], told["added"], told["changed"]) == (0, 0, 1)
    change = told["computations"][0]["changes"][0]
    assert change["fields"] == [{"what": "opcode", "a": "sine", "b": "cosine"}]
    assert run("hlo-diff", "--stat", module, other).stdout == "0 removed, 0 added, 1 changed\n"
    assert run("hlo-diff", "--quiet", module, other).stdout == ""


def test_diff_ignores(module, tmp_path):
    other = tmp_path / "other.hlo"
    other.write_text(MODULE.replace("s = ", "renamed = ").replace("(s,", "(renamed,").replace("HloModule m", "HloModule k"))
    assert run("hlo-diff", module, other).returncode == 1
    assert run("hlo-diff", "--ignore=names", module, other).returncode == 0
    assert run("hlo-diff", "--ignore=colour", module, other).returncode == 2


def test_diff_refuses_files(module, tmp_path):
    done = run("hlo-diff", module, tmp_path / "absent.hlo")
    assert done.returncode == 2 and "cannot open" in done.stderr
    bad = tmp_path / "bad.hlo"
    bad.write_text("ENTRY e {")
    done = run("hlo-diff", bad, module)
    assert done.returncode == 2 and "bad.hlo: line 1" in done.stderr
