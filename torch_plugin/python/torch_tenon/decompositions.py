"""The decompositions asked of AOTAutograd: one list, a reason each.

Without an entry an op reaches the graph whole. That is the rule: a composite op has a lowering that
knows more than its parts do (softmax, layer_norm, gelu and their backwards), or is a library call
(convolution, attention). Of resamplings PyTorch decides otherwise before any list is asked; WHOLE
undoes it. core_aten_decompositions() is not used: it takes
_scaled_dot_product_flash_attention_for_cpu apart wrongly.
"""

from __future__ import annotations

import functools
from typing import Any, Sequence

import torch

from ._torch_private import (
    decompositions_for,
    linear_resampling,
    nearest_resampling,
    resampled_sizes,
    statically_known_true,
    without_casts,
)

_aten = torch.ops.aten

# Overload -> why it is taken apart.
DECOMPOSITIONS: dict[torch._ops.OpOverload, str] = {
    _aten.embedding_dense_backward.default: "an index_put with accumulation, for which there is a lowering",
    _aten.native_dropout_backward.default: "two multiplications",
    _aten.select_backward.default: "a select_scatter into zeros",
    _aten.slice_backward.default: "a slice_scatter into zeros",
    _aten.threshold_backward.default: "a where",
    _aten.silu_backward.default: "pointwise",
    _aten.hardsigmoid_backward.default: "pointwise",
    _aten.sigmoid_backward.default: "pointwise",
    _aten.tanh_backward.default: "pointwise",
    _aten.leaky_relu_backward.default: "pointwise",
    _aten.mse_loss.default: "a subtraction, a square, a mean",
    _aten.mse_loss_backward.default: "pointwise",
    _aten._safe_softmax.default: "a softmax, and zeros in rows of nothing but -inf",
    _aten.addcmul.default: "pointwise",
    _aten.addcdiv.default: "pointwise",
    _aten.lerp.Scalar: "pointwise",
    _aten.rsub.Scalar: "a subtraction",
    _aten.binary_cross_entropy_with_logits.default: "pointwise, log_sigmoid, a mean",
    _aten._prelu_kernel_backward.default: "pointwise",
    _aten.glu_backward.default: "pointwise, in halves",
    _aten.logit_backward.default: "pointwise",
    _aten.special_xlog1py.default: "pointwise",
    _aten.special_xlog1py.other_scalar: "pointwise",
    _aten.special_xlog1py.self_scalar: "pointwise",
    _aten.ldexp.Tensor: "a multiplication by a power",
    _aten.addr.default: "an outer product and a sum",
    _aten.dist.default: "a norm of a difference",
    _aten.linalg_cross.default: "products of rolled factors",
    _aten.nansum.default: "a sum of what is selected",
    _aten.count_nonzero.default: "a sum of comparisons",
    _aten.count_nonzero.dim_IntList: "a sum of comparisons",
    _aten.isin.Tensor_Tensor: "comparisons, or a sort",
    _aten.isin.Tensor_Scalar: "a comparison",
    _aten.isin.Scalar_Tensor: "comparisons",
    _aten.channel_shuffle.default: "a transpose",
    _aten.rot90.default: "reversals and transposes",
    _aten.block_diag.default: "a concatenation",
    _aten.linspace.Tensor_Tensor: "pointwise, of an iota",
    _aten.linspace.Tensor_Scalar: "pointwise, of an iota",
    _aten.linspace.Scalar_Tensor: "pointwise, of an iota",
    _aten.as_strided_copy.default: "a view, copied",
    _aten.diagonal_copy.default: "a view, copied",
    _aten.expand_copy.default: "a view, copied",
    _aten.narrow_copy.default: "a view, copied",
    _aten.permute_copy.default: "a view, copied",
    _aten.squeeze_copy.default: "a view, copied",
    _aten.t_copy.default: "a view, copied",
    _aten.transpose_copy.int: "a view, copied",
    _aten.unfold_copy.default: "a view, copied",
    _aten.unsqueeze_copy.default: "a view, copied",
}

