"""Graphs of tensor subclasses: AOTAutograd hands what such a tensor is beside its data (a DTensor's DeviceMesh) through as inputs and
outputs of the graph. No kernel reads them, so they go around the executable."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
from torch import fx

from .compiler import Compiled

_VALUES = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool, type(None))


def objects_of(gm: fx.GraphModule) -> list[int]:
    """The inputs that are no tensors and no numbers and that no node but the output reads. One that a node reads is for export to
    refuse."""
    return [
        index
        for index, node in enumerate(gm.graph.find_nodes(op="placeholder"))
        if not isinstance(node.meta.get("val"), _VALUES) and all(user.op == "output" for user in node.users)
    ]


def compile_without(
    gm: fx.GraphModule, objects: Sequence[int], compile_graph: Callable[[fx.GraphModule], Compiled]
) -> "AroundObjects":
    """compile_graph(the graph without the inputs `objects` and the outputs that are one of them). `gm` stays as it is."""
    copied: dict[fx.Node, fx.Node] = {}
    graph = fx.Graph()
    returned = graph.graph_copy(gm.graph, copied)
    removed = {copied[node]: k for k, node in enumerate(gm.graph.find_nodes(op="placeholder")) if k in objects}
    around = [(place, objects.index(removed[node])) for place, node in enumerate(returned) if node in removed]
    graph.output([node for node in returned if node not in removed]).meta.update(gm.graph.output_node().meta)
    for node in removed:
        graph.erase_node(node)
    without = fx.GraphModule(gm, graph)
    without.meta.update(gm.meta)
    return AroundObjects(compile_graph(without), objects, around)


class AroundObjects:
    """Takes the objects out of a call's inputs and puts those that are returned among its outputs. Boxed."""

    def __init__(self, compiled: Compiled, objects: Sequence[int], returned: Sequence[tuple[int, int]]):
        self._boxed_call = True  # on the instance, since functools.wraps copies that
        self.record = getattr(compiled, "record", None)
        self._compiled = compiled
        self._objects = list(objects)
        self._returned = list(returned)  # place among all outputs, which object

    def __call__(self, inputs: list[Any]) -> list[Any]:
        objects = [inputs[index] for index in self._objects]
        for index in reversed(self._objects):
            del inputs[index]
        outputs = list(self._compiled(inputs))
        for place, which in self._returned:
            outputs.insert(place, objects[which])
        return outputs
