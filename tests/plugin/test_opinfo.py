"""Every row of aten.def against PyTorch's own samples.

For each row: recorded calls (see aten_calls.py) in float32, bfloat16, int64 and bool, dense and
strided, are compiled with fallback="error", several in one graph, and compared with eager by the
accuracy rule; integers and bools exactly. A row fails

* if any result is wrong or an input was changed,
* if a dtype that has samples has no sample that ran natively (unless NOT_NATIVE says why),
* if it has no native sample at all.

Samples the compiler refuses are counted and shown. ATEN_STEP rows run with fallback="allow". A sample
for which PyTorch's own fake kernel names another dtype, shape or strides than eager returns is left
out and counted: what a graph is compiled for is the fake kernel's word.
"""

import dataclasses
import os

import pytest
import torch

from plugin import aten_calls
from plugin.aten_calls import Call
from plugin.aten_samples import by_hand, calls_of
from torch_tenon.testing import compare

# (overload, dtype) -> why no sample of it needs to be native.
NOT_NATIVE: dict[tuple[str, torch.dtype], str] = {
    ("aten.histc.default", torch.bfloat16): "eager counts in bfloat16, which stops at 256",
}
pytestmark = pytest.mark.by_aten(tier="any")  # says for itself what ran

# Overloads whose values PyTorch leaves open: only dtype, shape and strides are compared.
UNSPECIFIED = {
    "aten.empty.memory_format", "aten.empty_like.default", "aten.empty_strided.default",
    "aten.empty_permuted.default", "aten.new_empty.default", "aten.new_empty_strided.default",
}  # fmt: skip

# Overload -> position of its dim: which of several equal elements an index of its means is open, so it must mean one that equals
# eager's value, and no two of a row the same one. (Eager's unstable sort and its mode have an order of their own.)
TIES = {
    "aten.sort.default": 1, "aten.topk.default": 2, "aten.kthvalue.default": 2,
    "aten.median.dim": 1, "aten.nanmedian.dim": 1, "aten.mode.default": 1,
}  # fmt: skip

DATA_DEPENDENT = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}

ROWS = aten_calls.table_rows()
_HARNESS_ROWS = {  # what proves the harness while TENON_TEST_BACKEND is not tenon
    name: "ATEN_OP"
    for name in (
        "aten.add.Tensor", "aten.gelu.default", "aten.native_layer_norm.default", "aten.where.self",
        "aten.gelu_backward.default", "aten.cat.default", "aten.expand.default", "aten.max.dim",
        "aten.native_layer_norm_backward.default", "aten.split.Tensor", "aten.full.default",
    )
}  # fmt: skip
STAND_IN = os.environ.get("TENON_TEST_BACKEND", "tenon") != "tenon"
if STAND_IN:
    ROWS = {**_HARNESS_ROWS, **ROWS}


@pytest.fixture(scope="session")
def calls() -> dict[str, list[Call]]:
    recorded = aten_calls.record(set(ROWS))
    for name, extra in by_hand().items():
        recorded.setdefault(name, []).extend(extra)
    return recorded


@pytest.fixture(scope="session")
def compile_graph(request):
    """torch_tenon.compile_graph, or an interpreter that stands in to prove the harness."""
    if STAND_IN:
        return lambda module, inputs, fallback: lambda values: module(*values)
    return request.getfixturevalue("tenon").compile_graph


@dataclasses.dataclass
class Outcome:
    native: int = 0
    refused: list[str] = dataclasses.field(default_factory=list)
    wrong: list[str] = dataclasses.field(default_factory=list)


