"""How a call of an op becomes an operation of the graph."""

from __future__ import annotations

from typing import Any

from heddle.graph.attributes import check
from heddle.graph.bounds import check_sizes
from heddle.graph.location import graph_error
from heddle.graph.ops.promotion import promote
from heddle.graph.ops.row import OpRow
from heddle.graph.value import TensorValue
from heddle.runtime.errors import GraphError


def build(row: OpRow, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TensorValue:
    """Checks a call of `row`, promotes its operands and adds the op to their graph.

    Raises:
        GraphError: With the user's file and line, what was wanted and what was found.
    """
    try:
        operands, attrs = _bind(row, args, kwargs)
        graph = _graph(operands)
        values = promote(graph, operands, row.promotion)
        types = [value.type for value in values]
        row.operands.check(len(types))
        if row.attrs:
            for attr in row.attrs:
                if attrs[attr.name] is not attr.default:
                    check(attr.name, attr.kind, attrs[attr.name])
            if row.canonical:
                attrs = row.canonical(types, attrs)
        result = row.infer(types, attrs)
        if row.makes_sizes:
            known = (*types, *(value.type for value in graph.inputs))
            check_sizes(result.shape, {dim for type in known for dim in type.shape}, graph.symbols)
        value: TensorValue = graph.emit(row, values, attrs, result)
        return value
    except GraphError as error:
        raise graph_error(f"{row.name}: {error}") from None


def _bind(
    row: OpRow, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The operands in order, and the attributes by name with their defaults."""
    names = row.operands.names
    if row.operands.variadic:
        if args and isinstance(args[0], (list, tuple)):
            operands, rest = list(args[0]), args[1:]
        else:
            operands, rest = list(args), ()
    else:
        operands, rest = list(args[: len(names)]), args[len(names) :]
    if not kwargs and not rest and not row.attrs:
        return operands, {}
    given = dict(kwargs)
    operands += [given.pop(name) for name in names[len(operands) :] if name in given]
    if row.operands.optional and operands and operands[-1] is None:
        operands.pop()
    if len(rest) > len(row.attrs):
        raise GraphError(f"wanted at most {len(names) + len(row.attrs)} arguments, got {len(args)}")
    given |= {attr.name: value for attr, value in zip(row.attrs, rest, strict=False)}
    attrs = {}
    for attr in row.attrs:
        if attr.name not in given and attr.required:
            raise GraphError(f"{attr.name}: wanted {attr.kind}, got nothing")
        attrs[attr.name] = given.pop(attr.name, attr.default)
    if given:
        known = ", ".join((*names, *attrs))
        raise GraphError(f"wanted arguments named {known}, got {next(iter(given))!r}")
    return operands, attrs


def _graph(operands: list[Any]) -> Any:
    graph = None
    for operand in operands:
        if isinstance(operand, TensorValue):
            if graph is None:
                graph = operand.graph
            elif operand.graph is not graph:
                raise GraphError(
                    f"wanted values of one graph, got values of {graph.name!r} and "
                    f"{operand.graph.name!r}"
                )
    if graph is None:
        found = ", ".join(type(operand).__name__ for operand in operands) or "nothing"
        raise GraphError(f"wanted a tensor value, got {found}; ops.constant makes one")
    return graph
