#!/usr/bin/env python3
"""One lowering against eager, through the HLO evaluator: prints per overload how many samples agree, and what doesn't.

    tools/dev/check_lowering.py --only substring [--tool bin/aten-eval] [--whole]

What tests/plugin/test_lowering.py does for every row of aten.def, for the rows that one works on. Needs libtenon's build only for
the tool. Exit status 1 if a row's results differ from eager's, or a reason isn't in tests/plugin/opinfo_refusals.py.
"""

import argparse
import pathlib
import sys
import warnings

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "torch_plugin" / "python")]


def main():
    from plugin import aten_calls
    from plugin.aten_direct import direct_calls
    from plugin.aten_samples import by_hand
    from plugin.test_lowering import LOWERED, check_row

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="overloads that contain this")
    parser.add_argument("--tool", default=str(ROOT / "build/release/bin/aten-eval"))
    parser.add_argument("--whole", action="store_true", help="up to 60 kinds of calls per dtype")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = [row for row in LOWERED if args.only in row]
    recorded = aten_calls.record(set(rows), aten_calls.WHOLE if args.whole else aten_calls.QUOTA, direct_calls)
    extra, wrong = by_hand(), 0
    for row in rows:
        calls = recorded.calls.get(row, []) + extra.get(row, [])
        problems = check_row(row, calls, args.tool) if calls else ["no sample"]
        wrong += bool(problems)
        print(f"{row}: {len(calls)} calls" + "".join(f"\n  {problem}" for problem in problems), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
