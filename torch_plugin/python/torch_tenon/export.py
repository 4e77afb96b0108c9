"""FX graphs of ATen ops -> aten::Graph text (torch_plugin/aten/graph.h).

Every call is written with its schema's whole argument list. SymInts are numbers by the time a graph
is exported with `values`, else expressions over the graph's symbols. What the text can't say about
a call (a generator, a higher-order operator, a dtype without a name) makes it a `python.<id>` node:
a Python callable run as one step.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import operator
import re
from typing import Any, Callable

import torch
from torch import fx

from . import _C, symbols
from ._torch_private import is_higher_order, is_with_effects, no_dispatch_modes, plain_tensor_types
from .output_views import OutputPlan, plan_outputs

_DTYPES = {
    torch.bool: "pred", torch.int8: "s8", torch.int16: "s16", torch.int32: "s32",
    torch.int64: "s64", torch.uint8: "u8", torch.uint16: "u16", torch.uint32: "u32",
    torch.uint64: "u64", torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32",
    torch.float64: "f64", torch.complex64: "c64", torch.complex128: "c128",
    torch.float8_e5m2: "f8e5m2", torch.float8_e4m3fn: "f8e4m3fn",
    torch.float8_e5m2fnuz: "f8e5m2fnuz", torch.float8_e4m3fnuz: "f8e4m3fnuz",
}  # fmt: skip
_FORMATS = {
    torch.contiguous_format: "contiguous", torch.preserve_format: "preserve",
    torch.channels_last: "channels_last", torch.channels_last_3d: "channels_last_3d",
}  # fmt: skip
# Of the operators with an ordered effect, those that only raise: framework steps, which keep their order.
_CHECKS = {torch.ops.aten._linalg_check_errors.default}
_LITERAL_ELEMENTS = 16  # constants up to this size are written into the text
_NUMBERS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


class NotExpressible(Exception):
    """The graph has no text; the message says why."""


class _NotAnArgument(Exception):
    """This call has no text; it becomes a Python step."""


@dataclasses.dataclass
class Exported:
    text: str
    name: str
    constants: list[torch.Tensor] = dataclasses.field(default_factory=list)
    callables: list[int] = dataclasses.field(default_factory=list)  # ids, freed by release()
    nodes: dict[str, int] = dataclasses.field(default_factory=dict)  # overload -> count
    needs_eager: str = ""  # why no compiler can take it
    # Per output of the graph: k, the program's output k; or (is_input, k, sizes, strides, offset), a
    # view of input or output k. None: the program's outputs are the graph's.
    recipes: list[Any] | None = None

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
    """Raises NotExpressible. `values`: what the graph's symbols stand for, for static text."""
    return _Exporter(gm, name, values).run()


