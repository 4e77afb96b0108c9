"""The operators that a user counts on by name: PyTorch's own samples of each, forward and backward through torch.compile, are
native and hold no framework step; results and gradients are eager's by the accuracy rule.

All samples of a row are one function, so a row is one compile of a forward and of a backward. What test_opinfo.py asks of every
overload by itself is asked here of what torch.compile makes of the operator: its decompositions, and what autograd calls."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

from plugin.checking import same_as_eager
from torch_tenon.testing import check_model

SAMPLES = 4  # of a row, from all over its list; tests marked slow take up to 20 times as many

# Names of OpInfos, each variant a row of its own.
FLOATS = (
    "sort", "msort", "argsort", "topk", "kthvalue", "median", "nanmedian", "cummax", "cummin", "searchsorted", "bucketize", "histc",
    "erf", "erfc", "erfinv", "lgamma", "mvlgamma", "digamma", "special.erfcx",
    "nn.functional.max_pool1d", "nn.functional.max_pool2d", "nn.functional.max_pool3d",
    "nn.functional.avg_pool1d", "nn.functional.avg_pool2d", "nn.functional.avg_pool3d",
    "nn.functional.adaptive_max_pool1d", "nn.functional.adaptive_max_pool2d", "nn.functional.adaptive_max_pool3d",
    "nn.functional.adaptive_avg_pool1d", "nn.functional.adaptive_avg_pool2d", "nn.functional.adaptive_avg_pool3d",
    "nn.functional.max_unpool1d", "nn.functional.max_unpool2d", "nn.functional.max_unpool3d",
    "nn.functional.interpolate", "nn.functional.upsample_bilinear", "nn.functional.upsample_nearest", "_upsample_bilinear2d_aa",
    "nn.functional.pad", "constant_pad_nd", "nn.functional.embedding_bag", "index_fill", "masked_scatter",
    "select_scatter", "slice_scatter", "diagonal_scatter", "as_strided_scatter",
    "nn.functional.grid_sample", "grid_sampler_2d", "grid_sampler_3d", "nn.functional.unfold", "unfold",
    "nn.functional.binary_cross_entropy", "nn.functional.binary_cross_entropy_with_logits", "nn.functional.soft_margin_loss",
    "nn.functional.multilabel_margin_loss", "nn.functional.glu", "nn.functional.prelu", "logit", "special.xlog1py",
    "ldexp", "addr", "dist", "linalg.cross", "nansum", "nanmean", "count_nonzero", "isin", "linspace",
    "nn.functional.channel_shuffle", "rot90", "block_diag", "diag", "as_strided_copy", "diagonal_copy", "expand_copy",
    "narrow_copy", "permute_copy", "t_copy", "transpose_copy", "unfold_copy", "unsqueeze_copy", "view_copy",
)  # fmt: skip
COMPLEX = ("real", "imag", "complex", "conj", "conj_physical", "resolve_conj", "view_as_real", "view_as_complex")

# Rows of which PyTorch's fake kernel says other strides than eager gives: it forgets channels_last.
UNLIKE_STRIDES = ("nn.functional.max_unpool2d",)


@dataclasses.dataclass
class Sample:
    """An operator and its arguments, of which the tensors may be replaced."""

    op: object
    leaves: list
    spec: pytree.TreeSpec

    @classmethod
    def of(cls, op, *args, **kwargs):
        return cls(op, *pytree.tree_flatten((args, kwargs)))

    def tensors(self) -> list[torch.Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    def __call__(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        rest = list(tensors)
        leaves = [rest.pop(0) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return pytree.tree_leaves(self.op(*args, **kwargs))


def _leaf(*sizes, **kwargs):
    return torch.randn(*sizes, requires_grad=True, **kwargs)


def _bags():
    index, starts = torch.tensor([1, 5, 5, 0, 8, 2, 2]), torch.tensor([0, 3, 3, 6])
    for mode in ("sum", "mean", "max"):
        for padding in (None, 5):
            for last in (False, True):
                offsets = torch.cat([starts, torch.tensor([7])]) if last else starts
                options = {"mode": mode, "padding_idx": padding, "include_last_offset": last}
                yield Sample.of(F.embedding_bag, index, _leaf(9, 4), offsets, **options)
                if mode == "sum":
                    yield Sample.of(F.embedding_bag, index, _leaf(9, 4), offsets, per_sample_weights=_leaf(7), **options)
            yield Sample.of(F.embedding_bag, index.view(1, 7).expand(2, 7), _leaf(9, 4), mode=mode, padding_idx=padding)


def _norms():
    for dim in (0, 1, -1):
        direction = _leaf(4, 3, 5)
        length = torch.rand([n if d == dim % 3 else 1 for d, n in enumerate((4, 3, 5))], requires_grad=True)
        yield Sample.of(torch._weight_norm, direction, length, dim)


def _folds():
    for options in ({"kernel_size": 2}, {"kernel_size": (3, 2), "padding": (1, 0), "stride": (2, 1)}, {"kernel_size": 2, "dilation": 2}):
        columns = F.unfold(torch.randn(2, 3, 6, 5), **options)
        yield Sample.of(F.fold, columns.requires_grad_(), (6, 5), **options)


def _label_margins():
    """-1 at the end, in the middle, first, nowhere, labels after it and twice the same: PyTorch's decomposition counts what follows it."""
    rows = torch.tensor([[3, 1, 0, -1, 4], [3, 0, -1, 1, 1], [-1, 2, 2, 3, 0], [4, 2, 3, 1, 0], [2, 2, -1, -1, 2]])
    for reduction in ("none", "mean", "sum"):
        yield Sample.of(F.multilabel_margin_loss, _leaf(5, 5), rows, reduction=reduction)
        yield Sample.of(F.multilabel_margin_loss, _leaf(5), rows[1], reduction=reduction)


