"""Labels of constraints agree between code, docs and negative tests, and the script that says so notices when they don't."""

import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tools" / "dev" / "check_labels.py"


def _check(root):
    return subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True)


def test_labels_agree():
    done = _check(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "path, before, after, said",
    [
        ("hlo/infer/reduction.cc", '"reduce_c1"', '"reduce_c9"', "reduce_c9: in code, not in docs/hlo.md"),
        ("docs/hlo.md", "`sort_c2`", "`sort`", "sort_c2: in code, not in docs/hlo.md"),
        ("tests/hlo/labels.hlo", "// label: topk_c2\n", "", "topk_c2: in code, not in tests/hlo"),
        ("tests/hlo/verifier_test.cc", '"verify_alias"', '"verify_root"', "verify_alias: in code, not in tests/hlo"),
        ("docs/hlo.md", "popcnt", "", "popcnt: an opcode that docs/hlo.md doesn't name"),
    ],
)
def test_planted_disagreement_is_found(tmp_path, path, before, after, said):
    for folder in ["hlo", "docs", "tests/hlo"]:
        shutil.copytree(ROOT / folder, tmp_path / folder)
    planted = tmp_path / path
    text = planted.read_text()
    assert before in text
    planted.write_text(text.replace(before, after))
    done = _check(tmp_path)
    assert done.returncode == 1 and said in done.stdout.splitlines()
