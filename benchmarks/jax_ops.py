"""ATen operators in jax.numpy: one table, overload -> function, and the interpreter that runs an exported program by it.

A result is cast to the dtype that the program's meta data says, so the functions leave promotion to jax where that
doesn't matter; those in ARITHMETIC get their operands in the result's dtype first. What depends on constants alone is
computed while jax traces. A missing operator is NotExpressible by name.
"""

import functools
import math
import operator

import jax
import jax.numpy as jnp
import numpy
import torch
from exported import NotExpressible
from jax import lax

OPS: dict[str, object] = {}
ARITHMETIC: set[str] = set()

DTYPES = {
    torch.bool: jnp.bool_, torch.uint8: jnp.uint8, torch.int8: jnp.int8, torch.int16: jnp.int16, torch.int32: jnp.int32,
    torch.int64: jnp.int64, torch.float16: jnp.float16, torch.bfloat16: jnp.bfloat16, torch.float32: jnp.float32,
    torch.float64: jnp.float64,
}  # fmt: skip


def op(*overloads, arithmetic=False):
    def register(function):
        OPS.update(dict.fromkeys(overloads, function))
        if arithmetic:
            ARITHMETIC.update(overloads)
        return function

    return register


def _many(table: dict, arithmetic=False) -> None:
    for overloads, function in table.items():
        op(*overloads.split(), arithmetic=arithmetic)(function)


# --- elementwise ----------------------------------------------------------------------------------

_many({
    "abs.default": jnp.abs, "neg.default": jnp.negative, "exp.default": jnp.exp, "exp2.default": jnp.exp2,
    "expm1.default": jnp.expm1, "log.default": jnp.log, "log2.default": jnp.log2, "log1p.default": jnp.log1p,
    "sqrt.default": jnp.sqrt, "rsqrt.default": lax.rsqrt, "sin.default": jnp.sin, "cos.default": jnp.cos,
    "tan.default": jnp.tan, "tanh.default": jnp.tanh, "sigmoid.default": jax.nn.sigmoid, "erf.default": lax.erf,
    "relu.default": jax.nn.relu, "silu.default": jax.nn.silu, "reciprocal.default": lambda x: 1 / x, "square.default": jnp.square,
    "sign.default": jnp.sign,
}, arithmetic=True)  # fmt: skip
_many({
    "floor.default": jnp.floor, "ceil.default": jnp.ceil, "round.default": jnp.round, "trunc.default": jnp.trunc,
    "logical_not.default": jnp.logical_not, "isnan.default": jnp.isnan, "isinf.default": jnp.isinf,
    "bitwise_not.default": jnp.bitwise_not,
    "clone.default detach.default alias.default lift_fresh_copy.default _to_copy.default": lambda x: x,
})  # fmt: skip
_many({
    "div.Tensor div.Scalar": operator.truediv, "mul.Tensor mul.Scalar": operator.mul,
    "maximum.default": jnp.maximum, "minimum.default": jnp.minimum,
    "remainder.Tensor remainder.Scalar": jnp.remainder, "fmod.Tensor fmod.Scalar": jnp.fmod,
    "pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar": lambda x, y: x ** y, "atan2.default": jnp.arctan2,
}, arithmetic=True)  # fmt: skip
_many({
    "eq.Tensor eq.Scalar": operator.eq, "ne.Tensor ne.Scalar": operator.ne, "lt.Tensor lt.Scalar": operator.lt,
    "le.Tensor le.Scalar": operator.le, "gt.Tensor gt.Scalar": operator.gt, "ge.Tensor ge.Scalar": operator.ge,
    "logical_and.default": jnp.logical_and, "logical_or.default": jnp.logical_or, "logical_xor.default": jnp.logical_xor,
    "bitwise_and.Tensor bitwise_and.Scalar": jnp.bitwise_and, "bitwise_or.Tensor bitwise_or.Scalar": jnp.bitwise_or,
    "bitwise_xor.Tensor bitwise_xor.Scalar": jnp.bitwise_xor,
    "where.self": jnp.where, "masked_fill.Scalar masked_fill.Tensor": lambda x, mask, value: jnp.where(mask, value, x),
})  # fmt: skip


