"""Calls of ATen overloads by hand, in any dtype: scalars, dtypes and arguments that PyTorch's samples don't have, and overloads
that eager's own dispatch doesn't reach (AOTAutograd's decompositions make them)."""

import torch

from plugin.aten_calls import table_rows


def direct_calls(dtype):
    """Runs them, for a recorder."""
    if dtype.is_floating_point:
        _special_values(dtype)
        _attention(dtype)
    _in_any_dtype(dtype)


def _call(name, *args, **kwargs):
    packet, overload = name.split(".")
    op = getattr(getattr(torch.ops.aten, packet), overload, None)
    if op is None or not _fits(op._schema, args, kwargs):
        return  # what follows would print the arguments into its message: dear
    try:
        op(*args, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        pass  # eager refuses it in this dtype


def _fits(schema, args, kwargs) -> bool:
    places = [a for a in schema.arguments if not a.kwarg_only]
    if len(args) > len(places):
        return False
    for place, value in zip(places, args):
        kind = str(place.type)
        if isinstance(value, torch.Tensor) != ("Tensor" in kind and "List" not in kind) and value is not None:
            return False
    return all(a.has_default_value() or a.name in kwargs for a in schema.arguments[len(args):])


def _unary_rows():
    """What may take one tensor and nothing else."""
    names = [row.removeprefix("aten.") for row in table_rows() if row.startswith("aten.") and row.endswith(".default")]
    return [name for name in names if name != "_neg_view.default"]  # of bool: eager makes it and can't read it


def _maker(dtype):
    g = torch.Generator().manual_seed(0)

    def t(*shape, low=-4, high=5):
        shape = () if shape == ((),) else shape
        if dtype.is_floating_point:
            return torch.randn(shape, generator=g).to(dtype)
        if dtype.is_complex:
            return torch.complex(torch.randn(shape, generator=g), torch.randn(shape, generator=g)).to(dtype)
        if dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=g).bool()
        return torch.randint(low, high, shape, generator=g).to(dtype)

    return t, g


def _attention(dtype):
    """Masks of either type that it takes, causal ones, scales, lengths that differ, shared keys; rows that are masked as a whole."""
    t, g = _maker(dtype)
    mask = torch.randn(5, 7, generator=g)
    mask[1] = mask[2, :4] = float("-inf")
    column = mask[None, None, :, :1].to(dtype)
    for heads, masks in ((3, {"attn_mask": mask}), (3, {"attn_mask": column, "scale": 0.5}), (6, {"scale": 2.0}), (3, {})):
        q, k, v = t(2, 5, heads, 8).transpose(1, 2), t(2, 3, 7, 8), t(2, 3, 7, 8)
        for causal in (False, True):
            _call("_scaled_dot_product_flash_attention_for_cpu.default", q, k, v, 0.0, causal, **masks)
            try:
                out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, **masks)
            except RuntimeError:
                continue  # of eight bits
            gradient = t(2, heads, 5, 8)
            _call("_scaled_dot_product_flash_attention_for_cpu_backward.default", gradient, q, k, v, out, sums, 0.0, causal, **masks)


