"""What a graph of 1,000 nodes costs between FX and libtenon, on two builds of tenon in one run.

    python benchmarks/seam.py --before ../base/build/release/python [--layers 23] [--repeats 30] [--processes 5]

A graph of ATen operators (a stack of small attention layers, captured by AOTAutograd with its modules and source lines) is compiled
again and again by compiler.compile_static, as the backend does. Shown, in CPU time of the calling thread and per graph:

* `known`: the process has compiled this very graph before. From the FX graph to the executable with its signature read: export,
  the graph's crossing, options, keys, what libtenon does before its cache answers, the signature. No compile is in it.
* `export`: the part of it that walks the FX graph (the phase "export").
* `new`: as `known`, with nothing in the cache, less the phases that passes and plans take ("setup", "passes", "plan"; LLVM has threads
  of its own): what a first compile costs besides, lowering to HLO and loading the code included.

Builds take turns, a process each per round; the ratio is of the medians of the rounds' minima.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def model(layers: int):
    import torch

    class Layer(torch.nn.Module):
        def __init__(self, width: int = 16, heads: int = 2):
            super().__init__()
            self.norm, self.heads = torch.nn.LayerNorm(width), heads
            self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)

        def forward(self, x):
            b, t, w = x.shape
            q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norm(x)).chunk(3, -1))
            scores = torch.softmax(q @ k.transpose(-1, -2) * 0.35, -1)
            return x + torch.nn.functional.gelu(self.out((scores @ v).transpose(1, 2).reshape(b, t, w)))

    return torch.nn.Sequential(*(Layer() for _ in range(layers)))


def captured(layers: int):
    """The FX graph that AOTAutograd hands to the backend's compiler."""
    import torch
    import torch_tenon.backend as backend

    seen = []

    def keep(gm, inputs, kind):
        seen.append(gm)

        def run(inputs):
            return list(gm(*inputs))

        run._boxed_call = True
        return run

    torch.manual_seed(0)
    net, x = model(layers), torch.randn(2, 8, 16)
    with torch.no_grad():
        torch.compile(net, backend=backend.training_backend(keep, own=False), dynamic=False)(x)
    return seen[0]


def child(layers: int, repeats: int) -> dict[str, float]:
    import gc

    import torch
    import torch_tenon
    from torch_tenon import compiler, registry
    from torch_tenon.options import Options

    torch.set_num_threads(1)
    graph = captured(layers)
    options = Options.make(None, {"compile_threads": 1})
    nodes = sum(node.op == "call_function" for node in graph.graph.nodes)

    def compile_once() -> tuple[float, dict[str, float]]:
        gc.collect()
        gc.disable()
        began = time.thread_time()
        executable = compiler.compile_static(graph, "inference", options)
        spent = 1e3 * (time.thread_time() - began)
        gc.enable()
        record = registry.records()[-1]
        assert record.tier == "native", record.reason
        del executable
        return spent, dict(record.compile_ms)

    compile_once()
    known, exports, new = [], [], []
    for _ in range(repeats):
        spent, phases = compile_once()
        known.append(spent)
        exports.append(phases["export"])
    for _ in range(max(3, repeats // 4)):
        torch_tenon._C.cache_clear()
        spent, phases = compile_once()
        new.append(spent - sum(phases[name] for name in ("setup", "passes", "plan")))
    return {"nodes": nodes, "known": min(known), "export": min(exports), "new": min(new)}


def fresh(build: pathlib.Path, args: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", "--layers", str(args.layers), "--repeats", str(args.repeats)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(build)}, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=pathlib.Path, help="folder that holds the other build's torch_tenon")
    parser.add_argument("--now", type=pathlib.Path, default=HERE.parent / "build" / "release" / "python")
    parser.add_argument("--layers", type=int, default=23)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return print(json.dumps(child(args.layers, args.repeats)))
    builds = {"before": args.before, "now": args.now} if args.before else {"now": args.now}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in builds}
    for _ in range(args.processes):
        for name, build in builds.items():
            found[name].append(fresh(build, args))
    for key in next(iter(found.values()))[0]:
        median = {name: statistics.median(row[key] for row in rows) for name, rows in found.items()}
        ratio = f"   ratio {median['now'] / median['before']:.3f}" if "before" in median else ""
        print(f"{key:8}" + "".join(f"{name:>9} {value:9.2f}" for name, value in median.items()) + ratio)


if __name__ == "__main__":
    main()
