"""Graphs of Dynamo's that write nothing: AOTAutograd needn't run them to learn what they mutate (docs/architecture/partition.md).

An operator of torch may write its arguments without a word in its schema (batch norm's statistics), so only those on a list are believed.
"""

from __future__ import annotations

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
        torch._C._nn.gelu, torch._C._nn.linear, torch._C._nn.scaled_dot_product_attention,
        F.cross_entropy, F.gelu, F.group_norm, F.layer_norm, F.linear, F.log_softmax, F.mse_loss, F.pad, F.rms_norm,
        F.scaled_dot_product_attention, F.sigmoid, F.softmax, F.tanh,
    )
) | {F.dropout: 3, F.embedding: 3, F.relu: 1, F.silu: 1}  # fmt: skip

_METHODS = frozenset(
    """abs add bmm chunk clamp clone contiguous cos cumsum detach div exp expand flatten float gather index_select log long
    masked_fill matmul max mean min mul neg new_ones new_zeros permute pow repeat reshape rsqrt sigmoid sin softmax split sqrt
    square squeeze sub sum t tanh to transpose type_as unbind unflatten unsqueeze var view""".split()
)
_WRITING_KEYWORDS = ("out", "inplace", "max_norm")


def outputs_of_its_own(gm: fx.GraphModule) -> list[torch.Tensor] | None:
    """Fakes of what the graph returns, if nothing in it writes and each output is a tensor in memory of its own; else None."""
    inputs, returned = [], []
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            inputs.append(node)
        elif node.op == "output":
            returned = node.args[0]
        elif not _writes_nothing(node):
            return None
    if not returned or not isinstance(returned, (list, tuple)):
        return None
    values = [node.meta.get("example_value") if isinstance(node, fx.Node) else None for node in (*inputs, *returned)]
    if not all(map(_is_plain, values)):
        return None
    outputs = values[len(inputs) :]
    taken = {value.untyped_storage()._cdata for value in values[: len(inputs)]}
    own = {value.untyped_storage()._cdata for value in outputs}
    if len(own) != len(outputs) or own & taken or any(value._is_view() for value in outputs):
        return None
    return outputs


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


def _is_plain(value: Any) -> bool:
    """Whose strides a clone keeps, too: metadata_of makes clones."""
    if type(value) is not FakeTensor or value.layout != torch.strided or _symbolic(value) or value.is_conj() or value.is_neg():
        return False
    return torch.empty_like(value, device="meta").stride() == value.stride()


def _symbolic(value: torch.Tensor) -> bool:
    return not all(type(n) is int for n in (*value.shape, *value.stride(), value.storage_offset()))
