"""Compile time in fresh processes with empty caches.

    python benchmarks/compile_time.py [--models transformer4l,resnet18] [--backends tenon,inductor]

Per model and backend, the median of a few fresh processes:

* `backend`: wall clock from Dynamo's call of the backend to its return, which contains
  AOTAutograd's tracing and decompositions;
* `compiler`: the part of it spent in tenon's own compiler (`stats()`'s total, export included),
  LLVM's start-up included;
* `tracing`: the rest, shown apart;
* `late`: first run minus third run, the work a backend puts off to the first call;
* `counted`: compiler + late, which the bar is about. For a backend without phases it is
  backend + late.

`--linear` compiles pointwise graphs of 1,250, 2,500 and 5,000 ops and shows the growth.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import environment

BARS_S = {"transformer4l": 0.5, "resnet18": 1.0}


def child(model_name: str, backend_name: str) -> dict:
    """Runs in the fresh process."""
    environment.find_packages()
    import torch
    from models import zoo

    torch.set_num_threads(2)
    model, args = zoo.CASES[model_name].make()
    inner = torch._dynamo.lookup_backend(backend_name)
    spent, runs = [], []

    def backend(graph_module, example_inputs):
        began = time.perf_counter()
        compiled = inner(graph_module, example_inputs)
        spent.append(time.perf_counter() - began)

        def run(*inputs):
            began = time.perf_counter()
            outputs = compiled(*inputs)
            runs.append(time.perf_counter() - began)
            return outputs

        return run

    compiled = torch.compile(model, backend=backend, dynamic=False)
    with torch.no_grad():
        for _ in range(3):
            compiled(*args)
    if len(spent) != 1 or len(runs) != 3:
        raise RuntimeError(f"{len(spent)} graphs and {len(runs)} runs, expected 1 and 3")
    result = {"backend": spent[0], "late": max(0.0, runs[0] - runs[2])}
    if backend_name == "tenon":
        import torch_tenon

        graphs = torch_tenon.stats()["graphs"]
        result["phases_ms"] = {}
        for graph in graphs:
            for phase, ms in graph["compile_ms"].items():
                result["phases_ms"][phase] = result["phases_ms"].get(phase, 0.0) + ms
        result["compiler"] = result["phases_ms"].pop("total") / 1e3
    else:
        result["compiler"] = result["backend"]
    result["tracing"] = result["backend"] - result["compiler"]
    result["counted"] = result["compiler"] + result["late"]
    return result


def fresh(model: str, backend: str) -> dict:
    with tempfile.TemporaryDirectory() as empty:
        env = os.environ | {
            "TORCHINDUCTOR_CACHE_DIR": empty,
            "TENON_CACHE_DIR": empty,
            "OMP_NUM_THREADS": "2",
        }
        command = [sys.executable, __file__, "--child", model, backend]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return json.loads(done.stdout.strip().splitlines()[-1])


def linear() -> list[tuple[int, float]]:
    """Seconds that tenon's compiler needs for pointwise graphs of growing size."""
    environment.find_packages()
    import torch
    import torch_tenon
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    aten, found = torch.ops.aten, []
    for count in (100, 1250, 2500, 5000):
        graph = torch.fx.Graph()
        x = value = graph.placeholder("x")
        for index in range(count):
            op = (aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor)[index % 3]
            value = graph.call_function(op, (value, x if index % 2 else 1.0 + index / count))
        graph.output([value])
        module, inputs = torch.fx.GraphModule(torch.nn.Module(), graph), [torch.randn(1000)]
        FakeTensorProp(module, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*inputs)
        began = time.perf_counter()
        run = torch_tenon.compile_graph(module, inputs, fallback="error")
        seconds = time.perf_counter() - began
        torch.testing.assert_close(run(list(inputs))[0], module(*inputs)[0], rtol=1e-3, atol=1e-3)
        found.append((count, seconds))
    return found[1:]  # the first one paid for LLVM's start-up


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--models", default="transformer4l,resnet18")
    parser.add_argument("--backends", default="tenon,inductor,aot_eager")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--linear", action="store_true")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(*options.child)))
        return 0
    if options.linear:
        for count, seconds in linear():
            print(f"{count:6d} ops: {seconds:.3f} s, {seconds / count * 1e6:.1f} us an op")
        return 0
    print(f"{'model':16}{'backend':12}{'counted':>9}{'compiler':>10}{'late':>8}{'tracing':>9}  s")
    missed = False
    for model in options.models.split(","):
        for backend in options.backends.split(","):
            try:
                results = [fresh(model, backend) for _ in range(options.repeat)]
            except RuntimeError as error:
                print(f"{model:16}{backend:12} did not run: {error}")
                missed |= backend == "tenon"
                continue
            median = {k: statistics.median(r[k] for r in results)
                      for k in ("counted", "compiler", "late", "tracing")}  # fmt: skip
            line = f"{model:16}{backend:12}{median['counted']:9.3f}{median['compiler']:10.3f}"
            line += f"{median['late']:8.3f}{median['tracing']:9.3f}"
            if backend == "tenon":
                bar = BARS_S.get(model)
                if bar is not None:
                    line += f"  bar {bar} s: {'met' if median['counted'] <= bar else 'LOST'}"
                    missed |= median["counted"] > bar
                phases = sorted(results[0]["phases_ms"].items(), key=lambda item: -item[1])
                line += "\n" + ", ".join(f"{phase} {ms:.1f} ms" for phase, ms in phases)
            print(line, flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
