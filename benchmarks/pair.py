"""Eager and one peer on one row, in blocks that take turns: what a measured process does, and how one is started.

Two runtimes' thread pools disturb each other, so a process holds eager and one peer and nothing else. Its answers are
lines of JSON: {"tick": what it does now}, and in the end {"result": ...} or {"failure": ..., "stage": ...}.
"""

import argparse
import dataclasses
import importlib
import importlib.util
import json
import os
import pathlib
import selectors
import signal
import subprocess
import sys
import tempfile
import time

import environment

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Settings:
    """How long is measured, and on what."""

    blocks: int = 3  # of each process
    block_ms: float = 60.0  # per side and block
    pause_ms: float = 30.0
    threads: int = 2
    cores: tuple[int, ...] = ()
    timeout_s: float = 900.0
    also: tuple[str, ...] = ()  # Python files with further rows and peers


# --- in the process -------------------------------------------------------------------------------


def load(also) -> None:
    """Runs the Python files `also`, which add to rows.ROWS and peers.PEERS."""
    for number, path in enumerate(also):
        spec = importlib.util.spec_from_file_location(f"further_{number}", path)
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def measure(row, peer, settings: Settings, judge: bool, tick, enter) -> dict:
    """One process's figures. `enter` is told the stage, which a failure is reported with."""
    import step as steps

    enter("imports")
    for module in peer.imports:
        importlib.import_module(module)
    environment.forget_peak()
    result = {"imports_mib": environment.memory_mib()["now"]}
    enter("first call")
    tick("compiles")
    made = peer.make(row)
    began = time.perf_counter()
    made.first_call()
    result["first_call_s"] = time.perf_counter() - began
    result["phases_s"] = made.phases(result["first_call_s"])
    result["graphs"] = made.graphs
    result["peak_mib"] = environment.memory_mib()["peak"]
    enter("values")
    values = made.values()  # before any further call: a step of training changes what they are of
    eager = steps.Step(row)
    if judge:
        enter("accuracy")
        tick("is judged")
        result["accuracy"] = judged(row, peer, values, eager) if peer.computes else None
    del values
    enter("timing")
    probe = steps.ReadProbe(row.reads, settings.threads) if row.reads else None
    result |= take_turns(eager, made, settings, tick, probe)
    return result


def judged(row, peer, values, eager) -> dict:
    import step as steps
    import torch
    from exported import unflatten
    from torch_tenon.testing import compare

    eager.first_call()
    wanted = eager.values()
    truth = steps.Step(row, dtype=torch.float64)
    truth.first_call()
    values, reference = unflatten(values, wanted), truth.values()
    if row.judged:
        values, wanted = row.judged(values, eager.args), row.judged(wanted, eager.args)
        reference = row.judged(reference, truth.args)
    report = compare(values, wanted, reference, vacuous_ok=row.mode != "infer", check_strides=peer.strides)
    worst = report.worst
    return {"ok": report.ok, "failures": report.failures[:3], "bound_used": worst.used if worst else None}


def take_turns(eager, made, settings: Settings, tick, probe=None) -> dict:
    """Seconds per call of each side by block; who begins changes from block to block."""
    sides = {"eager_s": eager, "peer_s": made}
    counts, blocks = {}, {name: [] for name in sides}
    for name, side in sides.items():
        side.timed(2)
        once = min(side.timed(1) for _ in range(3))
        counts[name] = max(1, int(settings.block_ms / 1e3 / max(once, 1e-7)))
    reading = []
    for block in range(settings.blocks):
        tick(f"block {block + 1} of {settings.blocks}")
        for name in list(sides)[:: -1 if block % 2 else 1]:
            time.sleep(settings.pause_ms / 1e3)
            sides[name].timed(1)
            blocks[name].append(sides[name].timed(counts[name]))
        if probe:
            probe.timed(1)
            reading.append(probe.timed(counts["eager_s"]))
    return {**blocks, "counts": counts, **({"reading_s": reading} if probe else {})}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("row")
    parser.add_argument("peer")
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--judge", action="store_true")
    options = parser.parse_args()
    settings = Settings(**options.settings)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer

    def tell(**answer) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    stage = ["start"]
    try:
        if settings.cores:
            os.sched_setaffinity(0, settings.cores)
        environment.find_packages()
        import torch

        torch.set_num_threads(settings.threads)
        import peers
        import rows

        load(settings.also)
        tell(result=measure(rows.ROWS[options.row], peers.PEERS[options.peer], settings, options.judge,
                            lambda what: tell(tick=what), lambda name: stage.__setitem__(0, name)))  # fmt: skip
    except Exception as error:
        inexpressible = type(error).__name__ == "NotExpressible"
        text = str(error).strip()
        tell(failure=f"not expressible: {text}" if inexpressible else f"{type(error).__name__}: {text}", stage=stage[0])
    # Runtimes' threads may not want to end; there is nothing left to do.
    sys.stdout.flush()
    os._exit(0)


# --- from outside ---------------------------------------------------------------------------------


class Failure(Exception):
    """A pair did not run; the message says at which stage and why."""


def run(row: str, peer: str, settings: Settings, judge: bool, caches: pathlib.Path, tick=lambda what: None) -> dict:
    """Measures a pair in a process of its own. Failure: what it said, how it died, or that it took too long."""
    command = [sys.executable, str(HERE / "pair.py"), row, peer, "--settings", json.dumps(dataclasses.asdict(settings))]
    surroundings = os.environ | environment.pinned(settings.threads) | {
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TENON_CACHE_DIR": str(caches / "tenon"),
        "OPENVINO_TELEMETRY_OPT_OUT": "1",
    }  # fmt: skip
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command + ["--judge"] * judge, stdout=subprocess.PIPE, stderr=log, env=surroundings, cwd=HERE,
                                   start_new_session=True)  # fmt: skip
        try:
            for answer in _answers(process, time.monotonic() + settings.timeout_s):
                if "tick" in answer:
                    tick(answer["tick"])
                elif "failure" in answer:
                    raise Failure(f"{answer['stage']}: {_short(answer['failure'])}")
                else:
                    return answer["result"]
            status = process.wait()
            log.seek(0)
            lines = [line for line in log.read().splitlines() if line.strip()]
            how = signal.Signals(-status).name if status < 0 else f"status {status}"
            raise Failure(f"the process ended with {how}{': ' + _short(lines[-1]) if lines else ''}")
        except TimeoutError:
            raise Failure(f"took longer than {settings.timeout_s:g} s") from None
        finally:
            _end(process)


def _answers(process, until: float):
    """The process's lines as they come. TimeoutError past `until`."""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        pending = b""
        while True:
            left = until - time.monotonic()
            if left <= 0 or not selector.select(left):
                raise TimeoutError
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                yield json.loads(line)


def _end(process) -> None:
    """The process with whatever compilers it started: they are a group of their own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.stdout.close()
    process.wait()


def _short(text: str, limit: int = 300) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


if __name__ == "__main__":
    sys.exit(main())
