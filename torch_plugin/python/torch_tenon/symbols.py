"""Symbolic sizes: their text, their values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Set
from typing import Any

import sympy
import torch

from ._torch_private import free_unbacked_symbols

Values = dict[sympy.Basic, int]  # symbols, and expressions that are known as a whole -> value
Expressions = dict[sympy.Basic, sympy.Expr]  # symbols -> what stands for them


def is_symbolic(value: Any) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def is_unbacked(value: Any, given: Set[sympy.Symbol] = frozenset()) -> bool:
    """Depends on data: known only once the graph has run that far. `given`: such symbols that the graph's inputs tell."""
    return is_symbolic(value) and not free_unbacked_symbols(value) <= given


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


def to_text(value: int | torch.SymInt, known: Expressions = {}) -> tuple[str, list[sympy.Symbol]]:
    """DimTable's text of a size, where what is `known` of symbols stands for them, and the symbols in it. ValueError: it has none."""
    if not is_symbolic(value):
        return str(int(value)), []
    expr = expression(value)
    if known:
        expr = sympy.sympify(expr.xreplace(known))
    return _print(expr), sorted(expr.free_symbols, key=str)


@dataclasses.dataclass
class Divided:
    """A symbol that is whole numbers of another one's parts: `of` == `by` * it."""

    of: sympy.Symbol
    by: int
    lower: int


def divisors(equalities: Iterable[sympy.Eq]) -> dict[sympy.Symbol, int]:
    """Of symbols: by what they can be divided where all of these hold: Eq(Mod(s, 4), 0), or Eq((s + 1)//2, s//2), which needs an even s."""
    found: dict[sympy.Symbol, int] = {}
    for equal in equalities:
        numbers = [a.args[1] for a in equal.atoms(sympy.Function) if len(a.args) == 2 and a.args[1].is_Integer]
        if len(equal.free_symbols) != 1 or not numbers or any(n <= 1 for n in numbers):
            continue
        (symbol,) = equal.free_symbols
        period = math.lcm(*map(int, numbers))
        if period > _LONGEST_PERIOD:
            continue
        if type(equal.lhs).__name__ in ("Mod", "PythonMod") and equal.lhs.args[0] == symbol and equal.rhs == 0:
            holds = [0]  # as trying each remainder would find
        else:
            at = lambda value: bool(sympy.sympify(equal.xreplace({symbol: sympy.Integer(value)})))
            holds = [r for r in range(period) if at(5 * period + r) and at(8 * period + r)]
        if not holds:
            continue
        divisor = math.gcd(period, *holds)
        found[symbol] = math.lcm(found.get(symbol, 1), divisor)
    return {symbol: divisor for symbol, divisor in found.items() if divisor > 1}


_LONGEST_PERIOD = 4096


def from_equalities(
    equalities: Iterable[sympy.Eq], readable: set[sympy.Symbol], least: dict[sympy.Symbol, int], known: Expressions
) -> tuple[Expressions, dict[sympy.Symbol, Divided]]:
    """What else stands for symbols than what is `known`, by what the tracer found equal: s1 is 2*s0 + 1, s0 is 4*s0_4. Only in terms of
    symbols that are `readable`: inputs say what they are. least: the smallest value of symbols. A call in which they are not equal is
    refused, as the sizes that follow are guarded like any others."""
    equalities = [e for e in (sympy.sympify(equal.xreplace(known)) for equal in equalities) if isinstance(e, sympy.Eq)]
    known, parts = dict(known), {}
    for symbol, by in sorted(divisors(equalities).items(), key=lambda found: str(found[0])):
        if symbol not in readable:
            continue
        part = sympy.Symbol(f"{symbol}_{by}", integer=True, positive=True)
        parts[part] = Divided(symbol, by, -(-least.get(symbol, 0) // by))
        known[symbol] = by * part
    usable = (readable - set(known)) | set(parts)
    for equal in equalities:
        for symbol, other in (equal.args, equal.args[::-1]):
            other = sympy.sympify(other.xreplace(known))
            if not symbol.is_Symbol or symbol in known or not other.free_symbols <= usable - {symbol}:
                continue
            usable.discard(symbol)
            known = {a: sympy.sympify(e.xreplace({symbol: other})) for a, e in known.items()} | {symbol: other}
            if len(other.free_symbols) == 1 and (part := next(iter(other.free_symbols))) in parts:
                _raise_lower(parts[part], part, other, least.get(symbol, 0))
            break
    return known, parts


def _raise_lower(divided: Divided, part: sympy.Symbol, expr: sympy.Expr, least: int) -> None:
    """`expr` is no less than `least`: (2*s0_2 + 1)//2 >= 2 says that s0_2 is not 1."""
    for _ in range(8):
        if not (value := sympy.sympify(expr.xreplace({part: sympy.Integer(divided.lower)}))).is_Integer or value >= least:
            return
        divided.lower += 1


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
