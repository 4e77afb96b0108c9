"""torch.compile(model, backend="tenon"): what the torch_dynamo_backends entry point names."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Callable, Sequence

from torch import fx

from . import aliasing, decompositions, higher_order, registry, training
from ._torch_private import aot_autograd, backward_at_once, frozen_inputs, kept_whole
from .compiler import Compiled, compile_static, judge_fallback
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
    compile_graph = lambda gm, inputs, kind: compile_aten(gm, inputs, kind=kind, options=checked)
    refuse = functools.partial(judge_fallback, options=checked)
    return training_backend(compile_graph, own=checked.autograd == "own", refuse=refuse)(gm, example_inputs)


def training_backend(
    compile_graph: Callable[[fx.GraphModule, Sequence[Any], str], Compiled],
    *,
    own: bool,
    refuse: Callable[[registry.GraphRecord], None] = lambda record: None,
) -> Callable:
    """The backend of torch.compile whose graphs of ATen operators compile_graph(graph, inputs, kind) compiles: "inference", "forward",
    "backward". own: training calls go through tenon's node of autograd where it can take them, else through AOTAutograd's wrapper.
    refuse(record) is asked before a graph runs in eager (torch_tenon.aliasing)."""

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable:
        capture = training.Capture(own)

        def forward(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
            return capture.take_forward(graph, compile_graph(graph, inputs, "forward"))

        def backward(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
            if not own:
                return compile_graph(graph, inputs, "backward")
            capture.backward = training.Backward(graph, lambda: compile_graph(graph, inputs, "backward"))
            return capture.backward

        traced = aot_autograd(
            fw_compiler=forward,
            bw_compiler=backward,
            inference_compiler=lambda graph, inputs: capture.take_inference(compile_graph(graph, inputs, "inference")),
            partition_fn=partition,
            decompositions=decompositions.table(),
            keep_inference_input_mutations=True,
        )
        with kept_whole(decompositions.WHOLE), backward_at_once() if own else contextlib.nullcontext():
            stock = traced(gm, example_inputs)
        written = capture.written(example_inputs)
        return aliasing.guarded(capture.finish(stock, example_inputs), gm, example_inputs, written, refuse)

    return backend


def compile_aten(
    gm: fx.GraphModule, example_inputs: Sequence[Any], *, kind: str, options: Options
) -> Compiled:
    """A graph of ATen operators, as AOTAutograd hands it over -> a boxed callable."""
    gm = higher_order.expand(gm)
    frozen = frozen_inputs() if options.freeze and kind == "inference" else ()
    if symbolic_inputs(gm):
        return DynamicGraph(gm, kind, options, frozen)
    return compile_static(gm, kind, options, frozen=frozen)
