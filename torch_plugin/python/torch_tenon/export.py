"""FX graphs of ATen ops -> aten::Graph (torch_plugin/aten/graph.h), node by node through _C.Graph.

Every call has its schema's whole argument list. SymInts are numbers by the time a graph is exported with `values`, else
expressions over the graph's symbols. What a graph can't say about a call (a generator, a higher-order operator, a dtype without a
name) makes it a `python.<id>` node: a Python callable run as one step.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
import re
from typing import Any, Callable, Sequence

import torch
from torch import fx

from . import _C, symbols
from ._torch_private import is_higher_order, is_with_effects, plain_tensor_types
from .output_views import OutputPlan, plan_outputs

# Of the operators with an ordered effect, those that only raise: framework steps, which keep their order.
_CHECKS = {torch.ops.aten._linalg_check_errors.default}
_LITERAL_ELEMENTS = 16  # constants up to this size are part of the graph
_NUMBERS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


class NotExpressible(Exception):
    """No aten::Graph says what this graph does; the message says why."""


class _NotAnArgument(Exception):
    """No aten::Graph has such an argument; the call becomes a Python step."""


@dataclasses.dataclass
class Exported:
    name: str
    graph: _C.Graph | None = None
    constants: list[torch.Tensor] = dataclasses.field(default_factory=list)
    callables: list[int] = dataclasses.field(default_factory=list)  # ids, freed by release()
    needs_eager: str = ""  # why no compiler can take it
    # Per output of the graph: k, the program's output k; or (is_input, k, sizes, strides, offset), a
    # view of input or output k. None: the program's outputs are the graph's.
    recipes: list[Any] | None = None

    @property
    def text(self) -> str:
        return self.graph.text()

    def release(self) -> None:
        """After the compile: prepared steps keep their callables."""
        for number in self.callables:
            _C.unregister_callable(number)
        self.callables.clear()


def count_nodes(gm: fx.GraphModule) -> dict[str, int]:
    """ATen (and other) operators of the graph by overload; size arithmetic and getitem aside."""
    counts: collections.Counter[str] = collections.Counter()
    for node in gm.graph.nodes:
        if node.op == "call_function" and not _is_size_arithmetic(node):
            counts[_target_name(node.target)] += 1
    return dict(counts)


def export(gm: fx.GraphModule, name: str, values: symbols.Values | None = None) -> Exported:
    """Raises NotExpressible. `values`: what the graph's symbols stand for, so that all sizes are numbers."""
    return _Exporter(gm, name, values).run()