def replay(calls: list[Call], compile_graph, fallback: str) -> Outcome:
    """Compiles the calls as one graph; if that is refused, each alone."""
    try:
        module, inputs, counts = aten_calls.graph_of(calls)
        run = compile_graph(module, inputs, fallback=fallback)
    except Exception as error:
        if len(calls) > 1:
            halves = calls[: len(calls) // 2], calls[len(calls) // 2 :]
            first, second = (replay(half, compile_graph, fallback) for half in halves)
            return Outcome(
                first.native + second.native,
                first.refused + second.refused,
                first.wrong + second.wrong,
            )
        reason = str(error).strip().splitlines()
        return Outcome(refused=[f"{calls[0]}: {reason[0] if reason else type(error).__name__}"])
    torch.manual_seed(11)
    before = [value.clone() for value in inputs]
    found = list(run(list(inputs)))
    outcome = Outcome()
    torch.manual_seed(11)
    for call, count in zip(calls, counts):
        mine, found = found[:count], found[count:]
        if problem := judge(call, mine):
            outcome.wrong.append(f"{call}: {problem}")
        else:
            outcome.native += 1
    for index, (value, old) in enumerate(zip(inputs, before)):
        if not torch.equal(value.nan_to_num(), old.nan_to_num()):
            outcome.wrong.append(f"input {index} of {calls[0].overload} was changed")
    return outcome


def _mean_equals(call: Call, index: torch.Tensor, values: torch.Tensor) -> bool:
    """Do the indices mean elements that equal the values, different ones in a row?"""
    x, at = call.args[0], TIES[str(call.overload)]
    dim = call.args[at] if at < len(call.args) else call.kwargs.get("dim", -1)
    if index.shape != values.shape or index.dtype != torch.int64:
        return False
    if x.dim() == 0:
        return bool((index == 0).all())
    if values.dim() < x.dim():
        index, values = index.unsqueeze(dim), values.unsqueeze(dim)
    if index.numel() and (index.min() < 0 or index.max() >= x.shape[dim]):
        return False
    rows = index.movedim(dim, -1).sort(-1)[0]
    if bool((rows[..., 1:] == rows[..., :-1]).any()):
        return False
    meant = x.gather(dim, index)
    return bool(((meant == values) | ((meant != meant) & (values != values))).all())


def judge(call: Call, found: list) -> str:
    """Empty if `found` meets the rule, else what is wrong."""
    eager = call.run()
    if str(call.overload) in UNSPECIFIED:
        blank = lambda values: [torch.zeros_like(v, dtype=v.dtype) for v in values]
        found, eager = blank(found), blank(eager)
    if str(call.overload) in TIES and _mean_equals(call, found[1], eager[0]):
        found = [found[0], eager[1]]
    default = torch.get_default_dtype()
    seeded = torch.Tag.nondeterministic_seeded in call.overload.tags
    try:
        torch.set_default_dtype(torch.float64)
        reference = None if seeded else call.run(aten_calls.widen)
        if reference is not None and [r is None for r in reference] != [e is None for e in eager]:
            reference = None
    except Exception:  # no float64 kernel: eager stands in
        reference = None
    finally:
        torch.set_default_dtype(default)
    return "; ".join(compare(found, eager, reference, vacuous_ok=True).failures)


@pytest.mark.parametrize("row", ROWS or [pytest.param("", marks=pytest.mark.skip("no aten.def"))])
def test_row(row, calls, compile_graph, capsys):
    mine = calls.get(row, [])
    if not mine and ROWS[row] != "ATEN_OP":
        pytest.skip(f"{row}: a framework step that no OpInfo dispatches")
    assert mine, f"{row}: no sample; add one to aten_samples.py"
    if ROWS[row] != "ATEN_OP" and DATA_DEPENDENT & set(mine[0].overload.tags):
        pytest.skip(f"{row}: its shape depends on data, so no static graph holds it")
    fallback = "allow" if ROWS[row] == "ATEN_STEP" else "error"
    problems, shown = [], []
    for dtype in sorted({call.dtype for call in mine}, key=str):
        group = [call for call in mine if call.dtype == dtype]
        honest = [call for call in group if aten_calls.fake_is_like_eager(call)]
        if len(honest) < len(group):
            shown.append(f"({len(group) - len(honest)} {dtype} left out: fake is unlike eager)")
        if not (group := honest):
            continue
        outcome = replay(group, compile_graph, fallback)
        shown.append(f"{str(dtype)[6:]} {outcome.native}/{len(group)}")
        problems += outcome.wrong
        if outcome.native == 0 and (row, dtype) not in NOT_NATIVE:
            problems.append(f"{dtype}: no native sample: {outcome.refused[:1]}")
        elif outcome.refused:
            shown.append(f"(refused: {outcome.refused[0]})")
    print(row, ", ".join(shown))
    assert not problems, "\n".join(problems)


# --- the harness fails when it should ---------------------------------------------------------


def _example() -> list[Call]:
    return calls_of((torch.ops.aten.add.Tensor, torch.randn(3, 4), torch.randn(4)))["aten.add.Tensor"]


def _interpreter_with(change):
    return lambda module, inputs, fallback: lambda values: change(list(module(*values)), values)


def test_honest_results_pass():
    outcome = replay(_example() * 3, _interpreter_with(lambda out, _: out), "error")
    assert outcome.native == 3 and not outcome.wrong


def test_planted_wrong_results_are_caught():
    def nudge(out, _values):
        return [out[0] * 1.001]

    def restride(out, _values):
        return [out[0].t().contiguous().t()]

    def clobber(out, values):
        values[0].add_(1)
        return out

    for plant in (nudge, restride, clobber):
        assert replay(_example(), _interpreter_with(plant), "error").wrong, plant


def test_indices_of_equal_elements_are_interchangeable_and_no_others():
    x = torch.tensor([[3.0, 1.0, 3.0, 2.0]])
    (call,) = calls_of((torch.ops.aten.topk.default, x, 2))["aten.topk.default"]
    assert not judge(call, [torch.tensor([[3.0, 3.0]]), torch.tensor([[2, 0]])])
    assert judge(call, [torch.tensor([[3.0, 3.0]]), torch.tensor([[2, 1]])])
    assert judge(call, [torch.tensor([[3.0, 3.0]]), torch.tensor([[2, 2]])])
    assert judge(call, [torch.tensor([[3.0, 3.0]]), torch.tensor([[2, 9]])])
    assert judge(call, [torch.tensor([[3.0, 2.0]]), torch.tensor([[2, 0]])])


def test_refusals_are_attributed_to_the_call():
    good, bad = _example()[0], calls_of((torch.ops.aten.erf.default, torch.randn(3)))

    def refusing(module, inputs, fallback):
        if any(node.target == torch.ops.aten.erf.default for node in module.graph.nodes):
            raise NotImplementedError("aten.erf.default has no lowering")
        return lambda values: module(*values)

    outcome = replay([good, good, *bad["aten.erf.default"]], refusing, "error")
    assert outcome.native == 2 and len(outcome.refused) == 1 and "erf" in outcome.refused[0]
