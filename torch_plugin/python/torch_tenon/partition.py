"""How a training graph is cut into forward and backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from .output_views import USER_OUTPUTS
from ._torch_private import min_cut_rematerialization_partition

_aten = torch.ops.aten


def partition(joint: fx.GraphModule, joint_inputs: Any, *, num_fwd_outputs: int, **kwargs: Any):
    """PyTorch's min-cut, and a copy of what the forward overwrites while the backward still reads it."""
    forward, backward = min_cut_rematerialization_partition(
        joint, joint_inputs, num_fwd_outputs=num_fwd_outputs, **kwargs
    )
    forward.meta[USER_OUTPUTS] = num_fwd_outputs
    _save_before_overwriting(forward, num_fwd_outputs)
    return forward, backward


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
