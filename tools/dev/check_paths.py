#!/usr/bin/env python3
"""Checks that every file which a comment or a page names exists: `runtime/program/program.h`, docs/ARCHITECTURE.md, generate_<family>.cc.

Looked at: Markdown pages, and comments of C++, tables, Python (docstrings too), CMake and shell. A name is found if some tracked file
is called so, from the root, from the naming file's folder or by its last parts; `<x>` and `*` stand for anything. Not looked for:
files of other projects (FOREIGN, XLAS), files that are made (MADE), other repositories' (a name after ://). Exit code 1 and a list
if a name is missing.
"""

import argparse
import pathlib
import posixpath
import re
import subprocess
import sys

NAME = re.compile(
    r"(?<![\w/.<>*:~$-])("
    r"(?:[\w.<>*-]+/)*[\w.<>*-]*[\w>*]\.(?:md|h|cc|def|sh|cmake|js|css)"
    r"|(?:[\w.<>*-]+/)+[\w<>*-]+\.(?:py|hlo)"
    r")(?![\w/*-]|\.\w)"
)
HASH = (".py", ".cmake", ".sh", "CMakeLists.txt", "Makefile")
SLASH = (".cc", ".h", ".def", ".js", ".c")

# Of other projects: by the start of the name; XLA's and ATen's sources by their whole name.
FOREIGN = ("ATen/", "aten/src/", "c10/", "torch/", "llvm/", "absl/", "xla/", "gtest/", "gmock/", "cuda.h")
XLAS = {"replica_group.h", "hlo_instructions.cc", "hlo_opcode.h", "UpSample.h"}
# Made by a build or a run, or a name that a user would give.
MADE = ("build/", "./interesting.sh", "./run.sh", "run.sh", "./fuzz.sh", "fuzz.sh", "results.md")


def comments(text: str, name: str):
    """Yields (line number, text) of what is prose in a file."""
    lines = text.splitlines()
    if name.endswith(".md"):
        yield from enumerate(lines, 1)
    elif name.endswith(SLASH):
        inside = False
        for number, line in enumerate(lines, 1):
            block, slashes = line.find("/*"), line.find("//")
            if inside or (block >= 0 and not 0 <= slashes < block):
                prose = line if inside else line[block:]
                yield number, prose
                inside = "*/" not in prose
            elif slashes >= 0 and not line[:slashes].count('"') % 2:
                yield number, line[slashes:]
    elif name.endswith(HASH):
        inside = False
        for number, line in enumerate(lines, 1):
            quotes = line.count('"""') if name.endswith(".py") else 0
            if inside or quotes:
                yield number, line
                inside ^= quotes % 2 == 1
            elif (at := line.find("#")) >= 0 and not line[:at].count('"') % 2 and not line[:at].count("'") % 2:
                yield number, line[at:]


class Files:
    """The tracked files, found by any of their last parts."""

    def __init__(self, names):
        self.names = set(names)
        self.tails = {"/".join(name.split("/")[k:]) for name in names for k in range(name.count("/") + 1)}

    def has(self, wanted: str, folder: str) -> bool:
        if wanted in self.tails or posixpath.normpath(f"{folder}/{wanted}") in self.names:
            return True
        if "<" not in wanted and "*" not in wanted:
            return False
        pattern = re.compile(re.sub(r"<[^>]*>|\\\*+", r"[^/]*", re.escape(wanted).replace(r"\<", "<").replace(r"\>", ">")))
        return any(pattern.fullmatch(tail) for tail in self.tails)


def missing(root: pathlib.Path):
    names = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout.split()
    files = Files(names)
    for name in names:
        if not name.endswith((".md", *SLASH, *HASH)) or name.startswith("tests/text/"):
            continue
        folder = name.rpartition("/")[0]
        for number, prose in comments((root / name).read_text(errors="replace"), name):
            for wanted in NAME.findall(prose):
                elsewhere = wanted.startswith((*FOREIGN, *MADE)) or wanted in XLAS
                if not elsewhere and not files.has(wanted, folder):
                    yield f"{name}:{number}: there is no {wanted}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    found = list(missing(parser.parse_args().root))
    print("\n".join(found) or "every file that a comment or a page names exists")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
