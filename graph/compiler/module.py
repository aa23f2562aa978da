"""The few verbs that passes are written in: reading and editing the one function of a module."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from heddle.graph import dialect
from heddle.graph.attributes import constant_attr, encode, read_symbols
from heddle.graph.dim import Dim
from heddle.graph.dtype import DType
from heddle.graph.ops.row import ROWS
from heddle.graph.types import Shape, TensorType
from heddle.kernels.mlir import ir

SOURCES = ("weight", "constant")
"""Ops that bring a tensor into the graph instead of computing one."""


class RefusalError(Exception):
    """A pass cannot go on because of `operation`; the pipeline adds pass, op and user's line."""

    def __init__(self, operation: Any, message: str) -> None:
        super().__init__(message)
        self.operation = operation


def clone(module: Any) -> Any:
    """A copy of `module` in the same context."""
    text = io.BytesIO()
    module.operation.write_bytecode(text)
    return ir.Module.parse(text.getvalue(), module.context)


def main(module: Any) -> Any:
    """The one function."""
    return module.body.operations[0]


def block(module: Any) -> Any:
    """The body of the one function."""
    return main(module).regions[0].blocks[0]


def operations(module: Any) -> list[Any]:
    """The ops of the function in order, without its return."""
    return [op.operation for op in block(module).operations][:-1]


def returned(module: Any) -> Any:
    """The function's return."""
    ops = block(module).operations
    return ops[len(ops) - 1].operation


def ranges(value: Any) -> dict[str, tuple[int, int]]:
    """The inclusive range of each symbolic dim of the function that `value` is in."""
    function = value.owner.owner if isinstance(value.owner, ir.Block) else value.owner.parent
    return read_symbols(function.attributes["heddle.symbols"])


def inner(fused: Any) -> list[Any]:
    """The ops of a fused region in order, without its yield."""
    return [op.operation for op in fused.regions[0].blocks[0].operations][:-1]


def yielded(fused: Any) -> list[Any]:
    """The values that a fused region yields."""
    ops = fused.regions[0].blocks[0].operations
    return list(ops[len(ops) - 1].operands)


def name(operation: Any) -> str:
    """The op's name without its dialect: `"matmul"`."""
    return str(operation.name).removeprefix("heddle.")


def result(operation: Any) -> Any | None:
    """The op's first result, None where it has none: what an op is known by in sets and dicts.

    (The hash of an op depends on its attributes and operands, so it changes while passes run.)
    """
    return operation.results[0] if len(operation.results) else None


def owner(value: Any) -> Any | None:
    """The op that computes `value`; None for an argument of a block."""
    return None if isinstance(value.owner, ir.Block) else value.owner


def owner_name(value: Any) -> str:
    """The name of the op that computes `value`, `""` for an argument."""
    operation = owner(value)
    return name(operation) if operation else ""


def users(value: Any) -> list[Any]:
    """The ops that read `value`, once for each operand that is it."""
    return [use.owner.operation for use in value.uses]


def only_user(value: Any) -> Any | None:
    """The op that reads `value`, where one operand alone is it."""
    first, second = (next(uses, None) for uses in [iter(value.uses)] * 2)
    return first.owner.operation if first is not None and second is None else None


def tensor(value: Any) -> TensorType:
    """The type of `value`."""
    return TensorType.from_mlir(value.type)


def attrs(operation: Any) -> dict[str, Any]:
    """The attributes of an op that has a row, as Python values."""
    return dialect.attrs_of(ROWS[name(operation)], operation)


def sized(operation: Any) -> bool:
    """Whether every size among the op's attributes is a number, those of a fused region's too."""
    if name(operation) == "fused":
        return all(map(sized, inner(operation)))
    values = attrs(operation).values() if name(operation) in ROWS else ()
    return all(v.static is not None for v in values if isinstance(v, (Dim, Shape)))


def elementwise(operation: Any) -> bool:
    """Whether the op can be a step of a kernel's body."""
    row = ROWS.get(name(operation))
    return row is not None and row.elementwise


def splat(value: Any) -> Any | None:
    """The number that every element of a constant is, or None."""
    operation = owner(value)
    if operation is None or name(operation) != "constant":
        return None
    dense = operation.attributes["value"]
    if not isinstance(dense, ir.DenseElementsAttr) or not dense.is_splat:
        return None
    return dense.get_splat_value().value


def create(like: Any, op: str, operands: Sequence[Any], **attributes: Any) -> Any:
    """The result of a new `heddle.<op>` before `like`, with its location and an inferred type."""
    row = ROWS[op]
    result = row.infer([tensor(value) for value in operands], attributes)
    encoded = {a.name: encode(a.kind, attributes[a.name]) for a in row.attrs}
    return insert(like, op, operands, result, encoded)


def insert(
    like: Any, op: str, operands: Sequence[Any], result: TensorType, attributes: dict[str, Any]
) -> Any:
    """The result of a new `heddle.<op>` before `like`, from MLIR's attributes and a known type."""
    made = dialect.create(
        f"heddle.{op}",
        results=[result.to_mlir()],
        operands=operands,
        attributes=attributes,
        loc=like.location,
        ip=ir.InsertionPoint(like),
    )
    return made.results[0]


def cast(like: Any, value: Any, dtype: DType) -> Any:
    """`value` in `dtype`, by a cast before `like` unless it has it already."""
    if tensor(value).dtype is dtype:
        return value
    return create(like, "cast", [value], dtype=dtype)


def turned(like: Any, value: Any) -> Any:
    """`value` with its last two axes exchanged, by a transpose before `like`."""
    *front, second, last = range(tensor(value).rank)
    return create(like, "transpose", [value], permutation=(*front, last, second))


def number(like: Any, value: float, dtype: DType) -> Any:
    """A new constant before `like`, on the device of its result."""
    result = TensorType(dtype, (), tensor(like.results[0]).device)
    attribute = constant_attr(np.array(value), dtype)
    return insert(like, "constant", [], result, {"value": attribute})


def replace(operation: Any, value: Any) -> None:
    """Puts `value` in the place of the one result of `operation`, and erases it."""
    operation.results[0].replace_all_uses_with(value)
    operation.erase()


def discard(value: Any) -> None:
    """Erases the op of `value`, and those that it reads, while nobody else reads them."""
    operation = owner(value)
    if operation is None or users(value):
        return
    operands = list(operation.operands)
    operation.erase()
    for operand in operands:
        discard(operand)


def line(operation: Any) -> str:
    """The user's file and line, `"model.py:12"`: without folders, the same on every machine."""
    return line_of(operation.location)


def line_of(location: Any) -> str:
    """The first file and line that a location holds."""
    for file in _files(location):
        return f"{os.path.basename(file.filename)}:{file.start_line}"
    return "an unknown line"


def label(operation: Any) -> str:
    """What the op is to a person: `"matmul + add + gelu (model.py:12)"`."""
    names = [name(op) for op in inner(operation)] if name(operation) == "fused" else []
    products = {"matmul", "turned_matmul", "integer_matmul", "float8_matmul"}.intersection(names)
    folded = {"constant", "broadcast_to"} | ({"transpose"} if products else set())
    shown = [n for n in names if n not in folded]
    return f"{' + '.join(shown or names or [name(operation)])} ({line(operation)})"


def _files(location: Any) -> Iterator[Any]:
    if isinstance(location, ir.FileLineColLoc):
        yield location
    elif isinstance(location, ir.FusedLoc):
        for part in location.locations:
            yield from _files(part)
    elif isinstance(location, ir.NameLoc):
        yield from _files(location.child_loc)
