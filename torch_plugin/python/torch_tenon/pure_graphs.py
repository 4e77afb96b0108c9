"""Graphs of Dynamo's of which it is known what they write: AOTAutograd needn't run them to learn it (docs/architecture/partition.md).

An operator of torch may write its arguments without a word in its schema (batch norm's statistics), so only those on a list are believed.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from ._torch_private import FakeTensor

# Function -> which of its positional arguments, if it is given, makes it write: `inplace`, or embedding's max_norm, for which it rewrites
# the table. By name they are refused of all, and so is `out`.
_FUNCTIONS: dict[Any, int | None] = dict.fromkeys(
    (
        operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.matmul,
        operator.neg, operator.pos, operator.invert, operator.and_, operator.or_, operator.xor, operator.getitem,
        operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
        torch.abs, torch.add, torch.addmm, torch.arange, torch.baddbmm, torch.bmm, torch.cat, torch.ceil, torch.chunk, torch.clamp,
        torch.conv1d, torch.conv2d, torch.cos, torch.cumsum, torch.diff, torch.div, torch.einsum, torch.erf, torch.exp, torch.flatten,
        torch.floor, torch.full, torch.full_like, torch.gather, torch.log, torch.logsumexp, torch.lstm_cell, torch.gru_cell, torch.matmul,
        torch.max, torch.maximum, torch.mean, torch.min, torch.minimum, torch.mm, torch.mul, torch.neg, torch.ones, torch.ones_like,
        torch.outer, torch.permute, torch.pow, torch.reciprocal, torch.reshape, torch.rsqrt, torch.sigmoid, torch.sign, torch.sin,
        torch.softmax, torch.split, torch.sqrt, torch.square, torch.squeeze, torch.stack, torch.sub, torch.sum, torch.tanh,
        torch.transpose, torch.tril, torch.triu, torch.unbind, torch.unsqueeze, torch.var, torch.where, torch.zeros, torch.zeros_like,
        torch._C._nn.avg_pool2d, torch._C._nn.gelu, torch._C._nn.linear, torch._C._nn.scaled_dot_product_attention,
        torch.avg_pool1d, torch.conv3d, torch.conv_transpose1d, torch.conv_transpose2d, torch.pixel_shuffle, torch.relu,
        F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.cross_entropy, F.gelu, F.glu, F.group_norm, F.interpolate, F.layer_norm, F.linear,
        F.log_softmax, F.max_pool1d, F.max_pool2d, F.mse_loss, F.pad, F.rms_norm, F.scaled_dot_product_attention, F.sigmoid, F.softmax,
        F.softplus, F.tanh,
    )
) | {F.dropout: 3, F.elu: 2, F.embedding: 3, F.hardsigmoid: 1, F.hardswish: 1, F.leaky_relu: 2, F.relu: 1, F.relu6: 1,
     F.silu: 1}  # fmt: skip

_METHODS = frozenset(
    """abs add bmm chunk clamp clone contiguous cos cumsum detach div exp expand flatten float gather index_select log long
    masked_fill matmul max mean min mul neg new_ones new_zeros permute pow repeat reshape rsqrt sigmoid sin softmax split sqrt
    square squeeze sub sum t tanh to transpose type_as unbind unflatten unsqueeze var view""".split()
)
_WRITING_KEYWORDS = ("out", "inplace", "max_norm")

# Write their first argument and return it; nothing else of it changes.
_WRITERS = frozenset((operator.iadd, operator.isub, operator.imul, operator.itruediv, F.relu, F.relu6, F.hardswish, F.hardsigmoid, F.silu))
_WRITING_METHODS = frozenset(("add_", "mul_", "sub_", "div_", "zero_", "relu_", "clamp_"))


@dataclasses.dataclass(frozen=True)
class Effects:
    """What a graph does to its surroundings: fakes of what it returns, each in memory of its own, and which inputs it writes."""

    outputs: list[torch.Tensor]
    written: tuple[int, ...] = ()


def effects_of(gm: fx.GraphModule) -> Effects | None:
    """None: it must be run to know."""
    inputs, written = [], {}
    returned: Any = ()
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            inputs.append(node)
        elif node.op == "output":
            returned = node.args[0]
        elif (writes := _written_by(node)) is None:
            return None
        else:
            written |= dict.fromkeys(writes)
    if not returned or not isinstance(returned, (list, tuple)):
        return None
    values = [_example(node) for node in (*inputs, *returned)]
    if not all(map(_is_plain, values)):
        return None
    outputs = values[len(inputs) :]
    taken = [_memory(value) for value in values[: len(inputs)]]
    own = {_memory(value) for value in outputs}
    if len(own) != len(outputs) or own & set(taken) or any(value._is_view() for value in outputs):
        return None
    positions = {node: k for k, node in enumerate(inputs)}
    for node in written:
        value = _example(node)
        if node not in positions:  # a value of the graph's own: nobody outside learns of it
            if type(value) is not FakeTensor or value._is_view() or _memory(value) in taken:
                return None
        elif value.requires_grad or value._is_view() or taken.count(_memory(value)) != 1:
            return None
    return Effects(outputs, tuple(sorted(positions[node] for node in written if node in positions)))


def _written_by(node: fx.Node) -> tuple[fx.Node, ...] | None:
    """The values that a node writes; None where that isn't known."""
    if node.op == "call_function" and node.target is F.batch_norm:
        return _written_statistics(node)
    if _writes_nothing(node):
        return ()
    inplace = node.op == "call_method" and node.target in _WRITING_METHODS or node.op == "call_function" and node.target in _WRITERS
    if not inplace or node.kwargs.keys() - {"inplace", "alpha", "min", "max"} or not isinstance(node.args[0], fx.Node):
        return None
    # What is written is the same tensor before and after, which requires gradients as it did if its fake says so.
    return (node.args[0],) if _example(node) is _example(node.args[0]) else None


def _written_statistics(node: fx.Node) -> tuple[fx.Node, ...] | None:
    """F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)."""
    if node.kwargs or len(node.args) < 6 or not isinstance(node.args[5], bool):
        return None
    statistics = node.args[1:3]
    if not node.args[5] or statistics == (None, None):
        return ()
    return statistics if all(isinstance(value, fx.Node) for value in statistics) else None


def _writes_nothing(node: fx.Node) -> bool:
    if any(node.kwargs.get(name) is not None and node.kwargs.get(name) is not False for name in _WRITING_KEYWORDS):
        return False
    if node.op == "call_method":
        return node.target in _METHODS
    try:
        if node.op != "call_function" or node.target not in _FUNCTIONS:
            return False
    except TypeError:  # not hashable
        return False
    writing = _FUNCTIONS[node.target]
    return writing is None or len(node.args) <= writing or node.args[writing] in (None, False)


def _example(node: Any) -> Any:
    return node.meta.get("example_value") if isinstance(node, fx.Node) else None


def _memory(value: torch.Tensor) -> int:
    return value.untyped_storage()._cdata


def _is_plain(value: Any) -> bool:
    """Whose strides a clone keeps, too: metadata_of makes clones."""
    if type(value) is not FakeTensor or value.layout != torch.strided or _symbolic(value) or value.is_conj() or value.is_neg():
        return False
    return torch.empty_like(value, device="meta").stride() == value.stride()


def _symbolic(value: torch.Tensor) -> bool:
    return not all(type(n) is int for n in (*value.shape, *value.stride(), value.storage_offset()))