@op("add.Tensor", "add.Scalar", arithmetic=True)
def _add(x, y, alpha=1):
    return x + (y if alpha == 1 else y * alpha)


@op("sub.Tensor", "sub.Scalar", arithmetic=True)
def _sub(x, y, alpha=1):
    return x - (y if alpha == 1 else y * alpha)


@op("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(x, y, rounding_mode=None):
    rounded = {None: lambda q: q, "floor": jnp.floor, "trunc": jnp.trunc}[rounding_mode]
    both_whole = jnp.issubdtype(jnp.result_type(x, y), jnp.integer)
    if both_whole:
        return jnp.floor_divide(x, y) if rounding_mode == "floor" else lax.div(*jnp.broadcast_arrays(x, y))
    return rounded(x / y)


@op("gelu.default", arithmetic=True)
def _gelu(x, approximate="none"):
    return jax.nn.gelu(x, approximate=approximate == "tanh")


@op("leaky_relu.default", arithmetic=True)
def _leaky_relu(x, slope=0.01):
    return jax.nn.leaky_relu(x, slope)


@op("clamp.default", "clamp.Tensor", "hardtanh.default")
def _clamp(x, low=None, high=None):
    x = x if low is None else jnp.maximum(x, low)
    return x if high is None else jnp.minimum(x, high)


@op("hardsigmoid.default")
def _hardsigmoid(x):
    return jnp.clip(x + 3, 0, 6) / 6


@op("hardswish.default")
def _hardswish(x):
    return x * jnp.clip(x + 3, 0, 6) / 6


# --- making and moving ----------------------------------------------------------------------------


@op("full.default", "new_full.default")
def _full(*args):
    size, value = args[-2:]
    return jnp.full(tuple(size), value)


@op("full_like.default")
def _full_like(x, value):
    return jnp.full(x.shape, value)


@op("zeros.default", "empty.memory_format", "new_zeros.default", "new_empty.default", "zeros_like.default", "empty_like.default",
    "new_empty_strided.default", "empty_strided.default")  # fmt: skip
def _zeros(*args):
    raise AssertionError("made of the meta data alone")


@op("ones.default", "ones_like.default", "new_ones.default")
def _ones(*args):
    raise AssertionError("made of the meta data alone")


@op("scalar_tensor.default")
def _scalar_tensor(value):
    return jnp.asarray(value)


@op("arange.start_step", "arange.default", "arange.start")
def _arange(*args):
    return jnp.arange(*args)


@op("copy.default")
def _copy(x, source):
    return jnp.broadcast_to(source, x.shape)


@op("view.default", "reshape.default", "_unsafe_view.default")
def _view(x, size):
    return x.reshape(size)


@op("permute.default")
def _permute(x, dims):
    return jnp.transpose(x, dims)


@op("t.default")
def _t(x):
    return x.T


@op("transpose.int")
def _transpose(x, a, b):
    return jnp.swapaxes(x, a, b)


@op("expand.default")
def _expand(x, size):
    missing = len(size) - x.ndim
    shape = tuple(n if n != -1 else x.shape[k - missing] for k, n in enumerate(size))
    return jnp.broadcast_to(x, shape)


@op("unsqueeze.default")
def _unsqueeze(x, dim):
    return jnp.expand_dims(x, dim)


@op("squeeze.dims", "squeeze.dim")
def _squeeze(x, dims):
    dims = [d % x.ndim for d in ([dims] if isinstance(dims, int) else dims)]
    return jnp.squeeze(x, tuple(d for d in dims if x.shape[d] == 1))


@op("slice.Tensor")
def _slice(x, dim=0, start=None, end=None, step=1):
    place = [slice(None)] * x.ndim
    place[dim] = slice(start, end, step)
    return x[tuple(place)]


@op("select.int")
def _select(x, dim, index):
    return lax.index_in_dim(x, index, dim, keepdims=False)


@op("slice_scatter.default")
def _slice_scatter(x, source, dim=0, start=None, end=None, step=1):
    place = [slice(None)] * x.ndim
    place[dim] = slice(start, end, step)
    return x.at[tuple(place)].set(source)


@op("select_scatter.default")
def _select_scatter(x, source, dim, index):
    place = [slice(None)] * x.ndim
    place[dim] = index
    return x.at[tuple(place)].set(source)


@op("cat.default")
def _cat(tensors, dim=0):
    kept = [t for t in tensors if t.shape != (0,)]  # ATen's old exception
    return jnp.concatenate(kept, dim)


@op("stack.default")
def _stack(tensors, dim=0):
    return jnp.stack(tensors, dim)


@op("split_with_sizes.default")
def _split_with_sizes(x, sizes, dim=0):
    return jnp.split(x, list(numpy.cumsum(sizes)[:-1]), dim)


@op("split.Tensor")
def _split(x, size, dim=0):
    return jnp.split(x, list(range(size, x.shape[dim], size)), dim)


@op("unbind.int")
def _unbind(x, dim=0):
    return [lax.index_in_dim(x, k, dim, keepdims=False) for k in range(x.shape[dim])]


@op("flip.default")
def _flip(x, dims):
    return jnp.flip(x, tuple(dims))


@op("repeat.default")
def _repeat(x, times):
    return jnp.tile(x, times)


@op("constant_pad_nd.default")
def _pad(x, pad, value=0):
    pairs = [(0, 0, 0)] * (x.ndim - len(pad) // 2) + [(pad[k], pad[k + 1], 0) for k in range(len(pad) - 2, -1, -2)]
    return lax.pad(x, jnp.asarray(value, x.dtype), pairs)


# --- reductions -----------------------------------------------------------------------------------


def _axes(x, dim):
    if dim is None or dim == []:
        return None
    return tuple(d % max(x.ndim, 1) for d in ([dim] if isinstance(dim, int) else dim))


def _wide(x):
    """Halves are summed in float32, as ATen does."""
    return x.astype(jnp.float32) if x.dtype in (jnp.bfloat16, jnp.float16) else x


@op("sum.dim_IntList", "sum.default")
def _sum(x, dim=None, keepdim=False):
    return jnp.sum(_wide(x), _axes(x, dim), keepdims=keepdim)


@op("mean.dim", "mean.default")
def _mean(x, dim=None, keepdim=False):
    return jnp.mean(_wide(x), _axes(x, dim), keepdims=keepdim)


@op("var.correction")
def _var(x, dim=None, correction=1, keepdim=False):
    return jnp.var(_wide(x), _axes(x, dim), ddof=1 if correction is None else correction, keepdims=keepdim)


@op("var_mean.correction")
def _var_mean(x, dim=None, correction=1, keepdim=False):
    return _var(x, dim, correction, keepdim), _mean(x, dim, keepdim)


@op("amax.default")
def _amax(x, dim=(), keepdim=False):
    return jnp.max(x, _axes(x, list(dim)), keepdims=keepdim)


@op("amin.default")
def _amin(x, dim=(), keepdim=False):
    return jnp.min(x, _axes(x, list(dim)), keepdims=keepdim)


@op("any.default", "any.dim", "any.dims")
def _any(x, dim=None, keepdim=False):
    return jnp.any(x, _axes(x, dim), keepdims=keepdim)


@op("all.default", "all.dim")
def _all(x, dim=None, keepdim=False):
    return jnp.all(x, _axes(x, dim), keepdims=keepdim)


@op("argmax.default")
def _argmax(x, dim=None, keepdim=False):
    return jnp.argmax(x, dim, keepdims=keepdim)


@op("argmin.default")
def _argmin(x, dim=None, keepdim=False):
    return jnp.argmin(x, dim, keepdims=keepdim)


@op("max.dim")
def _max(x, dim, keepdim=False):
    return jnp.max(x, dim, keepdims=keepdim), jnp.argmax(x, dim, keepdims=keepdim)


@op("cumsum.default")
def _cumsum(x, dim):
    return jnp.cumsum(x, dim)


# --- contractions ---------------------------------------------------------------------------------


_many({"mm.default bmm.default matmul.default": jnp.matmul})


@op("addmm.default")
def _addmm(bias, x, y, beta=1, alpha=1):
    product = x @ y
    return (product if alpha == 1 else alpha * product) + (bias if beta == 1 else beta * bias)


@op("baddbmm.default")
def _baddbmm(bias, x, y, beta=1, alpha=1):
    return _addmm(bias, x, y, beta, alpha)


@op("linear.default")
def _linear(x, weight, bias=None):
    return x @ weight.T if bias is None else x @ weight.T + bias


@op("convolution.default")
def _convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    if transposed:
        raise NotExpressible("convolution.default, transposed")
    dims = x.ndim - 2
    spread = lambda values: list(values) * (dims if len(values) == 1 else 1)
    letters = "DHW"[3 - dims :]
    out = lax.conv_general_dilated(
        x, weight, spread(stride), [(p, p) for p in spread(padding)], rhs_dilation=spread(dilation),
        dimension_numbers=(f"NC{letters}", f"OI{letters}", f"NC{letters}"), feature_group_count=groups,
    )  # fmt: skip
    return out if bias is None else out + bias.reshape(1, -1, *[1] * dims)


@op("scaled_dot_product_attention.default", "_scaled_dot_product_flash_attention_for_cpu.default")
def _attention(q, k, v, *rest, **named):
    rest = list(rest)
    named.pop("enable_gqa", None)
    if rest and not isinstance(rest[0], (int, float, bool)):  # the composite operator has its mask in place 3
        named["attn_mask"] = rest.pop(0)
    dropout = rest.pop(0) if rest else named.pop("dropout_p", 0.0)
    causal = rest.pop(0) if rest else named.pop("is_causal", False)
    scale, mask = named.get("scale"), named.get("attn_mask")
    if dropout:
        raise NotExpressible("attention with dropout")
    scores = (q @ jnp.swapaxes(k, -1, -2)) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    scores = _wide(scores)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf) if mask.dtype == bool else scores + mask
    out = jax.nn.softmax(scores, -1).astype(v.dtype) @ v
    return out, None  # the log of the sums is the backward's; the composite operator's only result is picked by its meta data


# --- networks' own --------------------------------------------------------------------------------


@op("_softmax.default", "softmax.int")
def _softmax(x, dim, *_):
    return jax.nn.softmax(_wide(x), dim)


@op("_log_softmax.default", "log_softmax.int")
def _log_softmax(x, dim, *_):
    return jax.nn.log_softmax(_wide(x), dim)


def _affine(x, weight, bias):
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@op("native_layer_norm.default")
def _layer_norm(x, shape, weight, bias, eps):
    axes, wide = tuple(range(x.ndim - len(shape), x.ndim)), _wide(x)
    mean = jnp.mean(wide, axes, keepdims=True)
    rstd = lax.rsqrt(jnp.var(wide, axes, keepdims=True) + eps)
    return _affine((wide - mean) * rstd, weight, bias), mean, rstd


@op("native_group_norm.default")
def _group_norm(x, weight, bias, batch, channels, inner, groups, eps):
    wide = _wide(x).reshape(batch, groups, -1)
    mean = jnp.mean(wide, -1, keepdims=True)
    rstd = lax.rsqrt(jnp.var(wide, -1, keepdims=True) + eps)
    fit = lambda p: None if p is None else p.reshape(1, -1, *[1] * (x.ndim - 2))
    return _affine(((wide - mean) * rstd).reshape(x.shape), fit(weight), fit(bias)), mean[..., 0], rstd[..., 0]


@op("_native_batch_norm_legit_no_training.default")
def _batch_norm_eval(x, weight, bias, mean, var, momentum, eps):
    fit = lambda p: None if p is None else p.reshape(1, -1, *[1] * (x.ndim - 2))
    out = _affine((x - fit(mean)) * lax.rsqrt(fit(var) + eps), fit(weight), fit(bias))
    return out, jnp.zeros(0), jnp.zeros(0)


@op("_native_batch_norm_legit_functional.default")
def _batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps):
    if not training:
        return *_batch_norm_eval(x, weight, bias, running_mean, running_var, momentum, eps), running_mean, running_var
    axes = (0, *range(2, x.ndim))
    fit = lambda p: None if p is None else p.reshape(1, -1, *[1] * (x.ndim - 2))
    mean, var = jnp.mean(x, axes), jnp.var(x, axes)
    rstd, count = lax.rsqrt(var + eps), x.size / x.shape[1]
    out = _affine((x - fit(mean)) * fit(rstd), fit(weight), fit(bias))
    blend = lambda old, new: (1 - momentum) * old + momentum * new
    return out, mean, rstd, blend(running_mean, mean), blend(running_var, var * count / (count - 1))


