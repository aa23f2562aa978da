"""The `heddle` dialect: the only form in which a graph exists (see docs/design.md).

Each op row becomes an op whose verifier runs the row's own inference, so that text and bytecode
are checked like a graph that is being built.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from heddle.graph import attributes
from heddle.graph.ops import ROWS
from heddle.graph.ops.row import OpRow
from heddle.graph.types import TensorType
from heddle.kernels import mlir
from heddle.kernels.mlir import ir
from heddle.runtime.errors import GraphError

ext = mlir.dialect("ext")

# The bindings look for a module of this name each time they hand out an op of the dialect.
sys.modules.setdefault(f"{mlir.PROVIDER}.dialects.heddle", sys.modules[__name__])


class Heddle(ext.Dialect, name="heddle"):  # type: ignore[call-arg, misc, name-defined]
    """The dialect; ops are added below."""

    _definition: bytes | None = None

    @classmethod
    def _emit_module(cls) -> Any:
        """What the ops are in IRDL: built once, then read, which takes a tenth of the time."""
        if cls._definition is None:
            module, stream = super()._emit_module(), io.BytesIO()
            module.operation.write_bytecode(stream)
            cls._definition = stream.getvalue()
            return module
        return ir.Module.parse(cls._definition)


_LOADING = threading.Lock()
"""The class keeps the module with its definition: another thread would replace it meanwhile."""


def context() -> Any:
    """A new MLIR context in which the dialect is loaded."""
    made = mlir.context()
    with made, _LOADING:
        Heddle.load()
    return made


GROUPS, RESULT_GROUPS = 32, 8
"""IRDL gives all members of a variadic group one type. Where an op takes any number of any types,
it has this many groups, and each run of equal types fills one."""


def create(
    name: str,
    *,
    results: Sequence[Any] = (),
    operands: Sequence[Any] = (),
    attributes: dict[str, Any] | None = None,
    regions: int = 0,
    loc: Any,
    ip: Any = None,
) -> Any:
    """A new op of the dialect, by `ir.Operation.create`, with the sizes of its variadic groups.

    Raises:
        GraphError: More runs of equal types than the op has groups.
    """
    given = dict(attributes or {})
    if name in _SEGMENTED:
        given["operandSegmentSizes"] = _runs(name, [v.type for v in operands], GROUPS, loc.context)
    if name == "heddle.fused":
        given["resultSegmentSizes"] = _runs(name, list(results), RESULT_GROUPS, loc.context)
    return ir.Operation.create(
        name,
        results=list(results),
        operands=list(operands),
        attributes=given,
        regions=regions,
        loc=loc,
        ip=ip,
    )


def _runs(name: str, types: list[Any], groups: int, context: Any) -> Any:
    sizes = [len(list(run)) for _, run in groupby(types)]
    if len(sizes) > groups:
        raise GraphError(f"{name}: wanted at most {groups} runs of equal types, got {len(sizes)}")
    return ir.DenseI32ArrayAttr.get(sizes + [0] * (groups - len(sizes)), context=context)


def _groups(kind: Any, name: str, count: int) -> dict[str, Any]:
    return {f"{name}{index}": Sequence[kind[Any]] for index in range(count)}


def attrs_of(row: OpRow, op: Any) -> dict[str, Any]:
    """The attributes of `op` in Python form, by name."""
    return {attr.name: attributes.decode(op, attr.name, attr.kind) for attr in row.attrs}


def _checked(check: Any) -> Any:
    """A verifier from `check(op)`, whose GraphError becomes the op's error."""

    def verify(op: Any) -> bool:
        try:
            check(op)
        except GraphError as error:
            op.location.emit_error(f"{op.operation.name}: {error}")
            return False
        return True

    return staticmethod(verify)


def _define(name: str, fields: dict[str, Any], check: Any, traits: Sequence[Any] = ()) -> None:
    members = {
        "__annotations__": fields,
        "__module__": __name__,
        "verify_invariants": _checked(check),
        "verify_region_invariants": staticmethod(lambda op: True),
    }
    made = type(name, (Heddle.Operation,), members, name=name, traits=list(traits))
    for field in fields:
        if hasattr(ir.OpView, field):  # `name` of a weight must not hide the op's
            delattr(made, field)


def _define_row(row: OpRow) -> None:
    names = row.operands.names
    fields: dict[str, Any] = dict.fromkeys(names, ext.Operand[Any])
    if row.operands.variadic:
        fields = _groups(ext.Operand, names[-1], GROUPS)
        _SEGMENTED.add(f"heddle.{row.name}")
    elif row.operands.optional:
        fields[names[-1]] = ext.Operand[Any] | None
    fields |= {attr.name: Any for attr in row.attrs}
    fields["result"] = ext.Result[Any]

    def check(op: Any) -> None:
        types = [TensorType.from_mlir(operand.type) for operand in op.operands]
        wanted = row.infer(types, attrs_of(row, op))
        found = TensorType.from_mlir(op.results[0].type)
        if wanted != found:
            raise GraphError(f"wanted a result of {wanted}, got {found}")

    _define(row.name, fields, check, [ext.Pure])


def _check_weight(op: Any) -> None:
    attributes.decode(op, "name", "str")
    _static(op)


def _check_constant(op: Any) -> None:
    found = _static(op)
    value = op.attributes.get("value", "nothing")
    if not isinstance(value, (ir.DenseElementsAttr, ir.DenseResourceElementsAttr)):
        raise GraphError(f"value: wanted dense elements, got {value}")
    shape = ir.ShapedType(value.type)
    element = attributes.element_dtype(value)
    if tuple(shape.shape) != found.shape.static or element is not found.dtype:
        raise GraphError(f"wanted a result of {value.type}, got {found}")


def _static(op: Any) -> TensorType:
    found = TensorType.from_mlir(op.results[0].type)
    if found.shape.static is None:
        raise GraphError(f"wanted a static shape, got {found}")
    return found


def _check_fused(op: Any) -> None:
    block = op.regions[0].blocks[0]
    _same("block arguments", op.operands, block.arguments)
    end = block.operations[len(block.operations) - 1].operation
    if end.name != "heddle.yield":
        raise GraphError(f"wanted heddle.yield at the end of the region, got {end.name}")
    _same("yielded values", op.results, end.operands)


def _same(what: str, wanted: Any, found: Any) -> None:
    left, right = ([str(value.type) for value in values] for values in (wanted, found))
    if left != right:
        raise GraphError(f"wanted {what} of {', '.join(left)}, got {', '.join(right)}")


def _nothing(op: Any) -> None:
    """The operands of a yield are checked by the op around it."""


_SEGMENTED = {"heddle.fused", "heddle.yield"}
for _row in ROWS.values():
    _define_row(_row)
_define("weight", {"name": Any, "result": ext.Result[Any]}, _check_weight, [ext.Pure])
_define("constant", {"value": Any, "result": ext.Result[Any]}, _check_constant, [ext.Pure])
_define(
    "fused",
    {
        **_groups(ext.Operand, "ins", GROUPS),
        **_groups(ext.Result, "outs", RESULT_GROUPS),
        "body": ext.Region,
    },
    _check_fused,
    [ext.Pure],
)
_define("yield", _groups(ext.Operand, "ins", GROUPS), _nothing, [ext.Pure, ir.IsTerminatorTrait])
