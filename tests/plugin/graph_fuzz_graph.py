"""A random graph (graph_fuzz.py) as a _C.Graph, and its executable."""

from __future__ import annotations

import random
import types
from typing import Any, Callable

import torch

from plugin.graph_fuzz_ops import SizeOf
from plugin.graph_fuzz_program import Program, Ref


class Views:
    """Which outputs are views of what, as torch_tenon/output_views.py plans them."""

    def __init__(self, program: Program, values: dict[int, Any]):
        self.program, self.values = program, values
        self.made = {r: i for i in program.body for r in i.results}
        self.inputs = {i.id for i in program.arguments}
        self.direct: list[int | None] = []
        self.recipes: list[Any] = []
        returned = [k for k in program.outputs if k is not None]
        memories = self.read_across_types(returned)
        bases = {k: memories.get(self.base(k), self.base(k)) for k in returned}
        for k in program.outputs:
            if k is None:
                self.recipes.append(self._direct(None))
                continue
            base = bases[k]
            several = len({o for o in returned if bases[o] == base}) > 1 or base in memories
            if k == base or not (base in self.inputs or several):
                self.recipes.append(self._direct(k))
                continue
            if base not in self.inputs:
                self._direct(base)
            self.recipes.append((base, k))

    def _direct(self, k: int | None) -> int:
        if k is None or k not in self.direct:
            self.direct.append(k)
            return len(self.direct) - 1
        return self.direct.index(k)

    def base(self, k: int) -> int:
        while self.is_alias(k) and self.reading(k) == self.reading(self.made[k].refs()[0]):
            k = self.made[k].refs()[0]
        return k

    def memory(self, k: int) -> int:
        while self.is_alias(k):
            k = self.made[k].refs()[0]
        return k

    def read_across_types(self, returned: list[int]) -> dict[int, int]:
        """Bases, and the memory that some of them are not read as it is -> that memory."""
        bases: dict[int, set[int]] = {}
        for k in returned:
            bases.setdefault(self.memory(k), set()).add(self.base(k))
        mixed = {m: b for m, b in bases.items() if len(b) > 1 or any(any(self.reading(k)[1:]) for k in b)}
        return {k: m for m, b in mixed.items() for k in (*b, m)}

    def is_alias(self, k: int) -> bool:
        returns = self.made[k].op.overload._schema.returns if k in self.made else ()
        return len(returns) == 1 and returns[0].alias_info is not None

    def reading(self, k: int) -> tuple[torch.dtype, bool, bool]:
        value = self.values[k]
        return value.dtype, value.is_conj(), value.is_neg()


def build(program: Program, values: dict[int, Any]) -> tuple[Any, list[torch.Tensor], list[Any] | None, list[str]]:
    """A complete _C.Graph, its constants, its outputs' recipes and its symbols. `values`: tensors, or fake ones, by id."""
    from torch_tenon import _C
    from torch_tenon._torch_private import plain_tensor_types

    known: set[Any] = set()
    argument, meta = lambda v: _symbolic(graph, v, known), lambda v: _meta(graph, v, known)
    graph = _C.Graph(f"g{program.number}", plain_tensor_types(), argument, meta, True)
    constants, name = [], lambda k: f"v{k}"
    for symbol in program.numbers:
        carrier = next(v for v in values.values() if hasattr(v, "fake_mode"))
        graph.input(f"n{symbol}", carrier.fake_mode.shape_env.create_symintnode(symbol, hint=program.hints[symbol]))
    for i in program.inputs:
        value = values[i.id]
        if i.kind == "literal":
            graph.literal(name(i.id), value)
        elif i.kind == "constant":
            constants.append(value)
            graph.constant(name(i.id), value)
        else:
            graph.input(name(i.id), value)
    for instruction in program.body:
        args = _graph_args(instruction.args, values)
        results = [values[r] for r in instruction.results]
        graph.node(instruction.op.name, args, [name(r) for r in instruction.results], results, False, "", "")
    for k, (into, value) in enumerate(program.copies):
        graph.node("aten.copy_.default", [_C.Value(name(into)), _C.Value(name(value)), False], [f"w{k}"], [], True, "", "")
    views = Views(program, values)
    direct = [None if k is None else _C.Value(name(k)) for k in views.direct]
    numbers: list[Any] = []
    recipes = None
    if views.recipes != list(range(len(direct))):
        recipes = [_recipe(r, views, program, values, direct, numbers) for r in views.recipes]
    graph.returns(direct + numbers)
    return graph, constants, recipes, sorted(map(str, known))