# What tracing would take apart into gathers of every tap, though there are lowerings along one dim after the other. Graphs with symbols
# have them taken apart, linear ones by ALONG_DIMS: the kernels that say the operators' sizes want numbers, and each size would be a graph
# of its own.
WHOLE = tuple(
    getattr(getattr(_aten, name), overload)
    for name in (
        "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
        "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
        "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
        "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
    )
    for overload in ("default", "vec")
)  # fmt: skip


def _source(size, wanted, scale: float | None, align_corners: bool, at: torch.Tensor) -> torch.Tensor:
    """Where elements `at` of the result lie in the input (ATen/native/UpSample.h, area_pixel_compute_source_index)."""
    if align_corners:
        return at * ((size - 1.0) / (wanted - 1.0) if wanted > 1 else 0.0)
    step = 1.0 / scale if scale is not None and scale > 0 else size / wanted
    return step * (at + 0.5) - 0.5


def _stays(size, wanted) -> bool | torch.Tensor:
    """Whether a size stays as it is: ATen copies the dim then, whatever the scale. A bool where symbols say so, else of the call."""
    if statically_known_true(size == wanted):
        return True
    if statically_known_true(size != wanted):
        return False
    return torch.full((), size) == torch.full((), wanted)


def _linear(x: torch.Tensor, sizes, align_corners: bool, scales) -> torch.Tensor:
    """Between neighbours of one dim after the other, the last one first, each weighted, as ATen's kernels do it (infinities, too)."""
    dtype = torch.float32 if x.dtype in (torch.bfloat16, torch.float16) else x.dtype
    result = x.to(dtype)
    for dim in reversed(range(2, x.dim())):
        size, wanted = x.shape[dim], sizes[dim - 2]
        if (stays := _stays(size, wanted)) is True:
            result = result + result * 0.0  # both neighbours are the element itself, one weighs 0: an infinity becomes NaN
            continue
        at = _source(size, wanted, scales[dim - 2], align_corners, torch.arange(wanted, device=x.device).to(dtype)).clamp(min=0.0)
        below = at.to(torch.int64)
        if stays is not False:
            below = torch.where(stays, torch.arange(wanted, device=x.device), below)
        part = (at - below).clamp(0.0, 1.0).reshape(-1, *[1] * (x.dim() - 1 - dim))
        low = result.index_select(dim, below)
        between = low * (1.0 - part) + result.index_select(dim, (below + 1).clamp(max=size - 1)) * part
        result = between if stays is False else torch.where(stays, low + low * 0.0, between)
    return result.to(x.dtype).contiguous(memory_format=torch._prims_common.suggest_memory_format(x))


def _linear_vec(x, output_size, align_corners, scale_factors):
    if not x.is_floating_point():
        return linear_resampling(x, output_size, align_corners, scale_factors)
    sizes = resampled_sizes(x.size(), output_size, scale_factors)
    return _linear(x, sizes, align_corners, scale_factors or [None] * len(sizes))


def _nearest2d_vec(x, output_size, scale_factors):
    """ATen's upsample_nearest2d: elements of a dim by floor(place / scale) in f32, but where the size stays."""
    sizes = resampled_sizes(x.size(), output_size, scale_factors)
    may_stay = [_stays(x.shape[dim], sizes[dim - 2]) for dim in (2, 3)]
    if scale_factors is None or all(stays is False for stays in may_stay):
        return nearest_resampling(x, output_size, scale_factors)
    result = x
    for dim in (3, 2):
        size, wanted, scale, stays = x.shape[dim], sizes[dim - 2], scale_factors[dim - 2], may_stay[dim - 2]
        if stays is True:
            continue
        places = torch.arange(wanted, device=x.device)
        step = 1.0 / scale if scale is not None and scale > 0 else size / wanted
        at = (places.to(torch.float32) * step).to(torch.int64).clamp(max=size - 1)
        result = result.index_select(dim, at if stays is False else torch.where(stays, places, at))
    return result.contiguous(memory_format=torch._prims_common.suggest_memory_format(x))