class _Exporter:
    def __init__(self, gm: fx.GraphModule, name: str, values: symbols.Values | None):
        self.gm, self.values = gm, values
        self.out = Exported(name)
        self.names: dict[tuple[fx.Node, int | None], str] = {}
        self.symbols: set[str] = set()
        self.resolved = True  # a value with a conjugate or negative bit is written as what is read through it
        self.tokens: set[fx.Node] = set()  # of ordered effects: the graph's order is order enough

    def run(self) -> Exported:
        self.plan = plan_outputs(self.gm)
        self.resolved = not _needs_bits(self.gm, self.plan)
        self.graph = self.out.graph = _C.Graph(self.out.name, plain_tensor_types(), self._arg, self._meta, self.resolved)
        self.out.needs_eager = self.plan.foreign
        try:
            for node in self.gm.graph.nodes:
                if node not in self.plan.skipped:
                    getattr(self, f"_{node.op}")(node)
            if not self.plan.trivial:
                self.out.recipes = [self._recipe(r) for r in self.plan.recipes]
        except BaseException:
            self.out.release()
            raise
        return self.out

    # Nodes.

    def _placeholder(self, node: fx.Node) -> None:
        value = node.meta.get("val", None)
        if any(is_with_effects(user) for user in node.users):
            self.tokens.add(node)  # AOTAutograd passes None for it
            value = None
        self.names[node, None] = node.name
        self.graph.input(node.name, value)

    def _get_attr(self, node: fx.Node) -> None:
        value = _attribute(self.gm, node.target)
        if not isinstance(value, torch.Tensor):
            return  # a submodule: an argument of a higher-order operator, which is called from Python
        if type(value) not in plain_tensor_types() or _why_other(value):
            raise NotExpressible(f"constant {node.target}: {_why_other(value) or type(value).__name__}")
        self.names[node, None] = node.name
        if value.numel() <= _LITERAL_ELEMENTS and value.is_contiguous() and not _is_fake(value):
            self.graph.literal(node.name, value)
        else:
            self.out.constants.append(value)
            self.graph.constant(node.name, value)

    def _call_function(self, node: fx.Node) -> None:
        if node.target is operator.getitem and (node.args[0], node.args[1]) in self.names:
            self.names[node, None] = self.names[node.args]
            return
        if node.target is operator.getitem and is_with_effects(node.args[0]) and node.args[1] == 0:
            self.tokens.add(node)
            return
        if is_with_effects(node) and isinstance(node.args[1], torch._ops.OpOverload):
            return self._with_effects(node)
        if _is_size_arithmetic(node):
            return
        if isinstance(node.target, torch._ops.OpOverload):
            try:
                return self._aten(node)
            except _NotAnArgument:
                pass
        self._python(node)

    def _call_module(self, node: fx.Node) -> None:
        raise NotExpressible(f"the graph calls the module {node.target}; wanted ATen operators")

    def _call_method(self, node: fx.Node) -> None:
        raise NotExpressible(f"the graph calls the method {node.target}; wanted ATen operators")

    def _output(self, node: fx.Node) -> None:
        outputs = node.args[0]
        if not isinstance(outputs, (list, tuple)):
            raise NotExpressible("the graph's output is no list or tuple")
        self.graph.returns([self._returned(k, o) for k, o in enumerate(self.plan.direct)])

    def _recipe(self, recipe: Any) -> Any:
        if isinstance(recipe, int):
            return recipe
        base, node = recipe
        is_input = base.op == "placeholder"
        places = self.gm.graph.find_nodes(op="placeholder") if is_input else self.plan.direct
        value = node.meta["val"]
        number = lambda n: symbols.evaluate(n, self.values) if self.values is not None else int(n)
        offset = number(value.storage_offset()) - number(base.meta["val"].storage_offset())
        sizes, strides = tuple(map(number, value.shape)), tuple(map(number, value.stride()))
        return (is_input, list(places).index(base), sizes, strides, offset)

    def _returned(self, index: int, value: Any) -> Any:
        if value in self.tokens:
            return None
        if isinstance(value, fx.Node) and (value, None) in self.names:
            return None if value.meta.get("val", None) is None else _C.Value(self.names[value, None])
        node = value
        if isinstance(node, fx.Node):
            value = node.meta.get("val", None)
            if isinstance(value, (torch.Tensor, list, tuple)):
                raise NotExpressible(f"output {index} of the graph is {_unnamed(node)}")
        if value is None:
            return None
        if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
            return self._symbolic(value)
        raise NotExpressible(f"output {index} of the graph is of type {type(value).__name__}; wanted a tensor")

    # Calls.

    def _aten(self, node: fx.Node) -> None:
        schema = node.target._schema
        args = _whole_arguments(node.target, node.args, node.kwargs)
        alias = _mutated_first(node, schema)
        names, metas = ([node.name], []) if alias else self._results(node)
        self._call(node, _target_name(node.target), args, names, metas, alias)
        if alias:
            self.names[node, None] = node.name
        if schema.is_mutable and not alias and not self.out.needs_eager:
            self.out.needs_eager = f"{node.target} changes its arguments"

    def _with_effects(self, node: fx.Node) -> None:
        _, target, *args = node.args
        args = _whole_arguments(target, args, node.kwargs)
        values = node.meta["val"][1:]
        for index in range(len(values)):
            self.names[node, index + 1] = f"{node.name}.{index + 1}"
        used = [i for i, value in enumerate(values) if value is not None]
        if target not in _CHECKS:
            self.out.needs_eager = self.out.needs_eager or f"{target} has an ordered effect"
        self._call(node, str(target), args, [self.names[node, i + 1] for i in used], [values[i] for i in used])

    def _python(self, node: fx.Node) -> None:
        call, operands = _closure(self.gm, node, self)
        number = _C.register_callable(call)
        self.out.callables.append(number)
        if not self.out.needs_eager:
            self.out.needs_eager = f"{_target_name(node.target)} is called from Python"
        args = [_C.Value(self._operand(o)) for o in operands]
        self._call(node, f"python.{number}", args, *self._results(node))

    def _call(self, node: fx.Node, op: str, args: Sequence[Any], names: Sequence[str], metas: Sequence[Any], alias: bool = False) -> None:
        """One node of the graph. `args`: see _arg; `metas`: see _meta; alias: the result is the first tensor, changed."""
        self.graph.node(op, args, names, metas, alias, *_provenance(node))

    def _results(self, node: fx.Node) -> tuple[Sequence[str], Sequence[Any]]:
        """Names of the results, and what is known of each."""
        value = node.meta.get("val", None)
        if isinstance(value, (list, tuple)):
            names = [f"{node.name}.{index}" for index in range(len(value))]
            for index, name in enumerate(names):
                self.names[node, index] = name
            return names, value
        if value is None and not node.users:
            return (), ()
        self.names[node, None] = node.name
        return (node.name,), (value,)

    # Arguments.

    def _operand(self, node: fx.Node) -> str:
        if (node, None) not in self.names:
            raise NotExpressible(f"an operand is {_unnamed(node)}")
        return self.names[node, None]

    def _arg(self, value: Any) -> Any:
        """Of what _C.Graph doesn't read by itself as an argument (or as part of one): numbers, None, strings, lists, dtypes, layouts,
        devices and memory formats are none of it."""
        if isinstance(value, fx.Node):
            return self._node_arg(value)
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._number(value)
        raise _NotAnArgument(type(value).__name__)

    def _node_arg(self, node: fx.Node) -> Any:
        value = node.meta.get("val", None)
        if isinstance(value, _NUMBERS):
            return self._number(value)
        if isinstance(value, (list, tuple)):
            return [_C.Value(self.names[node, i]) for i in range(len(value))]
        if (node, None) not in self.names:
            raise _NotAnArgument(node.name)
        return _C.Value(self.names[node, None])

    def _number(self, value: Any) -> Any:
        if isinstance(value, (bool, int, float)):
            return value
        if self.values is not None:
            return symbols.evaluate(value, self.values)
        if isinstance(value, torch.SymInt):
            return self._symbolic(value)
        raise NotExpressible(f"a symbolic {type(value).__name__}")

    def _symbolic(self, value: int | torch.SymInt) -> Any:
        size = self._size(value)
        return size if isinstance(size, int) else _C.Symbolic(size)

    def _size(self, value: int | torch.SymInt) -> int | str:
        """A number, or the text of an expression."""
        if type(value) is int:
            return value
        if self.values is not None:
            return symbols.evaluate(value, self.values)
        text, used = symbols.to_text(value)
        for name in used:
            if name not in self.symbols:
                self.symbols.add(name)
                self.graph.symbol(name)
        return text if used else int(value)

    def _meta(self, value: Any) -> Any:
        """Of what _C.Graph doesn't read by itself: dense CPU tensors of numbers as sizes, ints and None are none of it."""
        if value is None:
            return None
        if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
            return "symint", self._size(value)
        if not isinstance(value, torch.Tensor):
            return "other", type(value).__name__
        if why := _why_other(value, self.resolved):
            return "other", why
        sizes, strides = tuple(map(self._size, value.shape)), tuple(map(self._size, value.stride()))
        return "tensor", value.dtype, sizes, strides, self._size(value.storage_offset())