class _Exporter:
    def __init__(self, gm: fx.GraphModule, name: str, values: symbols.Values | None):
        self.gm, self.values = gm, values
        self.out = Exported(text="", name=name)
        self.lines: list[str] = []
        self.names: dict[tuple[fx.Node, int | None], str] = {}
        self.symbols: dict[str, Any] = {}
        self.resolved = True  # a value with a conjugate or negative bit is written as what is read through it
        self.tokens: set[fx.Node] = set()  # of ordered effects: the text's order is order enough

    def run(self) -> Exported:
        self.out.nodes = count_nodes(self.gm)
        self.plan = plan_outputs(self.gm)
        self.resolved = not _needs_bits(self.gm, self.plan)
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
        head = [f'graph {_quoted(self.out.name)} {{']
        if self.symbols:
            head.append("symbols " + ", ".join(self.symbols))
        self.out.text = "\n  ".join(head + self.lines) + "\n}\n"
        return self.out

    # Nodes.

    def _placeholder(self, node: fx.Node) -> None:
        value = node.meta.get("val", None)
        if any(is_with_effects(user) for user in node.users):
            self.tokens.add(node)  # AOTAutograd passes None for it
            value = None
        self.names[node, None] = node.name
        self.lines.append(f"%{node.name} = input {self._meta(value)}")

    def _get_attr(self, node: fx.Node) -> None:
        value = _attribute(self.gm, node.target)
        if not isinstance(value, torch.Tensor):
            return  # a submodule: an argument of a higher-order operator, which is called from Python
        if type(value) not in plain_tensor_types() or _why_other(value):
            raise NotExpressible(f"constant {node.target}: {_why_other(value) or type(value).__name__}")
        self.names[node, None] = node.name
        meta = self._meta(value)
        if value.numel() <= _LITERAL_ELEMENTS and value.is_contiguous() and not _is_fake(value):
            with no_dispatch_modes():  # exporting happens under fake tensors, and this one is real
                elements = value.detach().flatten().tolist()
            text = ", ".join(map(_scalar, elements))
            self.lines.append(f"%{node.name} = literal {meta.split('+')[0]} [{text}]")
        else:
            self.out.constants.append(value)
            self.lines.append(f"%{node.name} = constant {meta}")

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
        returned = [self._returned(k, o) for k, o in enumerate(self.plan.direct)]
        self.lines.append(f"return ({', '.join(returned)})")

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

    def _returned(self, index: int, value: Any) -> str:
        if value in self.tokens:
            return "none"
        if isinstance(value, fx.Node) and (value, None) in self.names:
            return "none" if value.meta.get("val", None) is None else f"%{self.names[value, None]}"
        node = value
        if isinstance(node, fx.Node):
            value = node.meta.get("val", None)
            if isinstance(value, (torch.Tensor, list, tuple)):
                raise NotExpressible(f"output {index} of the graph is {_unnamed(node)}")
        if value is None:
            return "none"
        if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
            return f"sym({self._size(value)})"
        raise NotExpressible(f"output {index} of the graph is of type {type(value).__name__}; wanted a tensor")

    # Calls.

    def _aten(self, node: fx.Node) -> None:
        schema = node.target._schema
        args = ", ".join(self._arg(a) for a in _whole_arguments(node.target, node.args, node.kwargs))
        alias = _mutated_first(node, schema)
        if schema.is_mutable and not alias and not self.out.needs_eager:
            self.out.needs_eager = f"{node.target} changes its arguments"
        if alias:
            result = f"alias %{self._operand(node.args[0])}"
            self.names[node, None] = node.name
            left = f"%{node.name} = "
        else:
            left, result = self._results(node)
        self.lines.append(f"{left}{node.target}({args}) -> {result}{_provenance(node)}")

    def _with_effects(self, node: fx.Node) -> None:
        _, target, *args = node.args
        text = ", ".join(self._arg(a) for a in _whole_arguments(target, args, node.kwargs))
        values = node.meta["val"][1:]
        for index in range(len(values)):
            self.names[node, index + 1] = f"{node.name}.{index + 1}"
        used = [i for i, value in enumerate(values) if value is not None]
        left = ", ".join(f"%{self.names[node, i + 1]}" for i in used) + " = " if used else ""
        result = ", ".join(self._meta(values[i]) for i in used) or "none"
        if target not in _CHECKS:
            self.out.needs_eager = self.out.needs_eager or f"{target} has an ordered effect"
        self.lines.append(f"{left}{target}({text}) -> {result}{_provenance(node)}")

    def _python(self, node: fx.Node) -> None:
        call, operands = _closure(self.gm, node, self)
        number = _C.register_callable(call)
        self.out.callables.append(number)
        if not self.out.needs_eager:
            self.out.needs_eager = f"{_target_name(node.target)} is called from Python"
        args = ", ".join(f"%{self._operand(o)}" for o in operands)
        left, result = self._results(node)
        self.lines.append(f"{left}python.{number}({args}) -> {result}{_provenance(node)}")

    def _results(self, node: fx.Node) -> tuple[str, str]:
        value = node.meta.get("val", None)
        if isinstance(value, (list, tuple)):
            for index in range(len(value)):
                self.names[node, index] = f"{node.name}.{index}"
            if not value:
                return "", "none"
            left = ", ".join(f"%{self.names[node, i]}" for i in range(len(value)))
            return f"{left} = ", ", ".join(self._meta(v) for v in value)
        if value is None and not node.users:
            return "", "none"
        self.names[node, None] = node.name
        return f"%{node.name} = ", self._meta(value)

    # Arguments.

    def _operand(self, node: fx.Node) -> str:
        if (node, None) not in self.names:
            raise NotExpressible(f"an operand is {_unnamed(node)}")
        return self.names[node, None]

    def _arg(self, value: Any) -> str:
        if isinstance(value, fx.Node):
            return self._node_arg(value)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self._arg(v) for v in value)}]"
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._number(value)
        if value is None or isinstance(value, (bool, int, float, complex)):
            return _scalar(value)
        if isinstance(value, str):
            return _quoted(value)
        if isinstance(value, torch.dtype) and value in _DTYPES:
            return f"dtype:{_DTYPES[value]}"
        if isinstance(value, torch.memory_format) and value in _FORMATS:
            return f"format:{_FORMATS[value]}"
        if isinstance(value, torch.layout):
            return f"layout:{str(value).removeprefix('torch.')}"
        if isinstance(value, torch.device):
            return f"device:{value}"
        raise _NotAnArgument(type(value).__name__)

    def _node_arg(self, node: fx.Node) -> str:
        value = node.meta.get("val", None)
        if isinstance(value, _NUMBERS):
            return self._number(value)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(f'%{self.names[node, i]}' for i in range(len(value)))}]"
        if (node, None) not in self.names:
            raise _NotAnArgument(node.name)
        return f"%{self.names[node, None]}"

    def _number(self, value: Any) -> str:
        if isinstance(value, (bool, int, float)):
            return _scalar(value)
        if self.values is not None:
            return _scalar(symbols.evaluate(value, self.values))
        if isinstance(value, torch.SymInt):
            return f"sym({self._size(value)})"
        raise NotExpressible(f"a symbolic {type(value).__name__}")

    def _size(self, value: int | torch.SymInt) -> str:
        if type(value) is int:
            return str(value)
        if self.values is not None:
            return str(symbols.evaluate(value, self.values))
        text, used = symbols.to_text(value)
        self.symbols.update(dict.fromkeys(used))
        return text

    def _meta(self, value: Any) -> str:
        if value is None:
            return "none"
        if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
            return f"symint {self._size(value)}"
        if not isinstance(value, torch.Tensor):
            return f"other({_quoted(type(value).__name__)})"
        if why := _why_other(value, self.resolved):
            return f"other({_quoted(why)})"
        sizes = ",".join(self._size(s) for s in value.shape)
        strides = ",".join(self._size(s) for s in value.stride())
        offset = self._size(value.storage_offset())
        return f"{_DTYPES[value.dtype]}[{sizes}]{{{strides}}}" + ("" if offset == "0" else f"+{offset}")


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
    if value.dtype not in _DTYPES:
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
    if isinstance(node.target, torch._ops.OpOverload) and node.target in _SIZE_ASSERTS:
        return True
    value = node.meta.get("val", None)
    return isinstance(value, _NUMBERS) and not symbols.is_unbacked(value)


