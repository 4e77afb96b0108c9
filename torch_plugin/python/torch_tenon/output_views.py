"""Outputs that share memory: with each other, or with an input.

A graph that returns y and y.view(...), or x.t() of an input x, promises views. The compiled program
returns each piece of memory once, and the executor makes the views of it: windows, readings as another type (view_as_real), and
lazy conjugates and negatives, whose bit a program's own values never have.
"""

from __future__ import annotations

import collections
import dataclasses
import operator
from typing import Any

import torch
from torch import fx

from ._torch_private import plain_tensor_types


# In a forward's meta: how many of its first outputs aren't only saved for the backward.
USER_OUTPUTS = "tenon_user_outputs"


@dataclasses.dataclass
class OutputPlan:
    direct: list[Any] = dataclasses.field(default_factory=list)  # what the program returns
    # Per output of the graph: an index into `direct`, or (base node, node): a view of an input or
    # of the direct output that is `base node`.
    recipes: list[int | tuple[fx.Node, fx.Node]] = dataclasses.field(default_factory=list)
    skipped: set[fx.Node] = dataclasses.field(default_factory=set)  # only the executor needs them
    returns_bits: bool = False  # what the user sees a conjugate or negative bit of is made by the program itself

    @property
    def trivial(self) -> bool:
        return self.recipes == list(range(len(self.direct)))


def plan_outputs(gm: fx.GraphModule) -> OutputPlan:
    (output,) = gm.graph.find_nodes(op="output")
    returned = output.args[0]
    plan = OutputPlan()
    if not isinstance(returned, (list, tuple)):
        return plan
    seen = list(filter(_is_tensor, returned[: gm.meta.get(USER_OUTPUTS)]))  # by somebody else than the backward
    written = _written(gm)
    memories = _memories(seen, written)
    base_of = {value: memories.get(base := _base(value), base) for value in filter(_is_tensor, returned)}
    windows = collections.Counter(base_of.values())
    index_of: dict[fx.Node, int] = {}

    def direct(value: Any) -> int:
        if not _is_tensor(value):
            plan.direct.append(value)
            return len(plan.direct) - 1
        if value not in index_of:
            index_of[value] = len(plan.direct)
            plan.direct.append(value)
        return index_of[value]

    for value in returned:
        base = base_of.get(value) if isinstance(value, fx.Node) else None
        from_input = base is not None and base.op == "placeholder"
        if base in (None, value) or (base in written if from_input else windows[base] == 1 and base not in memories):
            plan.recipes.append(direct(value))
            continue
        if not from_input:
            direct(base)
        plan.recipes.append((base, value))
    by_program = [v for v in seen if v in index_of and not _is_argument(v)]
    plan.returns_bits = any(map(has_bit, by_program)) or any(
        not _is_argument(memory) and has_bit(memory) for memory in map(_memory, seen)
    )
    for node in reversed(gm.graph.nodes):
        if node not in index_of and all(u is output or u in plan.skipped for u in node.users) and _is_alias(node):
            plan.skipped.add(node)
    return plan


def has_bit(node: fx.Node) -> bool:
    """A conjugate or negative one."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and (value.is_conj() or value.is_neg())


def _is_argument(node: fx.Node) -> bool:
    """An input itself, maybe written."""
    return node.op == "placeholder" or (node.target is torch.ops.aten.copy_.default and _is_argument(node.args[0]))


def read_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Memory has the same numbers in it for both."""
    return a.dtype == b.dtype and a.is_conj() == b.is_conj() and a.is_neg() == b.is_neg()


def _memories(seen: list[fx.Node], written: set[fx.Node]) -> dict[fx.Node, fx.Node]:
    """Of memory that is returned as several types, or under a bit: each of those bases, and itself -> the node that it is the memory
    of. (view_as_real's result and its operand have one, and so have a tensor and its conjugate.)"""
    bases: dict[fx.Node, set[fx.Node]] = {}
    for base in map(_base, seen):
        bases.setdefault(_memory(base), set()).add(base)
    found = {}
    for memory, read in bases.items():
        is_input = memory.op == "placeholder"
        if (len(read) > 1 or any(map(has_bit, read))) and not (memory in written if is_input else has_bit(memory)):
            found |= dict.fromkeys([*read, memory], memory)
    return found


def _is_tensor(value: Any) -> bool:
    return isinstance(value, fx.Node) and type(value.meta.get("val")) in plain_tensor_types()


def _is_view(node: fx.Node) -> bool:
    """Takes one dense tensor and returns a window on it, of the same dtype."""
    return _is_alias(node) and read_alike(node.meta["val"], _source(node).meta["val"])


def _is_alias(node: fx.Node) -> bool:
    """Takes one dense tensor and returns its memory, maybe read otherwise."""
    source = _source(node)
    if not _is_tensor(node) or not _is_tensor(source):
        return False
    value, base = node.meta["val"], source.meta["val"]
    copies = node.target in _RESOLVING and not read_alike(value, base)
    return value.layout == base.layout == torch.strided and value.device == base.device and not copies


_RESOLVING = {torch.ops.aten.resolve_conj.default, torch.ops.aten.resolve_neg.default}


def _source(node: fx.Node) -> Any:
    """Of what may alias its operand, that operand; of one of several results, what they alias."""
    maker = node.args[0] if node.target is operator.getitem else node
    if not isinstance(maker, fx.Node) or maker.op != "call_function" or not maker.args or not _returns_alias(maker.target):
        return None
    return maker.args[0]


def _returns_alias(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    returns = target._schema.returns
    return len(returns) == 1 and returns[0].alias_info is not None


def _base(node: fx.Node) -> fx.Node:
    while _is_view(node):
        node = _source(node)
    return _first_twin(node)


def _memory(node: fx.Node) -> fx.Node:
    while _is_alias(node):
        node = _source(node)
    return node


def _first_twin(node: fx.Node) -> fx.Node:
    """Of several equal readings of one memory as another type the first: the gradients of torch.complex's operands are windows on
    one view_as_real each."""
    if node.op != "call_function" or not _returns_alias(node.target) or not node.args or not _is_tensor(node.args[0]):
        return node
    same = (user for user in node.args[0].users if (user.target, user.args, user.kwargs) == (node.target, node.args, node.kwargs))
    return next(same)


def _written(gm: fx.GraphModule) -> set[fx.Node]:
    written = set()
    for node in gm.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            written.update(_base(a) for a in node.all_input_nodes)
    return written
