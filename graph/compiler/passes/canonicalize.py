"""Simplifies: upstream's canonicalize and cse, which also drop dead ops, and Heddle's own rules.

A rule takes an op and returns the value that stands for its result, or None. Every rule is exact:
it changes no bit of any result (`x + 0.0` would: it turns -0.0 into 0.0, so only `x - 0.0` goes).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from heddle.graph.compiler import choices
from heddle.graph.compiler import module as m
from heddle.graph.compiler.specs import source
from heddle.graph.dtype import DType
from heddle.graph.types import Shape
from heddle.kernels.mlir import passmanager

Rule = Callable[[Any], Any]


def canonicalize(module: Any, kind: str) -> None:
    """Simplifies until nothing changes; every rule leaves fewer ops or shorter chains."""
    changed = True
    while changed:
        passmanager.PassManager.parse("builtin.module(func.func(canonicalize,cse))").run(
            module.operation
        )
        changed = False
        for operation in m.operations(module):
            for rule in RULES.get(m.name(operation), ()):
                value = rule(operation)
                if value is not None:
                    m.replace(operation, value)
                    changed = True
                    break


def _operand(operation: Any) -> Any:
    return operation.operands[0]


def _same_type(operation: Any) -> Any:
    """A cast, reshape or broadcast to what the value already is."""
    value = _operand(operation)
    return value if value.type == operation.results[0].type else None


def _twice(operation: Any) -> Any:
    """A reshape of a reshape, a broadcast of a broadcast: only the last one counts."""
    inner = m.owner(_operand(operation))
    if inner is None or m.name(inner) != m.name(operation):
        return None
    return _remade(operation, inner.operands[0])


def _cast_of_cast(operation: Any) -> Any:
    """A cast of a cast that lost nothing; by way of a float, integers end at a limit or wrap."""
    inner = m.owner(_operand(operation))
    if inner is None or m.name(inner) != "cast":
        return None
    value = inner.operands[0]
    first, middle, last = (
        m.tensor(v).dtype for v in (value, inner.results[0], operation.results[0])
    )
    limited = middle.is_float and first.is_integer and last.is_integer
    if not holds(middle, first) or (limited and not holds(last, first)):
        return None
    return value if value.type == operation.results[0].type else _remade(operation, value)


def _cast_of_broadcast(operation: Any) -> Any:
    """A cast of what was broadcast casts each element once."""
    spread = m.owner(_operand(operation))
    if spread is None or m.name(spread) != "broadcast_to":
        return None
    shape = m.tensor(operation.results[0]).shape
    return m.create(operation, "broadcast_to", [_remade(operation, _operand(spread))], shape=shape)


def _broadcast_beside(operation: Any) -> Any:
    """A broadcast to the sizes that the other operand has anyway."""
    operands = list(operation.operands)
    spread = [m.owner_name(value) == "broadcast_to" for value in operands]
    if spread.count(True) != 1:
        return None
    place = spread.index(True)
    if m.tensor(operands[1 - place]).shape != m.tensor(operation.results[0]).shape:
        return None
    operands[place] = _operand(m.owner(operands[place]))
    return m.create(operation, m.name(operation), operands, **m.attrs(operation))


def _neutral(number: float, sides: tuple[int, ...]) -> Rule:
    """An operand that is `number` everywhere, in a place where it changes nothing."""

    def rule(operation: Any) -> Any:
        for side in sides:
            value = operation.operands[1 - side]
            if value.type == operation.results[0].type and _is(operation.operands[side], number):
                return value
        return None

    return rule


def _is(value: Any, number: float) -> bool:
    found = m.splat(source(value))
    if found is None:
        return False
    same_sign = math.copysign(1, found) == math.copysign(1, number)
    return bool(found == number) and (same_sign or not m.tensor(value).dtype.is_float)


def _transpose_of_transpose(operation: Any) -> Any:
    """Two permutations are one; the identity is none."""
    value, order = _operand(operation), m.attrs(operation)["permutation"]
    if order == tuple(range(len(order))):
        return value
    inner = m.owner(value)
    if inner is None or m.name(inner) != "transpose":
        return None
    first = m.attrs(inner)["permutation"]
    both = tuple(first[axis] for axis in order)
    return m.create(operation, "transpose", [inner.operands[0]], permutation=both)


def _only_ones_move(operation: Any) -> Any:
    """A transpose that leaves the axes of more than one element in order renames sizes."""
    value, order = _operand(operation), m.attrs(operation)["permutation"]
    shape = m.tensor(value).shape
    kept = [axis for axis in order if shape[axis] != 1]
    if kept != sorted(kept):
        return None
    return m.create(operation, "reshape", [value], shape=m.tensor(operation.results[0]).shape)


def _ones_off_transpose(operation: Any) -> Any:
    """A reshape that takes axes of one element off a transpose takes them off in front of it."""
    turned, shape = m.owner(_operand(operation)), m.tensor(operation.results[0]).shape
    if turned is None or m.name(turned) != "transpose" or m.only_user(turned.results[0]) is None:
        return None
    (x,), order = turned.operands, m.attrs(turned)["permutation"]
    before = m.tensor(x).shape
    kept = [axis for axis in order if before[axis] != 1]
    if len(kept) == len(order) or Shape(before[axis] for axis in kept) != shape:
        return None
    axes = sorted(kept)
    inner = m.create(operation, "reshape", [x], shape=Shape(before[axis] for axis in axes))
    permutation = tuple(map(axes.index, kept))
    return m.create(operation, "transpose", [inner], permutation=permutation)


def _slice_of_all(operation: Any) -> Any:
    forward = all(step == 1 for step in m.attrs(operation)["steps"])
    return _same_type(operation) if forward else None


def _slice_of_slice(operation: Any) -> Any:
    """Steps of steps are their product."""
    inner = m.owner(_operand(operation))
    if inner is None or m.name(inner) != "slice":
        return None
    first, last = m.attrs(inner), m.attrs(operation)
    pairs = zip(first["starts"], first["steps"], last["starts"], strict=True)
    return m.create(
        operation,
        "slice",
        [inner.operands[0]],
        starts=Shape(start + step * more for start, step, more in pairs),
        steps=tuple(a * b for a, b in zip(first["steps"], last["steps"], strict=True)),
        sizes=last["sizes"],
    )


def _attention_of_turned(operation: Any) -> Any:
    """Attention of three transposes of heads and sequence: its kernels read either order."""
    attrs, (query, key, value, *mask) = m.attrs(operation), operation.operands
    layouts = {"bhsd": "bshd", "bshd": "bhsd"}
    turned = [m.owner(each) for each in (query, key, value)]
    if any(
        above is None or m.name(above) != "transpose" or m.attrs(above)["permutation"] != _HEADS
        for above in turned
    ):
        return None
    operands = [*(above.operands[0] for above in turned), *mask]  # type: ignore[union-attr]
    attrs["layout"] = layouts[attrs["layout"]]
    made = m.create(operation, "attention", operands, **attrs)
    return m.create(operation, "transpose", [made], permutation=_HEADS)


def _attention_of_repeated(operation: Any) -> Any:
    """Heads of keys that are repeated for each of the queries that they serve: they do that."""
    query, key, value, *mask = operation.operands
    attrs = m.attrs(operation)
    axis = 1 if attrs["layout"] == "bhsd" else 2
    found = [each for wide in (key, value) if (each := _unrepeated(wide, axis))]
    if len(found) != 2 or found[0][1] != found[1][1]:
        return None
    parts = [m.create(operation, "reshape", [narrow], shape=shape) for narrow, shape in found]
    return m.create(operation, "attention", [query, *parts, *mask], **attrs)


def _unrepeated(value: Any, axis: int) -> tuple[Any, Shape] | None:
    """`value` before each element along `axis` was repeated, by way of one axis more; its shape."""
    wide = value
    if m.owner_name(value) == "reshape":
        wide = _operand(m.owner(value))
    if m.owner_name(wide) != "broadcast_to":
        return None
    narrow = _operand(m.owner(wide))
    spread, before = m.tensor(wide).shape, m.tensor(narrow).shape
    after = m.tensor(value).shape
    if wide is value or spread == after:  # one head for all
        one = Shape((*after[:axis], 1, *after[axis + 1 :]))
        return (narrow, one) if before == one else None
    kept = Shape((*spread[: axis + 1], *spread[axis + 2 :]))
    joined = (*spread[:axis], spread[axis] * spread[axis + 1], *spread[axis + 2 :])
    if len(spread) != len(after) + 1 or Shape(joined) != after:
        return None
    return (
        (narrow, kept) if before == Shape((*spread[: axis + 1], 1, *spread[axis + 2 :])) else None
    )


_HEADS = (0, 2, 1, 3)


def _concat_of_one(operation: Any) -> Any:
    return _operand(operation) if len(operation.operands) == 1 else None


def _remade(operation: Any, value: Any) -> Any:
    """`operation` again, on another operand."""
    return m.create(operation, m.name(operation), [value], **m.attrs(operation))


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    if narrow is DType.bool or wide is narrow:
        return True
    if wide.is_float and narrow.is_float:
        return wide.size > narrow.size
    if wide.is_float:
        return 8 * narrow.size <= _MANTISSA[wide]
    if narrow.is_float:
        return False
    (low, high), (least, greatest) = narrow.range, wide.range
    return least <= low and high <= greatest


_MANTISSA = {
    DType.float8_e5m2: 3,
    DType.float8_e4m3fn: 4,
    DType.bfloat16: 8,
    DType.float16: 11,
    DType.float32: 24,
    DType.float64: 53,
}

RULES: dict[str, tuple[Rule, ...]] = {
    "add": (_neutral(-0.0, (0, 1)), _broadcast_beside),
    "sub": (_neutral(0.0, (1,)), _broadcast_beside),
    "mul": (_neutral(1.0, (0, 1)), _broadcast_beside),
    "div": (_neutral(1.0, (1,)), _broadcast_beside),
    "cast": (_same_type, _cast_of_cast, _cast_of_broadcast),
    "reshape": (_same_type, _twice, _ones_off_transpose),
    "broadcast_to": (_same_type, _twice),
    "transpose": (_transpose_of_transpose, _only_ones_move),
    "slice": (_slice_of_all, _slice_of_slice),
    "concat": (_concat_of_one,),
    "attention": (_attention_of_turned, _attention_of_repeated),
    "where": (choices.of_known, choices.of_bools, choices.of_opposite),
    "less": (choices.never_less,),
}

for _name in (
    *("add", "sub", "mul", "div", "neg", "cast", "maximum", "minimum"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("logical_and", "logical_not", "logical_or", "logical_xor"),
):
    RULES[_name] = (*RULES.get(_name, ()), choices.of_numbers)
