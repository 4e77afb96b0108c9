"""Outputs that share memory: with each other, or with an input.

A graph that returns y and y.view(...), or x.t() of an input x, promises views. The compiled program
returns each piece of memory once, and the executor makes the views of it.
"""

from __future__ import annotations

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
    seen: list[Any] = dataclasses.field(default_factory=list)  # outputs that somebody else than the backward gets
    foreign: str = ""  # why no program's outputs share memory as the graph's do

    @property
    def trivial(self) -> bool:
        return self.recipes == list(range(len(self.direct)))


def plan_outputs(gm: fx.GraphModule) -> OutputPlan:
    (output,) = gm.graph.find_nodes(op="output")
    returned = output.args[0]
    plan = OutputPlan()
    if not isinstance(returned, (list, tuple)):
        return plan
    plan.seen = list(returned)[: gm.meta.get(USER_OUTPUTS)]
    plan.foreign = _foreign(plan.seen)
    bases = [_base(value) if _is_tensor(value) else None for value in returned]
    written = _written(gm)
    index_of: dict[fx.Node, int] = {}

    def direct(value: Any) -> int:
        if not _is_tensor(value):
            plan.direct.append(value)
            return len(plan.direct) - 1
        if value not in index_of:
            index_of[value] = len(plan.direct)
            plan.direct.append(value)
        return index_of[value]

    for value, base in zip(returned, bases):
        shared = base is not None and len({v for v, b in zip(returned, bases) if b is base} | {base}) > 1
        from_input = shared and base.op == "placeholder" and base not in written
        several = shared and base.op != "placeholder" and len({v for v, b in zip(returned, bases) if b is base}) > 1
        if value is base or not (from_input or several):
            plan.recipes.append(direct(value))
            continue
        if several:
            direct(base)
        plan.recipes.append((base, value))
    kept = {value for value in plan.direct if isinstance(value, fx.Node)}
    for node in reversed(gm.graph.nodes):
        if node not in kept and all(u is output or u in plan.skipped for u in node.users) and _is_view(node):
            plan.skipped.add(node)
    return plan


def _foreign(returned: list[Any]) -> str:
    """Outputs of one memory read as different types, or through a conjugate bit: view_as_real and its like. Of inputs'
    memory they may be copies, since AOTAutograd makes such views itself, from the input."""
    memory: dict[fx.Node, fx.Node] = {}
    for index, value in enumerate(returned):
        if not _is_tensor(value):
            continue
        root = base = _base(value)
        while root.op == "call_function" and _returns_alias(root.target) and root.args and _is_tensor(root.args[0]):
            root = _base(root.args[0])
        if root.op != "placeholder" and memory.setdefault(root, base) is not base:
            return f"output {index} shares memory with another of another type"
    return ""


def _is_tensor(value: Any) -> bool:
    return isinstance(value, fx.Node) and type(value.meta.get("val")) in plain_tensor_types()


def _is_view(node: fx.Node) -> bool:
    """Takes one dense tensor and returns a window on it, of the same dtype."""
    if node.op != "call_function" or not _is_tensor(node) or not node.args:
        return False
    source = node.args[0]
    if node.target is operator.getitem:
        maker = source
        if not isinstance(maker, fx.Node) or not maker.args or not _returns_alias(maker.target):
            return False
        source = maker.args[0]
    elif not _returns_alias(node.target):
        return False
    if not _is_tensor(source):
        return False
    value, base = node.meta["val"], source.meta["val"]
    plain = value.layout == torch.strided and value.device == base.device and value.dtype == base.dtype
    return plain and value.is_conj() == base.is_conj() and value.is_neg() == base.is_neg()


def _returns_alias(target: Any) -> bool:
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    returns = target._schema.returns
    return len(returns) == 1 and returns[0].alias_info is not None


def _base(node: fx.Node) -> fx.Node:
    while _is_view(node):
        source = node.args[0]
        node = source.args[0] if node.target is operator.getitem else source
    return _first_twin(node)


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
