#!/usr/bin/env python3
"""Measures the accuracy of reductions against eager's: RMSE against float64.

    tools/dev/reduction_accuracy.py [--only substring] [--write-docs]

Prints a Markdown table; --write-docs puts it at the end of docs/accuracy.md. Takes some minutes.
"""

import argparse
import pathlib
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from plugin import reductions  # noqa: E402

DOCS = ROOT / "docs" / "accuracy.md"
HEADING = "# Accuracy of reductions"
INTRODUCTION = f"""{HEADING}

Written by `tools/dev/reduction_accuracy.py --write-docs`. RMSE of tenon's results against float64, over eager's: below one is more
exact than eager; the tests fail above 1.5. Data are normal with spread 1 around 100 (norms and softmax: around 1 or 0), rounded to
the dtype first; over 3 seeds, 8 or 12 for single results. Bits don't depend on the number of threads. A ratio of several results is
the worst one's.

"""


def table(only: str) -> str:
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    lines = ["| reduction | f32 | bf16 | f16 | eager's RMSE, f32 |", "|---|---|---|---|---|"]
    for case in reductions.CASES.values():
        if only not in case.name:
            continue
        cells, eager = [], ""
        for dtype in dtypes:
            if dtype not in case.dtypes:
                cells.append("")
                continue
            torch._dynamo.reset()
            with torch.no_grad():
                found = reductions.measure(
                    case, dtype, lambda f: torch.compile(f, backend="tenon", dynamic=False)
                )
            cells.append(f"{found.ratio:.2f}")
            if dtype == torch.float32:
                eager = ", ".join(f"{e:.2g}" for e in found.eager)
        lines.append(f"| {case.name} | {' | '.join(cells)} | {eager} |")
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/accuracy.md")
    options = parser.parse_args()
    if options.write_docs and options.only:
        parser.error("--write-docs wants all cases")
    found = table(options.only)
    if options.write_docs:
        before = DOCS.read_text().split(HEADING)[0].rstrip("\n")
        DOCS.write_text(f"{before}\n\n{INTRODUCTION}{found}")
    else:
        print(found)


if __name__ == "__main__":
    main()
