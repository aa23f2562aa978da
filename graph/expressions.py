"""The text form of sizes."""

from __future__ import annotations

import ast

from heddle.graph.location import graph_error
from heddle.kernels.spec import Expr

_OPS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
}


def parse(text: str) -> Expr:
    """The size that `text` writes in Python's grammar: `"2*batch + min(n, 4)"`.

    Raises:
        GraphError: It is something else.
    """
    try:
        statement = ast.parse(text.strip()).body
        if len(statement) == 1 and isinstance(statement[0], ast.Expr):
            return _read(statement[0].value)
    except (SyntaxError, RecursionError):
        pass
    shown = text if len(text) <= 80 else f"{text[:80]}..."
    raise graph_error(f"dim: wanted a name or a formula with + - * // %, got {shown!r}")


def _read(node: ast.expr) -> Expr:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return name
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ("sub", 0, _read(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPS:
            return (_OPS[type(op)], _read(left), _read(right))
        case ast.Call(func=ast.Name(id=("min" | "max") as op), args=[left, right], keywords=[]):
            return (op, _read(left), _read(right))
    raise SyntaxError