def _recipe(recipe: Any, views: Views, program: Program, values: dict[int, Any], direct: list[Any], numbers: list[Any]) -> Any:
    if isinstance(recipe, int):
        return recipe
    from torch_tenon import _C, symbols

    def number(value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            text, used = symbols.to_text(value)
            if not used:
                return int(text)
            if text not in numbers:
                numbers.append(_C.Symbolic(text))
            return (len(direct) + numbers.index(text),)
        return int(value)

    base, k = recipe
    of_input = base in views.inputs
    before = len(program.numbers)
    index = before + [i.id for i in program.arguments].index(base) if of_input else views.direct.index(base)
    view, memory = values[k], values[base]
    reading = None if views.reading(k) == views.reading(base) else views.reading(k)
    offset = number(view.storage_offset() - memory.storage_offset() * memory.itemsize // view.itemsize)
    return (of_input, index, tuple(map(number, view.shape)), tuple(map(number, view.stride())), offset, reading)


def _graph_args(arg: Any, values: dict[int, Any]) -> Any:
    from torch_tenon import _C

    if isinstance(arg, Ref):
        return _C.Value(f"v{arg.id}")
    if isinstance(arg, SizeOf):
        return arg.of(values[arg.value].shape)
    if isinstance(arg, list):
        return [_graph_args(a, values) for a in arg]
    return arg


def _symbolic(graph: Any, value: Any, known: set[Any]) -> Any:
    from torch_tenon import _C, symbols
    from torch_tenon._torch_private import symbol_hint, symbol_range

    if not isinstance(value, torch.SymInt):
        raise TypeError(f"{type(value).__name__} is no argument")
    text, used = symbols.to_text(value)
    for symbol in used:
        if symbol not in known:
            known.add(symbol)
            hint = symbol_hint(value, symbol)
            planned_for = hint * (0, 1, 64)[hint % 3]  # none, the hint, a much larger one: no result may hang on it
            graph.symbol(str(symbol), *symbol_range(value, symbol), planned_for)
    return _C.Symbolic(text) if used else int(text)


def _meta(graph: Any, value: Any, known: set[Any]) -> Any:
    size = lambda v: _plain(_symbolic(graph, v, known)) if isinstance(v, torch.SymInt) else v
    if isinstance(value, torch.SymInt):
        return "symint", size(value)
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{type(value).__name__} is no tensor")
    offset = value.storage_offset()
    return ("tensor", value.dtype, tuple(map(size, value.shape)), tuple(map(size, value.stride())),
            0 if isinstance(offset, torch.SymInt) else offset)


def _plain(size: Any) -> int | str:
    return size if isinstance(size, int) else str(size)


class Compiled:
    """The executable, with what runs it again by ATen for eager's errors."""

    def __init__(self, program: Program, values: dict[int, Any], values_of: Callable | None = None):
        from torch_tenon import _C
        from torch_tenon.compiler import Rerun
        from torch_tenon.export import Exported

        choose = random.Random(program.number)
        self.graph, constants, recipes, symbols = build(program, values)
        self.symbols = symbols
        self.options = {"compile_threads": 1, "verify_passes": False}
        self.options |= {"cache": choose.random() < 0.7, "threads": choose.choice((1, 1, 2, 3))}
        if choose.random() < 0.1:
            self.options["excess_precision"] = False
        if choose.random() < 0.1:
            self.options["provider"] = "generated"
        self.executable = _C.compile(self.graph, {"name": f"g{program.number}", **self.options}, constants)
        self.tier, self.reason, *_ = self.executable.summary()
        if recipes is not None:
            self.executable.set_recipes(recipes)
        self.early = choose.random() < 0.3
        if self.early:
            self.executable.allow_early_release()
        self.given_up: list[str] = []
        record = types.SimpleNamespace(reason="", give_up=self.given_up.append)
        exported = Exported(f"g{program.number}", self.graph, constants, recipes=recipes, symbols=symbols)
        if not program.hints or values_of:
            self.executable.set_rerun(Rerun(exported, record, **({"values_of": values_of} if values_of else {})), False, False)
