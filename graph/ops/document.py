"""The table of ops in docs/ops.md: `python -m heddle.graph.ops.document docs/ops.md` renews it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path

import heddle.graph.ops as ops
from heddle.graph.ops.declare import Op
from heddle.graph.ops.row import ROWS, OpRow

START, END = "<!-- table of ops: generated -->", "<!-- end of the table -->"


def table() -> str:
    """The tables of ops, functions made of ops, and ops behind functions and passes."""
    public = [row for row in ROWS.values() if row.public]
    inner = [row for row in ROWS.values() if not row.public]
    functions = [
        (name, function)
        for name in ops.__all__
        if inspect.isfunction(function := getattr(ops, name))
    ]
    return "\n".join(
        [
            *_rows(public),
            "",
            "Functions that are made of these ops:",
            "",
            "| function | what it gives |",
            "|---|---|",
            *(
                f"| `{_header(name, function)}` | {_line(function)} |"
                for name, function in functions
            ),
            "",
            "Ops behind functions and passes:",
            "",
            *_rows(inner),
        ]
    )


def renew(page: str) -> str:
    """The page with its table made anew."""
    before, rest = page.split(START)
    return f"{before}{START}\n\n{table()}\n\n{END}{rest.split(END)[1]}"


def _rows(rows: list[OpRow]) -> list[str]:
    lines = ["| op | what it computes | dtype | shape |", "|---|---|---|---|"]
    for row in rows:
        mark = " *" if row.elementwise else ""
        lines.append(
            f"| `{_call(row)}`{mark} | {_line(row.compute)} | {_line(row.dtype_rule)} "
            f"| {_line(row.shape_rule)} |"
        )
    return lines


def _call(row: OpRow) -> str:
    star = "*" if row.operands.variadic else ""
    operands = [f"{star}{name}" for name in row.operands.names]
    attrs = [
        attr.name if attr.required or attr.default is None else f"{attr.name}={attr.default!r}"
        for attr in row.attrs
    ]
    return f"{_FUNCTIONS.get(row.name, row.name)}({', '.join(operands + attrs)})"


_FUNCTIONS = {op.row.name: name for name in ops.__all__ if isinstance(op := getattr(ops, name), Op)}
"""What an op is called in `ops`, by its name in the dialect."""


def _header(name: str, function: Callable[..., object]) -> str:
    return f"{name}({', '.join(inspect.signature(function).parameters)})"


def _line(item: object) -> str:
    return (inspect.getdoc(item) or "").split("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(renew(path.read_text()))
