#!/usr/bin/env python3
"""Checks that no source line is wider than 140 columns, the limit of .clang-format. Exit code 1 and a list where one is.

Looked at: C++, tables, Python, JavaScript, CSS, CMake and shell files that git tracks. Not counted: rows of tables ("NAME(..." in a
*.def), which are one line each, and the lines inside of a C++ raw string, which are other languages' text.
"""

import argparse
import pathlib
import re
import subprocess
import sys

LIMIT = 140
ROW = re.compile(r"[A-Z_]+\(")
SUFFIXES = (".cc", ".h", ".c", ".def", ".py", ".js", ".css", ".cmake", ".sh", "CMakeLists.txt", "Makefile")


def wide_lines(text: str, cpp: bool, table: bool):
    """Yields (line number, width) of the lines of `text` that are too wide."""
    raw = False
    for number, line in enumerate(text.splitlines(), 1):
        if table and ROW.match(line):
            continue
        opens = cpp and line.rfind('R"(') > line.rfind(')"')
        if len(line) > LIMIT and not raw and not opens:
            yield number, len(line)
        if opens:
            raw = True
        elif raw and ')"' in line:
            raw = False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    root = parser.parse_args().root
    files = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout.split()
    wide = [
        f"{name}:{number}: {width} columns, at most {LIMIT}"
        for name in files
        if name.endswith(SUFFIXES)
        for number, width in wide_lines((root / name).read_text(), name.endswith((".cc", ".h", ".def")), name.endswith(".def"))
    ]
    print("\n".join(wide) or f"no line wider than {LIMIT} columns")
    return 1 if wide else 0


if __name__ == "__main__":
    sys.exit(main())
