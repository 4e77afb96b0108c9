"""check_paths, check_width and check_twice find what they look for, in a repository of a few planted files."""

import pathlib
import subprocess
import sys

import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools" / "dev"


def _run(tool, tmp_path, files):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
    done = subprocess.run([sys.executable, str(TOOLS / tool), str(tmp_path)], capture_output=True, text=True)
    return done.returncode, done.stdout


GOOD = {
    "docs/page.md": "See [the other](sub/other.md), `hlo/shape.h`, shape.h, generate_<family>.cc and http://x.org/none.md.\n",
    "docs/sub/other.md": "Up: ../page.md\n",
    "hlo/shape.h": '// Made of hlo/types.def; used by shape.cc.\nconst char* kName = "no/such.h";  // a string is no comment\n',
    "hlo/shape.cc": "/* as\n * docs/page.md says */\nint x;\n",
    "hlo/types.def": "// ATen/native/cpu/Reduce.h has another\n",
    "lab/generate_sums.cc": "",
}


def test_names_of_files_that_exist_are_fine(tmp_path):
    assert _run("check_paths.py", tmp_path, GOOD) == (0, "every file that a comment or a page names exists\n")


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("docs/page.md", "See gone.md.\n", "docs/page.md:1: there is no gone.md"),
        ("hlo/shape.cc", "int x;  // as passes/remarks.h has it\n", "hlo/shape.cc:1: there is no passes/remarks.h"),
        ("hlo/shape.h", "/* one\n * runtime/options.md in docs */\n", "hlo/shape.h:2: there is no runtime/options.md"),
        ("tools/x.py", "#  As tools/y.py does.\n", "tools/x.py:1: there is no tools/y.py"),
        ("tools/x.sh", "echo  # for phases.sh\n", "tools/x.sh:1: there is no phases.sh"),
        ("hlo/types.def", "// lower_<family>.cc\n", "hlo/types.def:1: there is no lower_<family>.cc"),
    ],
)
def test_a_name_of_no_file_is_found(tmp_path, name, text, wanted):
    assert _run("check_paths.py", tmp_path, {**GOOD, name: text}) == (1, wanted + "\n")


def test_wide_lines_are_found(tmp_path):
    wide = "x" * 150
    files = {
        "a.js": f"// {wide}\n",
        "b.def": f"ROW(kAdd, {wide})\n// {wide}\n",
        "c.cc": f'const char* k = R"(\n{wide}\n)";\nint {wide};\n',
        "d.md": wide + "\n",
    }
    code, text = _run("check_width.py", tmp_path, files)
    assert code == 1
    assert [line.split(": ")[0] for line in text.splitlines()] == ["a.js:1", "b.def:2", "c.cc:4"]


def test_ten_lines_in_both_targets_are_found(tmp_path):
    shared = [f"int a{i} = {i};" for i in range(10)]
    indented = "namespace gpu {\n\n" + "".join(f"  {line}\n  // why\n" for line in shared)
    files = {
        "backends/cpu/a.cc": "\n".join(["int before;", *shared, "}"]),
        "backends/gpu/b.cc": "\n".join(shared[:9]),  # nine of them
    }
    assert _run("check_twice.py", tmp_path, files) == (0, "no 10 lines stand in backends/cpu and in backends/gpu\n")
    code, text = _run("check_twice.py", tmp_path, {**files, "backends/gpu/c.cc": indented})
    assert (code, text) == (1, "backends/gpu/c.cc:3: 10 lines as in backends/cpu/a.cc:2\n")
