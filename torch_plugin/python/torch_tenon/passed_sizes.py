"""Sizes that Dynamo's callers pass beside the tensors they are of: out of the graph, which has the tensors.

Dynamo gives its graph an input for each symbol, and each call makes the number in Python (some 0.3 us); programs read sizes from the
tensors themselves, as they read strides and addresses.
"""

from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import fx

from ._torch_private import size_inputs


def take_out(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Sequence[Any]:
    """Replaces such placeholders of Dynamo's graph: the inputs that are left. The caller passes what has a placeholder then."""
    sizes = size_inputs(gm)
    if not sizes or _overlap(example_inputs):
        return example_inputs
    placeholders = gm.graph.find_nodes(op="placeholder")
    taken = {number for number, _, _ in sizes}
    kept = [x for node, x in zip(placeholders, example_inputs, strict=True) if node not in taken]
    with gm.graph.inserting_after(placeholders[-1]):
        for number, tensor, axis in sizes:
            if number.users:
                size = gm.graph.call_method("size", (tensor, axis))
                size.meta["example_value"] = number.meta["example_value"]
                number.replace_all_uses_with(size)
            gm.graph.erase_node(number)
    gm.recompile()
    return kept


def _overlap(example_inputs: Sequence[Any]) -> bool:
    """Tensors that may share memory: AOTAutograd makes views of one base of those, if one is written, by sizes that are inputs."""
    tensors = [x for x in example_inputs if isinstance(x, torch.Tensor) and x.layout == torch.strided]
    return len({x.untyped_storage()._cdata for x in tensors}) < len(tensors)
