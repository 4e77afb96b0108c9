"""Predicted against measured time of the kernels of the models, one thread: the cost model's rank correlation.

    python benchmarks/kernel_costs.py [--rows resnet18_b4,...] [--json FILE] [--markdown FILE] [--picture FILE.svg] [--check]

Predicted is what the compiler estimated for a kernel when it planned it (estimated_ns: backends/cpu/plan/work.h), measured the median of
several profiled runs, over all steps that run this kernel in its program. Rows of rows.py and cases of tests/models, in inference, with
frozen parameters, and in training. Spearman's rho of each and of all, with 95 % intervals by bootstrap of models, then of their kernels;
the kernels that are furthest from the common ratio are listed. Kernels below a microsecond are left out: they measure the clock.
"""

import argparse
import json
import math
import pathlib
import random
import statistics
import sys
from html import escape

import environment

environment.find_packages()
import intervals
import picture
import rows
import step
import torch
import torch_tenon
from models import zoo
from torch_tenon import registry

ROWS = ("transformer4L_b1s128", "gpt_small_b4s64", "resnet18_b4", "mobilenetv3_b4", "densenet121_b1", "dlrm_b512", "lstmcell_T32_b16",
        "gcn_10k_100k", "eos_64k", "chain20_1M", "embed_cumsum_argmax", "sample_topk_8x32000", "reduce_rows_4096x1024",
        "reduce_cols_4096x1024", "softmax_12x128x128", "rms_rope_32x128x64", "add_ln_gelu_128x768",
        "gpt_small_b4s64_train", "resnet18_b4_train", "dlrm_b512_train", "gcn_10k_100k_train", "lstmcell_T32_b16_train", "adam50_loop",
        "tcn", "transformer_xl", "gat", "swin", "whisper", "tcn_train", "transformer_xl_train", "gat_train", "swin_train",
        "whisper_train")  # fmt: skip
FREEZE = ("transformer4L_b1s128", "gpt_small_b4s64", "resnet18_b4", "mobilenetv3_b4", "densenet121_b1", "dlrm_b512", "lstmcell_T32_b16")
SHORTEST_NS = 1000
RUNS = 9
GOAL = 0.8
INFERENCE, TRAINING = picture.COLOURS["tenon"], picture.COLOURS["inductor"]
FEW = 10  # of a model's kernels, for which a rank correlation says nothing


def ranks(values: list[float]) -> list[float]:
    """Of equal values the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    out = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for k in range(at, end + 1):
            out[order[k]] = (at + end) / 2
        at = end + 1
    return out


def spearman(xs: list[float], ys: list[float]) -> float:
    """Rank correlation (Spearman 1904): Pearson's of the ranks. NaN for fewer than three pairs, or equal ones."""
    if len(xs) < 3 or len(set(xs)) == 1 or len(set(ys)) == 1:
        return math.nan
    return statistics.correlation(ranks(xs), ranks(ys))


def rho(kernels: list[dict]) -> float:
    return spearman([k["predicted_ns"] for k in kernels], [k["measured_ns"] for k in kernels])


def described(groups: list[list[dict]]) -> dict[str, float]:
    """Rho over all kernels of the groups; a group that is alone keeps its place, its kernels are drawn."""

    def drawn(generator: random.Random) -> float:
        chosen = generator.choices(groups, k=len(groups))
        found = rho([k for group in chosen for k in generator.choices(group, k=len(group))])
        return 0.0 if math.isnan(found) else found

    low, high = intervals.bootstrap(drawn, 500)
    return {"rho": rho([k for group in groups for k in group]), "low": low, "high": high}


def row_of(name: str) -> rows.Row | None:
    """A row of rows.py, a case of tests/models, or one's training."""
    if name in rows.ROWS:
        return rows.ROWS[name]
    trains = name.endswith("_train")
    case = zoo.CASES.get(name.removesuffix("_train"))
    if case is None:
        return None

    def first(out):
        while not isinstance(out, torch.Tensor):
            out = next(iter(out.values() if isinstance(out, dict) else out))
        return out.float().square().mean()

    if trains:
        return rows.Row(name, case.family, case.make_train, mode="train", optimizer=rows.sgd, loss=case.loss or first)
    return rows.Row(name, case.family, case.make)


