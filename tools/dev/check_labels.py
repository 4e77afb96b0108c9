#!/usr/bin/env python3
"""Proves that constraint labels are the same set in code, documentation and negative tests, and that no op is undocumented.

hlo/infer/*.cc and hlo/verifier.cc hold the checks, docs/hlo.md explains them, tests/hlo breaks each. Prints what is missing where;
exit code 1 if anything is.
"""

import argparse
import pathlib
import re
import sys

LABEL = r"[a-z][a-z0-9_]*_c[0-9]+|verify_[a-z_]+"


def find(pattern, *paths):
    return {m for path in paths for m in re.findall(pattern, path.read_text())}


def collect(root):
    infer = sorted((root / "hlo" / "infer").glob("*.cc"))
    tests = root / "tests" / "hlo"
    code = find(rf'"({LABEL})"', *infer, root / "hlo" / "verifier.cc")
    docs = find(rf"`({LABEL})`", root / "docs" / "hlo.md")
    negative = find(rf"(?m)^// label: ({LABEL})$", tests / "labels.hlo")
    negative |= find(rf'"({LABEL})(?:: wanted )?"', tests / "labels_test.cc", tests / "verifier_test.cc")
    return code, docs, negative


def undocumented_ops(root):
    names = find(r'(?m)^TENON_OP\(\w+, "([a-z0-9-]+)"', root / "hlo" / "ops.def")
    text = (root / "docs" / "hlo.md").read_text()
    text = re.sub(r"([a-z-]+)\((-[a-z]+(?:, -[a-z]+)*)\)", lambda m: m[1] + "".join(" " + m[1] + s for s in m[2].split(", ")), text)
    return {n for n in names if not re.search(rf"(?<![a-z0-9-]){re.escape(n)}(?![a-z0-9-])", text)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    root = parser.parse_args().root
    sets = dict(zip(("code", "docs/hlo.md", "tests/hlo"), collect(root)))
    problems = [
        f"{label}: in {here}, not in {there}"
        for here, have in sets.items()
        for there, other in sets.items()
        for label in sorted(have - other)
    ]
    problems += [f"{name}: an opcode that docs/hlo.md doesn't name" for name in sorted(undocumented_ops(root))]
    print("\n".join(problems) or f"{len(sets['code'])} labels: the same in code, docs and tests; every opcode documented")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
