"""Training graphs: tenon's node of autograd in the place of AOTAutograd's wrapper (docs/architecture/autograd.md)."""

from __future__ import annotations

import threading
from typing import Any, Callable, Sequence

import torch
from torch import fx

from . import _C, registry
from ._torch_private import TrainingFacts, forward_metadata, hooks_are_inlined, keep_nothing_donated
from .compiler import Compiled
from .dynamic import DynamicGraph, is_symbolic, symbolic_inputs
from .partition import CUT

_aten = torch.ops.aten


class Backward:
    """A backward that is compiled when it is first needed, once. Boxed, since AOTAutograd's wrapper calls it too. Thread-safe."""

    def __init__(self, gm: fx.GraphModule, compile_graph: Callable[[], Compiled]):
        self._boxed_call = True  # on the instance, since functools.wraps copies that
        self.gm = gm
        self._compile: Callable[[], Compiled] | None = compile_graph
        self._compiled: Compiled | None = None
        self._lock = threading.Lock()

    def compiled(self) -> Compiled:
        with self._lock:
            if self._compiled is None:
                self._compiled = self._compile()
                self._compile = None  # and what it knows
            return self._compiled

    def by_aten(self, inputs: list) -> list:
        """Node by node from Python, for tensors of any kind: those of a transform."""
        outputs = fx.Interpreter(self.gm).run(*inputs)
        return list(outputs)

    def __call__(self, inputs: list) -> list:
        return self.compiled()(inputs)


