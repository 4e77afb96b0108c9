"""Samples for overloads that graphs contain and no OpInfo dispatches."""

import torch

from plugin.aten_calls import Call


def calls_of(*overloads_and_args) -> dict[str, list[Call]]:
    calls: dict[str, list[Call]] = {}
    for overload, *args in overloads_and_args:
        calls.setdefault(str(overload), []).append(Call(overload, tuple(args), {}, "by hand"))
    return calls


def by_hand() -> dict[str, list[Call]]:
    found = calls_of(*_scalars(), *_movement(), *_networks(), *_windows(), *_bags(), *_special(), *_complex(), *_primitives())
    divide = torch.ops.aten.div.Scalar_mode
    arguments = (torch.randn(3, 4), 0.3), {"rounding_mode": "floor"}
    found[str(divide)] = [Call(divide, *arguments, "by hand")]
    shift = torch.tensor([0, 1, 5])
    for name in ("lshift", "rshift"):
        packet = getattr(torch.ops.aten, f"__{name}__")
        found |= calls_of((packet.Scalar, shift + 8, 2), (packet.Tensor, shift + 8, shift))
    return found


def _scalars():
    aten = torch.ops.aten
    x, i = torch.randn(3, 4), torch.tensor([[4, -7, 9], [1, 2, 3]])
    yield aten.floor_divide.Scalar, i, 2
    yield aten.true_divide.Tensor, i, x[:1, :3].contiguous()
    yield aten.remainder.Scalar_Tensor, 7, torch.tensor([2, -3, 4])
    yield aten.fmod.Scalar, x, 0.3
    yield aten.xlogy.Scalar_Other, x.abs(), 2.5
    yield aten.xlogy.Scalar_Self, 2.5, x.abs()
    yield aten.copysign.Scalar, x, -1.0
    yield aten.clamp_max.default, x, 0.5
    edges = torch.tensor([-1.0, 0.5, 0.5, 2.0])
    for value in (0.5, 2, -3.0):
        for table in (edges, i.flatten().sort()[0], edges.bfloat16()):
            yield aten.searchsorted.Scalar, table, value
            yield aten.bucketize.Scalar, value, table
    for name in ("and", "or", "xor"):
        packet = getattr(aten, f"bitwise_{name}")
        yield packet.Scalar, i, 6
        if hasattr(packet, "Scalar_Tensor"):
            yield packet.Scalar_Tensor, 6, i
    for name in ("left", "right"):
        packet = getattr(aten, f"bitwise_{name}_shift")
        yield packet.Tensor_Scalar, i.abs(), 2
        yield packet.Scalar_Tensor, 100, i.abs()


def _movement():
    aten, x = torch.ops.aten, torch.randn(3, 4)
    yield aten.lift.default, x
    yield aten.lift_fresh_copy.default, x
    yield aten.view.dtype, x, torch.int32
    yield aten.copy.default, x, torch.randn(4).bfloat16()
    yield aten._unsafe_view.default, x, [4, 3]
    yield aten.fill.Tensor, x, torch.tensor(2.5)
    yield aten.fill.Tensor, x.bfloat16(), torch.tensor(0.3)
    yield aten.detach.default, x
    yield aten.alias.default, x
    cube = torch.randn(2, 3, 4, 5)
    yield aten.reflection_pad3d.default, cube, [1, 2, 1, 1, 0, 1]
    yield aten.replication_pad3d.default, cube, [1, 2, 1, 1, 0, 1]
    yield aten.upsample_nearest3d.default, cube[None], [6, 8, 10]
    rows, columns = torch.tensor([2, 0]), torch.tensor([1, 3])
    yield aten._unsafe_index.Tensor, x, [rows, columns]
    yield aten._unsafe_index.Tensor, x, [None, columns]
    yield aten._unsafe_index_put.default, x, [rows, columns], torch.randn(2)
    yield aten.rand_like.default, x
    yield aten.randperm.default, 7


def _networks():
    aten, x = torch.ops.aten, torch.randn(3, 4)
    yield aten.native_dropout.default, x, 0.4, True
    yield aten._softmax_backward_data.default, x, x.softmax(1), 1, torch.float32
    yield aten._log_softmax_backward_data.default, x, x.log_softmax(1), 1, torch.float32
    matrix, vector = torch.randn(20, 8).bfloat16(), torch.randn(8).bfloat16()
    yield aten.addmv.default, -(matrix.float() @ vector.float()).bfloat16(), matrix, vector  # cancels: rounded once
    image, channels = torch.randn(2, 4, 5, 5), torch.rand(4) + 0.5
    norm = (channels, channels, channels, channels)
    yield aten._native_batch_norm_legit_no_training.default, image, *norm, 0.1, 1e-5
    yield aten._native_batch_norm_legit.no_stats, image, channels, channels, True, 0.1, 1e-5
    for dim, sizes in ((0, (4, 1, 1)), (2, (1, 1, 5))):
        direction, length = torch.randn(4, 3, 5), torch.rand(sizes) + 0.5
        yield aten._weight_norm_interface.default, direction, length, dim
        norms = aten._weight_norm_interface(direction, length, dim)[1]
        yield aten._weight_norm_interface_backward.default, torch.randn(4, 3, 5), direction, length, norms, dim
    q, k, v = (torch.randn(2, 3, 8, 16) for _ in range(3))
    yield aten._scaled_dot_product_flash_attention_for_cpu.default, q, k, v
    out, largest = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    yield backward, torch.randn(2, 3, 8, 16), q, k, v, out, largest, 0.0, False