@op("native_dropout.default")
def _dropout(x, p, train):
    if p and train:
        raise NotExpressible("native_dropout.default with p > 0")
    return x, jnp.ones(x.shape, bool)


@op("embedding.default")
def _embedding(table, ids, *_):
    return jnp.take(table, ids, axis=0)


@op("_embedding_bag.default", "_embedding_bag_forward_only.default", "embedding_bag.default")
def _embedding_bag(table, ids, offsets, scale_grad=False, mode=0, sparse=False, weights=None, last=False, padding=-1):
    if mode != 0 or weights is not None or padding != -1:
        raise NotExpressible("_embedding_bag.default but for plain sums")
    rows = jnp.take(table, ids, axis=0)
    if isinstance(offsets, jax.core.Tracer):
        bags = offsets.shape[0] - int(last)
        bag = jnp.searchsorted(offsets, jnp.arange(ids.shape[0]), side="right") - 1
        return jax.ops.segment_sum(rows, bag, bags), None, None, None
    starts = [int(at) for at in numpy.asarray(offsets)] + ([] if last else [ids.shape[0]])
    lengths = {b - a for a, b in zip(starts, starts[1:])}
    if len(lengths) == 1 and starts[0] == 0:  # bags of one length, as jax's users write them
        return rows.reshape(len(starts) - 1, lengths.pop(), -1).sum(1), None, None, None
    bag = numpy.repeat(numpy.arange(len(starts) - 1), numpy.diff(starts))
    return jax.ops.segment_sum(rows, bag, len(starts) - 1), None, None, None


