"""What the models of tests/models would do on a GPU: a table of launches, bytes and estimated time, from their programs alone.

    python benchmarks/gpu_graphs.py GRAPHS; python benchmarks/gpu_graphs.py GRAPHS --training
    python benchmarks/gpu_roofline.py GRAPHS [--bin build/release/bin] [--architecture sm_90] [--out docs/gpu_roofline.md]

No GPU is needed, and nothing is measured on one. Writes OUT and, beside it, the same as JSON.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import datetime
import json
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]

HEAD = """# What the models would do on a GPU

Written by `benchmarks/gpu_graphs.py` and `benchmarks/gpu_roofline.py`; the numbers behind it are in [gpu_roofline.json](gpu_roofline.json).

Commit {commit}, {date}, target {architecture}, compiled on {machine}. **Nothing here was measured on a GPU**: launches and
bytes are counted from the programs, times are the larger of bytes at {bytes:.1f} TB/s and work at {half:.0f} TFLOP/s (products of bf16
and f16) or {flops:.1f} TFLOP/s (f32: kernels, and products without TF32), step by step, added up. What each of the steps costs to
launch stands apart, at {launch:.0f} us.

* *kernels*: different ones; *launches*: of them; *library*: calls of cuBLASLt and cuDNN; *ATen*: operators of PyTorch that stay (attention,
  random numbers, what has no lowering); *copies*: to and from the host's memory.
* *MB*: what kernels, calls and copies read and write, operands and results once each, of tables what is picked. *eager MB*: the same of the
  graph's ATen nodes one by one, views free; *eager*: how many those are.
* *host*: instructions whose values the host computes (here: the checks of indices, and what has no code on a GPU).
* *PTX s*: from the graph to PTX, cold, two threads, on a machine that did other things besides; *ptxas*: the most registers of a
  kernel, bytes spilled.