def _affine_grids():
    """Planes and volumes, sizes of 1 among them: PyTorch's own backward cannot be traced."""
    for size in ((2, 3, 4, 5), (3, 2, 1, 7), (1, 1, 1, 1), (2, 3, 4, 5, 6)):
        for align in (False, True):
            spatial = len(size) - 2
            yield Sample.of(F.affine_grid, _leaf(size[0], spatial, spatial + 1), size, align_corners=align)


def _certainties():
    """Probabilities of 0 and 1, of which the logarithm ends at -100 and the slope at 1e12."""
    sure, target = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.3]), torch.tensor([0.0, 0.0, 1.0, 1.0, 0.5])
    for weight in (None, torch.rand(5), torch.rand(1)):
        for reduction in ("none", "mean", "sum"):
            yield Sample.of(F.binary_cross_entropy, sure.clone().requires_grad_(), target, weight, reduction=reduction)


BY_HAND = {
    "embedding_bag": _bags, "weight_norm": _norms, "fold": _folds, "label_margins": _label_margins, "certainties": _certainties,
    "affine_grids": _affine_grids,
}  # fmt: skip


def _name(info) -> str:
    return " ".join([info.name, info.variant_test_name]).strip()


def _rows():
    """Name of a row -> function that makes its samples."""
    from torch.testing._internal.common_methods_invocations import op_db

    rows = dict(BY_HAND)
    for dtype, names in ((torch.float32, FLOATS), (torch.complex64, COMPLEX)):
        found = [info for info in op_db if info.name in names]
        assert {info.name for info in found} == set(names), "no OpInfo has this name"
        rows |= {_name(i): lambda i=i, d=dtype: _samples_of(i, d) for i in found}
    return rows


def _samples_of(info, dtype):
    dtype = dtype if dtype in info.supported_dtypes("cpu") else torch.float32
    grad = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    for sample in info.sample_inputs(torch.device("cpu"), dtype, requires_grad=grad):
        if info.name == "index_fill" and isinstance(sample.args[-1], torch.Tensor):
            sample.args[-1].requires_grad_(False)  # autograd asks for the unique indices: data-dependent for every backend
        yield Sample.of(info.op, sample.input, *sample.args, **sample.kwargs)


ROWS = _rows()


def _spread(samples: list, count: int) -> list:
    """`count` of them, over the whole list: neighbours differ little."""
    step = max(1, len(samples) / count)
    return [samples[int(k * step)] for k in range(min(count, len(samples)))]


def _together(samples: list[Sample]):
    def function(*tensors):
        tensors, results = list(tensors), []
        for sample in samples:
            count = len(sample.tensors())
            results.append(sample(tensors[:count]))
            tensors = tensors[count:]
        return results

    return function


def _check(row: str, samples: list[Sample], backend: str) -> None:
    tensors = [t.detach().requires_grad_(t.requires_grad) for sample in samples for t in sample.tensors()]
    strides = not row.startswith(UNLIKE_STRIDES)
    train = any(t.requires_grad for t in tensors)
    same_as_eager(_together(samples), *tensors, backend=backend, train=train, check_strides=strides)


@pytest.mark.parametrize("row", list(ROWS))
def test_named_op(row, backend):
    samples = list(ROWS[row]())
    assert samples
    _check(row, _spread(samples, SAMPLES), backend)


@pytest.mark.slow
@pytest.mark.parametrize("row", list(ROWS))
def test_every_sample_of_a_named_op(row, backend):
    samples = _spread(list(ROWS[row]()), 20 * SAMPLES)
    for start in range(0, len(samples), SAMPLES):
        torch._dynamo.reset()
        _check(row, samples[start : start + SAMPLES], backend)


