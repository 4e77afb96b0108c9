"""Times the rows of rows.py by their peers, each beside eager in a process of its own, and judges their accuracy.

    python benchmarks/run.py --quick                                     five minutes
    python benchmarks/run.py --json build/bench.json --markdown build/bench.md --picture build/bench.svg
    python benchmarks/run.py --rows softmax,chain --peers tenon,jax --rounds 5

A process holds eager and one peer (pair.py); within it they take turns in blocks. The processes of a row take turns over
rounds, since where a process's arrays happen to lie is worth up to a fifth for as long as it lives. Shown per peer: the median of the
blocks' ratios to eager, with a 95 % interval. A peer that fails is a cell with its reason. The JSON file is written
after each process, so Ctrl-C keeps what was measured.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

import environment
import pair
import picture
import report as reports

DEFAULT_PEERS = "tenon,inductor,inductor_frozen,jax,onnxruntime,openvino,eager"
QUICK = {"rounds": 1, "blocks": 7, "budget": 290.0}


def parse(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="comma-separated parts of row names")
    parser.add_argument("--peers", default=DEFAULT_PEERS, help="each is measured beside eager; eager: beside itself")
    parser.add_argument("--quick", action="store_true", help="few rows, one process a pair, at most five minutes")
    parser.add_argument("--rounds", type=int, help="processes of each pair (3; --quick 1)")
    parser.add_argument("--blocks", type=int, help="of each process (5; --quick 7)")
    parser.add_argument("--block-ms", type=float, default=60.0, help="per side and block")
    parser.add_argument("--pause-ms", type=float, default=30.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds that a process may take")
    parser.add_argument("--budget", type=float, help="seconds after which what isn't measured yet is left out (--quick 290)")
    parser.add_argument("--json", type=pathlib.Path, help="write everything measured here")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the tables here")
    parser.add_argument("--picture", type=pathlib.Path, help="write an SVG here")
    parser.add_argument("--from-json", type=pathlib.Path, help="measure nothing: tables and picture of an earlier run")
    parser.add_argument("--also", type=pathlib.Path, action="append", default=[], help="a Python file with further rows and peers")
    parser.add_argument("--check", action="store_true", help="exit 1 on a missed bar, wrong values of tenon or a row that it did not run")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args(argv)
    options.rounds = options.rounds or (QUICK["rounds"] if options.quick else 3)
    options.blocks = options.blocks or (QUICK["blocks"] if options.quick else 5)
    options.budget = options.budget or (QUICK["budget"] if options.quick else float("inf"))
    return options


def settings_of(options) -> pair.Settings:
    cores = environment.choose_cores(options.threads)
    also = tuple(str(path.resolve()) for path in options.also)
    return pair.Settings(options.blocks, options.block_ms, options.pause_ms, options.threads, tuple(cores), options.timeout, also)


def plan(row, names: list[str], table: dict, quick: bool) -> list[str]:
    """The peers that a row is measured by: those asked for that have its mode, and the ones its bar needs."""
    wanted = names + [name for name in row.needs if name not in names and not quick]
    return [name for name in wanted if name in table and row.mode in table[name].modes]


class TimeUp(Exception):
    """The budget is spent."""


def measure_row(row, names: list[str], rounds: int, settings: pair.Settings, caches: pathlib.Path, computes, tick, keep,
                until: float = float("inf")) -> None:
    """Processes of the row's peers over the rounds, who begins rotating. `keep` is given the summary after each. TimeUp past `until`."""
    about = {"row": row.name, "what": row.what, "mode": row.mode, "bar": row.bar}
    runs, failures = {name: [] for name in names}, {}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            if name in failures:
                tick(None)
                continue
            say = lambda what: tick(f"{row.name}: {name} {what}")
            left = until - time.monotonic()
            if left <= 0:
                raise TimeUp
            say("starts")
            mine = dataclasses.replace(settings, timeout_s=min(settings.timeout_s, left))
            try:
                runs[name].append(pair.run(row.name, name, mine, number == 0, caches / row.name / name, say))
            except pair.Failure as failure:
                if time.monotonic() >= until:
                    raise TimeUp from None
                failures[name] = str(failure)
            keep(reports.summarise(about, runs, failures, computes))
            tick(None)
    shutil.rmtree(caches / row.name, ignore_errors=True)


