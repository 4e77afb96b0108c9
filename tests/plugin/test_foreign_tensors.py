"""Tensors that are no plain dense CPU array of real numbers: right results, and what isn't native names its reason."""

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
    "complex": (lambda c: (c * c).abs(), _complex, ()),
    "conjugated": (lambda c: c * 2, lambda: _complex().conj(), ()),
    "negated": (lambda c: c * 2, lambda: _complex().conj().imag, ()),
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
    plain = lambda t: torch.Tensor.as_subclass(t, torch.Tensor)
    if got.is_complex() or name == "complex":  # a product that is rounded once
        torch.testing.assert_close(plain(got), plain(want), rtol=1e-6, atol=1e-7)
    else:
        assert torch.equal(plain(got), plain(want))
    assert bool(graphs_ran_natively) == (name not in _NEVER_REACH_A_BACKEND)
