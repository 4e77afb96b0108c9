"""Every lowered row of aten.def with symbolic sizes: one program of a recorded call, right for the call and at two other sizes.

Outer dims (the first of several elements of every tensor) are symbols, then all dims. A row that takes no symbols, in no call, has its
reason in opinfo_sizes.py; one that isn't there has to be native with symbolic outer dims in some call. Wrong results, changed inputs and
calls that the program's guards refuse fail in any case (docs/architecture/sizes.md).
"""

import collections
import re

import pytest
import torch

from plugin import aten_calls, opinfo_sizes, symbolic_calls
from plugin.aten_calls import Call
from plugin.aten_samples import calls_of
from plugin.test_opinfo import STAND_IN, judge

pytestmark = [
    pytest.mark.by_aten(tier="any"),  # says for itself what ran
    pytest.mark.skipif(STAND_IN, reason="about tenon's programs"),
]

ROWS = [row for row, kind in aten_calls.table_rows().items() if kind in ("ATEN_OP", "ATEN_DECOMPOSED")]
# ATen's kernels and fake kernels take for granted that these calls' sizes belong together: with one of them changed they read beyond.
TRUSTING = {"aten._weight_norm_interface_backward.default"}
# Eager sorts by an order in which NaNs have no place: of more than 16 elements among which is one, any may come out as the mode.
UNORDERED = {"aten.mode.default"}
ENOUGH, MOST_CALLS = 4, 20  # more only until one is native
SIZES = (lambda size: size, lambda size: 2 * size + 1, lambda size: size + 14)


def beside_samples():
    """Calls whose first dim is a batch, of rows all of whose samples are of other kinds."""
    aten = torch.ops.aten
    x, square, i = torch.randn(3, 5), torch.randn(6, 4, 4), torch.randint(0, 9, (3, 5))
    yield aten.median.dim, x, 1
    yield aten.nanmedian.dim, x, 1
    yield aten.roll.default, x, [2], [1]
    yield aten.diagonal_scatter.default, square, torch.randn(6, 4), 0, 1, 2
    yield aten.index_add.default, x, 1, torch.tensor([0, 4]), torch.randn(3, 2)
    yield aten.true_divide.Tensor, x, i
    yield aten.searchsorted.Tensor, x.sort(1)[0], torch.randn(3, 2)
    yield aten.unsafe_split_with_sizes.default, x, [2, 3], 1


EXTRA = calls_of(*beside_samples())
EXTRA["aten.sort.stable"] = [Call(torch.ops.aten.sort.stable, (torch.randn(3, 5),), {"stable": True, "dim": 1}, "by hand")]
# A kernel's first dim would be a symbol of its own, which nothing says to be the features of the result.
EXTRA["aten.convolution_backward.default"] = [
    Call(torch.ops.aten.convolution_backward.default,
         (torch.randn(4, 1, 7, 8), torch.randn(4, 6, 9, 10), torch.randn(1, 6, 3, 3), [1], [1, 1], [0, 0], [1, 1], False, [0, 0], 1,
          [True, True, True]), {}, "by hand"),
]


def chosen(calls, dims):
    """Graphs of the calls, of different types in turn."""
    by_dtype = collections.defaultdict(list)
    for call in calls:
        by_dtype[call.dtype].append(call)
    count = 0
    for turn in range(max(map(len, by_dtype.values()), default=0)):
        for group in by_dtype.values():
            if turn < len(group) and count < MOST_CALLS:
                try:
                    yield symbolic_calls.graph_of(group[turn], dims)
                    count += 1
                except Exception:  # no symbols, or none that PyTorch's own fake kernel takes
                    continue


def check(graph):
    """What is wrong, and why the call is no native program for all sizes ("": it is)."""
    from torch_tenon import dynamic, registry
    from torch_tenon.options import Options

    compiled = dynamic.compile_dynamic(graph.module, "inference", Options.make(options={"sizes": "one"}))
    if isinstance(compiled, dynamic.DynamicGraph):
        return [], compiled.reason
    record = compiled.record
    assert record.tier == "native" and record.sizes.startswith("all "), record.sizes
    reasons = [step["reason"] for step in record.info["steps"] if step["kind"] == "call" and not step["reason"].startswith("library")]
    count, problems = len(registry.records()), []
    values = graph.symbols()
    for sizes in SIZES[:1] if str(graph.call.overload) in TRUSTING | UNORDERED else SIZES:
        found = graph.at({symbol: sizes(size) for symbol, size in values.items()})
        if found is None or aten_calls.unlike_eager(found[0]):
            continue
        resized, inputs = found
        before = [t.clone() for t in resized.tensors()]
        torch.default_generator.manual_seed(11)
        try:
            found = compiled(list(inputs))
        except Exception as error:
            problems.append(f"{resized}: {type(error).__name__}: {error}")
            continue
        torch.default_generator.manual_seed(11)
        if wrong := judge(resized, list(found)):
            problems.append(f"{resized}: {wrong}")
        if any(not torch.equal(t.nan_to_num(), b.nan_to_num()) for t, b in zip(resized.tensors(), before) if not t.is_complex()):
            problems.append(f"{resized}: an input was changed")
        if len(registry.records()) > count:
            problems.append(f"{resized}: refused by the program for all sizes: {registry.records()[-1].sizes}")
            count = len(registry.records())
    return problems, "; ".join(reasons)


def check_row(calls):
    """Problems, why calls are no native programs for all sizes, and is any with symbolic outer dims."""
    problems, reasons, native = [], [], False
    for dims in ("outer", "all"):
        for count, graph in enumerate(chosen(calls, dims)):
            if count >= ENOUGH and (native or dims == "all"):
                break
            wrong, reason = check(graph)
            problems += wrong
            native |= reason == "" and dims == "outer"
            if reason:
                reasons.append(f"{dims} dims of {graph.call}: {reason}")
    return problems, reasons, native


@pytest.mark.parametrize("row", ROWS)
def test_row(row, recorded, tenon):
    problems, reasons, native = check_row(EXTRA.get(row, []) + recorded.calls.get(row, []))
    assert not problems, "\n".join(problems)
    known = opinfo_sizes.WITHOUT_SYMBOLS.get(row)
    if known is not None:
        assert not native, f"{row} takes symbols now: it is to leave opinfo_sizes.py"
        assert any(re.search(known, reason) for reason in reasons) if reasons else known in opinfo_sizes.SAYS_FOR_ITSELF, reasons
    else:
        assert native, "\n".join(reasons) or "no call with symbols"


def test_the_table_has_no_other_rows():
    assert opinfo_sizes.WITHOUT_SYMBOLS.keys() <= set(ROWS)


def test_a_program_of_numbers_is_caught(tenon, monkeypatch):
    """A planted fault: results of the sizes that were traced, at any size."""
    from torch_tenon import dynamic

    (call,) = calls_of((torch.ops.aten.mul.Tensor, torch.randn(3, 4), torch.randn(3, 4)))["aten.mul.Tensor"]
    graph = symbolic_calls.graph_of(call, "outer")
    assert check(graph) == ([], "")
    compile_dynamic = dynamic.compile_dynamic

    def first_rows(*args):
        compiled = compile_dynamic(*args)
        run = lambda inputs: [out.index_copy(0, torch.tensor([out.shape[0] - 1]), out[:1]) for out in compiled(inputs)]
        run.record = compiled.record
        return run

    monkeypatch.setattr(dynamic, "compile_dynamic", first_rows)
    assert len(check(graph)[0]) == 3
