"""Recorded ATen calls (aten_calls.py) as graphs whose sizes are symbols, and the same calls at other sizes."""

import dataclasses
from typing import Any

import sympy
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import LocalSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils import _pytree as pytree

from plugin.aten_calls import Call, _output_nodes
from torch_tenon import symbols

NEVER_RESIZED = 2  # sizes of 0 and 1 are other graphs of Dynamo's
SIZES = {"size", "input_size", "N", "HxW", "start", "end", "n", "m", "s", "steps"}  # arguments that say sizes


class NoSymbols(Exception):
    """Every size of the call is a number: its meaning needs them."""


@dataclasses.dataclass
class Symbolic:
    """One call as a graph; `env` knows what its symbols are in that call, and what has been taken for granted of them."""

    call: Call
    module: torch.fx.GraphModule
    inputs: list[Any]  # fake tensors, SymInts
    leaves: list[Any]  # of the call's arguments: what is resized, an input's number; else the argument
    spec: Any
    env: ShapeEnv

    def symbols(self) -> dict[sympy.Symbol, int]:
        numbers = [n for value in self.inputs for n in _numbers(value) if symbols.is_symbolic(n)]
        found = set().union(*(symbols.expression(n).free_symbols for n in numbers))
        return {s: int(self.env.backed_var_to_val[s]) for s in sorted(found, key=str)}

    def at(self, values: dict[sympy.Symbol, int]) -> tuple[Call, list[Any]] | None:
        """The call with these sizes, its values drawn from its own, and the graph's inputs; None: the graph isn't meant for them, or ATen
        refuses them."""
        if not all(guard.expr.xreplace(values) == sympy.true for guard in self.env.guards):
            return None
        number = lambda n: int(symbols.evaluate(n, values))
        inputs, leaves = [None] * len(self.inputs), []
        for given in self.leaves:
            if isinstance(given, _Input):
                fake = self.inputs[given.number]
                if isinstance(fake, torch.Tensor):
                    given_value = _resized(given.value, [number(n) for n in fake.shape], [number(n) for n in fake.stride()])
                else:
                    given_value = number(fake)
                inputs[given.number] = given_value
                leaves.append(given_value)
            else:
                leaves.append(given)
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        call = Call(self.call.overload, args, kwargs, self.call.source)
        try:
            call.eager
        except Exception:
            return None
        return call, inputs


@dataclasses.dataclass
class _Input:
    number: int
    value: Any  # in the recorded call


def _numbers(value):
    return (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)


def _resized(tensor: torch.Tensor, sizes: list[int], strides: list[int]) -> torch.Tensor:
    """Behind its last, a dim has elements drawn from it: the same ones in every tensor, so that what belongs together stays so."""
    values = tensor
    for dim, size in enumerate(sizes):
        if size != tensor.shape[dim]:
            drawn = torch.randint(tensor.shape[dim], (size,), generator=torch.Generator().manual_seed(size))
            values = values.index_select(dim, torch.cat([torch.arange(tensor.shape[dim]), drawn])[:size])
    for dim, stride in enumerate(strides):  # of an expanded dim all elements are one
        values = values.narrow(dim, 0, 1) if stride == 0 and sizes[dim] > 1 else values
    resized = torch.empty_strided(values.shape, strides, dtype=tensor.dtype)
    return resized.copy_(values).expand(sizes)


def _context(tensor: torch.Tensor, dims: str) -> StatelessSymbolicContext:
    outer = next((d for d, size in enumerate(tensor.shape) if size >= NEVER_RESIZED), None)
    dynamic = lambda dim, size: size >= NEVER_RESIZED and (dims == "all" or dim == outer)
    sizes = [DimDynamic.DUCK if dynamic(d, s) else DimDynamic.STATIC for d, s in enumerate(tensor.shape)]
    return StatelessSymbolicContext(
        dynamic_sizes=sizes, dynamic_strides=[DimDynamic.INFER_STRIDE] * len(sizes),
        constraint_sizes=[None] * len(sizes), constraint_strides=[None] * len(sizes),
    )  # fmt: skip


def graph_of(call: Call, dims: str) -> Symbolic:
    """dims: "outer", the first dim of several elements of every tensor; "all". Equal sizes are one symbol, and so are arguments that say
    sizes; a factory's are symbols of their own. Raises NoSymbols, or what the fake kernel does."""
    graph, env = torch.fx.Graph(), ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    inputs, factory = [], not call.tensors()

    def add(value, meta):
        node = graph.placeholder(f"arg{len(inputs)}")
        node.meta["val"] = meta(LocalSource(node.name))
        inputs.append(node.meta["val"])
        return node, _Input(len(inputs) - 1, value)

    def place(name, leaf):
        if isinstance(leaf, torch.Tensor):
            return add(leaf, lambda source: mode.from_tensor(leaf, symbolic_context=_context(leaf, dims), source=source))
        if name in SIZES and type(leaf) is int and leaf >= NEVER_RESIZED and (factory or leaf in env.backed_var_to_val.values()):
            symbol = lambda source: env.create_symbol(leaf, source, dynamic_dim=DimDynamic.DUCK)
            return add(leaf, lambda source: env.create_symintnode(symbol(source), hint=leaf, source=source))
        return leaf, leaf

    names = [argument.name for argument in call.overload._schema.arguments]
    placed, leaves = [], []
    given = [*zip(names, call.args), *call.kwargs.items()]
    done = {}
    for wanted in (True, False):  # tensors' symbols before the numbers that are equal to them
        for position, (name, value) in enumerate(given):
            if any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value)) == wanted:
                flat, spec = pytree.tree_flatten(value)
                done[position] = ([place(name, leaf) for leaf in flat], spec)
    for position in range(len(given)):
        pairs, spec = done[position]
        placed.append(pytree.tree_unflatten([node for node, _ in pairs], spec))
        leaves += [leaf for _, leaf in pairs]
    args, kwargs = tuple(placed[: len(call.args)]), dict(zip(call.kwargs, placed[len(call.args) :]))
    node = graph.call_function(call.overload, args, kwargs)
    fake = lambda leaf: leaf.meta["val"] if isinstance(leaf, torch.fx.Node) else leaf
    with mode, enable_python_dispatcher():
        node.meta["val"] = call.overload(*torch.fx.node.map_arg(args, fake), **torch.fx.node.map_arg(kwargs, fake))
    graph.output(_output_nodes(graph, node))
    spec = pytree.tree_flatten((call.args, call.kwargs))[1]
    made = Symbolic(call, torch.fx.GraphModule(torch.nn.Module(), graph), inputs, leaves, spec, env)
    if not made.symbols():
        raise NoSymbols
    return made
