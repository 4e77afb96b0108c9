"""Samples for overloads that graphs contain and no OpInfo dispatches."""

import torch

from plugin.aten_calls import Call


def calls_of(*overloads_and_args) -> dict[str, list[Call]]:
    calls: dict[str, list[Call]] = {}
    for overload, *args in overloads_and_args:
        calls.setdefault(str(overload), []).append(Call(overload, tuple(args), {}, "by hand"))
    return calls


def by_hand() -> dict[str, list[Call]]:
    found = calls_of(*_scalars(), *_movement(), *_networks())
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
    yield aten.remainder.Scalar_Tensor, 7, torch.tensor([2, -3, 4])
    yield aten.fmod.Scalar, x, 0.3
    yield aten.xlogy.Scalar_Other, x.abs(), 2.5
    yield aten.xlogy.Scalar_Self, 2.5, x.abs()
    yield aten.copysign.Scalar, x, -1.0
    yield aten.clamp_max.default, x, 0.5
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
    image, channels = torch.randn(2, 4, 5, 5), torch.rand(4) + 0.5
    norm = (channels, channels, channels, channels)
    yield aten._native_batch_norm_legit_no_training.default, image, *norm, 0.1, 1e-5
    yield aten._native_batch_norm_legit.no_stats, image, channels, channels, True, 0.1, 1e-5
    q, k, v = (torch.randn(2, 3, 8, 16) for _ in range(3))
    yield aten._scaled_dot_product_flash_attention_for_cpu.default, q, k, v
