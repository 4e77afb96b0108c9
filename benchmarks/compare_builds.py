"""Times rows of rows.py on two builds of tenon and on eager, in the same blocks.

    python benchmarks/compare_builds.py --before ../base/build/release/python [--rows softmax,reduce] [--blocks 15]

A process holds one build, so each build has a worker, and the workers take turns: in every block
each peer runs for a while, in rotating order, with a pause before it, and all the others sleep.
Where a process's arrays happen to lie is worth up to a fifth, for as long as it lives: the blocks are
shared out to --processes rounds, each with new workers. Shown per row: the median of the blocks' ratios
now / before and now / eager with a 95 % interval (bootstrap of the median over rounds, and blocks in
them, 2,000 draws, fixed seed). A row got slower if the whole interval of now / before lies above --bar.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import environment
import intervals

HERE = pathlib.Path(__file__).resolve().parent
PEERS = ("eager", "before", "now")


def parse(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=pathlib.Path, help="folder that holds the other build's torch_tenon")
    parser.add_argument("--now", type=pathlib.Path, default=HERE.parent / "build" / "release" / "python")
    parser.add_argument("--rows", default="", help="comma-separated parts of row names")
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--processes", type=int, default=5, help="rounds with processes of their own; they share the blocks")
    parser.add_argument("--block-ms", type=float, default=80.0, help="per peer and block")
    parser.add_argument("--pause-ms", type=float, default=20.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bar", type=float, default=1.05)
    parser.add_argument("--json", type=pathlib.Path, help="write everything measured here")
    parser.add_argument("--worker", choices=["eager", "tenon"], help=argparse.SUPPRESS)
    return parser.parse_args(argv)


# --- a worker: commands as lines of JSON on stdin, answers on stdout ------------------------------


def work(peer: str, threads: int) -> None:
    import peers
    import rows
    import torch
    from step import ReadProbe

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    torch.set_num_threads(threads)
    step = probe = None
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if "make" in command:
                torch._dynamo.reset()
                row = rows.ROWS[command["make"]]
                step = peers.make(peer, row)
                probe = ReadProbe(row.reads, threads) if row.reads and peer == "eager" else None
                step.timed(2)
                answer = min(step.timed(1) for _ in range(3))
            elif "probe" in command:
                probe.timed(1)
                answer = probe.timed(command["probe"])
            else:
                step.timed(1)
                answer = step.timed(command["time"])
            reply = {"s": answer}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


class Worker:
    """A process with one build. ask() returns seconds; RuntimeError: the worker's own error."""

    def __init__(self, name: str, package: pathlib.Path | None, threads: int):
        environment = dict(os.environ)
        if package is not None:
            if not (package / "torch_tenon").is_dir():
                raise SystemExit(f"{name}: there is no torch_tenon in {package}; build its target tenon_package first")
            environment["PYTHONPATH"] = str(package)
        peer = "eager" if name == "eager" else "tenon"
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, __file__, f"--worker={peer}", f"--threads={threads}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=HERE)  # fmt: skip

    def ask(self, **command) -> float:
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the worker for {self.name} ended with status {self.process.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(f"{self.name}: {reply['error']}")
        return reply["s"]

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


# --- the figures ------------------------------------------------------------------------------------


def measure(row, workers: dict, options, first: int) -> dict:
    """Seconds of a round's blocks by peer, and what reading took. first: so many blocks were before."""
    counts = {}
    for name, worker in workers.items():
        once = worker.ask(make=row.name)
        counts[name] = max(1, int(options.block_ms / 1e3 / max(once, 1e-7)))
    names = list(workers)
    blocks = {name: [] for name in [*names, "reading"]}
    for block in range(first, first + -(-options.blocks // options.processes)):
        for name in names[block % len(names) :] + names[: block % len(names)]:
            time.sleep(options.pause_ms / 1e3)
            blocks[name].append(workers[name].ask(time=counts[name]))
        if row.reads:
            blocks["reading"].append(workers["eager"].ask(probe=counts["eager"]))
    return blocks


def summary(row, rounds: list[dict]) -> dict:
    flat = {name: [value for blocks in rounds for value in blocks[name]] for name in rounds[0]}
    result = {"row": row.name, "eager_ms": statistics.median(flat["eager"]) * 1e3, "rounds_s": rounds}
    of = lambda name: [blocks[name] for blocks in rounds]
    result["now/eager"] = intervals.ratio(of("now"), of("eager"))
    if "before" in flat:
        result["now/before"] = intervals.ratio(of("now"), of("before"))
    if flat["reading"]:
        result["read_share"] = statistics.median(r / n for r, n in zip(flat["reading"], flat["now"]))
    return result


def line(result: dict, bar: float) -> str:
    def show(key):
        if key not in result:
            return f"{'-':>22}"
        return "{median:8.3f} [{low:.3f}, {high:.3f}]".format(**result[key]).ljust(26)

    remark = ""
    if "now/before" in result and result["now/before"]["low"] > bar:
        remark = "SLOWER"
    if "read_share" in result:
        remark += f" {result['read_share']:.0%} of reading"
    return f"{result['row']:28} {result['eager_ms']:10.4g} {show('now/eager')} {show('now/before')} {remark}"


def main() -> int:
    options = parse()
    if options.worker:
        work(options.worker, options.threads)
        return 0
    environment.reexec_pinned(options.threads)
    import rows

    parts = [part for part in options.rows.split(",") if part]
    chosen = [r for r in rows.ROWS.values() if not parts or any(p in r.name for p in parts)]
    print(", ".join(f"{key} {value}" for key, value in environment.machine(options.threads).items()))
    packages = {"eager": None, "before": options.before, "now": options.now}
    peers = [name for name in PEERS if name == "eager" or packages[name] is not None]
    rounds, failed = {row.name: [] for row in chosen}, {}
    for number in range(options.processes):
        workers = {name: Worker(name, packages[name], options.threads) for name in peers}
        for row in chosen:
            print(f"round {number + 1} of {options.processes}: {row.name}", file=sys.stderr)
            try:
                rounds[row.name].append(measure(row, workers, options, number))
            except RuntimeError as error:
                failed[row.name] = str(error)
        for worker in workers.values():
            worker.close()
    print(f"{'row':28} {'eager ms':>10} {'now / eager':26} {'now / before':26}   "
          f"{options.blocks} blocks in {options.processes} rounds, 95 % intervals")  # fmt: skip
    results = [summary(row, rounds[row.name]) for row in chosen if row.name not in failed]
    for result in results:
        print(line(result, options.bar))
    for name, error in failed.items():
        print(f"{name:28} did not run: {error}")
    slower = [r["row"] for r in results if "now/before" in r and r["now/before"]["low"] > options.bar]
    print(f"above {options.bar} x of before (whole interval): {slower or 'none'}; did not run: {list(failed) or 'none'}")
    if options.json:
        options.json.write_text(json.dumps({"machine": environment.machine(options.threads), "results": results}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
