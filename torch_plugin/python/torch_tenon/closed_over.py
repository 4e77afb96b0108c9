"""Numbers that a function closes over, under dynamic=True: constants until they change.

Dynamo makes every float of Python's an input then, `self.eps` of each norm and the coefficients in a module's globals too: each call makes
a tensor of each (2 us), and kernels read what could be written in them. Nearly all of them never change. So the first value that is seen
of one is a constant of the graph, under Dynamo's guard; another value, for which Dynamo traces again, makes it an input for good. What
the caller passes stays an input from the start.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, ContextManager, Sequence

from torch import fx

from ._torch_private import known_constants, number_inputs

# By code that Dynamo traced: what is closed over -> its first value; None: it has had another. Dynamo traces under a lock of its own.
_first_values: weakref.WeakKeyDictionary[Any, dict[str, float | None]] = weakref.WeakKeyDictionary()


def make_constant(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> tuple[Sequence[Any], ContextManager]:
    """Takes such numbers out of Dynamo's graph: the inputs that are left, and the context to compile it in."""
    code, numbers = number_inputs(gm)
    closed_over = [n for n in numbers if n.closed_over and n.value != 0]  # a guard takes -0.0 for 0.0
    if not closed_over:
        return example_inputs, contextlib.nullcontext()
    first = _first_values.setdefault(code, {})
    for n in closed_over:
        if first.setdefault(n.name, n.value) != n.value:
            first[n.name] = None
    constant = {n.node: n for n in closed_over if first[n.name] is not None}
    kept = [x for node, x in zip(gm.graph.find_nodes(op="placeholder"), example_inputs, strict=True) if node not in constant]
    for number in constant.values():
        number.make_constant()
    gm.recompile()
    return kept, known_constants([n.symbol for n in constant.values()])
