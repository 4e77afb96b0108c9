"""tenon-tune from the command line, and what the compiler does with the file that it writes. No figure is compared with a time."""

import json

import pytest

from hlo import command_line

MODULE = """HloModule m
ENTRY e {
  x = f32[64,4096] parameter(0)
  ROOT t = f32[64,4096] tanh(x)
}
"""


def _run(name, *args, machine=""):
    return command_line.run(name, *args, TENON_MACHINE=str(machine))


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "m.hlo"
    path.write_text(MODULE)
    return path


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("tune") / "machine.json"
    done = _run("tenon-tune", "--quick", f"--write={path}")
    assert done.returncode == 0, done.stderr
    assert "level" in done.stdout and "multiply-adds" in done.stdout and "fork and join" in done.stdout
    return path


def _grain(machine, module):
    """That of the module's kernel."""
    done = _run("hlo-opt", "--stage=program", module, machine=machine)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split(" grain ")[1].split()[0])


def _said(machine, module):
    done = _run("hlo-run", module, machine=machine)
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


def test_the_compiler_reads_what_was_written(written, module, tmp_path):
    assert _said(written, module) == ""
    model = json.loads(written.read_text())
    fine, coarse = tmp_path / "fine.json", tmp_path / "coarse.json"
    fine.write_text(json.dumps({**model, "fork_join_ns": 1000}))
    coarse.write_text(json.dumps({**model, "fork_join_ns": 1e6}))
    assert _grain(fine, module) < _grain(coarse, module)


@pytest.mark.parametrize(
    "change, why",
    [
        ({"tenon_machine": 2}, "version 2, wanted 1"),
        ({"fork_join_ns": -5}, "fork_join_ns: wanted a number from"),
        ({"threads": "two"}, "wanted a whole number"),
        ({"colour": "red"}, 'unknown "colour"'),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_left_alone(written, module, tmp_path, change, why):
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({**json.loads(written.read_text()), **change}))
    said = _said(wrong, module)
    assert f"TENON_MACHINE={wrong}: " in said and why in said and "the built-in table is used" in said
    assert _grain(wrong, module) == _grain("", module)


def test_no_file_and_no_json(module, tmp_path):
    assert "cannot be read" in _said(tmp_path / "nothing.json", module)
    (tmp_path / "text").write_text("L1: fast")
    assert "not JSON" in _said(tmp_path / "text", module)


def test_bad_usage(tmp_path):
    for arguments in (["--nonsense"], ["--write="], ["--threads=0"]):
        done = _run("tenon-tune", *arguments)
        assert done.returncode == 2 and "--help" in done.stderr
    assert _run("tenon-tune", "--help").stdout.startswith("usage: tenon-tune")
    assert _run("tenon-tune", "--quick", "--isa=pdp11").returncode == 3
    assert _run("tenon-tune", "--quick", f"--write={tmp_path}/no/such/folder").returncode == 3
