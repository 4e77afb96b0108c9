"""Symbolic sizes: their text, their values."""

from __future__ import annotations

from typing import Any

import sympy
import torch

from ._torch_private import free_unbacked_symbols

Values = dict[sympy.Basic, int]  # symbols, and expressions that are known as a whole -> value


def is_symbolic(value: Any) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def is_unbacked(value: Any) -> bool:
    """Depends on data: known only once the graph has run that far."""
    return is_symbolic(value) and bool(free_unbacked_symbols(value))


def expression(value: torch.SymInt | torch.SymFloat | torch.SymBool) -> sympy.Basic:
    return sympy.sympify(value.node.expr)  # a plain number for a constant


def evaluate(value: Any, values: Values) -> int | float | bool:
    """KeyError-free: a symbol without a value is a ValueError that names it."""
    if not is_symbolic(value):
        return value
    result = sympy.sympify(expression(value).xreplace(values))  # a lone symbol becomes a plain int
    if result.free_symbols:
        raise ValueError(f"no value for {', '.join(map(str, result.free_symbols))}")
    if isinstance(value, torch.SymBool):
        return bool(result)
    return int(result) if isinstance(value, torch.SymInt) else float(result)


def to_text(value: int | torch.SymInt, fixed: Values = {}) -> tuple[str, list[sympy.Symbol]]:
    """DimTable's text of a size and the symbols in it, but for those that are `fixed`. ValueError: it has none."""
    if not is_symbolic(value):
        return str(int(value)), []
    expr = expression(value)
    if fixed:
        expr = sympy.sympify(expr.xreplace({symbol: sympy.Integer(number) for symbol, number in fixed.items()}))
    return _print(expr), sorted(expr.free_symbols, key=str)


def _print(expr: sympy.Basic) -> str:
    kind = type(expr).__name__
    if expr.is_Integer or expr.is_Symbol:
        return str(expr)
    args = [_print(a) for a in expr.args]
    if expr.is_Add:
        return "(" + " + ".join(args) + ")"
    if expr.is_Mul:
        return "(" + "*".join(f"({a})" for a in args) + ")"
    if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
        return "(" + "*".join([f"({args[0]})"] * int(expr.exp)) + ")"
    names = {
        "FloorDiv": "floordiv", "CleanDiv": "floordiv", "IntTrueDiv": "floordiv",
        "Mod": "mod", "PythonMod": "mod", "Min": "min", "Max": "max",
    }  # fmt: skip
    if kind in names:
        name, text = names[kind], args[0]
        for other in args[1:]:
            text = f"{name}({text},{other})"
        return text
    raise ValueError(f"a size expression has no text: {expr}")
