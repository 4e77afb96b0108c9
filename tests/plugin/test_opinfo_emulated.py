"""Every lowering of aten.def on the emulated GPU: a call as a graph of one node -> HLO -> GPU kernels -> the emulator (tools/aten-eval).
The calls and the rule are those of test_lowering.py, in f32, bf16 and f16; what no kernel of a GPU computes is the host's, and named.

make test-slow runs every row's samples; CI one sample a dtype of every STRIDE-th row.
"""

import collections
import re
import time

import pytest
import torch

from plugin import lowered, opinfo_refusals
from plugin.test_lowering import LOWERED, _differs, tool  # noqa: F401  (tool: a fixture)

TARGET = "gpu-emulated"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
STRIDE = 4


def cases_of(calls, most):
    """At most so many of each dtype that a graph's text can say."""
    found, count = [], collections.Counter()
    for call in calls:
        if call.dtype not in DTYPES or count[call.dtype] == most:
            continue
        try:
            found.append(lowered.Case(call))
            count[call.dtype] += 1
        except lowered.Unsupported:
            continue
    return found


class Report:
    def __init__(self):
        self.problems, self.right, self.refused, self.there = [], collections.Counter(), 0, 0
        self.host = collections.Counter()
        self.rows = set()  # with instructions of the host

    def add(self, row, cases, tool):
        for case, (status, outputs, placement) in zip(cases, lowered.evaluate(tool, cases, TARGET)):
            reason = re.search(r'"reason":"([^"]*)"', status) if status.startswith("UNIMPLEMENTED") else None
            if reason and opinfo_refusals.is_named(row, reason[1]):
                self.refused += 1  # no HLO at all: test_lowering.py
            elif problem := _differs(case, status, outputs):
                self.problems.append(f"{case.call}: {problem}\n{case.text}")
            else:
                self.right[str(case.call.dtype)[6:]] += 1
                self.there += placement["device"]
                self.host.update(placement["host_opcodes"])
                if placement["host"]:
                    self.rows.add(row.removeprefix("aten."))

    def __str__(self):
        right = ", ".join(f"{dtype} {n}" for dtype, n in self.right.items())
        return (f"samples on {TARGET}: right {right}; {len(self.problems)} wrong, {self.refused} without HLO; {self.there} of "
                f"{self.there + self.host.total()} instructions in kernels there; the host's: "
                + ", ".join(f"{opcode} {n}" for opcode, n in self.host.most_common())
                + f"; of the rows {', '.join(sorted(self.rows))}")


def run(rows, most, recorded, tool, capsys):
    start, report, without = time.perf_counter(), Report(), []
    for row in rows:
        cases = cases_of(recorded.calls.get(row, []), most)
        if cases:
            report.add(row, cases, tool)
        else:
            without.append(row.removeprefix("aten."))
    seconds = time.perf_counter() - start
    with capsys.disabled():
        print(f"\n{report}\n{len(rows)} rows, {seconds:.0f} s; without a sample of these dtypes: {', '.join(without)}")
    assert report.problems == [], "\n".join(report.problems)
    assert sum(report.right.values()) > len(rows) / 2


def test_some(recorded, tool, capsys):  # noqa: F811
    run(LOWERED[::STRIDE], 1, recorded, tool, capsys)


@pytest.mark.slow
def test_all(recorded, tool, capsys):  # noqa: F811
    run(LOWERED, 1000, recorded, tool, capsys)
