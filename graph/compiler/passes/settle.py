"""What init would compute of embedded weights is settled by the compiler, where all machines agree.

A weight that is packed for its products, turned or cast for them, and read in no other way, goes
into the artifact as its kernels read it: nothing is left to do at load, and processes share its
pages. The ops' NumPy references compute it. Sums and products of floats, which may differ from
machine to machine, are left to init. The artifact does not grow: so is what is larger than what it
is made of (a weight that is widened, a panel of few columns), and a weight that something else
reads as it is stays so, for it would be there twice.
"""

from __future__ import annotations

from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.passes.plan import byte_size, readers, root_value, stage
from heddle.graph.dim import Dim
from heddle.kernels.mlir import ir

MOVES = ("pack_b", "pack_int4", "transpose", "concat", "slice")
"""Ops whose results are elements of their operands, and zeros."""

EXACT = ("cast", "add", "sub", "mul", "sum", "broadcast_to", "constant")
"""Ops that give integers from integers alone, the same everywhere."""

PADDING = 64 * 1024
"""Bytes by which a value may be larger than what it is made of, beside a quarter of that."""


def settle(module: Any, kind: str) -> None:
    """Gives such kernels the attribute `stage = "compile"`; weights have `embedded` (`lower`)."""
    found = {op.results[0]: op for op in m.operations(module) if _agrees(op)}
    while dropped := [value for value, op in found.items() if not _held(op, found)]:
        for value in dropped:
            del found[value]
    for operation in found.values():
        operation.attributes["stage"] = ir.StringAttr.get("compile")


def _agrees(operation: Any) -> bool:
    """Whether the op is one of init with the same results on all machines, and no larger ones."""
    if m.name(operation) != "fused" or stage(operation) != "init" or _grows(operation):
        return False
    return all(m.name(op) in MOVES or _is_exact(op) for op in m.inner(operation))


def _grows(operation: Any) -> bool:
    """Whether the results are much larger than the operands; all are of static shape."""
    given, made = (
        sum(int(Dim.from_expr(byte_size(value))) for value in values)
        for values in (operation.operands, operation.results)
    )
    return made > given + given // 4 + PADDING


def _is_exact(operation: Any) -> bool:
    """Integers from integers; or floats rounded to others."""
    dtypes = [m.tensor(value).dtype for value in (*operation.operands, *operation.results)]
    if m.name(operation) == "cast" and all(dtype.is_float for dtype in dtypes):
        return True
    return m.name(operation) in EXACT and all(dtype.is_integer for dtype in dtypes)


def _held(operation: Any, found: dict[Any, Any]) -> bool:
    """Whether each operand is found itself, or an embedded weight whose readers all are."""
    return all(_known(root_value(value), found) for value in operation.operands)


def _known(value: Any, found: dict[Any, Any]) -> bool:
    above = m.owner(value)
    if m.owner_name(value) == "fused":
        return value in found
    if above is None or "embedded" not in above.attributes:
        return False
    return all(reader is not None and m.result(reader) in found for reader in readers(value))
