"""A hand-written transformer and CNN: eager against torch.compile(backend="tenon").

    make demo        or        python examples/demo.py [--backend tenon]

Checks accuracy against float64, times both in turns, and shows what the compiler did.
"""

import argparse
import importlib.util
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))  # the networks are the tests'
if importlib.util.find_spec("torch_tenon") is None:
    sys.path.append(str(ROOT / "torch_plugin" / "python"))

import torch
from models import zoo
from rich.console import Console
from rich.table import Table
from torch_tenon.testing import check_model

MODELS = {
    "transformer": ("transformer4l", "4 encoder layers, d 768, 12 heads, 128 tokens"),
    "CNN": ("resnet18", "ResNet-18, 2 images of 96 x 96"),
}
console = Console(width=None if sys.stdout.isatty() else 120)


def interleaved(callables: dict, blocks: int = 7, seconds: float = 0.3) -> dict[str, float]:
    """Median ms per call; the callables take turns so that disturbances hit all of them."""
    times = {name: [] for name in callables}
    with torch.no_grad():
        for call in callables.values():
            call()
        for _ in range(blocks):
            for name, call in callables.items():
                call()
                began, count = time.perf_counter(), 0
                while time.perf_counter() - began < seconds:
                    call()
                    count += 1
                times[name].append((time.perf_counter() - began) / count * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def show(title: str, name: str, what: str, backend: str) -> bool:
    console.rule(f"[bold]{title}[/] ({what})")
    case = zoo.CASES[name]
    with console.status("accuracy against float64"):
        model, args = case.make()
        report = check_model(model, args, backend=backend)
    (row,) = report.rows[:1]
    accuracy = Table("", "RMSE against float64", "max error", box=None)
    accuracy.add_row("eager", f"{row.rmse_eager:.2e}", f"{row.max_eager:.2e}")
    accuracy.add_row(backend, f"{row.rmse:.2e}", f"{row.max_error:.2e}")
    accuracy.add_row("allowed", f"{row.rmse_bound:.2e}", f"{row.max_bound:.2e}")
    console.print(accuracy)
    verdict = "[green]accuracy rule met[/]" if report.ok else "[red]accuracy rule NOT met[/]"
    console.print(f"{verdict}; {report.capture.graphs} graph, {report.capture.breaks} breaks, "
                  f"{report.coverage:.0%} of eager's ops inside")  # fmt: skip
    for failure in report.failures:
        console.print(f"  {failure}", markup=False)

    with console.status("speed"):
        torch._dynamo.reset()
        model, args = case.make()
        compiled = torch.compile(model, backend=backend)
        with torch.no_grad():
            began = time.perf_counter()
            compiled(*args)
            first = time.perf_counter() - began
        ms = interleaved({"eager": lambda: model(*args), backend: lambda: compiled(*args)})
    console.print(f"eager {ms['eager']:.2f} ms, {backend} {ms[backend]:.2f} ms a call: "
                  f"[bold]{ms['eager'] / ms[backend]:.2f} x[/] eager's speed; "
                  f"first call with capture and compilation {first:.2f} s")  # fmt: skip
    if backend == "tenon":
        import torch_tenon

        with console.status("explain"), torch.no_grad():
            explanation = str(torch_tenon.explain(model, *args))
        console.print(explanation, markup=False, highlight=False)
    return report.ok


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="tenon")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    began = time.perf_counter()
    console.print(f"torch {torch.__version__}, {options.threads} threads, backend {options.backend}")
    good = [show(title, *MODELS[title], options.backend) for title in MODELS]
    console.rule()
    console.print(f"done in {time.perf_counter() - began:.0f} s")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
