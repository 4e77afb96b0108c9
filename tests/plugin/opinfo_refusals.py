"""Calls of rows that are no kernel, by name: a reason that isn't here fails test_opinfo.py and test_lowering.py. What eager
refuses is no sample and needs no name."""

import dataclasses
import re

import torch


@dataclasses.dataclass(frozen=True)
class Refusal:
    overload: str  # regex
    reason: str  # regex, of the compiler's words
    why: str


REFUSALS = (
    Refusal(r"aten\.(view_as_complex|complex)\.default", "the graph: .* is dtype complex32", "HLO has no complex type of halves"),
    Refusal(r"aten\.(median|nanmedian|mode)\.default", "dtype c64", "eager answers for no elements only"),
    Refusal(r"aten\.(median|nanmedian)\.default", "median of no integers", "eager's is a NaN cast to their type"),
    Refusal(r"aten\.index_put\.default", "boolean mask: the result's size depends on data", "a mask beside another index"),
    Refusal(r"aten\.index\.Tensor", "boolean mask: the result's size depends on data", "as nonzero"),
    Refusal(r"aten\.(_upsample_bilinear2d_aa|upsample_bilinear2d|upsample_bicubic2d)\.default",
            "interpolation of integers: ATen's own fixed-point weights", "its rounding is its own"),
    Refusal(r"aten\.convolution\.default", "library", "transposed in groups, and of integers: ATen's own call"),
    Refusal(r"aten\.soft_margin_loss(_backward)?\.default", "soft_margin_loss of f16", "ATen rounds each step, and its powers overflow"),
    Refusal(r"aten\.as_strided_scatter\.default", "as_strided_scatter into a tensor with gaps",
            "eager writes between the tensor's elements, where HLO's value has none"),
    Refusal(r"aten\.as_strided\.default", "as_strided starts before its base",
            "it reads memory of the storage that isn't the tensor's"),
)  # fmt: skip

# (overload regex, in what the fake kernel differs) -> why it is PyTorch's word against itself. No graph can be made of such a call.
FAKES = {
    (r"aten\.(log_normal|normal_functional|exponential|randn_like)\.default", "fake refuses"):
        "the meta kernel checks the dtype, eager's doesn't",
    (r"aten\.(pow\.Scalar|copysign\.Tensor|floor_divide\.default|div\.Tensor_mode|angle\.default)", "strides"):
        "transposed and channels-last operands, of which eager keeps the order and the decomposition doesn't, or the other way",
    (r"aten\.pow\.Tensor_Scalar", "dtype"): "a boolean exponent of booleans",
    (r"aten\.__[lr]shift__\.(Scalar|Tensor)", "fake refuses"): "shifts of bool: eager's kernel takes them, the meta kernel doesn't",
    (r"aten\.(_unsafe_)?index\.Tensor", "fake refuses"): "a boolean mask: the shape depends on data",
    (r"aten\.uniform\.default", "strides"): "eager keeps the input's strides, the meta kernel doesn't",
    (r"aten\.log_sigmoid_forward\.default", "strides"): "the buffer that eager doesn't fill",
    (r"aten\._native_batch_norm_legit_functional\.default", "dtype"): "the saved statistics of halves",
    (r"aten\._embedding_bag(_forward_only)?\.default", "shape"): "the bag sizes that eager leaves out",
}


def is_named(overload: str, reason: str) -> bool:
    return any(re.fullmatch(r.overload, overload) and re.fullmatch(r.reason, reason) for r in REFUSALS)


def fake_is_known(overload: str, how: str) -> bool:
    return any(re.fullmatch(name, overload) and how == known for name, known in FAKES)
