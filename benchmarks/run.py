"""Times the rows of rows.py against their peers, interleaved, and judges their accuracy.

    python benchmarks/run.py [--rows softmax,chain] [--peers eager,inductor,tenon] [--json FILE]

Each row builds every peer, checks each against eager and float64, then times them in turns: in
every block each peer runs for a while, in rotating order, with a pause before it, so that drift
and other processes hit all alike. Shown are medians over blocks. The process re-executes itself
once: glibc's mmap threshold drifts with a process's history and must be pinned, and the thread
count has to be set before torch is loaded.
"""

import argparse
import concurrent.futures
import ctypes
import functools
import json
import os
import pathlib
import platform
import statistics
import sys
import time

PINNED = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),  # the largest value glibc accepts
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}


def parse(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="comma-separated parts of row names")
    parser.add_argument("--peers", default="eager,inductor,tenon", help="eager is always run")
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--block-ms", type=float, default=60.0, help="per peer and block")
    parser.add_argument("--pause-ms", type=float, default=30.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, help="write everything measured here")
    parser.add_argument("--check", action="store_true", help="exit 1 on a missed bar or accuracy")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args(argv)


def reexec_pinned(threads: int) -> None:
    wanted = PINNED | {"OMP_NUM_THREADS": str(threads)}
    if any(os.environ.get(key) != value for key, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | wanted)


def machine(threads: int) -> dict:
    import torch

    cpu = platform.processor()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": threads,
        "load": os.getloadavg()[0],
        "torch": torch.__version__,
        "python": platform.python_version(),
        "mmap_threshold": os.environ["MALLOC_MMAP_THRESHOLD_"],
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


class ReadProbe:
    """Reads `size` bytes with all threads at once: memchr of what isn't there, a share each."""

    def __init__(self, size: int, threads: int):
        libc = ctypes.CDLL(None)
        libc.memchr.argtypes, libc.memchr.restype = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t], ctypes.c_void_p
        self.buffer = ctypes.create_string_buffer(size)
        ctypes.memset(self.buffer, 1, size)  # pages of its own
        base, share = ctypes.addressof(self.buffer), size // threads
        self.parts = [(base + i * share, share) for i in range(threads)]
        self.read = lambda part: libc.memchr(part[0], 0, part[1])  # ctypes lets go of the GIL
        self.pool = concurrent.futures.ThreadPoolExecutor(threads)

    def timed(self, count: int) -> float:
        """Seconds per read over `count` reads."""
        began = time.perf_counter()
        for _ in range(count):
            list(self.pool.map(self.read, self.parts))
        return (time.perf_counter() - began) / count


class Step:
    """One peer's timed unit of a row, and the values by which it is judged."""

    def __init__(self, row, peer: str, dtype=None):
        import peers
        import rows
        import torch

        model, args = row.make()
        self.row, self.model = row, rows.own_code(model)
        if dtype is not None:
            convert = lambda t: t.to(dtype) if t.is_floating_point() else t
            args = tuple(convert(t.detach()).requires_grad_(t.requires_grad) for t in args)
            if isinstance(self.model, torch.nn.Module):
                self.model = self.model.to(dtype)
            elif self.model.__closure__:  # a function's captured tensors are operands as well
                for cell in self.model.__closure__:
                    if isinstance(cell.cell_contents, torch.Tensor):
                        cell.cell_contents = convert(cell.cell_contents)
        self.args = args
        if isinstance(self.model, torch.nn.Module):
            self.model.train(row.mode == "train")
        if row.mode == "optimizer":
            for parameter, grad in zip(self.model.parameters(), self.args, strict=True):
                parameter.grad = grad.clone()
            self.optimizer = row.optimizer(self.model.parameters())
            self.run = peers.compiled(peer, self.optimizer.step)
            return
        self.callee = peers.compiled(peer, self.model)
        # As little Python as possible around the call: small rows time microseconds.
        self.run = functools.partial(self.callee, *self.args)
        if row.mode == "train":
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
            self.run = self._train

    def _train(self):
        self.optimizer.zero_grad()
        loss = self.row.loss(self.callee(*self.args))
        loss.backward()
        self.optimizer.step()
        return loss

    def timed(self, count: int) -> float:
        """Seconds per call over `count` calls."""
        import torch

        run = self.run
        with torch.set_grad_enabled(self.row.mode != "infer"):
            began = time.perf_counter()
            for _ in range(count):
                run()
            return (time.perf_counter() - began) / count

    def values(self):
        """What accuracy is judged on: outputs, and gradients where the row has them."""
        import torch

        if self.row.mode == "infer":
            with torch.no_grad():
                return self.run()
        if self.row.mode == "optimizer":  # the first steps, of which all but one have the state of others
            for _ in range(3):
                self.run()
            return [p.detach().clone() for p in self.model.parameters()]
        out = self.run()
        if self.row.mode == "train":
            return [out.detach(), [p.grad.clone() for p in self.model.parameters()]]
        leaf = out if isinstance(out, torch.Tensor) else out[0]
        return [leaf.detach(), torch.autograd.grad(leaf.sum(), self.args[0])[0]]