def _in_any_dtype(dtype):
    fl, cx, call, A = dtype.is_floating_point, dtype.is_complex, _call, torch.ops.aten
    t, g = _maker(dtype)
    x, y, z = t(2, 3, 4), t(3, 1), t(())
    cl = t(2, 3, 4, 5).to(memory_format=torch.channels_last)
    variants = [x, x.transpose(0, 2), x[:, ::2], t(1, 3, 1).expand(2, 3, 4), t(0, 3), z, cl, t(3, 5)[1:, 1:4]]
    for name in ("add", "sub", "rsub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod", "pow",
                 "bitwise_and", "bitwise_or", "bitwise_xor", "copysign", "floor_divide", "__lshift__", "__rshift__",
                 "bitwise_left_shift", "bitwise_right_shift", "clamp_min", "clamp_max", "atan2", "maximum", "minimum"):
        scalars = [2, 1, -3, True] + ([0.5, -1.75, 0.1, float("inf")] if name not in ("__lshift__", "__rshift__") else [])
        for v in variants:
            for s in scalars:
                for overload in ("Scalar", "default", "Tensor", "Tensor_Scalar"):
                    call(f"{name}.{overload}", v, s)
                call(f"{name}.Scalar_Tensor", s, v)
                if name == "pow":
                    call("pow.Scalar", s, v)
            for w in (x, y, z, torch.tensor(2.5), torch.tensor(3), torch.tensor([1, 2, 3, 4])):
                for overload in ("Tensor", "default", "Tensor_Tensor"):
                    call(f"{name}.{overload}", v, w)
            if name in ("add", "sub", "rsub"):
                call(f"{name}.Tensor", v, y, alpha=2)
                call(f"{name}.Scalar", v, 3, 2)
    for mode in (None, "floor", "trunc"):
        for v in variants:
            call("div.Tensor_mode", v, t(3, 1, low=1), rounding_mode=mode)
            call("div.Scalar_mode", v, 2, rounding_mode=mode)
            call("div.Scalar_mode", v, -0.7, rounding_mode=mode)
    for row in _unary_rows():
        for v in variants:
            call(row, v)
    for v in variants:
        mask = torch.rand(v.shape, generator=g) > 0.5
        for s in (1, 0.5, False):
            call("where.ScalarSelf", mask, s, v)
            call("where.ScalarOther", mask, v, s)
            call("where.Scalar", mask, s, 2)
            call("masked_fill.Scalar", v, mask, s)
        call("where.self", mask, v, z)
        call("masked_fill.Tensor", v, mask, z)
        call("clamp.default", v, -1, 2)
        call("clamp.default", v, None, 0.5)
        call("clamp.Tensor", v, z, None)
        call("view.default", v.contiguous(), [-1])
        call("reshape.default", v, [-1])
        call("alias.default", v)
        call("detach.default", v)
        call("lift_fresh_copy.default", v)
        call("lift.default", v)
        call("copy.default", torch.zeros(v.shape, dtype=torch.float32), v)
        call("clone.default", v)
        call("clone.default", v, memory_format=torch.contiguous_format)
        call("contiguous.default", v)
        call("squeeze.dims", v, [0])
        call("squeeze.default", v)
        call("squeeze.dim", v, 0)
        call("flip.default", v, [0] if v.dim() else [])
        call("new_full.default", v, [2, 2], 3)
        call("full_like.default", v, 2)
        call("zeros_like.default", v)
        call("zero.default", v)
        call("fill.Scalar", v, 2)
        call("fill.Tensor", v, torch.tensor(1))
        call("lift_fresh.default", v)
        call("ones_like.default", v)
        call("new_zeros.default", v, [3])
        call("new_ones.default", v, [3])
        call("view.dtype", v, torch.int32)
        call("square.default", v)
        for name in ("any", "all"):
            call(f"{name}.default", v)
            call(f"{name}.dims", v, [0] if v.dim() else [])
        for to in (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.int32, torch.float64, torch.uint8):
            call("_to_copy.default", v, dtype=to)
        for n in (0, 1, -1):
            if v.dim() >= 2:
                call("tril.default", v, n)
                call("triu.default", v, n)
    call("as_strided.default", t(4, 5), [2, 3], [5, 1], 1)
    call("as_strided.default", t(4, 5), [3, 4], [1, 5], 0)
    call("as_strided.default", t(20), [4, 3], [2, 1], 2)
    call("as_strided.default", t(4, 6).t(), [2, 2, 3], [12, 3, 1])
    call("as_strided.default", t(4, 5)[1:], [2, 3], [5, 1])
    call("as_strided.default", t(4, 5), [3, 4], [0, 1])
    call("unfold.default", t(7, 4), 0, 3, 2)
    call("slice_scatter.default", t(5, 4), t(2, 4), 0, 1, 5, 2)
    call("slice_scatter.default", t(5, 4), t(5, 2), 1, 1, 3, 1)
    call("select_scatter.default", t(5, 4), t(4), 0, -1)
    call("constant_pad_nd.default", t(3, 4), [1, 2, -1, 1], 1)
    call("constant_pad_nd.default", t(3, 4), [1, 0])
    for kind in ("reflection_pad", "replication_pad"):
        call(f"{kind}1d.default", t(2, 5), [2, 1])
        call(f"{kind}2d.default", t(2, 4, 5), [2, 1, 1, 3])
        call(f"{kind}3d.default", t(2, 3, 4, 5), [2, 1, 1, 3, 1, 2])
    call("repeat.default", t(2, 3), [2, 1, 3])
    call("roll.default", t(4, 5), [1, -2], [0, 1])
    call("cat.default", [t(2, 3), t(0), t(4, 3)], 0)
    call("cat.default", [t(2, 3), torch.ones(2, 2)], 1)
    call("stack.default", [t(2, 3), t(2, 3)], -1)
    call("split.Tensor", t(7, 2), 3, 0)
    call("split_with_sizes.default", t(7, 2), [3, 4], 0)
    call("unbind.int", t(3, 4), 1)
    call("diagonal.default", t(3, 5, 4), 1, 0, 2)
    for start, end, step in ((0, 7, 1), (3, 10, 2), (5, -4, -2)):
        call("arange.start_step", start, end, step, dtype=None if dtype == torch.bool else dtype)
    call("arange.start_step", 0, 1, 0.1, dtype=torch.float32)
    call("arange.start", 2, 9)
    call("arange.default", 5)
    call("full.default", [2, 3], 7, dtype=dtype)
    call("full.default", [2, 3], 0.1)
    call("scalar_tensor.default", 2.5, dtype=dtype)
    call("zeros.default", [3], dtype=dtype)
    call("ones.default", [3], dtype=dtype)
    call("eye.default", 3, dtype=dtype)
    call("eye.m", 3, 5, dtype=dtype)
    call("linspace.default", -1.0, 2.0, 9, dtype=dtype)
    for e in ("empty.memory_format", ):
        call(e, [2, 3], dtype=dtype)
    call("empty_permuted.default", [2, 3], [1, 0], dtype=dtype)
    call("empty_strided.default", [2, 3], [1, 2], dtype=dtype)
    call("new_empty.default", x, [3])
    call("new_empty_strided.default", x, [2, 3], [1, 2])
    call("empty_like.default", x)
    i = torch.tensor([[0, 2], [1, -1]])
    call("index.Tensor", t(3, 4), [i])
    call("index.Tensor", t(3, 4, 5), [None, i])
    call("index.Tensor", t(3, 4, 5), [i, None, torch.tensor([1, 2])])
    call("index.Tensor", t(3, 4, 5), [None, i, torch.tensor([[1], [2]])])
    call("_unsafe_index.Tensor", t(3, 4, 5), [None, i])
    call("index_put.default", t(3, 4), [torch.tensor([0, 2])], t(2, 4))
    call("index_put.default", t(3, 4), [torch.tensor([0, 0])], t(4), True)
    call("index_put.default", t(3, 4, 5), [None, torch.tensor([3, 1]), torch.tensor([0, 4])], t(3, 2))
    call("index_put.default", t(3, 4), [torch.rand(3, 4, generator=g) > 0.5], t(()))
    call("_unsafe_index_put.default", t(3, 4), [torch.tensor([0, 2])], t(2, 4))
    mask, j = torch.tensor([[True, False], [True, True]]), torch.tensor([[0, 7], [2, -1]])
    call("_unsafe_masked_index.default", t(3, 4), mask, [j, None], 2)
    call("_unsafe_masked_index.default", t(3, 4), mask, [j, torch.tensor([[9, 1], [0, 3]])], 0)
    call("_unsafe_masked_index_put_accumulate.default", t(3, 4), mask, [j, torch.tensor([[9, 1], [0, 3]])], t(2, 2))
    call("_unsafe_masked_index_put_accumulate.default", t(3, 4), mask[..., None], [j], t(2, 2, 4))
    call("pixel_unshuffle.default", t(2, 3, 4, 6), 2)
    call("pixel_shuffle.default", t(2, 8, 2, 3), 2)
    call("embedding.default", t(10, 4), torch.tensor([[1, 2], [9, 0]]))
    call("index_select.default", t(3, 4), 1, torch.tensor([3, 0]))
    call("gather.default", t(3, 4), 1, torch.tensor([[3, 0], [1, 1]]))
    call("scatter.src", t(3, 4), 0, torch.tensor([[2, 0, 1]]), t(2, 4))
    call("scatter.value", t(3, 4), 1, torch.tensor([[2], [0]]), 1)
    call("scatter_add.default", t(3, 4), 0, torch.tensor([[2, 0, 1], [2, 2, 2]]), t(2, 4))
    for r in ("sum", "prod", "amax", "amin"):
        call("scatter_reduce.two", t(5), 0, torch.tensor([0, 1, 1, 4]), t(4), r)
    call("index_add.default", t(3, 4), 1, torch.tensor([1, 1, 3]), t(3, 3), alpha=2)
    call("index_copy.default", t(3, 4), 1, torch.tensor([1, 3]), t(3, 2))
    if not (fl or cx):
        return
    call("mm.default", t(3, 4), t(4, 5))
    call("bmm.default", t(2, 3, 4), t(2, 4, 5))
    for beta, alpha in ((1, 1), (0.5, 2), (0, 1)):
        call("addmm.default", t(5), t(3, 4), t(4, 5), beta=beta, alpha=alpha)
        call("baddbmm.default", t(2, 1, 5), t(2, 3, 4), t(2, 4, 5), beta=beta, alpha=alpha)
        call("addmv.default", t(3), t(3, 4), t(4), beta=beta, alpha=alpha)
    call("mv.default", t(3, 4), t(4))
    call("dot.default", t(4), t(4))
    call("vdot.default", t(4), t(4))
    if cx:
        return
    n, w, b = t(2, 6, 4, 3), t(6), t(6)
    m, v = torch.randn(6, generator=g), torch.rand(6, generator=g) + 0.5
    for weight, bias in ((w, b), (None, None)):
        call("_native_batch_norm_legit_no_training.default", n, weight, bias, m.to(dtype), v.to(dtype), 0.1, 1e-5)
        call("native_batch_norm.default", n, weight, bias, m.to(dtype), v.to(dtype), False, 0.1, 1e-5)
        call("_native_batch_norm_legit.no_stats", n, weight, bias, True, 0.1, 1e-5)
        call("_native_batch_norm_legit_functional.default", n, weight, bias, m.to(dtype), v.to(dtype), True, 0.1, 1e-5)
        call("native_layer_norm.default", n, [4, 3], None if weight is None else t(4, 3), None if bias is None else t(4, 3), 1e-5)
        call("native_group_norm.default", n, weight, bias, 2, 6, 12, 3, 1e-5)
        y0, mean, rstd = A.native_layer_norm.default(n, [4, 3], None if weight is None else t(4, 3), None, 1e-5)
        call("native_layer_norm_backward.default", t(2, 6, 4, 3), n, [4, 3], mean, rstd, None if weight is None else t(4, 3),
             None if bias is None else t(4, 3), [True, weight is not None, bias is not None])
        y0, mean, rstd = A.native_group_norm.default(n, weight, bias, 2, 6, 12, 3, 1e-5)
        call("native_group_norm_backward.default", t(2, 6, 4, 3), n, mean, rstd, weight, 2, 6, 12, 3,
             [True, weight is not None, weight is not None])
        call("native_batch_norm_backward.default", t(2, 6, 4, 3), n, weight, m.to(dtype), v.to(dtype), m.to(dtype), v.to(dtype), True,
             1e-5, [True, weight is not None, weight is not None])
        call("native_batch_norm_backward.default", t(2, 6, 4, 3), n, weight, m.to(dtype), v.to(dtype), None, None, False, 1e-5,
             [True, weight is not None, weight is not None])
    call("_native_batch_norm_legit_no_training.default", n, w, b, m, v, 0.1, 1e-5)
    for d in (0, 1, -1):
        call("_softmax.default", n, d, False)
        call("_log_softmax.default", n, d, False)
        call("_softmax_backward_data.default", t(3, 4), torch.softmax(t(3, 4), d % 2), d % 2, dtype)
        call("_log_softmax_backward_data.default", t(3, 4), torch.log_softmax(t(3, 4), d % 2), d % 2, dtype)
    call("embedding_dense_backward.default", t(2, 3, 4), torch.tensor([[1, 2, 1], [9, 0, 0]]), 10, 2, False)
    for reduction in (0, 1, 2):
        target, weight = torch.tensor([0, 3, 2]), t(5).abs()
        for ww in (None, weight):
            for ignore in (-100, 2):
                call("nll_loss_forward.default", t(3, 5), target, ww, reduction, ignore)
                grad = t(3) if reduction == 0 else t(())
                call("nll_loss_backward.default", grad, t(3, 5), target, ww, reduction, ignore, torch.tensor(2.0).to(dtype))
                places = torch.tensor([[0, 3, 2], [4, 2, 1]]).expand(2, 2, 3)
                call("nll_loss2d_forward.default", t(2, 5, 2, 3), places, ww, reduction, ignore)
                grad = t(2, 2, 3) if reduction == 0 else t(())
                call("nll_loss2d_backward.default", grad, t(2, 5, 2, 3), places, ww, reduction, ignore, torch.tensor(2.0).to(dtype))
    image = t(2, 3, 8, 6)
    for ceil in (False, True):
        call("max_pool2d_with_indices.default", image, [3, 2], [2, 2], [1, 0], [1, 1], ceil)
        call("avg_pool2d.default", image, [3, 2], [2, 2], [1, 0], ceil, True, None)
        call("avg_pool2d.default", image, [3, 3], [2, 2], [1, 1], ceil, False, None)
        call("avg_pool2d.default", image.to(memory_format=torch.channels_last), [2, 2], [], 0, ceil, True, 3)
    call("_adaptive_avg_pool2d.default", image, [1, 1])
    call("_adaptive_avg_pool2d.default", image, [4, 3])
    call("_adaptive_avg_pool3d.default", t(2, 3, 4, 4, 2), [1, 2, 1])
    for size, scale in (([16, 12], None), ([11, 6], None), ([16, 12], 2.0), ([4, 3], 0.5)):
        call("upsample_nearest2d.default", image, size, scale, scale)
        for align in (False, True):
            call("upsample_bilinear2d.default", image, size, align, scale, scale)
    call("upsample_nearest1d.default", t(2, 3, 5), [8], None)
    call("upsample_linear1d.default", t(2, 3, 5), [8], False, None)
    call("upsample_nearest3d.default", t(1, 2, 3, 2, 2), [6, 4, 2], None, None, None)
    for name in ("hardtanh", "hardsigmoid", "hardswish", "leaky_relu", "elu", "softplus", "gelu", "silu", "tanh", "sigmoid",
                 "threshold", "mish", "log_sigmoid"):
        p = {"hardtanh": (-1, 1), "leaky_relu": (0.1, False), "softplus": (1, 20), "threshold": (0.1,)}.get(name, ())
        v = t(40)
        if name == "elu":
            call("elu_backward.default", t(40), 1.0, 1.0, 1.0, False, v)
            call("elu_backward.default", t(40), 1.0, 1.0, 1.0, True, torch.nn.functional.elu(v))
        elif name == "log_sigmoid":
            call("log_sigmoid_backward.default", t(40), v, torch.exp(-v.abs()))
        else:
            call(f"{name}_backward.default", t(40), v, *p)
    call("gelu.default", t(40), approximate="tanh")
    call("gelu_backward.default", t(40), t(40), approximate="tanh")
    call("hardtanh.default", t(40), 0.0, 6.0)
    for ord in (2, 1, 0, 3, float("inf"), -float("inf")):
        call("linalg_vector_norm.default", t(3, 4), ord, [1], True)
    for c in (0, 1, 2):
        for name in ("var", "std", "var_mean", "std_mean"):
            call(f"{name}.correction", t(3, 4, 5), [0, 2], correction=c, keepdim=c == 1)


