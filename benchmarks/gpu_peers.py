"""What PyTorch takes on a GPU for the rows of gpu-runner's results.json: eager and Inductor, beside tenon's kernels.

    python benchmarks/gpu_peers.py RESULTS/results.json [--seconds N] [--out PAGE]

Times are medians by CUDA events, in microseconds, of runs that follow each other on one stream; arrays are random numbers. A row that
PyTorch has no operator for is left out and named. Calls come from Python: what takes less than about 100 us has their cost in it. Ratios
are tenon's time to the better of the two: below 1, tenon is faster. Needs only torch with CUDA (and Triton for Inductor), nothing of tenon.
"""

import argparse
import json
import pathlib
import sys
import time

import torch
import torch.nn.functional as F

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def case(name, dtype, dims):
    """The function and its arguments, or None."""

    def random(*sizes, dtype=dtype):
        return torch.randn(*sizes, device="cuda", dtype=dtype)

    if name == "matrix product":
        rows, terms, columns = dims
        return torch.matmul, [random(rows, terms), random(terms, columns)]
    if name in ("attention", "causal attention"):
        batch, queries, head = dims
        causal = name != "attention"
        q, k, v = (random(1, batch, queries, head) for _ in range(3))
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), [q, k, v]
    rows, columns = dims
    x = random(rows, columns)
    if name == "copy by a kernel":
        return torch.neg, [x]
    if name == "layer norm":
        weight, bias = random(columns), random(columns)
        return lambda x, w, b: F.layer_norm(x, (columns,), w, b), [x, weight, bias]
    if name == "softmax":
        return lambda x: torch.softmax(x, 1), [x]
    if name == "sums of rows":
        return lambda x: x.sum(1, dtype=torch.float32), [x]
    if name == "sums of columns":
        return lambda x: x.sum(0, dtype=torch.float32), [x]
    if name == "sum of all":
        return lambda x: x.sum(dtype=torch.float32), [x]
    if name == "transpose":
        return lambda x: x.t().contiguous(), [x]
    if name == "scan of rows":
        return lambda x: torch.cumsum(x, 1), [x]
    return None


def median_us(function, arguments, samples=15, runs=5):
    times = []
    for n in range(-3, samples):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(runs):
            function(*arguments)
        end.record()
        end.synchronize()
        if n >= 0:
            times.append(begin.elapsed_time(end) * 1e3 / runs)
    return sorted(times)[len(times) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=150, help="no row is begun after it")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit(f"wanted a GPU, torch {torch.__version__} sees none")
    torch.backends.cuda.matmul.allow_tf32 = False
    began = time.monotonic()
    lines = [
        f"torch {torch.__version__} on {torch.cuda.get_device_name()}, f32 without TF32, µs:",
        "",
        "| what | array | tenon | eager | Inductor | tenon / better |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for row in json.loads(options.results.read_text())["times"]:
        if row["error"] or time.monotonic() - began > options.seconds:
            print(f"left out: {row['name']} {row['type']}{row['dims']}: {row['error'] or 'time is up'}", flush=True)
            continue
        found = case(row["name"], TYPES[row["type"]], row["dims"])
        if found is None:
            print(f"left out: {row['name']}: no operator of PyTorch", flush=True)
            continue
        function, arguments = found
        eager = median_us(function, arguments)
        torch._dynamo.reset()
        inductor = median_us(torch.compile(function, dynamic=False), arguments)
        array = f"{row['type']}{row['dims']}".replace(" ", "")
        ratio = row["us"] / min(eager, inductor)
        lines.append(f"| {row['name']} | {array} | {row['us']:.1f} | {eager:.1f} | {inductor:.1f} | {ratio:.2f} |")
        print(lines[-1], flush=True)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