def measure(name: str, freeze: bool) -> list[dict]:
    """A dict per kernel of the row's graphs, backwards and optimizers' among them: its name, plan, predicted_ns, measured_ns, steps."""
    torch._dynamo.reset()
    known = {r.id for r in registry.records()}
    unit = step.Step(row_of(name), lambda target: torch.compile(target, backend="tenon", options={"freeze": freeze}))
    for _ in range(3):
        unit.timed(1)
    records = [r for r in registry.records() if r.id not in known and r.executable is not None]
    samples: dict[tuple[int, int], list[float]] = {}
    about: dict[tuple[int, int], dict] = {}
    torch_tenon._C.set_profiling(True)
    try:
        for _ in range(RUNS):
            for r in records:
                r.raw_stats(reset=True)
            unit.timed(1)
            for r in records:
                for k, ran in enumerate(r.raw_stats()["kernels"]):
                    if ran["count"]:
                        samples.setdefault((r.id, k), []).append(ran["ns"] / ran["count"])
                        about[r.id, k] = ran
    finally:
        torch_tenon._C.set_profiling(False)
    infos = {r.id: r.info for r in records}
    estimates = {(i, s["name"]): s["estimated_ns"] for i, info in infos.items() for s in info["steps"] if s["kind"] == "kernel"}
    found: dict[tuple, dict] = {}
    for (record, number), times in samples.items():
        ran = about[record, number]
        estimate = estimates[record, ran["name"]]
        kernel = found.setdefault((record, ran["kernel"], estimate), {
            "row": name + (" frozen" if freeze else ""), "kernel": ran["name"], "source": ran["source"],
            "plan": infos[record]["kernels"][ran["kernel"]]["plan"], "predicted_ns": estimate, "times": []})  # fmt: skip
        kernel["times"].append(statistics.median(times))
    for kernel in found.values():
        times = kernel.pop("times")
        kernel["measured_ns"], kernel["steps"] = statistics.median(times), len(times)
    return list(found.values())


def summary(kernels: list[dict]) -> dict:
    """What is said of them: of each row, and of all."""
    by_row = {row: [k for k in kernels if k["row"] == row] for row in dict.fromkeys(k["row"] for k in kernels)}
    ratio = lambda own: math.exp(statistics.median(math.log(k["measured_ns"] / k["predicted_ns"]) for k in own))
    correlation = lambda own: described([own]) if len(own) >= FEW else {}
    found = {row: {"kernels": len(own), "ratio": ratio(own), **correlation(own)} for row, own in by_row.items()}
    return {"rows": found, "all": {"kernels": len(kernels), "ratio": ratio(kernels), **described(list(by_row.values()))}}


def markdown(report: dict) -> str:
    cell = lambda s: f"{s['rho']:.2f} [{s['low']:.2f}, {s['high']:.2f}]" if "rho" in s else "–"
    lines = ["| row | kernels | rank correlation | measured / predicted, median |", "|---|---|---|---|"]
    said = report["summary"]
    for name, s in [*said["rows"].items(), ("**all**", said["all"])]:
        lines.append(f"| {name} | {s['kernels']} | {cell(s)} | {s['ratio']:.2f} |")
    return "\n".join(lines) + "\n"


