"""The decompositions asked of AOTAutograd: one list, a reason each.

Without an entry an op reaches the graph whole. That is the rule: a composite op has a lowering that
knows more than its parts do (softmax, layer_norm, gelu and their backwards), or is a library call
(convolution, attention). Of resamplings PyTorch decides otherwise before any list is asked; WHOLE
undoes it. core_aten_decompositions() is not used: it takes
_scaled_dot_product_flash_attention_for_cpu apart wrongly.
"""

from __future__ import annotations

import functools

import torch

from ._torch_private import decompositions_for

_aten = torch.ops.aten

# Overload -> why it is taken apart.
DECOMPOSITIONS: dict[torch._ops.OpOverload, str] = {
    _aten.embedding_dense_backward.default: "an index_put with accumulation, for which there is a lowering",
    _aten.native_dropout_backward.default: "two multiplications",
    _aten.select_backward.default: "a select_scatter into zeros",
    _aten.slice_backward.default: "a slice_scatter into zeros",
    _aten.threshold_backward.default: "a where",
    _aten.silu_backward.default: "pointwise",
    _aten.hardswish_backward.default: "pointwise",
    _aten.hardsigmoid_backward.default: "pointwise",
    _aten.sigmoid_backward.default: "pointwise",
    _aten.tanh_backward.default: "pointwise",
    _aten.gelu_backward.default: "pointwise",
    _aten.leaky_relu_backward.default: "pointwise",
    _aten.elu_backward.default: "pointwise",
    _aten.mse_loss.default: "a subtraction, a square, a mean",
    _aten.mse_loss_backward.default: "pointwise",
    _aten._safe_softmax.default: "a softmax, and zeros in rows of nothing but -inf",
    _aten.addcmul.default: "pointwise",
    _aten.addcdiv.default: "pointwise",
    _aten.lerp.Scalar: "pointwise",
    _aten.rsub.Scalar: "a subtraction",
}

# What tracing would take apart into gathers of every tap, though there are lowerings along one dim after the other. Graphs with symbols
# have them taken apart: the kernels that say the operators' sizes want numbers, and each size would be a graph of its own.
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


@functools.cache
def table() -> dict:
    return decompositions_for(tuple(DECOMPOSITIONS))
