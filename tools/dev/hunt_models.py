#!/usr/bin/env python3
"""Judges tiny random models of every architecture that `transformers` can build from a config, as tests/models judges its own.

    tools/dev/hunt_models.py                       every architecture, float32, inference and a training step
    tools/dev/hunt_models.py bert swin --bf16      two of them, bfloat16
    tools/dev/hunt_models.py --zoo                 the cases of tests/models instead
    tools/dev/hunt_models.py --build               only says which can be built and run by eager

One forked process a model, 90 s each (--seconds), --jobs at a time; a line of JSON each in --out. What is printed beside `ok` is the
share of the accuracy rule's bound that was used, and the ATen steps that are no library calls. An architecture that can't be guessed
(`skip`, tests/models/tiny.py) is no problem of tenon's; one that is ended by signal 9 took too long, mostly in Dynamo.
"""

import argparse
import json
import os
import pathlib
import signal
import sys
import time
import traceback
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import torch  # noqa: E402


def cast(model, args, dtype):
    return model.to(dtype), tuple(a.to(dtype) if a.is_floating_point() else a for a in args)


def judge(name, options):
    from models import judging, tiny, zoo

    if options.zoo:
        case = zoo.CASES[name]
    else:
        try:
            model, args = tiny.build(name)
        except Exception as error:
            return {"skip": f"{type(error).__name__}: {str(error)[:600]}"}
        if options.build:
            return {"ok": True, "parameters": sum(p.numel() for p in model.parameters())}
        model, args = cast(model, args, torch.bfloat16 if options.bf16 else torch.float32)
        case = zoo.Case(name, "other", lambda: (model, args))
    import torch_tenon

    found = {"problems": [], "steps": {}}
    for train in (False, True):
        what = "training" if train else "inference"
        try:
            verdict = judging.judge(case, "tenon", torch_tenon, train)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            found["problems"].append(f"{what}: {type(error).__name__}: {str(error)[:500]} ({last.filename}:{last.lineno})")
            continue
        worst = verdict.report.worst
        found[what] = round(worst.used, 2) if worst else None
        found["problems"] += [f"{what}: {p}" for p in verdict.problems[:6]]
        found.setdefault("ops", {}).update({op: True for g in verdict.graphs for op in g["nodes"]})
        for op, step in judging.foreign_steps(verdict.graphs).items():
            found["steps"][op] = step["reason"][:160]
    found["ok"] = not found["problems"]
    return found


def child(name, options, out):
    began = time.time()
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 1)
        if not options.loud:
            os.dup2(null.fileno(), 2)
    try:
        found = judge(name, options)
    except Exception as error:
        found = {"problems": [f"the runner: {type(error).__name__}: {str(error)[:300]}"]}
    with open(out, "a") as file:
        file.write(json.dumps({"name": name, **found, "seconds": round(time.time() - began, 1)}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    for flag in ("--zoo", "--build", "--bf16", "--loud"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--out", default="/tmp/hunt_models.jsonl")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import torch._dynamo.backends.common  # noqa: F401  (once, before the forks)
    import torch._functorch.aot_autograd  # noqa: F401
    import transformers
    from models import zoo
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    transformers.logging.set_verbosity_error()
    names = options.names or list(zoo.CASES if options.zoo else MODEL_MAPPING_NAMES)
    running = {}
    while names or running:
        while names and len(running) < options.jobs:
            name = names.pop(0)
            pid = os.fork()
            if pid == 0:
                child(name, options, options.out)
                os._exit(0)
            running[pid] = (name, time.time() + options.seconds)
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            name, _ = running.pop(pid)
            if status:
                with open(options.out, "a") as file:
                    file.write(json.dumps({"name": name, "problems": [f"ended by signal {os.WTERMSIG(status)}"]}) + "\n")
        for pid, (_, end) in running.items():
            if time.time() > end:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
