"""Every row of aten.def against PyTorch's own samples.

For each row: recorded calls (aten_calls.py; aten_direct.py and aten_samples.py have those that no OpInfo makes) in every dtype
of QUOTA, dense and strided, are compiled in one graph and compared with eager by the accuracy rule; integers and bools exactly.
A row fails

* if any result is wrong, an input was changed, a compile failed or a run raised,
* if a call was no kernel and the reason isn't its row's kind (ATEN_STEP, ATEN_LIBRARY) and isn't in opinfo_refusals.py,
* if fewer samples of a dtype are native than opinfo_native.tsv says; 0 has its reason there.

A call that eager refuses is no sample. One for which PyTorch's own fake kernel names another dtype, shape or strides than eager
returns is left out if opinfo_refusals.py knows it: what a graph is compiled for is the fake kernel's word.
"""

import collections
import dataclasses
import math
import os

import pytest
import torch

from plugin import aten_calls, native_table, opinfo_refusals
from plugin.aten_calls import Call
from plugin.aten_samples import calls_of
from torch_tenon.testing import compare

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
BY_KIND = {"ATEN_STEP": ("no lowering", "random: the bits of ATen's generator"), "ATEN_LIBRARY": ("library",)}

ROWS = aten_calls.table_rows()
STAND_IN = os.environ.get("TENON_TEST_BACKEND", "tenon") != "tenon"


@dataclasses.dataclass
class Ran:
    """One call of a graph: `reason` names why it was a framework step, `wrong` what is wrong with it."""

    call: Call
    reason: str = ""
    wrong: str = ""


@pytest.fixture
def compile_graph(request, monkeypatch):
    """calls -> Compiled, or an interpreter that stands in to prove the harness."""
    if STAND_IN:
        return interpreter
    request.getfixturevalue("tenon")
    from torch_tenon import compiler

    monkeypatch.setattr(compiler.Rerun, "__call__", _rerun)
    monkeypatch.setattr(compiler, "export", _export_there_and_back)
    return compile_by_tenon


def _export_there_and_back(*args):
    """Every sample's graph: its text says all of it."""
    from torch_tenon import _C, export

    exported = export.export(*args)
    assert _C.Graph.parse(exported.text).text() == exported.text
    return exported


def _rerun(self, inputs, reason=None, lasting=True):
    """A native graph that fails a check, or isn't what it was compiled for, is run again by ATen: right, and not native."""
    raise AssertionError(f"run again by ATen: {reason or 'a check failed that eager has not'}")


@dataclasses.dataclass
class Compiled:
    run: collections.abc.Callable
    reason: str = ""  # why the whole graph isn't native
    failed: bool = False  # not refused but come to grief
    steps: dict[int, str] = dataclasses.field(default_factory=dict)  # index of a call -> why it is a framework step


def compile_by_tenon(built: aten_calls.Built) -> Compiled:
    import torch_tenon
    from torch_tenon import registry

    run = torch_tenon.compile_graph(built.module, built.inputs, fallback="allow")
    record = registry.records()[-1]
    if record.tier != "native":
        return Compiled(run, record.reason, failed=" failed: " in record.reason)
    calls = [step for step in record.info["steps"] if step["kind"] == "call"]
    steps = {}
    for step in calls:
        file, _, index = step["source"].rpartition(":")
        assert file == aten_calls.PLACE, f"a step of no call: {step}"
        # aten.mm of an ATEN_OP row is a dot of HLO that the library computes.
        if not (step["reason"].startswith("library") and ROWS.get(str(built.calls[int(index)].overload)) == "ATEN_OP"):
            steps[int(index)] = step["reason"]
    return Compiled(run, steps=steps)


def interpreter(built: aten_calls.Built) -> Compiled:
    return Compiled(lambda values: built.module(*values))


def replay(calls: list[Call], compile_graph) -> list[Ran]:
    """Runs the calls as one graph; if anything befalls it as a whole, in halves."""
    built = aten_calls.graph_of(calls)
    try:
        compiled = compile_graph(built)
        trouble = compiled.reason
        if not trouble:
            return _run(built, compiled)
    except Exception as error:
        compiled, trouble = None, f"{type(error).__name__}: {error}".splitlines()[0]
    if len(calls) > 1:
        middle = len(calls) // 2
        return replay(calls[:middle], compile_graph) + replay(calls[middle:], compile_graph)
    if compiled is None or compiled.failed:
        return [Ran(calls[0], wrong=trouble)]
    (ran,) = _run(built, compiled)
    return [dataclasses.replace(ran, reason=f"the graph: {trouble}")]


def _run(built: aten_calls.Built, compiled: Compiled) -> list[Ran]:
    before = [value.clone() for value in built.inputs]
    torch.default_generator.manual_seed(11)
    found = list(compiled.run(list(built.inputs)))
    changed = [k for k, (value, old) in enumerate(zip(built.inputs, before)) if not _same(value, old)]
    torch.default_generator.manual_seed(11)
    ran = []
    for index, (call, count) in enumerate(zip(built.calls, built.outputs)):
        mine, found = found[:count], found[count:]
        ran.append(Ran(call, compiled.steps.get(index, ""), judge(call, mine)))
    if changed:
        ran[0].wrong += f" inputs {changed} of the graph were changed"
    return ran


