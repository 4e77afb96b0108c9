"""From the pairs' figures to what is said about a row, and that as Markdown and as a table for a terminal.

A summary is a dict, as it stands in the JSON file; `summarise` is the only place where figures become judgements.
"""

import statistics

import intervals

LETTERS = {"eager": "E", "tenon": "T", "inductor": "I", "inductor_frozen": "If", "jax": "J", "onnxruntime": "O", "openvino": "V"}


def summarise(about: dict, runs: dict[str, list[dict]], failures: dict[str, str], computes=lambda peer: True) -> dict:
    """`about`: row, what, mode, bar. runs: by peer, a figure of each process. failures: peer -> stage and reason."""
    summary = dict(about)
    eager = [value for found in runs.values() for run in found for value in run["eager_s"]]
    summary["eager_ms"] = statistics.median(eager) * 1e3 if eager else None
    summary["eager_spread"] = intervals.spread(eager) if eager else None
    summary["noisy"] = bool(eager) and summary["eager_spread"] > intervals.NOISY
    quickest = min((statistics.median(run["eager_s"]) for found in runs.values() for run in found), default=0.0)
    summary["peers"] = {peer: _peer(found, quickest) for peer, found in runs.items() if found}
    for peer, reason in failures.items():
        summary["peers"].setdefault(peer, {})["failure"] = reason
    summary["reaches_backend"] = _reaches(summary["peers"])
    summary["best"] = _best(summary["peers"], computes)
    summary["tenon_over_best"] = _over_best(runs, summary)
    summary["bar_met"] = _judge_bar(about.get("bar"), summary["peers"])
    return summary


def _peer(found: list[dict], quickest: float) -> dict:
    """quickest: eager's median, in seconds, in that process of the row where it is least. A core that another program keeps makes
    eager slow in every block of a process alike, which only the row's other processes show."""
    eager, own = [run["eager_s"] for run in found], [run["peer_s"] for run in found]
    flat, first = [value for run in eager for value in run], found[0]
    entry = {
        "ratio": intervals.ratio(own, eager),
        "ms": intervals.median(own) * 1e3,
        "eager_spread": intervals.spread(flat),
        "accuracy": first.get("accuracy"),
        "first_call_s": first["first_call_s"],
        "later_first_calls_s": [run["first_call_s"] for run in found[1:]],  # with what the first process left in caches
        "phases_s": first["phases_s"],
        "graphs": first.get("graphs"),
        "peak_mib": max(run["peak_mib"] for run in found),
        "above_imports_mib": max(run["peak_mib"] - run["imports_mib"] for run in found),
        "runs": found,
    }
    entry["eager_slowed"] = max(statistics.median(run) for run in eager) / quickest
    entry["noisy"] = max(entry["eager_spread"], entry["eager_slowed"]) > intervals.NOISY
    entry["wrong"] = entry["accuracy"] is not None and not entry["accuracy"]["ok"]
    if reading := [value for run in found for value in run.get("reading_s", [])]:
        entry["read_share"] = statistics.median(reading) / (entry["ms"] / 1e3)
    return entry


def _reaches(peers: dict) -> bool | None:
    """Whether the row gave tenon a graph to compile; None: tenon did not run."""
    graphs = peers.get("tenon", {}).get("graphs")
    return None if graphs is None else graphs > 0


def _best(peers: dict, computes) -> dict:
    """The quickest of those that are right, tenon aside; eager is 1 by definition."""
    ratios = {"eager": 1.0}
    for peer, entry in peers.items():
        if peer not in ("eager", "tenon") and computes(peer) and "ratio" in entry and not entry["wrong"]:
            ratios[peer] = entry["ratio"]["median"]
    best = min(ratios, key=ratios.get)
    return {"peer": best, "ratio": ratios[best]}


def _over_best(runs: dict, summary: dict) -> dict | None:
    tenon, best = summary["peers"].get("tenon", {}), summary["best"]["peer"]
    if "ratio" not in tenon:
        return None
    if best == "eager":
        return tenon["ratio"]
    blocks = lambda peer: intervals.ratios([r["peer_s"] for r in runs[peer]], [r["eager_s"] for r in runs[peer]])
    return intervals.quotient(blocks("tenon"), blocks(best))