# Draws, whose bits no test of one call compares; memory that nobody has written; eigenvectors, which have any phase; gradients that are 0
# but for rounding; sparse results.
UNJUDGED = {
    "bernoulli", "multinomial", "normal", "rand_like", "randn_like", "randint_like", "randint", "randn", "uniform", "cauchy",
    "exponential", "geometric", "log_normal", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu",
    "nn.functional.multi_head_attention_forward", "pca_lowrank", "svd_lowrank", "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d", "nn.functional.scaled_dot_product_attention", "empty", "empty_like", "empty_strided",
    "empty_permuted", "new_empty", "new_empty_strided",
    "linalg.eig", "nn.functional.normalize", "sparse.mm",
}  # fmt: skip


def _others() -> list[str]:
    from torch.testing._internal.common_methods_invocations import op_db

    names = {_name(i) for i in op_db if i.name not in UNJUDGED}
    return sorted(name for name in names - ROWS.keys() if not name.startswith("jiterator"))  # of GPUs


@pytest.mark.slow
@pytest.mark.by_aten(tier="any")
@pytest.mark.parametrize("row", _others())
def test_every_other_operator(row):
    """Whatever runs it, torch.compile with tenon gives what eager gives: PyTorch's decompositions are judged, too."""
    from torch.testing._internal.common_methods_invocations import op_db

    info = next(i for i in op_db if _name(i) == row)
    dtype = torch.float32 if torch.float32 in info.dtypes else torch.int64
    if dtype not in info.dtypes:
        pytest.skip(f"{row}: neither f32 nor s64")
    for sample in _spread(list(_samples_of(info, dtype)), SAMPLES):
        torch._dynamo.reset()
        tensors = [t.detach().requires_grad_(t.requires_grad) for t in sample.tensors()]
        train = any(t.requires_grad for t in tensors)
        options = {"train": train, "baseline": None, "vacuous_ok": True, "check_strides": False}
        report = check_model(_together([sample]), tensors, backend="tenon", **options)
        report.raise_if_failed()


def test_bincount_is_in_no_graph():
    """Its size is the largest element's, whatever minlength: Dynamo gives it to no backend, ours or another."""
    x = torch.tensor([1, 4, 4, 0])
    for backend in ("aot_eager", "tenon"):
        torch._dynamo.reset()
        report = check_model(lambda t: torch.bincount(t, minlength=9) * 2, (x,), backend=backend, baseline="aot_eager", vacuous_ok=True)
        report.raise_if_failed()
        assert report.capture.breaks > 0


@pytest.mark.parametrize("out", [(5, 3), (7, 1), (70, 5)])
def test_maxima_of_unequal_windows_without_positions(out, backend):
    x = torch.randn(2, 3, 150, 16)
    x[0, 1, 7, 2] = float("nan")
    same_as_eager(lambda t: F.adaptive_max_pool2d(t, out), x, backend=backend)
    same_as_eager(lambda t: F.adaptive_max_pool3d(t, (*out, 2)), x.unsqueeze(-1).expand(2, 3, 150, 16, 5), backend=backend)


@pytest.mark.by_aten(steps={"aten._fft_c2r.default"})
def test_windows_are_summed_for_a_whole_batch(backend):
    """istft() asks for the sum of the squared window once for all signals: a gradient of one row, of unfold."""
    window = torch.hann_window(16)
    signals = torch.randn(2, 100)
    spectrum = torch.stft(signals, 16, 4, window=window, return_complex=True)
    with torch.no_grad():
        same_as_eager(lambda g: torch.ops.aten.unfold_backward(g, [2, 3, 22], 2, 4, 2), torch.randn(1, 3, 10, 4), backend=backend)
    found = torch.compile(lambda z: torch.istft(z, 16, 4, window=window, length=100), backend=backend)(spectrum)
    torch.testing.assert_close(found, signals)


def test_second_derivatives_of_a_network(backend):
    """Forward mode leaves a tensor of zeros without memory in the graph (aten._efficientzerotensor), of which the backward reads."""
    net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    hessian = torch.func.vmap(torch.func.hessian(lambda z: net(z)[0]))
    x = torch.randn(5, 2)
    gradients = []
    for function in (hessian, torch.compile(hessian, backend=backend)):
        net.zero_grad()
        function(x).square().sum().backward()
        gradients.append([p.grad.clone() for p in net.parameters() if p.grad is not None])
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("which", ["input", "target"])
def test_what_is_no_probability_is_refused_as_eager_refuses_it(which, backend):
    compiled = torch.compile(F.binary_cross_entropy, backend=backend)
    values = {"input": torch.rand(7), "target": torch.rand(7)}
    torch.testing.assert_close(compiled(**values), F.binary_cross_entropy(**values))
    for wrong in (1.5, -0.1, float("nan")):
        values[which][3] = wrong
        with pytest.raises(RuntimeError, match=f"all elements of {which} should be between 0 and 1"):
            compiled(**values)
