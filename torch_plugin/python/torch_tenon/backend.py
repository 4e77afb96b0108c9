"""torch.compile(model, backend="tenon"): what the torch_dynamo_backends entry point names."""

from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

from torch import fx

from . import decompositions
from ._torch_private import aot_autograd, frozen_inputs, kept_whole
from .compiler import Compiled, compile_static
from .dynamic import DynamicGraph, symbolic_inputs
from .options import Options
from .partition import partition


def tenon(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable:
    """Compiles one graph of Dynamo's, for inference or with its backward. Options: torch_tenon.options."""
    checked = Options.make(mode, options)
    compiler = lambda kind: functools.partial(compile_aten, kind=kind, options=checked)
    backend = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        partition_fn=partition,
        decompositions=decompositions.table(),
        keep_inference_input_mutations=True,
    )
    with kept_whole(decompositions.WHOLE):
        return backend(gm, example_inputs)


def compile_aten(
    gm: fx.GraphModule, example_inputs: Sequence[Any], *, kind: str, options: Options
) -> Compiled:
    """A graph of ATen operators, as AOTAutograd hands it over -> a boxed callable."""
    frozen = frozen_inputs() if options.freeze and kind == "inference" else ()
    if symbolic_inputs(gm):
        return DynamicGraph(gm, kind, options, frozen)
    return compile_static(gm, kind, options, frozen=frozen)