def _same(value: torch.Tensor, old: torch.Tensor) -> bool:
    bits = lambda t: torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
    return torch.equal(bits(value).nan_to_num(), bits(old).nan_to_num())


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


def settle_ties(call: Call, found: list, eager: list) -> list:
    """`found` with eager's indices, where its own mean equal elements."""
    open_ = str(call.overload) in TIES and _mean_equals(call, found[1], eager[0])
    return [found[0], eager[1]] if open_ else found


def judge(call: Call, found: list) -> str:
    """Empty if `found` meets the rule, else what is wrong."""
    eager, reference = (call.run(), None) if call.is_random else (call.eager, call.reference)
    if str(call.overload) in UNSPECIFIED:
        blank = lambda values: [torch.zeros_like(v, dtype=v.dtype) for v in values]
        found, eager, reference = blank(found), blank(eager), None
    found = settle_ties(call, found, eager)
    return "; ".join(compare(found, eager, reference, vacuous_ok=True).failures)


def _is_noise(call: Call) -> bool:
    """Layer norms of one element in f64, of which eager itself is the reference: their weight's gradient is the mean's rounding."""
    if str(call.overload) != "aten.native_layer_norm_backward.default":
        return False
    return call.dtype == torch.float64 and math.prod(call.args[2]) == 1


def check_row(row: str, calls: list[Call], compile_graph, table: bool = True) -> list[str]:
    """What is wrong with the row. table: these are the calls that opinfo_native.tsv counts."""
    problems, honest = [], []
    for call in calls:
        if _is_noise(call):
            continue
        if not (how := aten_calls.unlike_eager(call)):
            honest.append(call)
        elif not opinfo_refusals.fake_is_known(row, how):
            problems.append(f"{call}: PyTorch's fake kernel and eager differ: {how}")
    native, refused = collections.Counter({call.dtype: 0 for call in honest}), {}
    for ran in replay(honest, compile_graph) if honest else ():
        if ran.wrong:
            problems.append(f"{ran.call}: {ran.wrong}")
        elif not ran.reason or ran.reason.startswith("library") and ROWS.get(row) == "ATEN_LIBRARY":
            native[ran.call.dtype] += 1
        else:
            refused[ran.call.dtype] = ran.reason
            known = ran.reason in BY_KIND.get(ROWS.get(row), ()) or opinfo_refusals.is_named(row, ran.reason)
            if not known:
                problems.append(f"{ran.call}: refused by a reason that opinfo_refusals.py doesn't name: {ran.reason}")
    if table and not problems and not STAND_IN:
        problems += native_table.check(row, native, refused)
    return problems


@pytest.mark.parametrize("row", ROWS)
def test_row(row, recorded, compile_graph):
    calls = recorded.calls.get(row, [])
    lowered = ROWS[row] in ("ATEN_OP", "ATEN_DECOMPOSED")
    if not calls and not lowered:
        pytest.skip(f"{row}: a framework step that no OpInfo dispatches")
    assert calls, f"{row}: no sample; add one to aten_samples.py"
    if not lowered and DATA_DEPENDENT & set(calls[0].overload.tags):
        pytest.skip(f"{row}: its shape depends on data, so no static graph holds it")
    problems = check_row(row, calls, compile_graph)
    assert not problems, "\n".join(problems)


@pytest.mark.slow
def test_every_sample(compile_graph):
    """Of each row and dtype, up to 60 kinds of calls out of up to 400 samples."""
    recorded = aten_calls.record_all(aten_calls.WHOLE)
    print("not run:", {str(dtype): count for dtype, count in recorded.left_out.items()})
    problems = []
    for row, calls in recorded.calls.items():
        if ROWS[row] in ("ATEN_OP", "ATEN_DECOMPOSED") or not DATA_DEPENDENT & set(calls[0].overload.tags):
            for start in range(0, len(calls), 60):
                problems += check_row(row, calls[start : start + 60], compile_graph, table=False)
    assert not problems, "\n".join(problems)


def test_the_table_has_no_other_rows():
    assert not (gone := native_table.forget_all_but(set(ROWS))), f"{gone} are no rows of aten.def: {native_table.HOW}"


def test_decomposed_rows():
    """ATEN_DECOMPOSED are the lowered rows that torch.compile takes apart before they arrive: by our own list, or since
    PyTorch's autograd knows the overload only as a composite of others."""
    from torch_tenon.decompositions import DECOMPOSITIONS

    ours = {str(op) for op in DECOMPOSITIONS}
    unreachable = {row for row, kind in ROWS.items() if kind in ("ATEN_OP", "ATEN_DECOMPOSED") and (row in ours or _is_composite(row))}
    marked = {row for row, kind in ROWS.items() if kind == "ATEN_DECOMPOSED"}
    assert unreachable - marked == set(), "to be marked ATEN_DECOMPOSED"
    assert marked - unreachable == set(), "torch.compile leaves these whole: ATEN_OP"


