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

`--training` shows the first training call, forward and backward: CPU seconds of the process by phase (torch_tenon/first_call.py), the
median of `--repeat` fresh processes. `--show FILE` prints such a table of what the tests of the models have left in
build/first_calls.json, or `--json FILE` of an earlier run.

`--training --before build/release/python` compares with another build, older ones too: CPU seconds, one thread, of the first training call
less a warm one, and of Dynamo's call of the backend, which is AOTAutograd and all that is tenon's; processes of both take turns.
"""

import argparse
import json
import os
import pathlib
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


def training_cases() -> dict:
    """Name -> (model and inputs, loss)."""
    import torch
    from models import nets, zoo

    def bert():
        from transformers import BertConfig, BertModel

        model = BertModel(BertConfig(vocab_size=1000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024))
        picked = zoo.Pick(model, ("input_ids", "attention_mask"), "last_hidden_state")
        return picked, (torch.randint(0, 1000, (2, 64)), torch.ones(2, 64, dtype=torch.long))

    square = lambda outputs: outputs.square().mean()
    return {
        "transformer4l": (zoo.CASES["transformer4l"].build, square),
        "gpt_small": (zoo.gpt_small, zoo.next_token_loss),
        "bert_small": (bert, square),
        "lstmcell": (lambda: (nets.LSTMCellLoop(), (torch.randn(32, 16, 64),)), square),
        "resnet18": (lambda: zoo.resnet18(batch=2, size=96), zoo.class_loss),
        "mobilenetv3": (lambda: zoo.mobilenetv3(batch=2, size=96), zoo.class_loss),
        "densenet121": (lambda: (nets.DenseNet(), (torch.randn(1, 3, 224, 224),)), zoo.class_loss),
    }


def training_child(name: str, options: str) -> dict:
    """Runs in the fresh process."""
    environment.find_packages()
    import torch
    import torch_tenon
    from torch_tenon import first_call

    torch.set_num_threads(2)
    seconds = two_calls(name, backend="tenon", options=json.loads(options))
    return first_call.remaining(*seconds, torch_tenon.stats()["graphs"])


def two_calls(name: str, **how) -> list[float]:
    """CPU seconds of the process in the first and in a warm training call."""
    import torch

    torch.manual_seed(1234)
    build, loss = training_cases()[name]
    model, args = build()
    compiled, seconds = torch.compile(model.train(), dynamic=False, **how), []
    for _ in range(2):
        began = time.process_time()
        loss(compiled(*args)).backward()
        seconds.append(time.process_time() - began)
    return seconds


def training(models: list[str], repeat: int, options: str) -> list[dict]:
    rows = []
    for model in models or training_cases_names():
        results = [fresh(model, options, child="--training-child") for _ in range(repeat)]
        rows.append({"model": model, "what": "training", **{p: statistics.median(r[p] for r in results) for p in results[0]}})
        print(phase_table(rows[-1:], head=len(rows) == 1), flush=True)
    return rows


def backend_child(name: str, _options: str) -> dict:
    """Runs in the fresh process; needs nothing of torch_tenon but its backend."""
    environment.find_packages()
    import torch

    torch.set_num_threads(1)
    inner, inside = torch._dynamo.lookup_backend("tenon"), []

    def backend(graph_module, example_inputs):
        began = time.process_time()
        compiled = inner(graph_module, example_inputs)
        inside.append(time.process_time() - began)
        return compiled

    first, warm = two_calls(name, backend=backend)
    return {"call": first - warm, "backend": sum(inside)}


def compare(before: str, models: list[str], repeat: int) -> None:
    print("| model | call | | backend | | ratio of each pair |\n|---|---|---|---|---|---|")
    now = os.environ.get("PYTHONPATH", "")
    for model in models or training_cases_names():
        pairs = [[fresh(model, "{}", "--backend-child", path) for path in (before, now)] for _ in range(repeat)]
        middle = {(what, side): statistics.median(pair[side][what] for pair in pairs) for what in ("call", "backend") for side in (0, 1)}
        ratios = sorted(new["backend"] / old["backend"] for old, new in pairs)
        cells = [f"{middle[what, 0]:.2f} → {middle[what, 1]:.2f} | {middle[what, 1] / middle[what, 0]:.2f}" for what in ("call", "backend")]
        print(f"| {model} | {' | '.join(cells)} | {', '.join(f'{r:.3f}' for r in ratios)} |", flush=True)


def training_cases_names() -> list[str]:
    environment.find_packages()
    return list(training_cases())


def phase_table(rows: list[dict], head: bool = True) -> str:
    """Markdown of {"model", "what", phase: seconds}."""
    phases = [key for key in rows[0] if key not in ("model", "what")]
    lines = [["model", "", *phases, "all", "after Dynamo"], ["---"] * (len(phases) + 4)] if head else []
    for row in rows:
        spent = [row[phase] for phase in phases]
        after = sum(row[phase] for phase in phases if phase != "dynamo")
        lines.append([row["model"], row["what"], *(f"{s:.2f}" for s in spent), f"{sum(spent):.2f}", f"{after:.2f}"])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def fresh(model: str, backend: str, child: str = "--child", path: str | None = None) -> dict:
    with tempfile.TemporaryDirectory() as empty:
        env = os.environ | {
            "TORCHINDUCTOR_CACHE_DIR": empty,
            "TENON_CACHE_DIR": empty,
            "OMP_NUM_THREADS": "2",
        }
        if path is not None:
            env["PYTHONPATH"] = path
        command = [sys.executable, __file__, child, model, backend]
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
    parser.add_argument("--training-child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--backend-child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--before", help="of --training: another build's folder of Python packages")
    parser.add_argument("--models", help="default: transformer4l,resnet18; of --training all")
    parser.add_argument("--backends", default="tenon,inductor,aot_eager")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--linear", action="store_true")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--options", default="{}", help="of --training: the backend's options, JSON")
    parser.add_argument("--json", type=pathlib.Path, help="of --training: where the rows go too")
    parser.add_argument("--show", type=pathlib.Path)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(*options.child)))
        return 0
    if options.training_child:
        print(json.dumps(training_child(*options.training_child)))
        return 0
    if options.backend_child:
        print(json.dumps(backend_child(*options.backend_child)))
        return 0
    if options.show:
        print(phase_table(json.loads(options.show.read_text(encoding="utf-8"))))
        return 0
    if options.training and options.before:
        compare(options.before, options.models.split(",") if options.models else [], options.repeat)
        return 0
    if options.training:
        rows = training(options.models.split(",") if options.models else [], options.repeat, options.options)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
        return 0
    if options.linear:
        for count, seconds in linear():
            print(f"{count:6d} ops: {seconds:.3f} s, {seconds / count * 1e6:.1f} us an op")
        return 0
    print(f"{'model':16}{'backend':12}{'counted':>9}{'compiler':>10}{'late':>8}{'tracing':>9}  s")
    missed = False
    for model in (options.models or "transformer4l,resnet18").split(","):
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