def _judge_bar(bar, peers: dict) -> dict | None:
    """bar: (peer, factor), tenon <= factor * peer."""
    if not bar or "ratio" not in peers.get("tenon", {}) or (bar[0] != "eager" and "ratio" not in peers.get(bar[0], {})):
        return None
    other = 1.0 if bar[0] == "eager" else peers[bar[0]]["ratio"]["median"]
    ratio = peers["tenon"]["ratio"]["median"] / other
    return {"peer": bar[0], "factor": bar[1], "ratio": ratio, "met": ratio <= bar[1]}


# --- cells ------------------------------------------------------------------------------------------


def interval_text(found: dict | None) -> str:
    return "–" if found is None else f"{found['median']:.3g} [{found['low']:.3g}, {found['high']:.3g}]"


def cell(entry: dict | None) -> str:
    """A peer of a row in a few characters; what it stands for is said below the table."""
    if entry is None:
        return "–"
    if "ratio" not in entry:
        return "n/e" if "not expressible" in entry["failure"] else "failed"
    text = interval_text(entry["ratio"])
    if entry["wrong"]:
        text = f"wrong ({text})"
    return text + (" ~" if entry["noisy"] else "")


def bar_cell(summary: dict) -> str:
    bar = summary["bar_met"]
    return "–" if bar is None else f"{'met' if bar['met'] else 'LOST'}: {bar['ratio']:.2f} of {bar['peer']} (<= {bar['factor']})"


def best_cell(summary: dict) -> str:
    best = summary["best"]
    return f"{LETTERS.get(best['peer'], best['peer'])} {best['ratio']:.3g}"


def row_cell(summary: dict) -> str:
    return summary["row"] + ("" if summary["reaches_backend"] is not False else " (reaches no backend)")


def eager_cell(summary: dict) -> str:
    if summary["eager_ms"] is None:
        return "–"
    noise = f" NOISY {summary['eager_spread']:.2f}" if summary["noisy"] else ""
    return f"{summary['eager_ms']:.4g}{noise}"


def order(summaries: list[dict]) -> list[str]:
    """The peers that are shown, in the table's order; eager against itself last."""
    shown = {peer for summary in summaries for peer in summary["peers"]}
    known = [*[peer for peer in LETTERS if peer != "eager"], *sorted(shown - set(LETTERS)), "eager"]
    return [peer for peer in known if peer in shown]


def heading(peer: str) -> str:
    return "eager again" if peer == "eager" else peer


# --- Markdown ---------------------------------------------------------------------------------------


def markdown(report: dict) -> str:
    summaries, peers = report["rows"], order(report["rows"])
    parts = ["# Benchmark", "", ", ".join(f"{key} {value}" for key, value in report["machine"].items()), ""]
    parts += [_about(report), ""]
    if report.get("ending", "complete") != "complete":
        parts += [f"**Not all was measured** ({report['ending']}); no process of: {', '.join(report['left_out']) or 'no row'}", ""]
    for name, reason in report["missing"].items():
        parts += [f"**{name} was not run**: {reason}", ""]
    parts += _table(["row", "eager ms", *map(heading, peers), "best", "tenon / best", "bar"], [
        [row_cell(s), eager_cell(s), *(cell(s["peers"].get(p)) for p in peers), *_verdict(s)] for s in summaries
    ])  # fmt: skip
    parts += ["", means(summaries), "", "## What did not run, or not rightly", "", *_problems(summaries), ""]
    parts += ["## First call, seconds", "", FIRST_CALL, ""]
    parts += _table(["row", *map(heading, peers)], [
        [s["row"], *(first_call_cell(s["peers"].get(p)) for p in peers)] for s in summaries
    ])  # fmt: skip
    parts += ["", "## Peak resident memory, MiB", "", MEMORY, ""]
    parts += _table(["row", *map(heading, peers)], [
        [s["row"], *(memory_cell(s["peers"].get(p)) for p in peers)] for s in summaries
    ])  # fmt: skip
    return "\n".join(parts) + "\n"


