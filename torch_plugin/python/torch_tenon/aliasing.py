"""Calls whose inputs share memory as those of the first call did not.

A graph is traced for inputs that are apart, or share memory in a certain way, and then takes values, not memory: one that is written does
not change another. Where a call brings a written input that shares elements with another, what Dynamo captured runs in eager instead,
which knows memory. Dynamo and AOTAutograd (torch 2.13) guard less.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Sequence

import torch
from torch import fx

from . import _C, registry

REASON = "a written input shares memory with another"


def guarded(compiled: Callable, gm: fx.GraphModule, example_inputs: Sequence[Any], written: Sequence[int], refuse: Callable) -> Callable:
    """`compiled`, or what runs `gm` where inputs meet. `written`: positions of inputs that the graph writes. refuse(record): tells,
    or raises, as the option "fallback" says."""
    tensors = sum(isinstance(value, torch.Tensor) for value in example_inputs)
    if not written or tensors < 2:
        return compiled
    overlaps = _C.overlap_check(written)
    if overlaps(*example_inputs):
        return compiled  # traced so
    by_eager = _ByEager(gm, refuse)

    def call(*inputs: Any) -> Any:
        return by_eager(*inputs) if overlaps(*inputs) else compiled(*inputs)

    return call


class _ByEager:
    """What Dynamo captured, by PyTorch itself; each call is counted."""

    def __init__(self, gm: fx.GraphModule, refuse: Callable):
        self._run = torch.compiler.disable(gm.forward)
        self._nodes = {}
        for node in gm.graph.nodes:
            if node.op in ("call_function", "call_method", "call_module"):
                name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
                self._nodes[name] = self._nodes.get(name, 0) + 1
        self._refuse, self._record = refuse, None

    def __call__(self, *inputs: Any) -> Any:
        if self._record is None:
            record = registry.new_record("inference", self._nodes)
            record.reason = REASON
            self._refuse(record)
            record.follow(self)
            self._record = record
        began = time.perf_counter_ns()
        outputs = self._run(*inputs)
        self._record.count_python_run(time.perf_counter_ns() - began)
        return outputs