def svg(kernels: list[dict], correlation: float) -> str:
    """A dot per kernel, predicted across, measured upwards, logarithmic; on the line both are the same."""
    width, height, left, bottom = 720, 560, 70, 500
    logs = [math.log10(k[key]) for k in kernels for key in ("predicted_ns", "measured_ns")]
    low, high = math.floor(min(logs)), math.ceil(max(logs))

    def across(ns: float) -> float:
        return left + (math.log10(ns) - low) / (high - low) * (width - left - 30)

    def upwards(ns: float) -> float:
        return bottom - (math.log10(ns) - low) / (high - low) * (bottom - 50)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
             'font-family="sans-serif" font-size="12">',
             "<title>Predicted and measured time of kernels</title>", f"<style>{picture.STYLE}</style>",
             f'<text x="{left}" y="24" font-size="14">{len(kernels)} kernels, one thread; rank correlation {correlation:.2f}</text>',
             f'<line x1="{left}" y1="{bottom}" x2="{width - 30}" y2="50" {picture.GRID}/>']  # fmt: skip
    for e in range(low, high + 1):
        label = f"{10.0 ** (e - 3):g} µs"
        x, y = across(10.0**e), upwards(10.0**e)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="50" y2="{bottom}" {picture.GRID}/>')
        parts.append(f'<line x1="{left}" x2="{width - 30}" y1="{y:.1f}" y2="{y:.1f}" {picture.GRID}/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for k in kernels:
        times = f"predicted {k['predicted_ns'] / 1e3:.1f} µs, measured {k['measured_ns'] / 1e3:.1f}"
        tip = escape(f"{k['row']}: {k['kernel']} ({k['source']}) {times}")
        colour = TRAINING if "train" in k["row"] or "adam" in k["row"] else INFERENCE
        x, y = across(k["predicted_ns"]), upwards(k["measured_ns"])
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" fill-opacity=".5"><title>{tip}</title></circle>')
    key = f'inference <tspan fill="{INFERENCE}">●</tspan> training <tspan fill="{TRAINING}">●</tspan>'
    parts.append(f'<text class="dim" x="{left}" y="42">{key}</text>')
    parts.append(f'<text x="{(left + width) / 2}" y="{bottom + 40}" text-anchor="middle">predicted</text>')
    parts.append(f'<text x="14" y="{bottom / 2}" transform="rotate(-90 14 {bottom / 2})" text-anchor="middle">measured</text></svg>')
    return "\n".join(parts)


def parse(argv) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS), help="of rows.py, cases of tests/models, NAME_train for a case's training")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--from-json", type=pathlib.Path, help="measure nothing: what an earlier run found")
    parser.add_argument("--markdown", type=pathlib.Path)
    parser.add_argument("--picture", type=pathlib.Path)
    parser.add_argument("--worst", type=int, default=15, help="so many of the kernels furthest from the common ratio are shown")
    parser.add_argument("--check", action="store_true", help=f"exit 1 where the correlation of all is below {GOAL}")
    options = parser.parse_args(argv)
    unknown = [name for name in options.rows.split(",") if row_of(name) is None]
    if unknown:
        parser.error(f"no row {', '.join(unknown)}")
    return options


def main(argv=None) -> int:
    options = parse(argv)
    if options.from_json:
        report = json.loads(options.from_json.read_text())
        kernels = report["kernels"]
    else:
        torch.set_num_threads(1)
        kernels = []
        for name in options.rows.split(","):
            for freeze in (False, True) if name in FREEZE else (False,):
                print(f"{name}{' frozen' if freeze else ''}", file=sys.stderr, flush=True)
                kernels += measure(name, freeze)
        report = {"machine": environment.machine(1), "kernels": kernels}
    kernels = [k for k in kernels if k["measured_ns"] >= SHORTEST_NS and k["predicted_ns"] > 0]
    if not kernels:
        print("no kernel of a microsecond or more")
        return 1
    report["summary"] = summary(kernels)
    said = report["summary"]["all"]
    print(f"torch {torch.__version__}, tenon {torch_tenon.__version__}, one thread, {len(kernels)} kernels\n{markdown(report)}")
    far = sorted(kernels, key=lambda k: -abs(math.log(k["measured_ns"] / k["predicted_ns"] / said["ratio"])))
    for k in far[: options.worst]:
        print(f"  {k['measured_ns'] / 1e3:9.1f} us, predicted {k['predicted_ns'] / 1e3:9.1f}  {k['row']}: {k['kernel']}  {k['plan'][:90]}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    if options.markdown:
        options.markdown.write_text(markdown(report))
    if options.picture:
        options.picture.write_text(svg(kernels, said["rho"]))
    return 1 if options.check and not said["rho"] >= GOAL else 0


if __name__ == "__main__":
    sys.exit(main())