def _windows():
    """Windows of more than 64 elements, ties and NaN, and backwards that no OpInfo reaches."""
    aten = torch.ops.aten
    image = (torch.randn(2, 3, 25, 23) * 2).round()  # many equal maxima
    image[0, 0, 5, 5] = image[0, 0, 12, 3] = float("nan")
    pooled, at = aten.max_pool2d_with_indices(image, [9, 8], [3, 2], [2, 3], [1, 2], True)
    yield aten.max_pool2d_with_indices.default, image, [9, 8], [3, 2], [2, 3], [1, 2], True
    grad = torch.randn(pooled.shape)
    yield aten.max_pool2d_with_indices_backward.default, grad, image, [9, 8], [3, 2], [2, 3], [1, 2], True, at
    yield aten.adaptive_max_pool2d.default, image, [2, 3]
    yield aten.adaptive_max_pool2d.default, torch.randn(2, 20, 30), [2, 3]
    yield aten._adaptive_avg_pool2d.default, torch.randn(1, 2, 150, 7), [70, 3]
    yield aten._adaptive_avg_pool2d_backward.default, torch.randn(1, 2, 70, 3), torch.randn(1, 2, 150, 7)
    square = torch.randn(2, 3, 25, 25)
    yield aten.avg_pool2d_backward.default, torch.randn(2, 3, 16, 16), square, [10, 10], [1, 1], [0, 0], False, True, None
    yield aten.unfold.default, torch.randn(3, 200), 1, 70, 5
    cube = torch.randn(2, 3, 4, 5)
    grown = torch.randn(2, 4, 6, 8)
    yield aten.reflection_pad3d_backward.default, grown, cube, [1, 2, 1, 1, 0, 1]
    yield aten.reflection_pad2d_backward.default, torch.randn(3, 6, 8), cube[0], [1, 2, 1, 1]
    yield aten.replication_pad3d_backward.default, grown, cube, [1, 2, 1, 1, 0, 1]
    yield aten.replication_pad2d_backward.default, torch.randn(2, 3, 3), torch.randn(2, 4, 5), [-1, -1, 0, -1]
    flat = torch.randn(2, 3, 7, 6)
    for out in ([3, 4], [15, 6], [9, 20]):
        yield aten._upsample_bicubic2d_aa.default, flat, out, False
        yield aten._upsample_bicubic2d_aa_backward.default, torch.randn(2, 3, *out), out, [2, 3, 7, 6], False
    volume = torch.randn(1, 2, 3, 4, 5)
    yield aten._upsample_nearest_exact2d_backward.default, torch.randn(2, 3, 9, 4), [9, 4], [2, 3, 7, 6]
    yield aten._upsample_nearest_exact3d.default, volume, [6, 3, 7]
    yield aten._upsample_nearest_exact3d_backward.default, torch.randn(1, 2, 6, 3, 7), [6, 3, 7], [1, 2, 3, 4, 5]
    yield aten.upsample_nearest3d_backward.default, torch.randn(1, 2, 6, 8, 60), [6, 8, 60], [1, 2, 3, 4, 5]
    yield aten.upsample_nearest2d_backward.default, torch.randn(1, 2, 10, 10), [10, 10], [1, 2, 5, 5], 2.1, 2.1
    yield aten.upsample_bilinear2d.default, flat, [7, 6], False, 1.1, 1.1
    for parts in ([2, 1, 4], [3, 4]):
        yield aten.unsafe_split_with_sizes.default, torch.randn(7, 3), parts
    yield aten.split_copy.Tensor, torch.randn(7, 3), 3


