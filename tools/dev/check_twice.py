#!/usr/bin/env python3
"""Checks that no stretch of ten lines stands both in backends/cpu and in backends/gpu: what both targets say belongs in backends/codegen
or backends/contract. Exit code 1 and a list where one does.

Lines are compared without their indentation; empty lines, lone brackets, comments and #include lines don't count.
"""

import argparse
import pathlib
import re

STRETCH = 10
SIDES = ("backends/cpu", "backends/gpu")
IDLE = re.compile(r"[\s{}();]*$|\s*//|\s*#\s*include|\s*(\}\s*//\s*)?namespace\b")


def lines_of(path: pathlib.Path) -> list[tuple[int, str]]:
    told = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return [(number, line.strip()) for number, line in told if not IDLE.match(line)]


def stretches(root: pathlib.Path, side: str):
    """Yields (the stretch's lines, file, first line's number)."""
    for path in sorted((root / side).rglob("*")):
        if path.suffix not in (".cc", ".h", ".def"):
            continue
        lines = lines_of(path)
        for at in range(len(lines) - STRETCH + 1):
            yield tuple(text for _, text in lines[at : at + STRETCH]), path.relative_to(root), lines[at][0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    root = parser.parse_args().root
    here = {lines: (path, number) for lines, path, number in stretches(root, SIDES[0])}
    twice = []
    for lines, path, number in stretches(root, SIDES[1]):
        if lines in here:
            twice.append("{}:{}: {} lines as in {}:{}".format(path, number, STRETCH, *here[lines]))
    print("\n".join(twice) if twice else f"no {STRETCH} lines stand in {' and in '.join(SIDES)}")
    return 1 if twice else 0


if __name__ == "__main__":
    raise SystemExit(main())
