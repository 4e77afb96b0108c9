"""What a training call costs beyond its kernels: linear layers by tenon's autograd node and by AOTAutograd's wrapper.

    python benchmarks/training_calls.py [--layers 1,4,16] [--json FILE]

L layers of Linear(16, 16) and ReLU, batch 4; gradients accumulate into what is there, as without zero_grad(), or into nothing (--fresh).
"allocate own" and "allocate stock" have programs behind them that do nothing but allocate their outputs (alloc_only.cc); "tenon own" and
"tenon stock" are options={"autograd": ...}. All of them and eager are in one process on one core, in blocks that take turns; a block is
the best of its windows. Shown: microseconds of a call, the median of the blocks with a 95 % interval (bootstrap over blocks), and the ratio
of own to stock block by block. The process's CPU time, which other programs on the machine disturb least.
"""

import argparse
import json
import pathlib
import sys
import time

import environment
import intervals

HERE = pathlib.Path(__file__).resolve().parent
SIDES = ("eager", "allocate stock", "allocate own", "tenon stock", "tenon own")
WIDTH, BATCH = 16, 4


def parse(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", default="1,4,16")
    parser.add_argument("--blocks", type=int, default=9)
    parser.add_argument("--windows", type=int, default=15, help="of each block; the best counts")
    parser.add_argument("--window-ms", type=float, default=4.0)
    parser.add_argument("--fresh", action="store_true", help="gradients are None before each backward")
    parser.add_argument("--core", type=int, help="default: the first that the process may use")
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args(argv)


def allocator():
    """(graph, inputs, kind) -> a boxed callable that allocates the graph's outputs."""
    from torch.utils.cpp_extension import load

    extension = load("alloc_only", [str(HERE / "alloc_only.cc")], extra_cflags=["-O2"])

    def allocate(gm, inputs, kind):
        (output,) = gm.graph.find_nodes(op="output")
        values = [(k, node.meta["val"]) for k, node in enumerate(output.args[0]) if node is not None]
        run = extension.make([(tuple(v.shape), tuple(v.stride()), v.dtype) for _, v in values])
        places, count = [k for k, _ in values], len(output.args[0])

        def with_nones(inputs):
            outputs = [None] * count
            for place, value in zip(places, run(inputs)):
                outputs[place] = value
            return outputs

        boxed = (lambda inputs: run(inputs)) if len(places) == count else with_nones
        boxed._boxed_call = True
        return boxed

    return allocate


def steps(layers: int, fresh: bool) -> dict:
    """Side -> (forward, forward and backward), each a function of nothing."""
    import torch
    from torch import nn
    from torch_tenon.backend import training_backend

    allocate = allocator()
    backends = {
        "eager": None,
        "allocate stock": training_backend(allocate, own=False),
        "allocate own": training_backend(allocate, own=True),
        "tenon stock": "stock",
        "tenon own": "own",
    }
    made = {}
    for side, backend in backends.items():
        torch.manual_seed(0)
        model = nn.Sequential(*(m for _ in range(layers) for m in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))
        x, seed = torch.randn(BATCH, WIDTH), torch.ones(BATCH, WIDTH)
        if isinstance(backend, str):
            call = torch.compile(model, backend="tenon", dynamic=False, options={"autograd": backend, "fallback": "error"})
        else:
            call = model if backend is None else torch.compile(model, backend=backend, dynamic=False)
        parameters = list(model.parameters())

        def step(call=call, x=x, seed=seed, parameters=parameters):
            if fresh:
                for p in parameters:
                    p.grad = None
            call(x).backward(seed)

        made[side] = (lambda call=call, x=x: call(x)), step
    return made


def best_window(run, count: int, windows: int) -> float:
    """CPU seconds of a call in the best of the windows."""
    best = float("inf")
    for _ in range(windows):
        began = time.process_time_ns()
        for _ in range(count):
            run()
        best = min(best, (time.process_time_ns() - began) / count)
    return best / 1e9


def measure(layers: int, options) -> dict:
    import torch

    torch._dynamo.reset()
    made = steps(layers, options.fresh)
    blocks = {(side, part): [] for side in SIDES for part in ("forward", "both")}
    counts = {}
    for side, runs in made.items():
        for part, run in zip(("forward", "both"), runs):
            for _ in range(200):
                run()
            counts[side, part] = max(5, int(options.window_ms / 1e3 / best_window(run, 20, 3)))
    for block in range(options.blocks):
        for side in (SIDES[block % len(SIDES) :] + SIDES[: block % len(SIDES)]):
            for part, run in zip(("forward", "both"), made[side]):
                run()
                blocks[side, part].append(best_window(run, counts[side, part], options.windows) * 1e6)
    result = {"layers": layers, "us": {}, "own/stock": {}}
    for (side, part), values in blocks.items():
        result["us"].setdefault(side, {})[part] = {**intervals.described([[v] for v in values]), "blocks": values}
    for kind in ("allocate", "tenon"):
        result["own/stock"][kind] = {
            part: intervals.ratio([[v] for v in blocks[f"{kind} own", part]], [[v] for v in blocks[f"{kind} stock", part]])
            for part in ("forward", "both")
        }
    return result


def show(result: dict) -> None:
    span = lambda d, digits: "{median:.{n}f} [{low:.{n}f}, {high:.{n}f}]".format(n=digits, **d)
    print(f"{result['layers']} layers")
    for side, parts in result["us"].items():
        print(f"  {side:16} forward {span(parts['forward'], 1):24} forward + backward {span(parts['both'], 1)} us")
    for kind, parts in result["own/stock"].items():
        print(f"  {kind}, own / stock: forward {span(parts['forward'], 3)}, forward + backward {span(parts['both'], 3)}")


def main() -> int:
    import os

    options = parse()
    environment.reexec_pinned(1)
    core = min(os.sched_getaffinity(0)) if options.core is None else options.core
    os.sched_setaffinity(0, {core})
    environment.find_packages()
    import torch

    torch.set_num_threads(1)
    machine = environment.machine(1)
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    results = []
    for layers in map(int, options.layers.split(",")):
        results.append(measure(layers, options))
        show(results[-1])
        sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "fresh": options.fresh, "results": results}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