def _bags():
    aten, table = torch.ops.aten, torch.randn(9, 4)
    index, starts = torch.tensor([1, 5, 5, 0, 8, 2, 2]), torch.tensor([0, 3, 3, 6])
    weights = torch.rand(7)
    for mode in range(3):
        for padding in (-1, 5):
            scales = weights if mode == 0 else None
            arguments = (False, mode, False, scales, False, padding)
            yield aten._embedding_bag.default, table, index, starts, *arguments
            _, bag, sizes, largest = aten._embedding_bag(table, index, starts, *arguments)
            if bag.numel() == 0:
                continue
            tail = (9, False, mode, scales, padding)
            yield aten._embedding_bag_dense_backward.default, torch.randn(4, 4), index, bag, sizes, largest, *tail
            starts_and_bags = (starts, bag, sizes, largest, 9)
            yield aten._embedding_bag_backward.default, torch.randn(4, 4), index, *starts_and_bags, False, mode, False, scales, padding
    yield aten.embedding_dense_backward.default, torch.randn(7, 4), index, 9, 2, True
    _, _, sizes, largest = aten._embedding_bag(table, index, starts, True, 0)
    bag = torch.tensor([0, 0, 0, 2, 2, 2, 3])
    frequent = (starts, bag, sizes, largest, 9, True, 0, False, None, -1)
    yield aten._embedding_bag_backward.default, torch.randn(4, 4), index, *frequent
    yield aten.index_fill.int_Scalar, torch.randn(5, 4), 1, torch.tensor([-1, 0]), 2.5
    yield aten.mse_loss.default, torch.randn(3, 4), torch.randn(4), 1
    yield aten.smooth_l1_loss.default, torch.randn(3, 1), torch.randn(2, 1, 4), 0, 0.7
    yield aten.huber_loss.default, torch.randn(3, 4), torch.randn(4), 2, 0.7
    for reduction in range(3):
        grad = torch.randn(3, 4) if reduction == 0 else torch.randn(())
        pair = (torch.randn(3, 4), torch.randn(3, 4))
        yield aten.smooth_l1_loss_backward.default, grad, *pair, reduction, 0.7
        yield aten.huber_loss_backward.default, grad, *pair, reduction, 0.7
    yield aten.view.dtype, torch.tensor([[True, False, True, True]]), torch.uint8
    yield aten.view.dtype, torch.tensor([[True, False, True, True]]), torch.int32
    yield aten.view.dtype, torch.tensor([[0, 1, 0, 1]], dtype=torch.uint8), torch.bool
    yield aten.var_mean.correction, torch.randn(3, 0), [1]
    yield aten.var.correction, torch.randn(3, 0), [0]
    yield aten.linalg_vector_norm.default, torch.randn(0, 3), float("inf"), [1]
    for values in (torch.randn(3, 4), torch.randn(5, dtype=torch.float64), torch.randn(3, 4, dtype=torch.complex64)):
        for power in (0, 1, 2, 3.5, float("inf")):
            yield aten.norm.Scalar, values, power


def _special():
    """Each function over its domain, its poles and far tails."""
    aten = torch.ops.aten
    edges = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, -2.5, 1e-30, 10.0, float("inf"), float("-inf"), float("nan")])
    wide = torch.cat([edges, torch.linspace(-30, 30, 400)])
    for name in ("erfc", "erfinv", "special_erfcx", "special_log_ndtr", "lgamma", "digamma", "i0", "special_i0e", "special_i1",
                 "special_i1e", "special_entr"):  # fmt: skip
        op = getattr(aten, name).default
        for values in (wide, torch.linspace(-1, 1, 301), torch.logspace(-8, 4, 200), torch.tensor([3, 0, 2])):
            yield op, values
            if values.is_floating_point():
                yield op, values.double()
    for root in (-2.4570248, -2.7476826, -3.1435809, -3.9552942):  # where lgamma is the little that large terms leave
        yield aten.lgamma.default, root + torch.linspace(-1e-3, 1e-3, 301)
    for values in (torch.linspace(0, 1, 301), torch.logspace(-30, -1, 200), edges):
        yield aten.special_ndtri.default, values
        yield aten.special_ndtri.default, values.double()
    for n in (0, 1, 2, 3, 4, 9):
        yield aten.polygamma.default, n, torch.linspace(-29.9, 30, 400)  # eager misses the poles by a rounding of pi
        yield aten.polygamma.default, n, torch.logspace(-3, 4, 100).double()


def _complex():
    aten, x = torch.ops.aten, torch.randn(3, 4, dtype=torch.complex64)
    for name in ("real", "imag", "resolve_conj", "resolve_neg", "_neg_view", "_conj_physical", "conj_physical"):
        yield getattr(aten, name).default, x
    yield aten.view_as_complex_copy.default, torch.randn(3, 4, 2)


def _primitives():
    import torch._inductor.inductor_prims  # registers fma

    prims = torch.ops.prims
    for dtype in (torch.float32, torch.float64):
        x, y, z = (torch.randn(3, 4, dtype=dtype) for _ in range(3))
        yield prims.fma.default, x, y, z
        yield prims.convert_element_type.default, x, torch.bfloat16
