"""Every lowering of aten.def against eager through HLO's evaluator (tools/aten-eval): no backend, no fake kernel, no capture. The
calls and the rule are those of test_opinfo.py; what is no HLO must be so by a reason that opinfo_refusals.py names."""

import pathlib
import re

import pytest
import torch

from plugin import aten_calls, lowered, opinfo_refusals
from plugin.test_opinfo import ROWS, STAND_IN, UNSPECIFIED, settle_ties
from torch_tenon.testing import compare

LOWERED = [row for row, kind in ROWS.items() if kind in ("ATEN_OP", "ATEN_DECOMPOSED")]


@pytest.fixture(scope="session")
def tool(request) -> str:
    if STAND_IN:
        pytest.skip("another backend is under test")
    tenon = request.getfixturevalue("tenon")
    path = pathlib.Path(tenon.__file__).parents[2] / "bin" / "aten-eval"
    assert path.exists(), f"{path} isn't built"
    return str(path)


def check_row(row: str, calls: list[aten_calls.Call], tool: str) -> list[str]:
    """What is wrong with the lowering of these calls."""
    cases, problems, passed = [], [], 0
    for call in calls:
        try:
            cases.append(lowered.Case(call))
        except lowered.Unsupported:
            continue
    if not cases:
        return [f"{row}: no call that a graph's text can say"]
    for case, (status, outputs) in zip(cases, lowered.evaluate(tool, cases)):
        reason = re.search(r'"reason":"([^"]*)"', status) if status.startswith("UNIMPLEMENTED") else None
        if reason:
            if not opinfo_refusals.is_named(row, reason[1]):
                problems.append(f"{case.call}: refused by a reason that opinfo_refusals.py doesn't name: {reason[1]}")
        elif problem := _differs(case, status, outputs):
            problems.append(f"{case.call}: {problem}\n{case.text}")
        else:
            passed += 1
    return problems if problems or passed else [f"{row}: no call was lowered"]


def _differs(case, status: str, outputs: list[bytes]) -> str:
    if status != "ok":
        return status
    eager, reference = case.call.eager, case.call.reference
    found = [lowered.tensor_of(data, like) for data, like in zip(outputs, case.results, strict=True)]
    if str(case.call.overload) in UNSPECIFIED:
        return ""
    results = iter(found)
    found = [next(results) if isinstance(e, torch.Tensor) else e for e in eager]
    found = settle_ties(case.call, found, eager)
    return "; ".join(compare(found, eager, reference, vacuous_ok=True, check_strides=False).failures)


@pytest.mark.parametrize("row", LOWERED)
def test_lowering(row, recorded, tool):
    calls = recorded.calls.get(row, [])
    assert calls, f"{row}: no sample; add one to aten_samples.py"
    problems = check_row(row, calls, tool)
    assert not problems, "\n".join(problems)


def test_a_wrong_result_is_found(tool, monkeypatch):
    call = aten_calls.Call(torch.ops.aten.add.Tensor, (torch.randn(3, 4), torch.randn(4)), {}, "by hand")
    assert check_row("aten.add.Tensor", [call], tool) == []
    monkeypatch.setattr(lowered.Case, "argument", _alpha_is_two(lowered.Case.argument))
    call.__dict__.pop("eager", None)
    assert "RMSE" in check_row("aten.add.Tensor", [call], tool)[0]


def _alpha_is_two(argument):
    return lambda case, value, kind: "2" if not isinstance(value, torch.Tensor) and value == 1 else argument(case, value, kind)