def _unnamed(node: fx.Node) -> str:
    """What a node is that should be one tensor of the text and isn't: whose result, of what kind, where."""
    maker, path = node, ""
    while maker.target is operator.getitem:
        maker, path = maker.args[0], f"[{maker.args[1]}]{path}"
    value = node.meta.get("val", None)
    kind = "a tuple" if isinstance(value, (list, tuple)) else "inside a tuple" if path.count("[") > 1 else "no tensor"
    source = _last_frame(maker.stack_trace or "")
    where = f" ({source})" if source else ""
    return f"result{path} of {_target_name(maker.target)}{where}, which is {kind}; wanted a tensor by itself"


def _needs_bits(gm: fx.GraphModule, plan: OutputPlan) -> bool:
    """Whether a conjugate or negative bit is seen from outside: on an output of the user's, or on an input that is written
    or read as memory."""
    has_bit = lambda node: isinstance(v := node.meta.get("val"), torch.Tensor) and (v.is_conj() or v.is_neg())
    if any(isinstance(node, fx.Node) and has_bit(node) for node in plan.seen):
        return True
    inputs = [node for node in gm.graph.find_nodes(op="placeholder") if has_bit(node)]
    as_memory = lambda user: user.target in _OF_MEMORY or (
        isinstance(user.target, torch._ops.OpOverload) and user.target._schema.is_mutable
    )
    return any(as_memory(user) for node in inputs for user in node.users)


_OF_MEMORY = {torch.ops.aten.as_strided.default}


def _why_other(value: torch.Tensor, resolved: bool = False) -> str:
    """Why this tensor is more (or less) than dense CPU memory with numbers in it; "" if it isn't. `resolved`: its conjugate and
    negative bits are seen to."""
    if type(value) not in plain_tensor_types():
        return f"tensor subclass {type(value).__name__}"
    if value.layout != torch.strided:
        return f"layout {str(value.layout).removeprefix('torch.')}"
    if value.is_quantized:
        return "quantised tensor"
    if value.device.type != "cpu":
        return f"device {value.device}"
    if not _C.has_dtype(value.dtype):
        return f"dtype {str(value.dtype).removeprefix('torch.')}"
    if not resolved and (value.is_conj() or value.is_neg()):
        return "conjugated or negated view"
    return ""


