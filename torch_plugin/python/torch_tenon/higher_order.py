"""Higher-order operators whose meaning is a graph of ATen operators: put in their place, so that it is compiled with what stands around.

flex_attention and its backward are what PyTorch's own kernel for them computes (scores, modified, softmax, product); nested regions
(torch.compiler.nested_compile_region) are inlined; short scans are unrolled. What is left is called from Python
(docs/architecture/framework_steps.md).
"""

from __future__ import annotations

import operator
from typing import Any, Callable

import torch
from torch import fx

from . import decompositions
from ._torch_private import dense_kernel, fake_mode_of, functional_trace, is_higher_order, logger

MAX_UNROLLED_NODES = 512  # of a scan: steps times operators of one


def expand(gm: fx.GraphModule) -> fx.GraphModule:
    """In place; `gm` itself. An operator that can't be expanded stays as it is."""
    expanded = False
    for node in list(gm.graph.nodes):
        if not is_higher_order(node.target) or node.target.name() not in _EXPANDED:
            continue
        try:
            expanded |= _EXPANDED[node.target.name()](gm, node)
        except Exception as error:  # a rare form of it: called from Python
            logger().info("%s is not expanded: %s", node.target.name(), error, exc_info=error)
    if expanded:
        gm.graph.eliminate_dead_code()
        gm.recompile()
    return gm


def _inline(gm: fx.GraphModule, node: fx.Node) -> bool:
    """invoke_subgraph(graph, name, *operands)"""
    body = _module(gm, node.args[0])
    _replace(gm, node, body, list(node.args[2:]))
    return True


def _trace(gm: fx.GraphModule, node: fx.Node, kernel: Callable | None = None) -> bool:
    """By tracing what runs it in eager, or `kernel`."""
    operands = [leaf for leaf in node.all_input_nodes if not _is_module(gm, leaf)]
    positions = {leaf: index for index, leaf in enumerate(operands)}
    kernel = kernel or dense_kernel(node.target)

    def call(*values: Any) -> Any:
        fill = lambda leaf: values[positions[leaf]] if leaf in positions else _module(gm, leaf)
        return kernel(*fx.node.map_arg(node.args, fill), **fx.node.map_arg(node.kwargs, fill))

    values = [_module(gm, leaf) if leaf.op == "get_attr" else leaf.meta["val"] for leaf in operands]
    with fake_mode_of(gm.graph):
        body = functional_trace(call, values, decompositions.table())
    _replace(gm, node, body, operands)
    return True


def _unroll_scan(gm: fx.GraphModule, node: fx.Node) -> bool:
    """scan(body, initial carry, [xs], operands): body(*carry, *x, *operands) -> (*carry, *ys)"""
    steps = node.args[2][0].meta["val"].shape[0]
    if not isinstance(steps, int) or not 0 < steps * len(_module(gm, node.args[0]).graph.nodes) <= MAX_UNROLLED_NODES:
        return False

    def unrolled(body: Callable, initial: Any, xs: Any, operands: Any) -> Any:
        carry, ys = list(initial), []
        for step in range(steps):
            results = list(body(*carry, *(x.select(0, step) for x in xs), *operands))
            carry = results[: len(initial)]
            ys.append(results[len(initial) :])
        return (*carry, *(torch.stack(y) for y in zip(*ys)))

    return _trace(gm, node, unrolled)


_EXPANDED: dict[str, Callable[[fx.GraphModule, fx.Node], bool]] = {
    "invoke_subgraph": _inline,
    "flex_attention": _trace,
    "flex_attention_backward": _trace,
    "scan": _unroll_scan,
}


def _is_module(gm: fx.GraphModule, node: fx.Node) -> bool:
    return node.op == "get_attr" and isinstance(_module(gm, node), fx.GraphModule)


def _module(gm: fx.GraphModule, node: fx.Node) -> Any:
    value: Any = gm
    for part in node.target.split("."):
        value = getattr(value, part)
    return value


def _replace(gm: fx.GraphModule, node: fx.Node, body: fx.GraphModule, operands: list[Any]) -> None:
    """The call `node` by the nodes of `body`, whose inputs are `operands`; its constants become the graph's."""
    graph = node.graph
    for constant in body.graph.find_nodes(op="get_attr"):
        name = f"_{node.name}_{constant.name}"
        setattr(gm, name, _module(body, constant))
        constant.target = name
    inputs = dict(zip(body.graph.find_nodes(op="placeholder"), operands))
    before = set(graph.nodes)
    with graph.inserting_before(node):
        made = graph.graph_copy(body.graph, inputs)
    for copy in graph.nodes:
        if copy not in before:
            for key in ("stack_trace", "nn_module_stack", "fwd_nn_module_stack"):
                if key in node.meta:
                    copy.meta[key] = node.meta[key]
    _hand_over(node, made)


def _hand_over(node: fx.Node, made: Any) -> None:
    if isinstance(made, (list, tuple)):
        for user in list(node.users):
            if user.target is not operator.getitem:
                raise ValueError(f"{user} takes a tuple as one value")
            _hand_over(user, made[user.args[1]])
    elif made is not None:
        node.replace_all_uses_with(made)
    if not node.users:
        node.graph.erase_node(node)
