"""Moves channels to the front as late as possible: between two convolutions that is never.

A convolution with channels first is one with channels last between two transposes (`legalize`).
Ops that compute each element on its own, concatenations, choices of elements along an axis,
reductions and shuffles of channels are the same on either side of a transpose, so that goes behind
them, where it meets the one that the next convolution has in front, and both are gone. One of what
lies in memory stays, where nothing behind the ops ends it, and so does one in front of slices and
shuffles. (Pixels are gathered faster than single elements.) Any transpose of what is computed goes
behind an op that reads it and numbers alone, since the kernel in front may compute that as well.
Two that are left with a reshape between them, which splits axes or merges them, are one.
"""

from __future__ import annotations

from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.passes.canonicalize import canonicalize
from heddle.graph.compiler.shuffles import Shuffle, begun_by, made_last, one_transpose, read_last
from heddle.graph.compiler.specs import PRODUCTS, folded_transpose, source
from heddle.graph.dim import Dim
from heddle.graph.types import Shape

REDUCTIONS = ("sum", "mean", "max", "min")

RANKS = (3, 4, 5)
"""Those of pictures: rows, pixels or voxels."""


def sink(module: Any, kind: str) -> None:
    """Moves each transpose of channels to the front behind what may be computed before it."""
    found = False
    for operation in m.operations(module):
        found = found or _moves_channels(operation)
        order = _order(operation)
        if order is not None:
            value = _before(operation, order)
        else:
            value = _moved_behind(operation) or _apart(operation)
        if value is not None:
            m.replace(operation, value)
            found = True
    if found:
        canonicalize(module, kind)
    found = False
    for operation in m.operations(module):
        value = None if _is_folded(operation) else one_transpose(operation)
        if value is not None:
            m.replace(operation, value)
            found = True
    if found:
        canonicalize(module, kind)


def _moves_channels(operation: Any) -> bool:
    """Whether the op moves the last of 3 to 5 axes to the place behind the first."""
    if operation is None or m.name(operation) != "transpose":
        return False
    order = m.attrs(operation)["permutation"]
    return len(order) in RANKS and order == _to_front(len(order))


def _to_front(rank: int) -> tuple[int, ...]:
    """The permutation that moves the last axis to the place behind the first."""
    return (0, rank - 1, *range(1, rank - 1))


def _order(operation: Any) -> tuple[int, ...] | None:
    """The permutation that may go behind the op; None where none may."""
    shuffle = Shuffle.ending_in(operation)
    if shuffle is not None and len(shuffle.merged) in RANKS:
        wide = {shuffle.x}
    elif _is_same_on_both_sides(operation):
        wide = {value for value in operation.operands if _is_wide(value, operation)}
    else:
        return None
    moved = [value for value in wide if _moves_channels(m.owner(value))]
    if not moved or not all(value in moved or _is_moved_back(value) for value in wide):
        return None
    if shuffle or m.name(operation) == "slice":
        stays = True
    else:  # the kernel that turns what is in memory may compute the op as well
        alone = m.elementwise(operation) or m.name(operation) == "gather"
        stays = alone and not any(map(_is_computed, moved))
    if stays and not _ends_before(operation):
        return None
    # A transpose that something else reads stays, and a wider one costs more.
    if not all(map(_goes_behind, (user for value in moved for user in m.users(value)))):
        return None
    widest = max(m.tensor(value).dtype.size for value in wide)
    if widest < m.tensor(operation.results[0]).dtype.size:
        return None
    narrow = [source(value) for value in operation.operands if value not in wide]
    axes = [sum(dim != 1 for dim in m.tensor(value).shape) for value in narrow]
    if m.elementwise(operation) and max(axes, default=0) > 1:
        return None
    order: tuple[int, ...] = m.attrs(m.owner(moved[0]))["permutation"]
    return order


def _is_moved_back(value: Any) -> bool:
    """Whether a convolution reads `value` with channels last: one transpose is for both."""
    return any(_moves_back(user) for user in m.users(value))


def _moves_back(operation: Any) -> bool:
    """Whether the op moves channels to the end."""
    if m.name(operation) != "transpose":
        return False
    order: tuple[int, ...] = m.attrs(operation)["permutation"]
    return order == (0, *range(2, len(order)), 1)


def _is_computed(value: Any) -> bool:
    """Whether a kernel makes what a transpose moves to `value`, and may compute the op as well."""
    operation = m.owner(value)
    if operation is not None and m.name(operation) in ("broadcast_to", "reshape", "transpose"):
        return _is_computed(operation.operands[0])
    return operation is not None and m.name(operation) not in m.SOURCES


def _ends_before(operation: Any) -> bool:
    """Whether what is made of the op is reduced, or read with the channels last."""
    found, number = [operation.results[0]], 0
    while number < len(found):
        value = found[number]
        number += 1
        for user in m.users(value):
            if m.name(user) in REDUCTIONS or _reads_moved_back(value, user) or read_last(user):
                continue
            last = begun_by(user) or user
            if last is user and not _keeps_pixels(user):
                return False
            if last.results[0] not in found:
                found.append(last.results[0])
    return True


