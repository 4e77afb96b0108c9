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


_by = pytest.mark.by_aten
_VIEW = _by(tier="eager_program", reason="conjugated or negated view")
_NEVER_REACH_A_BACKEND = {"sparse_coo", "sparse_csr", "quantized"}  # Dynamo leaves these to eager
CASES = {  # what it does, to what, and how it runs where not natively
    "sparse_coo": (lambda s: torch.sparse.mm(s, torch.ones(4, 4)) + 1, lambda: _dense().relu().to_sparse(), ()),
    "sparse_csr": (lambda s: (s @ torch.ones(4, 4)) * 2, lambda: _dense().relu().to_sparse_csr(), ()),
    "quantized": (
        lambda q: q.dequantize() * 2,
        lambda: torch.quantize_per_tensor(_dense(), 0.1, 0, torch.qint8),
        (),
    ),
    "subclass": (lambda t: t * 2 + 1, lambda: _dense().as_subclass(_Labelled), ()),
    "complex": (lambda c: (c * c).abs(), _complex, _by(steps={"aten.mul.Tensor", "aten.abs.default"})),
    "conjugated": (lambda c: c * 2, lambda: _complex().conj(), _VIEW),
    "negated": (lambda c: c * 2, lambda: _complex().conj().imag, _VIEW),
    "float8": (
        lambda t: t.to(torch.float32) * 2,
        lambda: _dense().to(torch.float8_e4m3fn),
        _by(steps={"aten._to_copy.default"}),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [pytest.param(name, marks=case[2]) for name, case in CASES.items()])
def test_right_result(name, graphs_ran_natively):
    function, make, _ = CASES[name]
    got = torch.compile(function, backend="tenon")(make())
    want = function(make())
    assert type(got) is type(want) and got.dtype == want.dtype
    assert torch.equal(torch.Tensor.as_subclass(got, torch.Tensor), torch.Tensor.as_subclass(want, torch.Tensor))
    assert bool(graphs_ran_natively) == (name not in _NEVER_REACH_A_BACKEND)