def _special_values(dtype):
    call = _call
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 0.5, 2.5, -2.5, 1e-30, 30.0]).to(dtype)
    for row in _unary_rows():
        if row != "gelu.default":  # eager gives NaN for inf on some machines
            call(row, special)
    for s in (0, 1, 2.5):
        call("xlogy.Scalar_Other", special, s)
        call("xlogy.Scalar_Self", s, special)
    for name in ("fmax", "fmin", "maximum", "minimum", "remainder", "fmod", "atan2", "hypot", "floor_divide", "pow", "xlogy",
                 "logaddexp", "copysign", "div", "eq", "lt", "ge"):
        for overload in ("Tensor", "default", "Tensor_Tensor"):
            call(f"{name}.{overload}", special[:, None], special[None, :])
    for mode in ("floor", "trunc"):
        call("div.Tensor_mode", special[:, None], special[None, :], rounding_mode=mode)
    for name in ("amax", "amin", "argmax", "argmin", "max", "min"):
        call(f"{name}.default", torch.stack([special, special.flip(0)]))
        call(f"{name}.dim", torch.stack([special, special.flip(0)]), 1)
        call(f"{name}.default", torch.stack([special, special.flip(0)]), 1)
    for e in (2, 3, -1, -2, 0.5, -0.5, 0, 1, 1.7):
        call("pow.Tensor_Scalar", special, e)
