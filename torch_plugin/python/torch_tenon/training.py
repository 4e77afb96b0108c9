"""Training graphs: tenon's node of autograd in the place of AOTAutograd's wrapper (docs/architecture/autograd.md)."""

from __future__ import annotations

import threading
from typing import Any, Callable, Sequence

import sympy
import torch
from torch import fx

from . import _C, registry, symbols
from ._torch_private import TrainingFacts, forward_metadata, hooks_are_inlined, keep_nothing_donated, untraced
from .compiler import Compiled
from .dynamic import DynamicGraph, is_symbolic
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
        if reason := TrainingFacts(self.metadata).why_stock():
            return reason
        if reason := _unlike(self.forward_gm, example_inputs):
            return reason
        if any(node.target is _aten.copy_.default for node in self.backward.gm.graph.nodes):
            return "the backward writes an input"
        return self._miscounted()

    def _miscounted(self) -> str:
        """The plan's numbers, which follow from AOTAutograd's metadata, against the graphs themselves."""
        facts = TrainingFacts(self.metadata)
        returned, gradients = _returned(self.forward_gm), _returned(self.backward.gm)
        saved, numbers = _parted(returned[facts.num_outputs :], facts.saved_numbers)
        read = self.backward.gm.graph.find_nodes(op="placeholder")
        tangents = sum(out.differentiable for out in facts.outputs())
        if len(read) != len(saved) + len(numbers) + tangents or len(gradients) != facts.num_inputs:
            return "the backward's inputs are not what the forward saves and the outputs' gradients"
        if not all(_is(torch.Tensor, node) for node in (*saved, *read[len(numbers) :])):
            return "the backward reads what is no tensor"
        if not all(_is(torch.SymInt, node) for node in (*numbers, *read[: len(numbers)])):
            return "a size that the backward reads is no integer"
        if any(_order(node.meta["val"]) is None for node in read[len(numbers) + len(saved) :] if is_symbolic(node)):
            return "a gradient of dynamic sizes whose strides don't follow from them"
        for index, (out, node) in enumerate(zip(facts.outputs(), returned)):
            if out.argument < 0 and _is(torch.Tensor, node) and node.op == "placeholder":
                return f"output {index} is an input"
        return ""

    def _training_call(self, stock: Callable):
        facts = TrainingFacts(self.metadata)
        inputs = [node.meta["val"] for node in self.forward_gm.graph.find_nodes(op="placeholder")]
        gradients = _returned(self.backward.gm)
        saved = len(_returned(self.forward_gm)) - facts.num_outputs
        tangents = self.backward.gm.graph.find_nodes(op="placeholder")[saved:]
        return _C.training_call(
            stock=stock,
            forward=self.forward,
            make_backward=untraced(self.backward.compiled),
            aten_backward=untraced(self.backward.by_aten),
            inputs=[
                (False, facts.has_edge(k, gradient is not None), k in facts.written, _accumulates(value, gradient))
                if isinstance(value, torch.Tensor) else (True, False, False, False)
                for k, (value, gradient) in enumerate(zip(inputs, gradients))
            ],
            outputs=[(out.argument, out.differentiable, out.mark) for out in facts.outputs()],
            tangents=[_tangent(node) for node in tangents],
            saved=saved - facts.saved_numbers,
            saved_numbers=facts.saved_numbers,
            saved_unchecked=facts.saved_unchecked,
            nondeterministic=facts.nondeterministic,
        )  # fmt: skip


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
        if not isinstance(given, (torch.Tensor, int, torch.SymInt)):
            return f"input {index} is a {type(given).__name__}"
        if not _alike(value, given):
            return f"input {index} is not the caller's"
    return ""


def _alike(value: Any, given: Any) -> bool:
    """Of one kind and, as far as one can tell, of the same sizes: Dynamo's example may be a tensor of the first call's numbers."""
    if isinstance(value, torch.Tensor) and isinstance(given, torch.Tensor):
        return value.dtype == given.dtype and len(value.shape) == len(given.shape) and all(map(_same, value.shape, given.shape))
    return not isinstance(value, torch.Tensor) and not isinstance(given, torch.Tensor) and _same(value, given)


def _same(a: int | torch.SymInt, b: int | torch.SymInt) -> bool:
    return symbols.is_symbolic(a) != symbols.is_symbolic(b) or symbols.to_text(a) == symbols.to_text(b)


def _is(kind: type, node: Any) -> bool:
    return isinstance(node, fx.Node) and isinstance(node.meta.get("val"), kind)


def _parted(saved: list[Any], numbers: int) -> tuple[list[Any], list[Any]]:
    """Tensors, and the sizes behind them."""
    return saved[: len(saved) - numbers], saved[len(saved) - numbers :]


def _tangent(node: fx.Node) -> tuple:
    """TrainingPlan::Tangent: dtype, sizes, strides, order."""
    value = node.meta["val"]
    if is_symbolic(node):
        return value.dtype, (), (), _order(value)
    return value.dtype, tuple(value.shape), tuple(value.stride()), None


def _order(value: torch.Tensor) -> tuple[int, ...] | None:
    """Dims from the outermost to the innermost of a tensor that is dense for all sizes; None: it isn't known to be."""
    sizes, strides = ([sympy.sympify(symbols.expression(n)) if symbols.is_symbolic(n) else sympy.Integer(n) for n in numbers]
                      for numbers in (value.shape, value.stride()))  # fmt: skip
    inside, expected, order = list(range(value.dim())), sympy.Integer(1), []
    while inside:  # the next dim outwards; of several, dims of one element lie anywhere, and the last is the inner one
        found = next((d for d in reversed(inside) if sizes[d] == 1), None)
        if found is None:
            found = next((d for d in reversed(inside) if sympy.simplify(_without_ones(strides[d]) - expected) == 0), None)
        if found is None:
            return None
        inside.remove(found)
        order.insert(0, found)
        expected *= sizes[found]
    return tuple(order)


def _without_ones(stride: sympy.Basic) -> sympy.Basic:
    """A size counts at least as 1 in strides; here sizes are as if they did."""
    return stride.replace(lambda e: type(e).__name__ == "Max" and sympy.Integer(1) in e.args and len(e.args) == 2,
                          lambda e: next(a for a in e.args if a != 1))  # fmt: skip


def _accumulates(value: torch.Tensor, gradient: fx.Node | None) -> bool:
    """The gradient is as the engine would want it, unchecked."""
    made = gradient.meta.get("val") if isinstance(gradient, fx.Node) else None
    if not isinstance(made, torch.Tensor):
        return False
    return made.dtype == value.dtype and list(map(symbols.to_text, made.shape)) == list(map(symbols.to_text, value.shape))