class Capture:
    """What AOTAutograd hands its compilers while it compiles one graph of Dynamo's."""

    def __init__(self, own: bool):
        self.own = own
        self.forward: Compiled | None = None
        self.forward_gm: fx.GraphModule | None = None
        self.backward: Backward | None = None
        self.metadata: Any = None
        self.grad_mode = torch.is_grad_enabled()

    def take_forward(self, gm: fx.GraphModule, compiled: Compiled) -> Compiled:
        self.forward_gm, self.forward, self.metadata = gm, compiled, forward_metadata()
        keep_nothing_donated(self.metadata)  # references decide what may be freed, call by call
        return compiled

    def take_inference(self, compiled: Compiled) -> Compiled:
        self.metadata = forward_metadata()
        return compiled

    def written(self, example_inputs: Sequence[Any]) -> list[int]:
        """Which of the caller's inputs the graph writes, once it has been compiled and before finish()."""
        infos = getattr(self.metadata, "input_info", ())
        if len(infos) != len(example_inputs):
            return []  # AOTAutograd has merged some: it knows that they share memory
        return [index for index, info in enumerate(infos) if info.mutates_data]

    def finish(self, stock: Callable, example_inputs: Sequence[Any]) -> Callable:
        """What Dynamo is to call: `stock`, AOTAutograd's wrapper of the graph, or the node's call."""
        try:
            return self._finish(stock, example_inputs)
        finally:  # AOTAutograd keeps its compilers, and so this object
            self.forward = self.forward_gm = self.backward = self.metadata = None

    def _finish(self, stock: Callable, example_inputs: Sequence[Any]) -> Callable:
        if self.forward is None:
            return stock  # no training graph
        reason = "asked for by the options" if not self.own else self._why_stock(example_inputs)
        if reason:
            self._note(registry.Autograd("stock", reason))
            return stock
        call = self._training_call(stock)
        self._note(registry.Autograd("own", "", call.counts()))
        return call

    def _note(self, autograd: registry.Autograd) -> None:
        followed = self.forward if isinstance(self.forward, DynamicGraph) else getattr(self.forward, "record", None)
        if followed is not None:
            followed.autograd = autograd
            followed.cut = self.forward_gm.meta.get(CUT)

    def _why_stock(self, example_inputs: Sequence[Any]) -> str:
        """Why the node can't take the graph; "": it can."""
        if not _C.AUTOGRAD_NODE:
            return f"the extension has no node for torch {torch.__version__}"
        if self.backward is None or self.metadata is None:
            return "AOTAutograd didn't say how the graph was cut"
        if not self.grad_mode:
            return "grad mode was off when the graph was compiled"
        if hooks_are_inlined():
            return "saved_tensors_hooks are inlined into the graph"
        if symbolic_inputs(self.forward_gm) or self._symbolic_tangents():
            return "dynamic sizes"
        if reason := TrainingFacts(self.metadata).why_stock():
            return reason
        if reason := _unlike(self.forward_gm, example_inputs):
            return reason
        if any(node.target is _aten.copy_.default for node in self.backward.gm.graph.nodes):
            return "the backward writes an input"
        return self._miscounted()

    def _symbolic_tangents(self) -> bool:
        """Saved tensors may have sizes that only their operator knows, as states of random generators do: they pass by as they are."""
        read = self.backward.gm.graph.find_nodes(op="placeholder")
        tangents = read[len(_returned(self.forward_gm)) - TrainingFacts(self.metadata).num_outputs :]
        return any(map(is_symbolic, tangents))

    def _miscounted(self) -> str:
        """The plan's numbers, which follow from AOTAutograd's metadata, against the graphs themselves."""
        facts = TrainingFacts(self.metadata)
        returned, gradients = _returned(self.forward_gm), _returned(self.backward.gm)
        saved = returned[facts.num_outputs :]
        read = self.backward.gm.graph.find_nodes(op="placeholder")
        tangents = sum(out.differentiable for out in facts.outputs())
        if len(read) != len(saved) + tangents or len(gradients) != facts.num_inputs:
            return "the backward's inputs are not what the forward saves and the outputs' gradients"
        if not all(isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.Tensor) for node in (*saved, *read)):
            return "the backward reads what is no tensor"
        for index, (out, node) in enumerate(zip(facts.outputs(), returned)):
            if out.argument < 0 and isinstance(node, fx.Node) and node.op == "placeholder":
                return f"output {index} is an input"
        return ""

    def _training_call(self, stock: Callable):
        facts = TrainingFacts(self.metadata)
        inputs = [node.meta["val"] for node in self.forward_gm.graph.find_nodes(op="placeholder")]
        gradients = _returned(self.backward.gm)
        saved = len(_returned(self.forward_gm)) - facts.num_outputs
        tangents = [node.meta["val"] for node in self.backward.gm.graph.find_nodes(op="placeholder")[saved:]]
        return _C.training_call(
            stock=stock,
            forward=self.forward,
            make_backward=self.backward.compiled,
            aten_backward=self.backward.by_aten,
            inputs=[
                (facts.has_edge(k, gradient is not None), k in facts.written, _accumulates(value, gradient))
                for k, (value, gradient) in enumerate(zip(inputs, gradients))
            ],
            outputs=[(out.argument, out.differentiable) for out in facts.outputs()],
            tangents=[(t.dtype, tuple(t.shape), tuple(t.stride())) for t in tangents],
            saved=saved,
            saved_unchecked=facts.saved_unchecked,
            nondeterministic=facts.nondeterministic,
        )


def _returned(gm: fx.GraphModule) -> list[Any]:
    (output,) = gm.graph.find_nodes(op="output")
    return list(output.args[0])


def _unlike(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> str:
    """Where the graph's inputs aren't the caller's: AOTAutograd has merged equal or overlapping ones, or added some."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    if len(placeholders) != len(example_inputs):
        return f"the graph has {len(placeholders)} inputs, its caller {len(example_inputs)}"
    for index, (node, given) in enumerate(zip(placeholders, example_inputs)):
        value = node.meta.get("val")
        if not isinstance(given, torch.Tensor):
            return f"input {index} is a {type(given).__name__}"
        if not isinstance(value, torch.Tensor) or (value.shape, value.dtype) != (given.shape, given.dtype):
            return f"input {index} is not the caller's"
    return ""


def _accumulates(value: torch.Tensor, gradient: fx.Node | None) -> bool:
    """The gradient is as the engine would want it, unchecked."""
    made = gradient.meta.get("val") if isinstance(gradient, fx.Node) else None
    return isinstance(made, torch.Tensor) and (made.shape, made.dtype) == (value.shape, value.dtype)