_SIZE_ASSERTS = {
    torch.ops.aten._assert_scalar.default,
    torch.ops.aten.sym_constrain_range.default,
    torch.ops.aten.sym_constrain_range_for_size.default,
}


def _target_name(target: Any) -> str:
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if is_higher_order(target):
        return f"higher_order.{target.name()}"
    return getattr(target, "__name__", str(target))


def _whole_arguments(target: torch._ops.OpOverload, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    arguments = []
    for index, argument in enumerate(target._schema.arguments):
        if index < len(args):
            arguments.append(args[index])
        elif argument.name in kwargs:
            arguments.append(kwargs[argument.name])
        elif argument.has_default_value():
            arguments.append(argument.default_value)
        else:
            raise NotExpressible(f"{target}: argument {argument.name} is missing")
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


# Text.


def _scalar(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, complex):
        return f"complex({float(value.real)!r},{float(value.imag)!r})"
    return repr(value)


@functools.lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    if not escaped.isprintable():
        escaped = "".join(c if c >= " " else f"\\x{ord(c):02x}" for c in escaped)
    return f'"{escaped}"'


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def _provenance(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    module = ""
    if stack:
        path = next(reversed(stack.values()))
        module = _clean_path(path[0] if isinstance(path, (tuple, list)) else str(path))
    source = _last_frame(node.meta.get("stack_trace") or "")
    if not module and not source:
        return ""
    return f" @ {_quoted(module)}" + (f" {_quoted(source)}" if source else "")


@functools.lru_cache(maxsize=4096)
def _last_frame(stack_trace: str) -> str:
    frames = _FRAME.findall(stack_trace)
    return f"{frames[-1][0].rsplit('/', 1)[-1]}:{frames[-1][1]}" if frames else ""


@functools.lru_cache(maxsize=4096)
def _clean_path(path: str) -> str:
    path = re.sub(r"^L\['\w+'\]\.?", "", path)
    path = re.sub(r"_modules\['([^']+)'\]", r"\1", path)
    return re.sub(r"\[(?:'([^']*)'|(\d+))\]", lambda m: "." + (m[1] or m[2] or ""), path).strip(".")