def _windows(x, kernel, stride, padding, dilation=(1, 1), ceil=False):
    kernel, padding, dilation = (tuple(v) * (2 // len(v)) for v in (kernel, padding or [0], dilation))
    stride = tuple(stride) * (2 // len(stride)) if stride else kernel
    pads = []
    for size, k, s, p, d in zip(x.shape[-2:], kernel, stride, padding, dilation):
        reach = d * (k - 1) + 1
        out = (size + 2 * p - reach + (s - 1 if ceil else 0)) // s + 1
        out -= ceil and (out - 1) * s >= size + p
        pads.append((p, max(p, (out - 1) * s + reach - size - p)))
    ones = (1,) * (x.ndim - 2)
    return (*ones, *kernel), (*ones, *stride), [(0, 0)] * len(ones) + pads, (*ones, *dilation)


@op("max_pool2d_with_indices.default", "max_pool2d.default")
def _max_pool(x, kernel, stride=(), padding=(0,), dilation=(1,), ceil=False):
    window, strides, pads, dilation = _windows(x, kernel, stride, padding, dilation, ceil)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, pads, window_dilation=dilation), None


@op("avg_pool2d.default")
def _avg_pool(x, kernel, stride=(), padding=(0,), ceil=False, count_pad=True, divisor=None):
    window, strides, pads, _ = _windows(x, kernel, stride, padding, ceil=ceil)
    sums = lax.reduce_window(_wide(x), 0.0, lax.add, window, strides, pads)
    if divisor or (count_pad and not ceil):
        return sums / (divisor or math.prod(window))
    if count_pad:
        raise NotExpressible("avg_pool2d.default with ceil_mode and padding counted")
    return sums / lax.reduce_window(jnp.ones(x.shape, sums.dtype), 0.0, lax.add, window, strides, pads)


@op("_adaptive_avg_pool2d.default", "adaptive_avg_pool2d.default")
def _adaptive_avg_pool(x, size):
    if any(have % want for have, want in zip(x.shape[-2:], size)):
        raise NotExpressible("_adaptive_avg_pool2d.default of sizes that don't divide")
    (h, w), (oh, ow) = x.shape[-2:], size
    return _wide(x).reshape(*x.shape[:-2], oh, h // oh, ow, w // ow).mean((-3, -1))


@op("upsample_bilinear2d.vec")
def _bilinear(x, size, align_corners, factors):
    size = size or [int(n * f) for n, f in zip(x.shape[-2:], factors)]
    if align_corners or (factors and any(int(n * f) != n * f for n, f in zip(x.shape[-2:], factors))):
        raise NotExpressible("upsample_bilinear2d.vec but for whole sizes and align_corners=False")
    return jax.image.resize(x, (*x.shape[:-2], *size), "bilinear", antialias=False)


@op("nll_loss_forward.default", "nll_loss_nd.default")
def _nll_loss(logs, target, weight=None, reduction=1, ignore=-100):
    if weight is not None:
        raise NotExpressible("nll_loss_forward.default with weights")
    kept = target != ignore
    picked = -jnp.take_along_axis(logs, jnp.where(kept, target, 0)[:, None], 1)[:, 0] * kept
    count = kept.sum().astype(logs.dtype)
    return {0: picked, 1: picked.sum() / count, 2: picked.sum()}[reduction], count


# --- indexing -------------------------------------------------------------------------------------


def _places(indices):
    return tuple(slice(None) if index is None else index for index in indices)


@op("index.Tensor")
def _index(x, indices):
    return x[_places(indices)]


@op("index_put.default", "_unsafe_index_put.default")
def _index_put(x, indices, values, accumulate=False):
    at = x.at[_places(indices)]
    return at.add(values) if accumulate else at.set(values)


@op("_unsafe_index.Tensor")
def _unsafe_index(x, indices):
    return x[_places(indices)]


@op("index_select.default")
def _index_select(x, dim, index):
    return jnp.take(x, index, axis=dim)


@op("index_add.default")
def _index_add(x, dim, index, source, alpha=1):
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)].add(source * alpha)


@op("index_copy.default")
def _index_copy(x, dim, index, source):
    return x.at[(slice(None),) * (dim % x.ndim) + (index,)].set(source)


def _along(x, dim, index):
    grid = list(jnp.ogrid[tuple(slice(0, n) for n in index.shape)])
    grid[dim] = index
    return tuple(grid)


@op("gather.default")
def _gather(x, dim, index):
    if not x.ndim:
        return x
    kept = tuple(slice(None) if k == dim % x.ndim else slice(0, n) for k, n in enumerate(index.shape))
    return jnp.take_along_axis(x[kept], index, dim)


@op("scatter.src", "scatter.value")
def _scatter(x, dim, index, source):
    if not isinstance(source, (int, float)):
        source = source[tuple(slice(0, n) for n in index.shape)]
    return x.at[_along(x, dim, index)].set(source)


@op("scatter_add.default")
def _scatter_add(x, dim, index, source):
    return x.at[_along(x, dim, index)].add(source[tuple(slice(0, n) for n in index.shape)])


@op("topk.default")
def _topk(x, k, dim=-1, largest=True, sorted=True):
    moved = jnp.moveaxis(x, dim, -1)
    values, places = lax.top_k(moved if largest else -moved, k)
    return jnp.moveaxis(values if largest else -values, -1, dim), jnp.moveaxis(places, -1, dim)


@op("sort.default", "sort.stable")
def _sort(x, *args, used=(0, 1), **named):
    args = [a for a in args if not isinstance(a, bool)] + [a for a in args if isinstance(a, bool)]
    dim = named.get("dim", next((a for a in args if not isinstance(a, bool)), -1))
    descending = named.get("descending", args[-1] if args and isinstance(args[-1], bool) else False)
    if set(used) <= {0}:
        values = lax.sort(x, dimension=dim % x.ndim)
        return (jnp.flip(values, dim) if descending else values), None
    places = jnp.argsort(x, axis=dim, stable=True, descending=descending)
    return (jnp.take_along_axis(x, places, dim) if 0 in used else None), places


NEEDS_USED = {"sort.default", "sort.stable"}
_FROM_META = {name: 0 for name, function in OPS.items() if function is _zeros}
_FROM_META |= {name: 1 for name, function in OPS.items() if function is _ones}
_DROPPED = ("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "implicit")


# --- the interpreter ------------------------------------------------------------------------------


def overload(node) -> str:
    return str(node.target).removeprefix("aten.")


def missing(graph) -> list[str]:
    """Operators of the graph that the table hasn't got."""
    calls = [n for n in graph.nodes if n.op == "call_function" and n.target is not operator.getitem]
    return sorted({overload(n) for n in calls if overload(n) not in OPS and not _is_check(n)})


def _is_check(node) -> bool:
    return overload(node).startswith(("_assert", "sym_constrain", "sym_size"))


def run(graph, operands: list) -> list:
    """The graph's outputs for its placeholders' values, in their order; under jax.jit, or at once."""
    values, rest = {}, iter(operands)
    for node in graph.nodes:
        if node.op == "placeholder":
            values[node] = next(rest)
        elif node.op == "output":
            return [values[v] if isinstance(v, torch.fx.Node) else v for v in node.args[0]]
        elif node.op != "call_function":
            raise NotExpressible(f"a node {node.op}")
        elif node.target is operator.getitem:
            values[node] = values[node.args[0]][node.args[1]]
        elif not _is_check(node):
            args, named = torch.fx.node.map_arg(_by_place(node), values.__getitem__)
            values[node] = _call(node, list(args), dict(named))
    raise AssertionError("a graph without an output")


def _by_place(node) -> tuple[tuple, dict]:
    """Arguments by place where the schema has one for them; what has to be said by name stays so."""
    args, named = list(node.args), dict(node.kwargs)
    for argument in node.target._schema.arguments[len(args) :]:
        if argument.kwarg_only or not set(named) & {a.name for a in node.target._schema.arguments if not a.kwarg_only}:
            break
        args.append(named.pop(argument.name, argument.default_value))
    return tuple(args), named


def _call(node, args: list, named: dict):
    name, meta = overload(node), node.meta.get("val")
    if name not in OPS:
        raise NotExpressible(name)
    if name in _FROM_META:
        return jnp.full(meta.shape, _FROM_META[name], DTYPES[meta.dtype])
    named = {key: value for key, value in named.items() if key not in _DROPPED}
    if name in NEEDS_USED:
        named["used"] = [user.args[1] for user in node.users if user.target is operator.getitem]
    if name in ARITHMETIC:
        args = [a.astype(DTYPES[meta.dtype]) if hasattr(a, "astype") else a for a in args]
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves((args, named)))
    call = functools.partial(OPS[name], *args, **named)
    if traced:
        return _as_meta(call(), meta)
    with jax.ensure_compile_time_eval():
        return _as_meta(call(), meta)


def _as_meta(result, meta):
    if isinstance(meta, torch.Tensor):
        result = result[0] if isinstance(result, tuple) else result
        return jnp.asarray(result).astype(DTYPES[meta.dtype])
    return [value if value is None else _as_meta(value, m) for value, m in zip(result, meta)]
