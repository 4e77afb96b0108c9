"""The modules of benchmarks/ by their names, which its scripts use too; last in the path, so that they hide nothing."""

import pathlib
import sys

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))
