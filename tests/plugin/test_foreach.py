"""Every `_foreach_*` operator on PyTorch's own samples: native, without a framework step, right."""

import pytest
import torch
from torch.testing._internal import common_methods_invocations as samples

from plugin.checking import same_as_eager

_OPS = {
    op.name: op
    for kind in ("unary", "binary", "pointwise", "reduce", "other")
    for op in getattr(samples, f"foreach_{kind}_op_db")
}
_DTYPES = {torch.float32: 100, torch.bfloat16: 2, torch.int64: 3}  # and how many kinds of arguments of each are tried
_UNKNOWN_TO_DYNAMO = {"_foreach_max", "_foreach_mm"}  # but by their overloads
_LENGTH = 4  # of a sample's lists: PyTorch's have twenty elements, of which few differ but in size


def _short(value):
    return list(value)[:_LENGTH] if isinstance(value, (list, tuple)) else value


def _kind(value):
    if isinstance(value, list):
        return ("list", *sorted({str(_kind(v)) for v in value}))
    return f"tensor {value.dtype} {value.ndim == 0}" if isinstance(value, torch.Tensor) else type(value).__name__


def _result(op, args, kwargs):
    result = op.op(*args, **kwargs)
    return list(args[0] if result is None else result)  # of some operators there is only the in-place form


def _calls(op, dtype):
    """Arguments: one sample for each combination of their kinds that eager accepts, without complex results."""
    taken = set()
    for sample in op.sample_inputs("cpu", dtype) if dtype in op.supported_dtypes("cpu") else ():
        args = [_short(a) for a in (sample.input, *sample.args)]
        kwargs = {name: _short(value) for name, value in sample.kwargs.items()}
        if isinstance(kwargs.get("scalars"), torch.Tensor):
            kwargs["scalars"] = kwargs["scalars"][:_LENGTH].clone()
        kind = (*map(_kind, args), *((name, _kind(value)) for name, value in sorted(kwargs.items())))
        if any(isinstance(a, torch.Tensor) for a in args):
            continue  # one tensor for all: Dynamo reads its value where it has the list's dtype; test_one_tensor_for_all
        if kind in taken or not args[0] or len(taken) == _DTYPES[dtype]:
            continue
        taken.add(kind)
        try:
            results = _result(op, args, kwargs)
        except (RuntimeError, NotImplementedError, TypeError):
            continue
        if not any(t.is_complex() for t in results):
            yield args, kwargs


@pytest.mark.parametrize("name", sorted(_OPS))
def test_native_on_pytorchs_samples(name, backend):
    torch.manual_seed(0)
    calls = [call for dtype in _DTYPES for call in _calls(_OPS[name], dtype)]
    assert calls, "no sample"
    function = getattr(torch.ops.aten, name) if name in _UNKNOWN_TO_DYNAMO else _OPS[name].op

    def all_calls(given):
        results = []
        for args, kwargs in given:
            result = function(*args, **kwargs)
            results.append(list(args[0] if result is None else result))
        return results

    same_as_eager(all_calls, calls, backend=backend)


@pytest.mark.parametrize("name", ["_foreach_add", "_foreach_mul", "_foreach_div"])
def test_one_tensor_for_all(name, backend):
    function = getattr(torch, name)
    x, other = [torch.randn(3), torch.randn(2, 2).bfloat16(), torch.randint(5, (4,))], torch.tensor(2.5, dtype=torch.float64)
    compiled = torch.compile(lambda a, b: function(a, b), backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(x, other), function(x, other), rtol=1e-6, atol=1e-6)


def test_sums_of_powers(backend):
    x = [torch.randn(3, 4), torch.randn(5)]
    same_as_eager(lambda t: [torch.ops.aten._foreach_powsum(t, ord) for ord in (0, 1, 2, 3)], x, backend=backend)


def test_lists_of_one_tensor_and_aliases(backend):
    x, y = torch.randn(3), torch.randn(2, 2)

    def twice(a, b):
        first, second, third = torch._foreach_add([a, a, b], [a, a, b], alpha=2)
        return first, torch._foreach_mul([second], 3)[0], third

    same_as_eager(twice, x, y, backend=backend)