def _is_composite(row: str) -> bool:
    namespace, name, overload = row.split(".")
    op = f"{namespace}::{name}" + ("" if overload == "default" else f".{overload}")
    return torch._C._dispatch_has_kernel_for_dispatch_key(op, "CompositeImplicitAutograd")


# --- the harness fails when it should ---------------------------------------------------------


def _example() -> list[Call]:
    return calls_of((torch.ops.aten.add.Tensor, torch.randn(3, 4), torch.randn(4)))["aten.add.Tensor"]


def _interpreter_with(change):
    return lambda built: Compiled(lambda values: change(list(built.module(*values)), values))


def test_honest_results_pass():
    ran = replay(_example() * 3, interpreter)
    assert len(ran) == 3 and not any(r.wrong or r.reason for r in ran)


def test_planted_wrong_results_are_caught():
    def nudge(out, _values):
        return [out[0] * 1.001]

    def restride(out, _values):
        return [out[0].t().contiguous().t()]

    def clobber(out, values):
        values[0].add_(1)
        return out

    for plant in (nudge, restride, clobber):
        assert replay(_example(), _interpreter_with(plant))[0].wrong, plant


def _with_erf(trouble):
    """replay() of add, add, erf where a graph with erf is in trouble."""
    erf = calls_of((torch.ops.aten.erf.default, torch.randn(3)))["aten.erf.default"]

    def compile_graph(built):
        has_erf = any(node.target == torch.ops.aten.erf.default for node in built.module.graph.nodes)
        return trouble(built) if has_erf else interpreter(built)

    return replay([*_example(), *_example(), *erf], compile_graph)


def test_indices_of_equal_elements_are_interchangeable_and_no_others():
    x = torch.tensor([[3.0, 1.0, 3.0, 2.0]])
    (call,) = calls_of((torch.ops.aten.topk.default, x, 2))["aten.topk.default"]
    assert not judge(call, [torch.tensor([[3.0, 3.0]]), torch.tensor([[2, 0]])])
    assert judge(call, [torch.tensor([[3.0, 3.0]]), torch.tensor([[2, 1]])])
    assert judge(call, [torch.tensor([[3.0, 3.0]]), torch.tensor([[2, 2]])])
    assert judge(call, [torch.tensor([[3.0, 3.0]]), torch.tensor([[2, 9]])])
    assert judge(call, [torch.tensor([[3.0, 2.0]]), torch.tensor([[2, 0]])])


def test_refusals_are_attributed_to_the_call():
    run = lambda built: lambda values: built.module(*values)
    ran = _with_erf(lambda built: Compiled(run(built), "erf is refused"))
    assert [r.reason for r in ran] == ["", "", "the graph: erf is refused"] and not any(r.wrong for r in ran)


def test_a_failed_compile_is_no_refusal():
    def explode(built):
        raise RuntimeError("lowering made f32[3], wanted f32[4]")

    ran = _with_erf(explode)
    assert [bool(r.wrong) for r in ran] == [False, False, True]
    ran = _with_erf(lambda built: Compiled(None, "the compile failed: verifier", failed=True))
    assert [bool(r.wrong) for r in ran] == [False, False, True]


def test_an_unnamed_refusal_fails_the_row():
    refuse = lambda built: Compiled(lambda values: built.module(*values), steps={0: "it was too hard"})
    problems = check_row("aten.add.Tensor", _example(), refuse)
    assert problems and "it was too hard" in problems[0]


def test_counts_only_rise(monkeypatch, tmp_path):
    monkeypatch.setattr(native_table, "PATH", tmp_path / "table.tsv")
    monkeypatch.delenv("UPDATE_GOLDEN", raising=False)
    f32, c64 = torch.float32, torch.complex64
    check = lambda native, refused={}: native_table.check("aten.add.Tensor", native, refused)
    assert "UPDATE_GOLDEN=1" in check({f32: 3})[0]
    monkeypatch.setenv("UPDATE_GOLDEN", "1")
    assert check({f32: 3, c64: 0}), "a 0 without a reason"
    assert check({f32: 3, c64: 0}, {c64: "dtype c64"}) == []
    monkeypatch.delenv("UPDATE_GOLDEN")
    assert check({f32: 3, c64: 0}, {c64: "dtype c64"}) == []
    assert check({f32: 4, c64: 1}) == []
    assert check({f32: 2, c64: 0}, {c64: "dtype c64"}), "lower"
    assert check({f32: 3}), "samples vanished"
    monkeypatch.setenv("UPDATE_GOLDEN", "1")
    assert check({f32: 2, c64: 0}, {c64: "dtype c64"}), "lower, and UPDATE_GOLDEN lowers nothing"
