"""How a training graph is cut into forward and backward (docs/architecture/partition.md).

The cut is C++ (torch_plugin/aten/partition). Here the joint graph is described to it, in one walk, and the two parts are built. What the
description can't say goes to PyTorch's min-cut, with the reason.
"""

from __future__ import annotations

import array
import dataclasses
import functools
import operator
from typing import Any, Sequence

import torch
from torch import fx

from . import _C
from ._torch_private import (
    graph_module,
    is_higher_order,
    logger,
    min_cut_rematerialization_partition,
    partitioner_classes,
    partitioner_settings_changed,
    saved_output_description,
)
from .output_views import USER_OUTPUTS

_aten = torch.ops.aten
_TRAITS = _C.PARTITION_TRAITS
_INPUT, _TANGENT, _STATIC, _CONSTANT, _GETITEM = (_TRAITS[n] for n in ("INPUT", "TANGENT", "STATIC", "CONSTANT", "GETITEM"))
_NO_TENSOR, _FORWARD_ONLY = _TRAITS["NO_TENSOR"], _TRAITS["FORWARD_ONLY"]

CUT = "tenon_cut"  # in a forward's meta: its Cut


@dataclasses.dataclass(frozen=True)
class Cut:
    """Who cut a training graph, "own" or "torch" (then why), and what the forward saves: parameters and other static inputs not counted."""

    by: str
    reason: str
    saved: int
    saved_bytes: int


class _Foreign(Exception):
    """What goes to PyTorch's min-cut; the message says why."""