def _is_fake(value: torch.Tensor) -> bool:
    return type(value).__name__ == "FakeTensor"


def _is_size_arithmetic(node: fx.Node) -> bool:
    """Computes only numbers that the tracer knows as expressions (or asserts something of them)."""
    if node.target is operator.getitem:
        return True
    value = node.meta.get("val", None)
    if isinstance(value, torch.Tensor):
        return False
    if isinstance(node.target, torch._ops.OpOverload) and node.target in _SIZE_ASSERTS:
        return True
    return isinstance(value, _NUMBERS) and not symbols.is_unbacked(value)


_SIZE_ASSERTS = {
    torch.ops.aten._assert_scalar.default,
    torch.ops.aten.sym_constrain_range.default,
    torch.ops.aten.sym_constrain_range_for_size.default,
}


@functools.lru_cache(maxsize=4096)
def _target_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if is_higher_order(target):
        return f"higher_order.{target.name()}"
    return getattr(target, "__name__", str(target))


_NO_DEFAULT = object()


@functools.lru_cache(maxsize=4096)
def _parameters(target: torch._ops.OpOverload) -> list[tuple[str, Any]]:
    """Name and default value of each."""
    return [(a.name, a.default_value if a.has_default_value() else _NO_DEFAULT) for a in target._schema.arguments]


def _whole_arguments(target: torch._ops.OpOverload, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    arguments = list(args)
    for name, default in _parameters(target)[len(arguments) :]:
        value = kwargs.get(name, default)
        if value is _NO_DEFAULT:
            raise NotExpressible(f"{target}: argument {name} is missing")
        arguments.append(value)
    return arguments


def _mutated_first(node: fx.Node, schema) -> bool:
    """copy_ and its like: changes its first argument and returns it."""
    if not schema.is_mutable or not isinstance(node.args[0] if node.args else None, fx.Node):
        return False
    written = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return written == [schema.arguments[0].name] and len(schema.returns) == 1


def _closure(gm: fx.GraphModule, node: fx.Node, exporter: _Exporter) -> tuple[Callable, list[fx.Node]]:
    """A callable of the node's distinct tensors, and these."""
    operands: list[fx.Node] = []

    def bind(leaf: fx.Node) -> Any:
        if leaf.op == "get_attr" and (leaf, None) not in exporter.names:
            return _Bound(_attribute(gm, leaf.target))
        value = leaf.meta.get("val", None)
        if isinstance(value, _NUMBERS):
            if not isinstance(value, (int, float, bool)):
                if exporter.values is None:
                    raise NotExpressible(f"{node.name} takes a symbolic number from Python")
                value = symbols.evaluate(value, exporter.values)
            return _Bound(value)
        if isinstance(value, (list, tuple)):
            raise NotExpressible(f"{node.name} takes a list of tensors as one value")
        if leaf not in operands:
            operands.append(leaf)
        return _Slot(operands.index(leaf))

    args = fx.node.map_arg(node.args, bind)
    kwargs = fx.node.map_arg(node.kwargs, bind)
    target = node.target

    def call(*tensors: torch.Tensor) -> Any:
        from torch.utils import _pytree as pytree

        fill = lambda leaf: tensors[leaf.index] if isinstance(leaf, _Slot) else (
            leaf.value if isinstance(leaf, _Bound) else leaf
        )  # fmt: skip
        with torch.no_grad():
            return target(*pytree.tree_map(fill, args), **pytree.tree_map(fill, kwargs))

    return call, operands


@dataclasses.dataclass
class _Slot:
    index: int


@dataclasses.dataclass
class _Bound:
    value: Any


def _attribute(gm: fx.GraphModule, target: str) -> Any:
    value: Any = gm
    for part in target.split("."):
        value = getattr(value, part)
    return value


# Provenance.


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def _provenance(node: fx.Node) -> tuple[str, str]:
    """The module's path and the source line, "" where unknown."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    module = ""
    if stack:
        path = next(reversed(stack.values()))
        module = _clean_path(path[0] if isinstance(path, (tuple, list)) else str(path))
    return module, _last_frame(node.meta.get("stack_trace") or "")


@functools.lru_cache(maxsize=4096)
def _last_frame(stack_trace: str) -> str:
    frames = _FRAME.findall(stack_trace)
    return f"{frames[-1][0].rsplit('/', 1)[-1]}:{frames[-1][1]}" if frames else ""


@functools.lru_cache(maxsize=4096)
def _clean_path(path: str) -> str:
    path = re.sub(r"^L\['\w+'\]\.?", "", path)
    path = re.sub(r"_modules\['([^']+)'\]", r"\1", path)
    return re.sub(r"\[(?:'([^']*)'|(\d+))\]", lambda m: "." + (m[1] or m[2] or ""), path).strip(".")
