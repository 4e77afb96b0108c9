#!/usr/bin/env python3
"""Are planted bugs found and cut? planted_bugs.py [--bin=DIR] [--plants=1,2,...] [--modules=5000] [--jobs=2] [--json]

For each plant (tools/lab/judge/plant.h; the first ten, which the transformer has places for): hlo-fuzz until a module differs because of
it, and hlo-reduce on an optimised step of a 4-layer transformer
in which it shows. A row per plant; exit code 1 if one is not found within --modules modules, or not
cut to 10 instructions within 60 seconds.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_INSTRUCTIONS, MOST_SECONDS, LEAST_BEFORE = 10, 60, 500


def run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def fuzz(tools, plant, modules, jobs):
    """(module number, seconds) or None."""
    start = time.monotonic()
    done = run(tools / "hlo-fuzz", f"--plant={plant}", f"--modules={modules}", f"--jobs={jobs}", "--quiet")
    found = re.search(r"is found by module (\d+)", done.stderr)
    return (int(found[1]), time.monotonic() - start) if found else None


def reduce(tools, plant, case, out):
    done = run(tools / "hlo-reduce", f"--plant={plant}", f"--inputs={case.with_suffix('.npz')}", f"--output={out}",
               f"--max-seconds={MOST_SECONDS}", "--json", "--quiet", case)
    if done.returncode != 0:
        return {"error": done.stderr.strip()}
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "release" / "bin")
    parser.add_argument("--plants", default=",".join(str(k) for k in range(1, 11)))
    parser.add_argument("--modules", type=int, default=5000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", choices=["fuzz", "reduce"])
    parser.add_argument("--show", action="store_true", help="print what each is cut to")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    names = dict(line.split()[:2] for line in run(args.bin / "hlo-reduce", "--list-plants").stdout.splitlines())
    rows, good = [], True
    with tempfile.TemporaryDirectory() as scratch:
        case = pathlib.Path(scratch) / "transformer.hlo"
        written = run(args.bin / "hlo-reduce", f"--write-transformer={case}")
        if written.returncode != 0:
            sys.exit(written.stderr)
        for plant in args.plants.split(","):
            row = {"plant": int(plant), "name": names[plant]}
            if args.only != "reduce":
                found = fuzz(args.bin, plant, args.modules, args.jobs)
                row["module"], row["fuzz_seconds"] = found if found else (None, None)
                good &= found is not None
            if args.only != "fuzz":
                out = pathlib.Path(scratch) / f"plant{plant}.hlo"
                cut = reduce(args.bin, plant, case, out)
                row.update({k: cut.get(k) for k in ["instructions_before", "instructions", "tries", "seconds", "error"]})
                good &= "error" not in cut and (
                    cut["instructions_before"] >= LEAST_BEFORE
                    and cut["instructions"] <= MOST_INSTRUCTIONS
                    and cut["seconds"] <= MOST_SECONDS
                )
                if args.show and out.exists():
                    print(out.read_text())
            rows.append(row)
            if not args.json:
                shown = (f"{k} {v:.1f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items() if v is not None)
                print("  ".join(shown), flush=True)
                if args.only != "reduce" and row["module"] is None:
                    print(f"  NOT FOUND in {args.modules} modules")
    if args.json:
        print(json.dumps({"good": good, "plants": rows}))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
