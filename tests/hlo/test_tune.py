"""tenon-tune from the command line, and what the compiler does with the file that it writes. No figure is compared with a time."""

import json
import os
import subprocess

import pytest
from test_tools import _run, _tool

MODULE = """HloModule m
ENTRY e {
  x = f32[64,4096] parameter(0)
  ROOT t = f32[64,4096] tanh(x)
}
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("tune") / "machine.json"
    done = _run("tenon-tune", "--quick", f"--write={path}")
    assert done.returncode == 0, done.stderr
    assert "level" in done.stdout and "multiply-adds" in done.stdout and "fork and join" in done.stdout
    return path


def _grain(machine, tmp_path):
    """The grain that the kernel of the module gets, and what was said on the way."""
    module = tmp_path / "m.hlo"
    module.write_text(MODULE)
    environment = {**os.environ, "TENON_MACHINE": str(machine)}
    done = subprocess.run([_tool("hlo-opt"), "--stage=program", module], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split(" grain ")[1].split()[0])


def _said(machine, tmp_path):
    module = tmp_path / "m.hlo"
    module.write_text(MODULE)
    environment = {**os.environ, "TENON_MACHINE": str(machine)}
    done = subprocess.run([_tool("hlo-run"), module], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_every_figure_is_positive(written):
    model = json.loads(written.read_text())
    assert model["tenon_machine"] == 1 and model["name"] == "tuned" and model["threads"] >= 1
    assert [level["name"] for level in model["levels"]] == ["L1", "L2", "L3", "memory"]
    for level in model["levels"]:
        assert level["bytes_per_ns"] > 0 and level["all_bytes_per_ns"] >= level["bytes_per_ns"]
        assert level["bytes"] is None if level["name"] == "memory" else level["bytes"] > 0
    assert model["multiply_adds_per_ns"] > 0 and model["fork_join_ns"] > 0


def test_the_compiler_reads_what_was_written(written, tmp_path):
    assert _said(written, tmp_path) == ""
    model = json.loads(written.read_text())
    fine, coarse = tmp_path / "fine.json", tmp_path / "coarse.json"
    fine.write_text(json.dumps({**model, "fork_join_ns": 1000}))
    coarse.write_text(json.dumps({**model, "fork_join_ns": 1e6}))
    assert _grain(fine, tmp_path) < _grain(coarse, tmp_path)


@pytest.mark.parametrize(
    "change, why",
    [
        ({"tenon_machine": 2}, "version 2, wanted 1"),
        ({"fork_join_ns": -5}, "fork_join_ns: wanted a number from"),
        ({"threads": "two"}, "wanted a whole number"),
        ({"colour": "red"}, 'unknown "colour"'),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_left_alone(written, tmp_path, change, why):
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({**json.loads(written.read_text()), **change}))
    said = _said(wrong, tmp_path)
    assert f"TENON_MACHINE={wrong}: " in said and why in said and "the built-in table is used" in said
    assert _grain(wrong, tmp_path) == _grain("", tmp_path)


def test_no_file_and_no_json(tmp_path):
    assert "cannot be read" in _said(tmp_path / "nothing.json", tmp_path)
    (tmp_path / "text").write_text("L1: fast")
    assert "not JSON" in _said(tmp_path / "text", tmp_path)


def test_bad_usage(tmp_path):
    for arguments in (["--nonsense"], ["--write="], ["--threads=0"]):
        done = _run("tenon-tune", *arguments)
        assert done.returncode == 2 and "--help" in done.stderr
    assert _run("tenon-tune", "--help").stdout.startswith("usage: tenon-tune")
    assert _run("tenon-tune", "--quick", "--isa=pdp11").returncode == 3
    assert _run("tenon-tune", "--quick", f"--write={tmp_path}/no/such/folder").returncode == 3
