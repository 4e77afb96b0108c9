"""What a graph of 1,000 nodes costs between FX and libtenon, on two builds of tenon in one run.

    python benchmarks/seam.py --before ../base/build/release/python [--layers 23] [--repeats 30] [--processes 5]

A graph of ATen operators (a stack of small attention layers, captured by AOTAutograd with its modules and source lines) is compiled
again and again by compiler.compile_static, as the backend does, in a process that has compiled it before: so no pass runs, and what is
left is the seam. Shown, in ms of CPU time of the calling thread per graph:

* `export`: from the FX graph to what tenon_compile is given.
* `lowered`: from the FX graph to the executable with its signature read, of a graph that the process has not seen but that leads to a
  module that it has (an option of lowering differs): export, the graph's crossing, lowering to HLO, the module's key, the cache's answer,
  the signature, the record. What every first compile pays besides the compiler.
* `known`: the same of a graph that the process has seen.

Builds take turns, a process each per round; shown are medians of the rounds' minima and their ratio.
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
        torch.compile(net, backend=_handing_to(keep, backend), dynamic=False)(x)
    return seen[0]


def _handing_to(compiler, backend):
    """The build's backend with another compiler of AOTAutograd's graphs."""
    if hasattr(backend, "training_backend"):
        return backend.training_backend(compiler, own=False)

    def before_the_node(gm, inputs):
        aot = backend.aot_autograd(
            fw_compiler=None, inference_compiler=lambda graph, inputs: compiler(graph, inputs, "inference"),
            decompositions=backend.decompositions.table(), keep_inference_input_mutations=True,
        )  # fmt: skip
        with backend.kept_whole(backend.decompositions.WHOLE):
            return aot(gm, inputs)

    return before_the_node


def child(layers: int, repeats: int) -> dict[str, float]:
    import gc

    import torch
    from torch_tenon import compiler, registry
    from torch_tenon.export import export
    from torch_tenon.options import Options

    torch.set_num_threads(1)
    graph = captured(layers)
    nodes = sum(node.op == "call_function" for node in graph.graph.nodes)

    def timed(work) -> float:
        gc.collect()
        gc.disable()
        began = time.thread_time()
        made = work()
        spent = 1e3 * (time.thread_time() - began)
        gc.enable()
        del made
        return spent

    def compiled(**options) -> float:
        checked = Options.make(None, options)
        spent = timed(lambda: compiler.compile_static(graph, "inference", checked))
        record = registry.records()[-1]
        assert record.tier == "native", record.reason
        return spent

    compiled()
    first = registry.stats()["cache"]["compiles"]
    rows = {
        "export": lambda k: timed(lambda: export(graph, f"graph_{k}")),
        "lowered": lambda k: compiled(disable_lowering=[f"aten.none_{k}"]),
        "known": lambda k: compiled(),
    }
    least = {name: min(run(k) for k in range(repeats)) for name, run in rows.items()}
    assert registry.stats()["cache"]["compiles"] == first, "something was compiled again"
    return {"nodes": nodes, **least}


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