def write(path: pathlib.Path | None, text) -> None:
    """All of the text or what was there before."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".part")
        beside.write_text(text())
        os.replace(beside, path)


def write_all(options, report: dict) -> None:
    write(options.json, lambda: json.dumps(report, indent=1))
    write(options.markdown, lambda: reports.markdown(report))
    write(options.picture, lambda: picture.svg(report))


class Shown:
    """Progress: a bar with the time left on a terminal, a line per process elsewhere."""

    def __init__(self, console, count: int):
        from rich import progress

        self.console, self.count, self.done, self.began = console, count, 0, time.monotonic()
        columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn(),
                   progress.TimeRemainingColumn())  # fmt: skip
        self.bar = progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.bar.add_task("starting", total=count)
        self.what = ""

    def tick(self, what: str | None) -> None:
        """None: a process is done."""
        if what is None:
            self.done += 1
            self.bar.advance(self.task)
            if not self.console.is_terminal:
                self.console.print(f"{self.done} of {self.count}, {time.monotonic() - self.began:.0f} s: {self.what}", highlight=False)
        else:
            self.what = what.rpartition(" ")[0] if what.endswith("starts") else self.what
            self.bar.update(self.task, description=what)


def main() -> int:
    options = parse()
    environment.reexec_pinned(options.threads)
    environment.find_packages()
    import rich.console

    console = rich.console.Console(width=220 if not sys.stdout.isatty() else None)
    if options.from_json:
        report = json.loads(options.from_json.read_text())
        write_all(options, report)
        console.print(reports.table(report["rows"]))
        return 0
    import peers
    import rows

    pair.load(options.also)
    parts = [part for part in options.rows.split(",") if part]
    chosen = [r for r in rows.ROWS.values() if any(p in r.name for p in parts) or (not parts and (r.quick or not options.quick))]
    if options.list or not chosen:
        for title, table in (("rows", rows.ROWS), ("peers", peers.PEERS)):
            console.print(f"{title}:\n" + "\n".join(f"  {each.name:28} {each.what}" for each in table.values()), highlight=False)
        return 0 if options.list else 2
    return measure(options, console, chosen, peers)


def measure(options, console, chosen, peers) -> int:
    settings, lacking = settings_of(options), peers.available()
    asked = list(dict.fromkeys(name for name in options.peers.split(",") if name))
    missing = {name: lacking.get(name, f"no peer of that name; there are {', '.join(lacking)}") for name in asked}
    missing = {name: reason for name, reason in missing.items() if reason}
    names = [name for name in asked if name not in missing]
    for name, reason in missing.items():
        console.print(f"[yellow]{name} is left out: {reason}", highlight=False)
    report = {"machine": environment.machine(options.threads), "settings": dataclasses.asdict(settings) | {"rounds": options.rounds},
              "missing": missing, "ending": "not yet", "left_out": [], "rows": []}  # fmt: skip
    console.print(", ".join(f"{key} {value}" for key, value in report["machine"].items()), highlight=False)
    plans = {row.name: plan(row, names, {n: p for n, p in peers.PEERS.items() if not lacking[n]}, options.quick) for row in chosen}
    shown = Shown(console, options.rounds * sum(map(len, plans.values())))
    caches = pathlib.Path(tempfile.mkdtemp(prefix="tenon-bench-"))
    until = time.monotonic() + options.budget
    done, ending = {}, "complete"

    def keep(summary):
        done[summary["row"]] = summary
        report["rows"] = list(done.values())
        write(options.json, lambda: json.dumps(report, indent=1))

    try:
        with shown.bar:
            for row in chosen:
                if plans[row.name]:
                    measure_row(row, plans[row.name], options.rounds, settings, caches, lambda p: peers.PEERS[p].computes, shown.tick, keep,
                                until)  # fmt: skip
                    console.print(reports.progress_line(done[row.name]), highlight=False)
    except KeyboardInterrupt:
        ending = "interrupted"
    except TimeUp:
        ending = f"time was up after {options.budget:g} s"
    finally:
        shutil.rmtree(caches, ignore_errors=True)
    report["ending"] = ending
    report["left_out"] = [row.name for row in chosen if row.name not in done]
    write_all(options, report)
    return conclude(options, console, report)


def conclude(options, console, report: dict) -> int:
    summaries = report["rows"]
    if report["ending"] != "complete":
        console.print(f"[yellow]{report['ending']}; not measured: {', '.join(report['left_out']) or 'some processes of the last row'}")
    console.print(reports.table(summaries))
    console.print(reports.means(summaries), highlight=False)
    for line in reports.problems(summaries):
        console.print(f"- {line}", highlight=False, markup=False)
    lost = [s["row"] for s in summaries if s["bar_met"] and not s["bar_met"]["met"]]
    tenon = {s["row"]: s["peers"]["tenon"] for s in summaries if "tenon" in s["peers"]}
    wrong = [row for row, entry in tenon.items() if entry.get("wrong")]
    failed = [row for row, entry in tenon.items() if "failure" in entry]
    noisy = [s["row"] for s in summaries if s["noisy"]]
    console.print(f"bars lost: {lost or 'none'}; accuracy of tenon missed: {wrong or 'none'}; "
                  f"rows that tenon did not run: {failed or 'none'}; noisy: {noisy or 'none'}", highlight=False)  # fmt: skip
    if report["ending"] == "interrupted":
        return 130
    return 1 if options.check and (lost or wrong or failed) else 0


if __name__ == "__main__":
    sys.exit(main())