def partition(
    joint: fx.GraphModule,
    joint_inputs: Any,
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: Sequence[int] | None = None,
    own: bool = True,
    **kwargs: Any,
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """AOTAutograd's partition_fn. own: False leaves the cut to PyTorch."""
    static = static_lifetime_input_indices or ()
    reason = "asked for by the options" if not own else ""
    try:
        if not own or kwargs:
            raise _Foreign(reason or f"arguments of another version: {', '.join(kwargs)}")
        forward, backward = _cut(joint, num_fwd_outputs, frozenset(static))
    except _Foreign as error:
        reason = str(error)
    except Exception as error:
        reason = f"the partitioner failed: {error or type(error).__name__}"
        logger().warning("%s", reason, exc_info=error)
    if reason:
        forward, backward = min_cut_rematerialization_partition(
            joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, static_lifetime_input_indices=static_lifetime_input_indices, **kwargs
        )
    saved = _returned(forward)[num_fwd_outputs:]
    forward.meta[CUT] = Cut("torch" if reason else "own", reason, len(saved), _saved_bytes(forward, saved, frozenset(static)))
    forward.meta[USER_OUTPUTS] = num_fwd_outputs
    _save_before_overwriting(forward, num_fwd_outputs)
    return forward, backward


def _cut(joint: fx.GraphModule, num_fwd_outputs: int, static: frozenset[int]) -> tuple[fx.GraphModule, fx.GraphModule]:
    if changed := partitioner_settings_changed():
        raise _Foreign(f"torch._functorch.config.{changed} is set")
    description = _Description(joint, num_fwd_outputs, static)
    result = description.cut()
    if isinstance(result, str):
        raise _Foreign(result)
    saved, forward, backward, _ = result
    nodes = description.nodes
    # AOTAutograd wants those last whose versions aren't to be checked (sorted() is stable).
    kept = sorted((nodes[n] for n in saved), key=_unchecked)
    output_descriptions = description.output.meta.get("desc") or [None] * len(description.returned)
    parts = _Parts(joint, description.equal)
    return (
        parts.build(
            description.primals, [nodes[n] for n in forward],
            description.returned[:num_fwd_outputs] + kept,
            list(output_descriptions[:num_fwd_outputs]) + [saved_output_description(k, _unchecked(v)) for k, v in enumerate(kept)],
        ),
        parts.build(
            kept + description.tangents, [nodes[n] for n in backward],
            description.returned[num_fwd_outputs:], list(output_descriptions[num_fwd_outputs:]), {"autograd_backward": True},
        ),
    )  # fmt: skip


def _unchecked(node: fx.Node) -> bool:
    return bool(node.meta.get("saved_tensor_with_no_vc_check", False))


class _Description:
    """A joint graph as plain numbers. Equal nodes are one: `equal` has the first of them for each of the others. Raises _Foreign."""

    def __init__(self, joint: fx.GraphModule, num_fwd_outputs: int, static: frozenset[int]):
        (self.output,) = joint.graph.find_nodes(op="output")
        self.returned = list(self.output.args[0])
        if not all(value is None or isinstance(value, fx.Node) for value in self.returned):
            raise _Foreign("the joint graph returns what no node computes")
        self.nodes: list[fx.Node] = []
        self.primals: list[fx.Node] = []
        self.tangents: list[fx.Node] = []
        self.equal: dict[fx.Node, fx.Node] = {}
        self._static = static
        self._number: dict[fx.Node, int] = {}
        self._traits, self._bytes, self._argument_bytes = array.array("I"), array.array("q"), array.array("q")
        self._operand_begin, self._operands = array.array("i", [0]), array.array("i")
        self._returned_memory = {m for value in self.returned if value is not None and (m := _memory(value.meta.get("val"))) is not None}
        self._first: dict[Any, fx.Node] = {}
        for node in joint.graph.nodes:
            if node.op == "call_function":
                self._add_call(node)
            elif node.op == "placeholder":
                self._add_input(node)
            elif node.op == "get_attr":
                self._add(node, _CONSTANT | _NO_TENSOR, 0, ())
            elif node.op != "output":
                raise _Foreign(f"a node of kind {node.op}")
        cut = lambda values: array.array("i", [self._number[self.equal.get(v, v)] for v in values if v is not None])
        self._forward_outputs, self._backward_outputs = cut(self.returned[:num_fwd_outputs]), cut(self.returned[num_fwd_outputs:])

    def cut(self):
        return _C.partition(
            self._traits, self._bytes, self._argument_bytes, self._operand_begin, self._operands,
            self._forward_outputs, self._backward_outputs,
        )  # fmt: skip

    def _add_input(self, node: fx.Node) -> None:
        name, value = str(node.target), node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            raise _Foreign(f"the input {name} is a {type(value).__name__}")
        if any(part in name for part in ("seed", "base_offset", "rng_state", "token")):
            raise _Foreign(f"an input {name}")
        if "tangents" in name:
            traits, group = _TANGENT, self.tangents
        else:
            traits, group = _INPUT | (_STATIC if len(self.primals) in self._static else 0), self.primals
        group.append(node)
        self._add(node, traits, _size(node), ())

    def _add_call(self, node: fx.Node) -> None:
        traits = _traits_of(node.target)
        meta = node.meta
        tag = meta.get("partitioner_tag")
        if traits & _FORWARD_ONLY and tag == "is_backward" or tag == "must_be_in_backward":
            raise _Foreign("the backward writes an input")
        if tag == "must_be_in_forward":
            traits |= _FORWARD_ONLY
        for key in _ANNOTATIONS:
            if meta.get(key) is not None and _ANNOTATIONS[key](meta[key]):
                raise _Foreign(f"{node.target} has the annotation {key!r}")
        operands = node.all_input_nodes
        if self.equal:
            operands = [self.equal.get(x, x) for x in operands]
        if not traits & _FORWARD_ONLY and (key := self._key(node)) is not None:
            first = self._first.setdefault(key, node)
            if first is not node:
                self.equal[node] = first
                return
        value = meta.get("val")
        if not isinstance(value, torch.Tensor):
            if not traits & _FORWARD_ONLY and value is not None and not isinstance(value, (tuple, list)):
                raise _Foreign(f"{node.target} gives a {type(value).__name__}")
            traits |= _NO_TENSOR
        arguments = sum(self._bytes[self._number[self.equal.get(x, x)]] for x in node.args if isinstance(x, fx.Node))
        self._add(node, traits, _size(node), operands, arguments)

    def _add(self, node: fx.Node, traits: int, size: int, operands: Sequence[fx.Node], arguments: int = 0) -> None:
        self._number[node] = len(self.nodes)
        self.nodes.append(node)
        self._traits.append(traits)
        self._bytes.append(size)
        self._argument_bytes.append(arguments)
        self._operands.extend([self._number[x] for x in operands])
        self._operand_begin.append(len(self._operands))

    def _key(self, node: fx.Node) -> Any:
        """Equal for nodes of equal results; None: it stands for itself. What shares memory with an output does, since outputs are
        memory of their own, and what has other results every time."""
        if not _repeatable(node.target) or _memory(node.meta.get("val")) in self._returned_memory:
            return None
        try:
            key = (node.target, self._argument_key(node.args), self._argument_key(node.kwargs) if node.kwargs else None)
            hash(key)
            return key
        except TypeError:
            return None

    def _argument_key(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self.equal.get(value, value)
        if isinstance(value, (tuple, list)):
            return tuple([self._argument_key(v) for v in value])
        if isinstance(value, dict):
            return tuple([(k, self._argument_key(v)) for k, v in value.items()])
        if isinstance(value, (float, complex)):
            return (type(value), repr(value))  # -0.0 isn't 0.0
        return (type(value), value)


def _memory(value: Any) -> int | None:
    """Which memory a tensor lies in; None: no tensor, or nothing to be shared."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    return value.untyped_storage()._cdata


def _size(node: fx.Node) -> int:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return _bytes_of(value)
    return sum(_bytes_of(v) for v in value if isinstance(v, torch.Tensor)) if isinstance(value, (tuple, list)) else 0


def _bytes_of(value: torch.Tensor) -> int:
    count = value.numel()
    if type(count) is not int:
        raise _Foreign("dynamic sizes")
    return count * value.element_size()


@functools.cache
def _traits_of(target: Any) -> int:
    if is_higher_order(target):
        raise _Foreign(f"the higher-order operator {target}")
    if getattr(target, "namespace", "") in ("_c10d_functional", "c10d_functional"):
        raise _Foreign(f"the collective {target}")
    packet, classes = getattr(target, "overloadpacket", target), partitioner_classes()
    random = torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())
    facts = {
        "GETITEM": target is operator.getitem,
        "FUSIBLE": packet in classes.fusible_ops,
        "FUSES_ANYTHING": packet is _aten.cat,
        "VIEW": packet in classes.view_ops,
        "RECOMPUTABLE": packet in classes.recomputable_ops and not random,
        "ALWAYS_FREE": target in (_aten.lift_fresh_copy.default, _aten.lift_fresh.default),
        "FORWARD_ONLY": isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable,
    }
    return sum(_TRAITS[name] for name, holds in facts.items() if holds)


@functools.cache
def _repeatable(target: Any) -> bool:
    """The same arguments give the same result."""
    name = getattr(getattr(target, "overloadpacket", target), "__name__", "")
    return torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()) and not name.startswith(("empty", "new_empty"))


# What users and transforms write into a node's meta that changes the cut -> whether a value does. PyTorch's rules decide there.
_ANNOTATIONS = {
    "recompute": lambda policy: True,  # torch.utils.checkpoint
    "memory_budget": lambda budget: True,
    "custom": lambda fields: isinstance(fields, dict) and any("budget" in str(name) for name in fields),
}


class _Parts:
    """Builds forward and backward out of the joint graph's nodes, which stay as they are."""

    def __init__(self, joint: fx.GraphModule, equal: dict[fx.Node, fx.Node]):
        self._joint, self._equal = joint, equal

    def build(
        self, inputs: list[fx.Node], body: list[fx.Node], outputs: list[Any], descriptions: list[Any], mark: dict[str, Any] | None = None
    ) -> fx.GraphModule:
        graph, made, equal = fx.Graph(), {}, self._equal
        for node in inputs:
            made[node] = graph.placeholder(node.name)
            made[node].meta = node.meta
        find = (lambda x: made[equal.get(x, x)]) if equal else made.__getitem__
        for node in body:
            made[node] = copied = graph.node_copy(node, find)
            if mark:
                copied.meta.update(mark)
        values = tuple([None if value is None else find(value) for value in outputs])
        output = graph.output(values)
        output.meta["desc"] = descriptions
        output.meta["output_stack_traces"] = [None if value is None else value.meta.get("stack_trace") for value in values]
        return graph_module(self._joint, graph)


def _returned(gm: fx.GraphModule) -> list[Any]:
    (output,) = gm.graph.find_nodes(op="output")
    return list(output.args[0])


def _saved_bytes(forward: fx.GraphModule, saved: list[Any], static: frozenset[int]) -> int:
    parameters = {node for k, node in enumerate(forward.graph.find_nodes(op="placeholder")) if k in static}
    try:
        return sum(_size(value) for value in saved if isinstance(value, fx.Node) and value not in parameters)
    except _Foreign:  # dynamic sizes
        return -1


def _save_before_overwriting(forward: fx.GraphModule, num_fwd_outputs: int) -> None:
    """The min-cut saves inputs and recomputes from them, also inputs (a module's counter) that the
    forward updates in place: the backward would read the new value. Seen in torch 2.13 with every
    backend that keeps mutations in the graph."""
    graph = forward.graph
    written = {
        node.args[0]
        for node in graph.nodes
        if node.op == "call_function" and node.target is _aten.copy_.default
    }
    (output,) = graph.find_nodes(op="output")
    outputs = list(output.args[0])
    clones: dict[fx.Node, fx.Node] = {}
    for index in range(num_fwd_outputs, len(outputs)):
        saved = outputs[index]
        if not isinstance(saved, fx.Node) or saved.op != "placeholder" or saved not in written:
            continue
        if saved not in clones:
            with graph.inserting_before(next(n for n in graph.nodes if n.op != "placeholder")):
                clones[saved] = graph.call_function(_aten.clone.default, (saved,))
            clones[saved].meta["val"] = saved.meta["val"].clone()
        outputs[index] = clones[saved]
    if clones:
        output.args = (type(output.args[0])(outputs),)
        forward.recompile()