FIRST_CALL = """Empty caches (but for Inductor's precompiled headers), imports not counted. Torch peers: Dynamo + AOTAutograd + the
compiler + the first run (tenon's compiler without LLVM, then LLVM); others: export, conversion included, or tracing + compiling +
the first run."""
MEMORY = """VmHWM after the first call, compiling included, and in brackets what of it came after the imports. Compilers that run as
processes of their own (Inductor's) are not in it."""


def _about(report: dict) -> str:
    s = report["settings"]
    return (
        f"A figure is the peer's time as a multiple of eager's, beside it in the same process, smaller is better: median of {s['blocks']} "
        f"blocks in each of {s['rounds']} process(es), with a 95 % interval (bootstrap of processes and blocks). ~: eager's own blocks "
        f"beside that peer have p90/p10 > {intervals.NOISY}, or took {intervals.NOISY} times as long as in the row's quickest process; "
        f"NOISY: p90/p10 of all of the row's. Best: the quickest right one, eager included, tenon not. n/e: not expressible."
    )


def _verdict(summary: dict) -> list[str]:
    return [best_cell(summary), interval_text(summary["tenon_over_best"]), bar_cell(summary)]


def _table(head: list[str], lines: list[list[str]]) -> list[str]:
    escape = lambda text: str(text).replace("|", "\\|")
    show = lambda cells: "| " + " | ".join(map(escape, cells)) + " |"
    return [show(head), "|" + "---|" * len(head), *map(show, lines)]


def means(summaries: list[dict]) -> str:
    """Geometric means over the rows where tenon compiled something right."""
    kept = [s for s in summaries if "ratio" in s["peers"].get("tenon", {}) and s["reaches_backend"] is not False
            and not s["peers"]["tenon"]["wrong"]]  # fmt: skip
    if not kept:
        return "tenon ran no row."
    eager = intervals.geometric_mean([s["peers"]["tenon"]["ratio"]["median"] for s in kept])
    best = intervals.geometric_mean([s["tenon_over_best"]["median"] for s in kept])
    return f"Geometric mean over {len(kept)} rows: tenon {eager:.3g} x eager, {best:.3g} x the best peer of each row."


def _problems(summaries: list[dict]) -> list[str]:
    return [f"- {line}" for line in problems(summaries)] or ["- nothing"]


def problems(summaries: list[dict]) -> list[str]:
    found = []
    for summary in summaries:
        for peer, entry in summary["peers"].items():
            if "failure" in entry:
                found.append(f"{summary['row']}, {peer}: {entry['failure']}")
            if entry.get("wrong"):
                found.append(f"{summary['row']}, {peer}, wrong: {'; '.join(entry['accuracy']['failures'])}")
        if summary["reaches_backend"] is False:
            found.append(f"{summary['row']}: no graph of it reached tenon, so its figure is eager against eager")
    return found


def first_call_cell(entry: dict | None) -> str:
    if entry is None or "ratio" not in entry:
        return "–"
    parts = " + ".join(f"{name} {seconds:.2f}" for name, seconds in entry["phases_s"].items())
    return f"{entry['first_call_s']:.2f}" + (f" = {parts}" if parts else "")


def memory_cell(entry: dict | None) -> str:
    return "–" if entry is None or "ratio" not in entry else f"{entry['peak_mib']:.0f} ({entry['above_imports_mib']:.0f})"


# --- terminal -----------------------------------------------------------------------------------------


def table(summaries: list[dict]):
    from rich.table import Table

    peers = order(summaries)
    shown = Table(title="x eager in the same process, smaller is better; [95 % interval]; ~ noisy")
    for column in ("row", "eager ms", *map(heading, peers), "best", "tenon / best", "bar"):
        shown.add_column(column, overflow="fold", no_wrap=column in ("row", "eager ms"))
    for s in summaries:
        share = s["peers"].get("tenon", {}).get("read_share")
        *verdict, bar = _verdict(s)
        bar += f"; {share:.0%} of reading" if share else ""
        shown.add_row(row_cell(s), eager_cell(s), *(cell(s["peers"].get(p)) for p in peers), *verdict, bar)
    return shown


def progress_line(summary: dict) -> str:
    parts = [f"{heading(peer)} {cell(entry)}" for peer, entry in summary["peers"].items()]
    return f"{summary['row']}: eager {eager_cell(summary)} ms; {'; '.join(parts)}"
