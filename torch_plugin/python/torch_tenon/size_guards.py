"""Dynamo's guards on sizes as code of _C.size_guard.

Dynamo writes what ShapeEnv asks of sizes as Python ("L['x'].size()[0] == L['y'].size()[1]") and runs that in each call: 1 to 2 us for a
few sizes. Expressions of integers are code for a stack here; whatever else there is leaves the guard as it was.
"""

from __future__ import annotations

import ast
from typing import Callable, Sequence

from . import _C
from ._torch_private import guards_of_frame_through

_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}
_COMPARED = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_TURNED = {">": "<", ">=": "<="}


class _Unknown(Exception):
    """An expression that isn't of integers, sizes, strides and offsets."""


class _Code:
    def __init__(self) -> None:
        self.paths: dict[tuple, int] = {}  # (local, ((is an item, key or name), ...)) -> its place
        self.numbers: dict[tuple, int] = {}  # (path, "itself", "size", "stride" or "offset", axis) -> its place
        self.code: list[tuple[str, int]] = []

    def add(self, op: str, argument: int = 0) -> None:
        self.code.append((op, argument))

    def number(self, of: ast.expr, kind: str, axis: int) -> None:
        path = self.paths.setdefault(_path(of), len(self.paths))
        self.add("number", self.numbers.setdefault((path, kind, axis), len(self.numbers)))

    def all_of(self, op: str, parts: Sequence[ast.expr]) -> None:
        for k, part in enumerate(parts):
            self.expression(part)
            if k:
                self.add(op)

    def expression(self, e: ast.expr) -> None:
        match e:
            case ast.Constant(value=int(value)) if not isinstance(value, bool) and abs(value) < 1 << 63:
                self.add("constant", value)
            case ast.BinOp(left, op, right) if type(op) in _BINARY:
                self.all_of(_BINARY[type(op)], (left, right))
            case ast.UnaryOp(op=ast.USub(), operand=x):
                self.all_of("-", (ast.Constant(0), x))
            case ast.UnaryOp(op=ast.Not(), operand=x):
                self.expression(x)
                self.add("not")
            case ast.BoolOp(op, values):
                self.all_of("and" if isinstance(op, ast.And) else "or", values)
            case ast.Compare(left, ops, comparators):
                self.compared([left, *comparators], ops)
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=args, keywords=[]) if args:
                self.all_of(name, args)
            case ast.Call(func=ast.Attribute(value=x, attr="storage_offset"), args=[], keywords=[]):
                self.number(x, "offset", 0)
            case ast.Subscript(
                value=ast.Call(func=ast.Attribute(value=x, attr="size" | "stride" as name), args=[], keywords=[]),
                slice=ast.Constant(value=int(axis)),
            ) if axis >= 0:
                self.number(x, name, axis)
            case _:
                self.number(e, "itself", 0)

    def compared(self, values: list[ast.expr], ops: list[ast.cmpop]) -> None:
        for k, op in enumerate(ops):
            if type(op) not in _COMPARED:
                raise _Unknown(ast.unparse(values[k]))
            name, pair = _COMPARED[type(op)], (values[k], values[k + 1])
            self.all_of(_TURNED.get(name, name), pair[::-1] if name in _TURNED else pair)
            if k:
                self.add("and")


def _path(e: ast.expr) -> tuple:
    match e:
        case ast.Subscript(value=ast.Name(id="L"), slice=ast.Constant(value=str(name))):
            return name, ()
        case ast.Subscript(value=x, slice=ast.Constant(value=key)):
            step = (True, key)
        case ast.Attribute(value=x, attr=name):
            step = (False, name)
        case _:
            raise _Unknown(ast.unparse(e))
    name, steps = _path(x)
    return name, (*steps, step)


def compile_guard(expressions: Sequence[str]) -> tuple[tuple, tuple, tuple] | None:
    """What _C.size_guard takes before the guard as it was; None: not all of them are of integers.

    paths: (local, ((is an item, key or name), ...)); numbers: (path, kind, axis) by Number::Kind's name; code: (operation, argument), which
    takes its operands from a stack, "require" one that must not be 0."""
    made = _Code()
    try:
        for text in expressions:
            made.expression(ast.parse(text, mode="eval").body)
            made.add("require")
    except (_Unknown, SyntaxError):
        return None
    return tuple(made.paths), tuple(made.numbers), tuple(made.code)


def _native(expressions: Sequence[str], guard: Callable[[dict], bool]) -> Callable[[dict], bool]:
    code = compile_guard(expressions)
    return guard if code is None else _C.size_guard(*code, guard)


def decide_natively() -> None:
    """In the frame that Dynamo compiles now."""
    guards_of_frame_through(_native)
