"""Predicted against measured time of the kernels of the models, one thread: the cost model's rank correlation.

    python benchmarks/kernel_costs.py [--rows resnet18_b4,...] [--json FILE] [--picture FILE.svg]

Predicted is what the compiler estimated for a kernel when it planned it (estimated_ns), measured the median of several profiled runs.
Spearman's rho over all kernels, and per row; the kernels that are furthest from the common ratio are listed. Kernels below a
microsecond are left out: they measure the clock.
"""

import argparse
import json
import math
import pathlib
import statistics
import sys
from html import escape

import environment

environment.find_packages()
import rows
import torch
import torch_tenon
from torch_tenon import registry

ROWS = ("transformer4L_b1s128", "gpt_small_b4s64", "resnet18_b4", "mobilenetv3_b4", "densenet121_b1", "dlrm_b512", "lstmcell_T32_b16",
        "gcn_10k_100k", "eos_64k", "chain20_1M", "embed_cumsum_argmax", "sample_topk_8x32000", "reduce_rows_4096x1024",
        "reduce_cols_4096x1024", "softmax_12x128x128", "rms_rope_32x128x64", "add_ln_gelu_128x768")  # fmt: skip
SHORTEST_NS = 1000
RUNS = 9


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


def measure(name: str, freeze: bool) -> list[dict]:
    """A dict per kernel step of the row's inference graphs: name, plan, predicted_ns, measured_ns."""
    model, args = rows.ROWS[name].make()
    torch._dynamo.reset()
    known = {r.id for r in registry.records()}
    with torch.no_grad():
        compiled = torch.compile(model, backend="tenon", options={"freeze": freeze})
        for _ in range(3):
            compiled(*args)
        records = [r for r in registry.records() if r.id not in known and r.executable is not None]
        samples: dict[tuple[int, int], list[float]] = {}
        about: dict[tuple[int, int], dict] = {}
        torch_tenon._C.set_profiling(True)
        try:
            for _ in range(RUNS):
                for r in records:
                    r.raw_stats(reset=True)
                compiled(*args)
                for r in records:
                    for k, step in enumerate(r.raw_stats()["kernels"]):
                        if step["count"]:
                            samples.setdefault((r.id, k), []).append(step["ns"] / step["count"])
                            about[r.id, k] = step
        finally:
            torch_tenon._C.set_profiling(False)
        infos = {r.id: r.info for r in records}
    estimates = {(i, step["name"]): step["estimated_ns"] for i, info in infos.items() for step in info["steps"] if step["kind"] == "kernel"}
    found = []
    for key, times in samples.items():
        step = about[key]
        found.append({"row": name + (" frozen" if freeze else ""), "kernel": step["name"], "source": step["source"],
                      "plan": infos[key[0]]["kernels"][step["kernel"]]["plan"],
                      "predicted_ns": estimates[key[0], step["name"]],
                      "measured_ns": statistics.median(times)})  # fmt: skip
    return found


def svg(kernels: list[dict], rho: float) -> str:
    """A dot per kernel, predicted across, measured upwards, logarithmic; the line is the common ratio."""
    width, height, left, bottom = 720, 560, 70, 500
    logs = [math.log10(k[key]) for k in kernels for key in ("predicted_ns", "measured_ns")]
    low, high = math.floor(min(logs)), math.ceil(max(logs))

    def across(ns: float) -> float:
        return left + (math.log10(ns) - low) / (high - low) * (width - left - 30)

    def upwards(ns: float) -> float:
        return bottom - (math.log10(ns) - low) / (high - low) * (bottom - 50)

    style = "text{fill:#1f2328}@media(prefers-color-scheme:dark){text{fill:#e6edf3}}"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="sans-serif" font-size="12">',
             "<title>Predicted and measured time of kernels</title>", f"<style>{style}</style>",
             f'<text x="{left}" y="24" font-size="14">{len(kernels)} kernels, one thread; rank correlation {rho:.2f}</text>']  # fmt: skip
    for e in range(low, high + 1):
        label = f"{10.0 ** (e - 3):g} µs"
        x, y, grey = across(10.0**e), upwards(10.0**e), 'stroke="#808080" stroke-opacity=".35"'
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="50" y2="{bottom}" {grey}/>')
        parts.append(f'<line x1="{left}" x2="{width - 30}" y1="{y:.1f}" y2="{y:.1f}" {grey}/>')
        parts.append(f'<text x="{across(10.0**e):.1f}" y="{bottom + 18}" text-anchor="middle">{label}</text>')
        parts.append(f'<text x="{left - 8}" y="{upwards(10.0**e) + 4:.1f}" text-anchor="end">{label}</text>')
    for k in kernels:
        times = f"predicted {k['predicted_ns'] / 1e3:.1f} µs, measured {k['measured_ns'] / 1e3:.1f}"
        tip = escape(f"{k['row']}: {k['kernel']} ({k['source']}) {times}")
        x, y = across(k["predicted_ns"]), upwards(k["measured_ns"])
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="#d55e00" fill-opacity=".6"><title>{tip}</title></circle>')
    parts.append(f'<text x="{(left + width) / 2}" y="{bottom + 40}" text-anchor="middle">predicted</text>')
    parts.append(f'<text x="14" y="{bottom / 2}" transform="rotate(-90 14 {bottom / 2})" text-anchor="middle">measured</text></svg>')
    return "\n".join(parts)


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--picture", type=pathlib.Path)
    parser.add_argument("--worst", type=int, default=15, help="so many of the kernels furthest from the common ratio are shown")
    options = parser.parse_args(argv)
    unknown = [name for name in options.rows.split(",") if name not in rows.ROWS]
    if unknown:
        parser.error(f"no row {', '.join(unknown)}")
    torch.set_num_threads(1)
    kernels: list[dict] = []
    for name in options.rows.split(","):
        for freeze in (False, True):
            print(f"{name}{' frozen' if freeze else ''}", file=sys.stderr, flush=True)
            kernels += measure(name, freeze)
    kernels = [k for k in kernels if k["measured_ns"] >= SHORTEST_NS and k["predicted_ns"] > 0]
    if not kernels:
        print("no kernel of a microsecond or more")
        return 1
    rho = spearman([k["predicted_ns"] for k in kernels], [k["measured_ns"] for k in kernels])
    common = statistics.median(math.log(k["measured_ns"] / k["predicted_ns"]) for k in kernels)
    print(f"torch {torch.__version__}, tenon {torch_tenon.__version__}, one thread, {len(kernels)} kernels")
    for row in dict.fromkeys(k["row"] for k in kernels):
        own = [k for k in kernels if k["row"] == row]
        print(f"  {row:32s} {len(own):4d} kernels  rho {spearman([k['predicted_ns'] for k in own], [k['measured_ns'] for k in own]):5.2f}")
    print(f"rank correlation of all: {rho:.3f}; measured / predicted: median {math.exp(common):.2f}")
    far = sorted(kernels, key=lambda k: -abs(math.log(k["measured_ns"] / k["predicted_ns"]) - common))
    for k in far[: options.worst]:
        print(f"  {k['measured_ns'] / 1e3:9.1f} us, predicted {k['predicted_ns'] / 1e3:9.1f}  {k['row']}: {k['kernel']}  {k['plan'][:90]}")
    if options.json:
        options.json.write_text(json.dumps({"rho": rho, "kernels": kernels}, indent=1))
    if options.picture:
        options.picture.write_text(svg(kernels, rho))
    return 0


if __name__ == "__main__":
    sys.exit(main())
