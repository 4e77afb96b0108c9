"""torch.compile(model, backend="tenon"): what the torch_dynamo_backends entry point names."""

from __future__ import annotations

import contextlib
import functools
import gc
from typing import Any, Callable, Sequence

from torch import fx

from . import aliasing, closed_over, data_sizes, decompositions, higher_order, objects, passed_sizes, registry, size_guards, training
from ._torch_private import aot_compile, backward_at_once, frozen_inputs, lazy_graph_modules, metadata_of, quick_trace
from ._torch_private import statistics_in_f32, traced_as
from .compiler import Compiled, compile_static, judge_fallback, run_from_python
from .dynamic import compile_dynamic, symbolic_inputs
from .export import count_nodes
from .first_call import Spent
from .options import Options
from .partition import partition
from .pure_graphs import effects_of


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
    backend = training_backend(compile_graph, own=checked.autograd == "own", own_cut=checked.partitioner == "own", refuse=refuse)
    return backend(gm, example_inputs)


@contextlib.contextmanager
def no_collections():
    """Inside, Python's collector of cycles rests: a compile makes a million objects, for which it would walk over all of the process's
    several times, a quarter of a second each time where torch and transformers are loaded."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def training_backend(
    compile_graph: Callable[[fx.GraphModule, Sequence[Any], str], Compiled],
    *,
    own: bool,
    own_cut: bool = True,
    refuse: Callable[[registry.GraphRecord], None] = lambda record: None,
) -> Callable:
    """The backend of torch.compile whose graphs of ATen operators compile_graph(graph, inputs, kind) compiles: "inference", "forward",
    "backward". own: training calls go through tenon's node of autograd where it can take them, else through AOTAutograd's wrapper.
    own_cut: tenon's partitioner cuts training graphs where it can, else PyTorch's. refuse(record) is asked before a graph runs in eager
    (torch_tenon.aliasing)."""

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable:
        capture, spent = training.Capture(own), Spent()
        example_inputs, constants = closed_over.make_constant(gm, passed_sizes.take_out(gm, example_inputs))

        def compile_part(graph: fx.GraphModule, inputs: Sequence[Any], kind: str) -> Compiled:
            compiled = record = None
            with no_collections(), spent.compile(lambda: record.compile_ms if record is not None else {}):
                compiled = compile_graph(graph, inputs, kind)
                record = getattr(compiled, "record", None)
            if kind != "backward" and record is not None:
                record.first_call = spent
            return compiled

        def forward(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
            return capture.take_forward(graph, compile_part(graph, inputs, "forward"))

        def backward(graph: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
            if not own:
                return compile_part(graph, inputs, "backward")
            capture.backward = training.Backward(graph, lambda: compile_part(graph, inputs, "backward"))
            return capture.backward

        def cut(*args: Any, **kwargs: Any):
            with spent.phase("partition"):
                return partition(*args, own=own_cut, **kwargs)

        symbolic = symbolic_inputs(gm, "example_value")
        if symbolic:
            size_guards.decide_natively()
        instead = decompositions.MENDED | decompositions.resampling(bool(symbolic), example_inputs)
        metadata = metadata_of(effects_of(gm))
        at_once = backward_at_once() if own else contextlib.nullcontext()
        tracing = quick_trace(bool(symbolic))
        traced = traced_as(instead)
        with spent.phase("aot"), no_collections(), traced, statistics_in_f32(), at_once, lazy_graph_modules(), metadata, tracing, constants:
            stock = aot_compile(
                gm,
                example_inputs,
                fw_compiler=forward,
                bw_compiler=backward,
                inference_compiler=lambda graph, inputs: capture.take_inference(compile_part(graph, inputs, "inference")),
                partition_fn=cut,
                decompositions=decompositions.table(),
                keep_inference_input_mutations=True,
            )
        written = capture.written(example_inputs)
        return aliasing.guarded(capture.finish(stock, example_inputs), gm, example_inputs, written, refuse)

    return backend


def compile_aten(
    gm: fx.GraphModule, example_inputs: Sequence[Any], *, kind: str, options: Options
) -> Compiled:
    """A graph of ATen operators, as AOTAutograd hands it over -> a boxed callable."""
    gm = higher_order.expand(gm)
    if handed_through := objects.objects_of(gm):
        return objects.compile_without(gm, handed_through, lambda graph: _compile_aten(graph, kind, options, ()))
    return _compile_aten(gm, kind, options, frozen_inputs() if options.freeze and kind == "inference" else ())


def _compile_aten(gm: fx.GraphModule, kind: str, options: Options, frozen: Sequence[int]) -> Compiled:
    if not data_sizes.decided_by_data(gm):
        return _compile_part(gm, kind, options, frozen)
    return data_sizes.compile_in_parts(gm, lambda part, kept, why: _compile_part(part, kind, options, kept, why), frozen)


def _compile_part(gm: fx.GraphModule, kind: str, options: Options, frozen: Sequence[int], from_python: str = "") -> Compiled:
    if from_python:
        return run_from_python(gm, registry.new_record(kind, count_nodes(gm)), options, from_python)
    if symbolic_inputs(gm):
        return compile_dynamic(gm, kind, options, frozen)
    return compile_static(gm, kind, options, frozen=frozen)
