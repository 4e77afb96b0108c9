"""Tensors that are no plain dense CPU array: right results, and the eager program names its reason."""

import pytest
import torch


class _Labelled(torch.Tensor):
    pass


def _dense():
    torch.manual_seed(0)
    return torch.randn(4, 4)


def _complex():
    return torch.complex(_dense(), _dense().flip(0))


CASES = {
    "sparse_coo": (lambda s: torch.sparse.mm(s, torch.ones(4, 4)) + 1, lambda: _dense().relu().to_sparse()),
    "sparse_csr": (lambda s: (s @ torch.ones(4, 4)) * 2, lambda: _dense().relu().to_sparse_csr()),
    "quantized": (
        lambda q: q.dequantize() * 2,
        lambda: torch.quantize_per_tensor(_dense(), 0.1, 0, torch.qint8),
    ),
    "subclass": (lambda t: t * 2 + 1, lambda: _dense().as_subclass(_Labelled)),
    "complex": (lambda c: (c * c).abs(), _complex),
    "conjugated": (lambda c: c * 2, lambda: _complex().conj()),
    "negated": (lambda c: c * 2, lambda: _complex().conj().imag),
    "float8": (lambda t: t.to(torch.float32) * 2, lambda: _dense().to(torch.float8_e4m3fn)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_right_result(name, tenon):
    function, make = CASES[name]
    torch._dynamo.reset()
    tenon.reset_stats()
    got = torch.compile(function, backend="tenon")(make())
    want = function(make())
    assert type(got) is type(want) and got.dtype == want.dtype
    assert torch.equal(torch.Tensor.as_subclass(got, torch.Tensor), torch.Tensor.as_subclass(want, torch.Tensor))
    if name in ("conjugated", "negated"):
        (graph,) = [g for g in tenon.stats()["graphs"] if g["calls"]]
        assert graph["tier"] == "eager_program" and "conjugated or negated" in graph["reason"]