def measure(row, names: list[str], options, tick) -> dict:
    import torch
    from torch_tenon.testing import compare

    torch._dynamo.reset()
    reference = Step(row, "eager", torch.float64).values()
    steps, result = {}, {"row": row.name, "what": row.what, "peers": {}}
    eager_values = Step(row, "eager").values()
    for name in names:
        tick(f"{row.name}: {name} compiles")
        began = time.perf_counter()
        steps[name] = Step(row, name)
        entry = result["peers"][name] = {"accuracy": "not judged"}
        values = steps[name].values()
        entry["first_call_s"] = time.perf_counter() - began
        if name != "aot_alloc":
            report = compare(
                values, eager_values, reference,
                vacuous_ok=lambda leaf: row.mode != "infer", check_strides=name == "tenon",
            )  # fmt: skip
            entry["accuracy"] = "ok" if report.ok else "; ".join(report.failures[:3])
            entry["bound_used"] = report.worst.used if report.worst else None
    counts = {}
    for name, step in steps.items():
        step.timed(2)
        once = min(step.timed(1) for _ in range(3))
        counts[name] = max(1, int(options.block_ms / 1e3 / max(once, 1e-7)))
    blocks = {name: [] for name in names}
    probe, reads = (ReadProbe(row.reads, options.threads), []) if row.reads else (None, [])
    for block in range(options.blocks):
        tick(f"{row.name}: block {block + 1} of {options.blocks}")
        for name in names[block % len(names) :] + names[: block % len(names)]:
            time.sleep(options.pause_ms / 1e3)
            steps[name].timed(1)
            blocks[name].append(steps[name].timed(counts[name]))
        if probe:
            probe.timed(1)
            reads.append(probe.timed(max(1, counts[names[0]])))
    for name in names:
        entry = result["peers"][name]
        entry["median_ms"] = statistics.median(blocks[name]) * 1e3
        entry["min_ms"] = min(blocks[name]) * 1e3
        entry["blocks_ms"] = [value * 1e3 for value in blocks[name]]
        if probe:  # of the bandwidth at which as many bytes are read
            entry["read_share"] = statistics.median(reads) / statistics.median(blocks[name])
    result["bar"] = judge_bar(row, result["peers"])
    return result


def judge_bar(row, measured: dict) -> dict | None:
    if row.bar is None or "tenon" not in measured or row.bar[0] not in measured:
        return None
    peer, factor = row.bar
    ratio = measured["tenon"]["median_ms"] / measured[peer]["median_ms"]
    return {"peer": peer, "factor": factor, "ratio": ratio, "met": ratio <= factor}


def table(results: list[dict], names: list[str]):
    from rich.table import Table

    shown = Table(title="medians; a peer as a multiple of eager, smaller is better")
    for column in ("row", "eager ms", *[n for n in names if n != "eager"], "bar", "accuracy"):
        shown.add_column(column, overflow="fold")
    for result in results:
        measured = result["peers"]
        eager = measured["eager"]["median_ms"]
        cells = [result["row"], f"{eager:.4g}"]
        for name in names:
            if name != "eager":
                entry = measured.get(name)
                share = f" ({entry['read_share']:.0%} of reading)" if entry and "read_share" in entry else ""
                cells.append(f"{entry['median_ms'] / eager:.3f}{share}" if entry else "-")
        bar = result["bar"]
        if bar is None:
            cells.append("-")
        else:
            verdict = "met" if bar["met"] else "LOST"
            cells.append(f"{verdict}: {bar['ratio']:.2f} x {bar['peer']} (<= {bar['factor']})")
        wrong = [f"{n}: {e['accuracy']}" for n, e in measured.items()
                 if e["accuracy"] not in ("ok", "not judged")]  # fmt: skip
        cells.append("; ".join(wrong) or "ok")
        shown.add_row(*cells)
    return shown


def main() -> int:
    options = parse()
    reexec_pinned(options.threads)
    here = pathlib.Path(__file__).resolve().parent
    sys.path.insert(0, str(here))
    import importlib.util

    if importlib.util.find_spec("torch_tenon") is None:
        sys.path.append(str(here.parent / "torch_plugin" / "python"))
    import peers
    import rich.console
    import rows
    import torch

    torch.set_num_threads(options.threads)
    console = rich.console.Console(width=160 if not sys.stdout.isatty() else None)
    parts = [part for part in options.rows.split(",") if part]
    chosen = [r for r in rows.ROWS.values() if not parts or any(p in r.name for p in parts)]
    if options.list or not chosen:
        console.print("\n".join(f"{r.name:28} {r.what}" for r in rows.ROWS.values()))
        return 0 if options.list else 2
    names = ["eager", *[p for p in options.peers.split(",") if p not in ("", "eager")]]
    lacking = peers.available()
    for name in list(names):
        if lacking.get(name, f"no peer of that name; there are {list(lacking)}"):
            console.print(f"[yellow]{name} is left out: {lacking.get(name, 'unknown')}")
            names.remove(name)
    about = machine(options.threads)
    console.print(", ".join(f"{key} {value}" for key, value in about.items()), highlight=False)

    results, failed = [], []
    with console.status("starting") as status:
        for row in chosen:
            mine = names + [n for n in row.needs if n not in names]
            try:
                results.append(measure(row, mine, options, status.update))
            except Exception as error:
                failed.append(f"{row.name}: {type(error).__name__}: {error}")
                console.print(f"[red]{failed[-1]}", highlight=False)
                continue
            console.print(progress_line(results[-1]), highlight=False)
    extra = sorted({n for r in results for n in r["peers"]} - set(names))
    console.print(table(results, names + extra))
    losses = [r["row"] for r in results if r["bar"] and not r["bar"]["met"]]
    wrong = [r["row"] for r in results if "tenon" in r["peers"]
             and r["peers"]["tenon"]["accuracy"] != "ok"]  # fmt: skip
    console.print(f"bars lost: {losses or 'none'}; accuracy missed: {wrong or 'none'}; "
                  f"rows that did not run: {failed or 'none'}", highlight=False)  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps({"machine": about, "results": results}, indent=1))
    return 1 if options.check and (losses or wrong or failed) else 0


def progress_line(result: dict) -> str:
    parts = [f"{name} {entry['median_ms']:.4g}" for name, entry in result["peers"].items()]
    return f"{result['row']:28} ms: {', '.join(parts)}"


if __name__ == "__main__":
    sys.exit(main())