# Overloads that functional.interpolate calls -> what tracing makes of them in graphs with symbols: gathers along one dim at a time.
ALONG_DIMS = {getattr(_aten, name).vec: _linear_vec for name in ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")}
ALONG_DIMS[_aten.upsample_nearest2d.vec] = _nearest2d_vec


def resampling(symbolic: bool, example_inputs: Sequence[Any]) -> dict:
    """What tracing does with operators that resample: overload -> a function, or None: the operator stays whole."""
    if symbolic:
        return ALONG_DIMS
    # The fake kernels of those that take the nearest element raise a TypeError over an empty batch (torch._check of a number).
    if any(isinstance(x, torch.Tensor) and 0 in x.shape for x in example_inputs):
        return {}
    return dict.fromkeys(WHOLE)


def _multilabel_margin(x, target, reduction: int):
    """multilabel_margin_loss_forward: for each label before the first -1, the hinges of all classes that are none. PyTorch's own, 2.13's
    too, counts the places behind the -1 as labels of class 0."""
    rows, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    torch._check(x.dim() <= 2 and rows.shape[1] != 0, lambda: f"Expected non-empty vector or matrix, but got: {list(x.shape)}")
    torch._check(target.shape == x.shape, lambda: f"inconsistent target size: {list(target.shape)} for input of size: {list(x.shape)}")
    classes = torch.arange(rows.shape[1], device=target.device)
    is_label = (labels == -1).cumsum(-1) == 0
    is_target = (torch.where(is_label, labels, -1).unsqueeze(-1) == classes).any(1)
    of_label = rows.gather(1, torch.where(is_label, labels, 0)).unsqueeze(-1)
    hinges = (1.0 - of_label + rows.unsqueeze(1)).relu() / rows.shape[1]  # not clamp_min: no gradient at 0
    losses = torch.where(is_label.unsqueeze(-1) & ~is_target.unsqueeze(1), hinges, 0).sum((1, 2))
    loss = {0: losses.reshape(x.shape[:-1]), 1: losses.mean(), 2: losses.sum()}[reduction]
    return loss, is_target.to(x.dtype).reshape(target.shape)


def _affine_grid(theta, size, align_corners: bool):
    """affine_grid_generator: theta [N, k, k + 1] times the coordinates of every point, the innermost first, and 1. PyTorch's has a
    backward that cannot be traced (it writes to a fake tensor's memory), 2.13's decomposition fails for sizes of 1."""
    spatial = list(size[2:])
    wide = theta.float() if theta.dtype in (torch.bfloat16, torch.float16) else theta

    def of_points(values: torch.Tensor, dim: int) -> torch.Tensor:
        """Coordinates along a dim, among the result's dims."""
        return values.view(*[1] * (dim + 1), -1, *[1] * (len(spatial) - dim))

    columns = wide.view(-1, *[1] * len(spatial), len(spatial), len(spatial) + 1).unbind(-1)
    grid = None
    for column, dim in zip(columns, reversed(range(len(spatial)))):
        steps = spatial[dim]
        at = torch.linspace(-1, 1, steps, dtype=wide.dtype, device=wide.device) if steps > 1 else wide.new_zeros(steps)
        if steps > 1 and not align_corners:
            at = at * (steps - 1) / steps
        grid = column * of_points(at, dim) if grid is None else torch.addcmul(grid, column, of_points(at, dim))
    grid = grid + columns[-1]
    return grid.to(theta.dtype)


# Overloads that PyTorch takes apart into something else than what its kernel computes, or whose own backward it cannot trace.
MENDED = {
    _aten.multilabel_margin_loss_forward.default: _multilabel_margin,
    _aten.affine_grid_generator.default: _affine_grid,
}


# Those of which PyTorch's are formulas between casts to a type to compute in and back: of float32 there is nothing to cast.
_CASTING = frozenset(
    getattr(_aten, f"{name}_backward").default
    for name in ("elu", "gelu", "hardsigmoid", "hardswish", "leaky_relu", "sigmoid", "silu", "tanh", "threshold")
) | {_aten.rsub.Scalar}


@functools.cache
def table() -> dict:
    found = decompositions_for(tuple(DECOMPOSITIONS)) | MENDED
    return found | {op: without_casts(found[op]) for op in _CASTING & found.keys()}
