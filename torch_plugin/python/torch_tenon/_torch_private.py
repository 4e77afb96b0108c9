"""Every use of PyTorch's private Python API, and nothing else. Checked against torch 2.11 - 2.13.

Whatever is only nice to have (log registration) is absent rather than an error on another version.
"""

from __future__ import annotations

import contextlib
import functools
import logging

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

__all__ = [
    "FakeTensor",
    "aot_autograd",
    "decompositions_for",
    "fill_metas",
    "free_unbacked_symbols",
    "frozen_inputs",
    "is_higher_order",
    "is_with_effects",
    "kept_whole",
    "logger",
    "min_cut_rematerialization_partition",
    "no_dispatch_modes",
    "plain_tensor_types",
]

TESTED_VERSIONS = ((2, 11), (2, 13))  # first and last, inclusive


def plain_tensor_types() -> tuple[type, ...]:
    """Tensor types that are dense memory and nothing else, while tracing or not."""
    return (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)


def is_higher_order(target) -> bool:
    return isinstance(target, torch._ops.HigherOrderOperator)


def is_with_effects(node: torch.fx.Node) -> bool:
    """A call wrapped to order side effects: with_effects(token, op, *args) -> (token, *results)."""
    return is_higher_order(node.target) and node.target.name() == "with_effects"


def decompositions_for(overloads) -> dict:
    """PyTorch's decompositions of these overloads; the ones that this version lacks are left out."""
    from torch._decomp import decomposition_table, get_decompositions

    known = [op for op in overloads if op in decomposition_table]
    return get_decompositions(known)


@contextlib.contextmanager
def kept_whole(overloads):
    """Inside, tracing leaves these overloads whole: PyTorch has registered decompositions of them as their Python kernels for
    autograd, ahead of any table. What they are without them are the C++ kernels and their meta functions. Not thread-safe by
    itself: Dynamo calls backends under a lock of its own."""
    keys = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
    taken = [(op, key, op.py_kernels.pop(key)) for op in overloads for key in keys if key in op.py_kernels]
    try:
        for op in overloads:
            op._dispatch_cache.clear()
        yield
    finally:
        for op, key, kernel in taken:
            op.py_kernels[key] = kernel
        for op in overloads:
            op._dispatch_cache.clear()


def no_dispatch_modes():
    """Context: Python dispatch modes (fake tensors, tracing) are off inside."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def fill_metas(gm: torch.fx.GraphModule, example_inputs) -> None:
    """Gives every node of an ATen graph its meta["val"], from real inputs."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    FakeTensorProp(gm, mode).propagate(*example_inputs)


def frozen_inputs() -> tuple[int, ...]:
    """While AOTAutograd compiles an inference graph: its inputs that are parameters and buffers of modules; () where that isn't known."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None:
        return ()
    mutated = set(getattr(metadata, "mutated_inp_runtime_indices", ()))
    return tuple(i for i in metadata.static_input_indices if i not in mutated)


@functools.cache
def logger() -> logging.Logger:
    """The "tenon" logger, known to TORCH_LOGS where this version lets a third party register."""
    try:
        from torch._logging import _internal

        if not _internal.log_registry.is_log("tenon"):
            _internal.register_log("tenon", "tenon")
    except (ImportError, AttributeError, TypeError):
        pass
    return logging.getLogger("tenon")
