"""tests/plugin/opinfo_native.tsv: of each row of aten.def and each dtype, how many of its samples run natively (as kernels of
tenon, or as a library step by design).

    overload <tab> one column per dtype: a count; "-": no sample <tab> "dtype: why none" of each count 0

Counts may only rise. UPDATE_GOLDEN=1 adds rows and raises counts; it lowers nothing: who means to, deletes the row first. The
counts are those of one version of torch (the first line); for the samples of others, only 0 and more than 0 are told apart.
"""

import os
import pathlib

import torch

from plugin.aten_calls import DTYPES

PATH = pathlib.Path(__file__).with_name("opinfo_native.tsv")
VERSION = "torch " + ".".join(torch.__version__.split(".")[:2])
NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in DTYPES}
HOW = "run UPDATE_GOLDEN=1 pytest tests/plugin/test_opinfo.py and read the diff of tests/plugin/opinfo_native.tsv"

Row = tuple[dict[str, int], dict[str, str]]  # dtype -> count; dtype -> why none


def read() -> tuple[str, dict[str, Row]]:
    """Version of torch, and the rows."""
    if not PATH.exists():
        return VERSION, {}
    version, _, *lines = PATH.read_text().splitlines()
    return version, dict(map(_parse, lines))


def _parse(line: str) -> tuple[str, Row]:
    overload, *cells, reasons = line.split("\t")
    counts = {name: int(cell) for name, cell in zip(NAMES.values(), cells, strict=True) if cell != "-"}
    return overload, (counts, dict(reason.split(": ", 1) for reason in reasons.split(" | ") if reason))


def write(rows: dict[str, Row]) -> None:
    lines = [VERSION, "\t".join(["overload", *NAMES.values(), "why none"])]
    for overload, (counts, reasons) in sorted(rows.items()):
        cells = [str(counts.get(name, "-")) for name in NAMES.values()]
        lines.append("\t".join([overload, *cells, " | ".join(f"{d}: {r}" for d, r in reasons.items())]))
    PATH.write_text("\n".join(lines) + "\n")


def check(overload: str, native: dict[torch.dtype, int], refused: dict[torch.dtype, str]) -> list[str]:
    """What is wrong with these counts (0 included) and reasons; [] and an updated table under UPDATE_GOLDEN=1."""
    version, rows = read()
    counts = {NAMES[dtype]: count for dtype, count in native.items()}
    reasons = {NAMES[dtype]: refused[dtype] for dtype, count in native.items() if count == 0 and dtype in refused}
    old, _ = rows.get(overload, ({}, {}))
    problems = [f"{dtype}: no sample is native and nothing says why" for dtype, n in counts.items() if n == 0 and dtype not in reasons]
    for dtype, count in old.items():
        if (found := counts.get(dtype, 0)) < count and (version == VERSION or found == 0):
            problems.append(f"{dtype}: {found} native samples, and there were {count}; {reasons.get(dtype, '')}")
    if problems:
        return problems
    if os.environ.get("UPDATE_GOLDEN") == "1":
        write({**rows, overload: (counts, reasons)})
    elif missing := [dtype for dtype in counts if dtype not in old]:
        return [f"{overload} has no entry for {', '.join(missing)}: {HOW}"]
    elif stale := [dtype for dtype in old if dtype not in counts and version == VERSION]:
        return [f"{overload} has no sample of {', '.join(stale)} any more: delete its row and {HOW}"]
    return []


def forget_all_but(overloads: set[str]) -> list[str]:
    """The table's rows of overloads that aten.def no longer has; UPDATE_GOLDEN=1 deletes them."""
    _, rows = read()
    gone = sorted(set(rows) - overloads)
    if gone and os.environ.get("UPDATE_GOLDEN") == "1":
        write({name: row for name, row in rows.items() if name in overloads})
        return []
    return gone