def _reads_moved_back(value: Any, user: Any) -> bool:
    """Whether `user` reads `value` with channels last: it moves them, or reads a transposed b."""
    if m.name(user) in PRODUCTS:
        return m.tensor(value).rank == 3 and list(user.operands).index(value) == 1
    return _moves_back(user)


def _is_same_on_both_sides(operation: Any) -> bool:
    return m.name(operation) in REDUCTIONS or _keeps_pixels(operation)


def _keeps_pixels(operation: Any) -> bool:
    """Whether what the op gives is computed element by element, or those of its operands."""
    if m.name(operation) == "gather":
        return m.tensor(operation.operands[1]).rank == 1
    return m.elementwise(operation) or m.name(operation) in ("concat", "slice")


def _goes_behind(user: Any) -> bool:
    """Whether a transpose that `user` reads is gone, or may be, where it is behind that."""
    return (
        m.name(user) == "transpose"  # two are one, as `canonicalize` says
        or _is_same_on_both_sides(user)
        or begun_by(user) is not None
        or read_last(user)
    )


def _is_folded(operation: Any) -> bool:
    """Whether products read what a transpose turns as it lies."""
    users = m.users(operation.results[0])
    return folded_transpose(operation) and any(m.name(user) in PRODUCTS for user in users)


def _is_wide(value: Any, operation: Any) -> bool:
    """Whether an operand has all axes itself: it is not broadcast, and no indices."""
    if m.name(operation) == "gather":
        return bool(value == operation.operands[0])
    shape = m.tensor(operation.results[0]).shape
    return not m.elementwise(operation) or m.tensor(source(value)).shape == shape


def _before(operation: Any, order: tuple[int, ...]) -> Any:
    """The op on what its operands were before the permutation, and that behind it."""
    shuffle = Shuffle.ending_in(operation)
    if shuffle is not None:
        (x,) = m.owner(shuffle.x).operands  # type: ignore[union-attr]
        result = _to_front(len(shuffle.merged))
        value = shuffle.permuted(operation, x, order, result)
        return m.create(operation, "transpose", [value], permutation=result)
    attrs = m.attrs(operation)
    back = tuple(map(order.index, range(len(order))))
    if "axis" in attrs:
        attrs["axis"] = order[attrs["axis"]]
    for name in ("starts", "steps", "sizes"):
        if name in attrs:
            attrs[name] = type(attrs[name])(attrs[name][place] for place in back)

    def before(value: Any) -> Any:
        if not _is_wide(value, operation):
            elementwise = m.elementwise(operation)
            return _turned(operation, source(value), order) if elementwise else value
        above = m.owner(value)
        if _moves_channels(above):
            return above.operands[0]  # type: ignore[union-attr]
        return m.create(operation, "transpose", [value], permutation=back)

    operands = list(map(before, operation.operands))
    value = m.create(operation, m.name(operation), operands, **attrs)
    return m.create(operation, "transpose", [value], permutation=order)


def _moved_behind(operation: Any) -> Any | None:
    """The op on what is computed, and what turned that for it alone behind it.

    None where it reads more than that and single numbers, or its result is wider.
    """
    many = [value for value in operation.operands if not _is_number(source(value))]
    if not m.elementwise(operation) or len(many) != 1:
        return None
    (wide,), result, moves = many, m.tensor(operation.results[0]), []
    if m.tensor(wide).shape != result.shape or m.tensor(wide).dtype.size < result.dtype.size:
        return None
    x = wide
    while m.owner_name(x) in ("reshape", "transpose") and m.only_user(x) is not None:
        move = m.owner(x)
        moves.append(move)
        (x,) = move.operands  # type: ignore[union-attr]
    if "transpose" not in map(m.name, moves) or not _is_computed(x):
        return None
    operands = [
        x if value == wide else _turned(operation, source(value), ())
        for value in operation.operands
    ]
    value = m.create(operation, m.name(operation), operands, **m.attrs(operation))
    for move in reversed(moves):
        value = m.create(operation, m.name(move), [value], **m.attrs(move))
    return value


def _apart(operation: Any) -> Any | None:
    """A reshape of a transpose that moves channels to the front, so that this comes last.

    None where it would not end, and where memory is turned.
    """
    above = m.owner(operation.operands[0]) if m.name(operation) == "reshape" else None
    if above is None or m.name(above) != "transpose" or not _is_computed(above.results[0]):
        return None
    rank = m.tensor(operation.results[0]).rank
    if rank not in RANKS or not _ends_before(operation):
        return None
    value = made_last(operation, _to_front(rank))
    return value and m.create(operation, "transpose", [value], permutation=_to_front(rank))


def _is_number(value: Any) -> bool:
    return all(dim == 1 for dim in m.tensor(value).shape)


def _turned(operation: Any, value: Any, order: tuple[int, ...]) -> Any:
    """`value`, which has one axis at most, so that it broadcasts before the permutation."""
    shape = m.tensor(value).shape
    padded = Shape((*[Dim(1)] * (len(order) - len(shape)), *shape))
    if _is_number(value):
        return value if not shape else m.create(operation, "reshape", [value], shape=Shape())
    before = [padded[order.index(axis)] for axis in range(len(order))]
    while before[0] == 1:
        before.pop(0)
    turned = Shape(before)
    return value if turned == shape else m.create(operation, "reshape", [value], shape=turned)
