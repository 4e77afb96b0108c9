"""The graphs of tests/models as aten::Graph text, for tools that compile them for a device that this machine lacks.

    PYTHONPATH=build/release/python python benchmarks/gpu_graphs.py OUT [--models a,b] [--training] [--dtype bf16]

Writes OUT/<model>.<inference|forward|backward>.<n>.aten; models run once, by ATen: nothing is compiled.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))

import torch_tenon  # noqa: E402
from torch_tenon import compiler  # noqa: E402

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Recorder:
    """Keeps the text of each graph that is compiled while it is entered."""

    def __init__(self):
        self.graphs: list[tuple[str, str, str]] = []  # name, text, why it can be no native program

    def __enter__(self):
        self.original = compiler._compile

        def recorded(exported, *args, **kwargs):
            self.graphs.append((exported.name, exported.graph.text(), exported.needs_eager or ""))
            return self.original(exported, *args, **kwargs)

        compiler._compile = recorded
        return self

    def __exit__(self, *exc):
        compiler._compile = self.original


def cast(value, dtype):
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def record(case, train: bool, dtype: torch.dtype) -> list[tuple[str, str, str]]:
    model, args = case.make_train() if train else case.make()
    model, args = model.to(dtype), [cast(a, dtype) for a in args]
    torch._dynamo.reset()
    torch_tenon.reset_stats()
    compiled = torch.compile(model, backend="tenon", options={"tier": "eager_program", "cache": False})
    with Recorder() as recorder:
        if train:
            case.loss(compiled(*args)).backward()
        else:
            with torch.no_grad():
                compiled(*args)
    return recorder.graphs


def main():
    from models import zoo

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--models", default="")
    parser.add_argument("--training", action="store_true", help="training graphs of the models that have a loss")
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    asked = parser.parse_args()
    names = asked.models.split(",") if asked.models else list(zoo.CASES)
    asked.out.mkdir(parents=True, exist_ok=True)
    failures = {}
    for name in names:
        case = zoo.CASES[name]
        if asked.training and case.loss is None:
            continue
        began = time.perf_counter()
        try:
            graphs = record(case, asked.training, DTYPES[asked.dtype])
        except Exception as error:  # of the model: the report says which
            failures[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
            print(f"{name}: {failures[name]}", flush=True)
            continue
        for number, (graph, text, why) in enumerate(graphs):
            kind = graph.rsplit("_", 1)[0]
            if why:
                failures[f"{name}.{kind}.{number}"] = why
                continue
            (asked.out / f"{name}.{kind}.{number:02d}.aten").write_text(text)
        print(f"{name}: {len(graphs)} graphs, {time.perf_counter() - began:.1f} s", flush=True)
    (asked.out / "failures.json").write_text(json.dumps(failures, indent=1))


if __name__ == "__main__":
    main()