"""

COLUMNS = ("model", "graph", "kernels", "launches", "library", "ATen", "copies", "MB", "eager MB", "less", "eager", "GFLOP", "est. us",
           "launch us", "host", "PTX s", "registers", "spilled")


def graphs_of(folder: pathlib.Path) -> dict[tuple[str, str], list[pathlib.Path]]:
    """Model, kind of graph -> files."""
    found = collections.defaultdict(list)
    for path in sorted(folder.glob("*.aten")):
        model, kind, _ = path.stem.rsplit(".", 2)
        found[model, kind].append(path)
    return found


def report_of(files, asked) -> list[dict]:
    command = [str(asked.bin / "gpu-report"), f"--architecture={asked.architecture}"]
    command += [f"--bytes={asked.bytes}", f"--half={asked.half}", f"--flops={asked.flops}", f"--launch={asked.launch}"]
    if asked.ptxas:
        command.append("--ptxas")
    told = subprocess.run([*command, *map(str, files)], capture_output=True, text=True)
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    if len(lines) != len(files):
        lines.append({"error": f"gpu-report ended with {told.returncode}: {told.stderr[-300:]}"})
    return lines


def row_of(model: str, kind: str, reports: list[dict]) -> dict[str, str]:
    """Of all graphs of a kind together."""
    def total(key):
        return sum(r[key] for r in reports)

    def counted(key):
        return sum(sum(r[key].values()) for r in reports)

    moved = sum(r["kernel_bytes"] + r["library_bytes"] + r["framework_bytes"] + r["copy_bytes"] + r["host_copy_bytes"] for r in reports)
    eager = total("eager_bytes")
    assembled = [k for r in reports for k in r.get("ptxas", {}).get("kernels", ())]
    checked = all("kernels" in r.get("ptxas", {}) for r in reports)
    return dict(zip(COLUMNS, (
        model, kind if len(reports) == 1 else f"{kind}, {len(reports)} graphs", f"{total('kernels')}", f"{total('launches')}",
        f"{counted('library')}", f"{counted('framework')}", f"{total('host_copies')}", f"{moved / 1e6:.2f}", f"{eager / 1e6:.2f}",
        f"{eager / max(moved, 1):.2f}x", f"{total('eager_launches')}", f"{total('flops') / 1e9:.2f}", f"{total('busy_us'):.1f}",
        f"{total('launch_us'):.0f}", f"{counted('host')}", f"{total('compile_ms') / 1e3:.2f}",
        f"{max((k['registers'] for k in assembled), default=0)}" if checked else "-",
        f"{sum(k['spilled'] + k['stack'] for k in assembled)}" if checked else "-",
    )))  # fmt: skip


def table(rows: list[dict[str, str]]) -> list[str]:
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * 2}{'--:|' * (len(COLUMNS) - 2)}"]
    return lines + [f"| {' | '.join(row[c] for c in COLUMNS)} |" for row in rows]


def what_is_left(reports) -> list[str]:
    """What the host computes, what ATen does and what no kernel was planned for, over all models."""
    left, aten, unplanned, host = (collections.Counter() for _ in range(4))
    for report in reports:
        left.update(report["left_to_host"])
        aten.update(report["framework"])
        host.update(report["host"])
        unplanned.update(reason.split(": ", 1)[1][:120] for reason in report["unplanned"])

    def listed(counter):
        return ", ".join(f"{name} {count}" for name, count in counter.most_common()) or "none"

    return [
        f"* ATen's on the device: {listed(aten)}",
        f"* steps of the host: {listed(host)}",
        f"* given to the host when spaces were assigned: {listed(left)}",
        f"* no plan for a kernel, given to the host: {listed(unplanned)}",
    ]


def commit() -> str:
    said = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=ROOT)
    return said.stdout.strip() or "unknown"


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/gpu_roofline.md")
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--bytes", type=float, default=4300, help="GB/s")
    parser.add_argument("--half", type=float, default=790000, help="GFLOP/s of products of bf16 and f16")
    parser.add_argument("--flops", type=float, default=66900, help="GFLOP/s of f32")
    parser.add_argument("--launch", type=float, default=2000, help="ns of a step")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once; compile times want 1")
    parser.add_argument("--no-ptxas", dest="ptxas", action="store_false")
    asked = parser.parse_args()
    rows, good, refused = [], [], {}
    by_graph = {}
    found = graphs_of(asked.graphs)
    with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        told = list(pool.map(lambda files: report_of(files, asked), found.values()))
    for (model, kind), reports in zip(found, told):
        bad = [r["error"] for r in reports if "error" in r]
        by_graph[f"{model}.{kind}"] = reports
        if bad:
            refused[f"{model}, {kind}"] = bad[0]
            print(f"{model} {kind}: {bad[0][:200]}", flush=True)
            continue
        rows.append(row_of(model, kind, reports))
        good += reports
        print(" ".join(rows[-1].values()), flush=True)
    failures = asked.graphs / "failures.json"
    untraced = json.loads(failures.read_text()) if failures.exists() else {}
    head = HEAD.format(
        commit=commit(), date=datetime.date.today().isoformat(), architecture=asked.architecture, machine=f"{processor()}, two cores",
        bytes=asked.bytes / 1e3, half=asked.half / 1e3, flops=asked.flops / 1e3, launch=asked.launch / 1e3,
    )  # fmt: skip
    text = head + "\n".join(table(rows)) + "\n\n## All together\n\n"
    text += f"{len(good)} graphs, {sum(len(r['unplanned']) for r in good)} instructions without a plan.\n\n"
    text += "\n".join(what_is_left(good)) + "\n"
    if refused or untraced:
        text += "\n## Not in the table\n\n" + "\n".join(f"* {name}: {why}" for name, why in (refused | untraced).items()) + "\n"
    asked.out.write_text(text)
    for reports in by_graph.values():
        for r in reports:
            r["file"] = pathlib.Path(r.get("file", "")).name
    asked.out.with_suffix(".json").write_text(json.dumps(by_graph, indent=1) + "\n")


if __name__ == "__main__":
    main()
