"""FX graphs without torch.compile."""

from __future__ import annotations

from typing import Any, Sequence

from torch import fx

from . import _C
from ._torch_private import fill_metas
from .backend import compile_aten
from .compiler import Compiled
from .options import Options


def compile_graph(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    fallback: str = "error",
    options: dict[str, Any] | None = None,
) -> Compiled:
    """Compiles an FX GraphModule of ATen ops; its output is a list or tuple of tensors and None.

    An output that is a view of an input of another type (view_as_real, view.dtype) is a copy, unlike other views.
    Returns a callable: list of inputs in (which it may empty), list of outputs out. With
    fallback="error" an op that would not run natively raises, naming its overload.
    """
    checked = Options.make(None, {"fallback": fallback, **(options or {})})
    if any("val" not in n.meta for n in gm.graph.find_nodes(op="placeholder")):
        fill_metas(gm, example_inputs)
    return compile_aten(gm, list(example_inputs), kind="inference", options=checked)


def cache_clear() -> None:
    """Drops cached executables that no graph uses."""
    _C.cache_clear()


__all__ = ["cache_clear", "compile_graph"]
