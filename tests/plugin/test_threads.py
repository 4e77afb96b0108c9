"""Eight threads that train and serve while others compile and drop, and a fork in the middle: threads_storm.py, without a sanitizer."""

import json
import os
import pathlib
import subprocess
import sys

from conftest import ROOT

STORM = pathlib.Path(__file__).with_name("threads_storm.py")


def test_threads_train_and_serve_while_others_compile_and_drop(tenon):
    env = os.environ | {"PYTHONPATH": os.pathsep.join([p for p in sys.path if p])}
    done = subprocess.run([sys.executable, str(STORM)], env=env, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["nodes"] == ["own"] and told["by_aten"] == 0 and told["forks"] == 2, told
    assert told["backwards"] > 0 and told["accumulated"] > 0, told
