"""Slices move in front of the ops whose results they cut, so that what is cut off is not computed.

Of `(x @ w)[:, -1]` one row is multiplied, of `x[0]` behind a norm one is normalized; and a product
whose columns are read in parts, as queries, keys and values of one weight, becomes one for each
part: kernels of several products share what they read, and nothing is copied out of a result. No
weight is cut where it would then be in memory twice.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from heddle.graph.compiler import module as m
from heddle.graph.compiler.cuts import Axis, Cut, cut_of, needed, sliced, whole
from heddle.graph.compiler.passes.canonicalize import canonicalize
from heddle.graph.compiler.stages import known_at_init
from heddle.graph.ops.linear import PANEL

PRODUCTS = ("matmul", "quantized_matmul")
"""Ops that may become one for each part of their columns."""

MATRICES = (*PRODUCTS, "integer_matmul", "float8_matmul")
"""Ops that read large weights."""

MOST_PARTS = 4
"""Parts of one product: as many as a kernel computes beside each other."""


def cut(module: Any, kind: str) -> None:
    """Moves each slice as far to the front as it pays."""
    while _swept(module, kind):
        canonicalize(module, kind)


def _swept(module: Any, kind: str) -> bool:
    """Whether a slice has moved; those that move meet what is in front of them in the same walk."""
    early, changed = known_at_init(module), False
    bound: set[tuple[Any, Cut]] = set()
    for operation in reversed(m.operations(module)):
        slices = _slices(operation)
        cuts = list(dict.fromkeys(slices.values()))
        if not cuts or not _pays(operation, cuts, early, kind, bound):
            continue
        for each in cuts:
            replaced = [result.owner for result, cut in slices.items() if cut == each]
            value = _moved(operation, each, early, replaced[0].location)
            for one in replaced:
                m.replace(one, value)
        operation.erase()
        changed = True
    return changed


def _slices(operation: Any) -> dict[Any, Cut]:
    """The cuts of an op's result, by the slices that alone read it; else none."""
    users = m.users(operation.results[0])[::-1]  # in the order in which they were added
    if any(m.name(user) != "slice" for user in users):
        return {}
    return {m.result(user): cut_of(user) for user in users}


def _pays(
    operation: Any, cuts: list[Cut], early: set[Any], kind: str, bound: set[tuple[Any, Cut]]
) -> bool:
    """Whether less is computed, or a product is computed in parts.

    `bound` is what is known to be on the way to a product: its last op looks at all others.
    """
    if operation.results[0] in early:  # a kernel's panels are made of a weight that is turned
        return m.name(operation) == "transpose" and all(map(_is_known, cuts))
    if len(cuts) > 1:
        return _are_apart(cuts) and all(
            _is_of_product(operation, each, early, kind, bound) for each in cuts
        )
    (only,) = cuts
    late = _late(operation, only, early, kind)
    if late is None or all(axis.size == axis.of for axis in only):
        return False  # it has to stay, or only turns an axis around
    if any(axis.halves for axis in only):
        return True
    return len(late) <= 1 and not any(value in early for value, _ in late)


def _late(operation: Any, each: Cut, early: set[Any], kind: str) -> list[tuple[Any, Cut]] | None:
    """What would be cut instead in each call; None where the slice has to stay."""
    found = needed(operation, each)
    if found is None:
        return None
    pairs = zip(operation.operands, found[0], strict=True)
    less = [(value, cut) for value, cut in pairs if cut and not whole(cut)]
    if m.name(operation) in MATRICES and any(
        value in early and _stays_whole(value, operation, kind) for value, _ in less
    ):
        return None
    return [(value, cut) for value, cut in less if value not in early or not _is_known(cut)]


def _is_known(cut: Cut) -> bool:
    """Whether it is the same in each call."""
    return all(axis.start.static is not None and axis.size.static is not None for axis in cut)


def _stays_whole(value: Any, reader: Any, kind: str) -> bool:
    """Whether a value that is known at load is in memory beside its parts.

    Something else reads it; or a GPU's kernels read a weight as it is, which is there in any case
    where it is not embedded.
    """
    while True:
        others = [user for user in m.users(value) if user != reader]
        if any(m.name(user) != "slice" for user in others):
            return True
        if m.owner_name(value) not in ("transpose", "reshape"):
            break
        reader = m.owner(value)
        value = reader.operands[0]
    source = m.owner(value) if kind == "cuda" else None
    return source is not None and m.name(source) == "weight" and "embedded" not in source.attributes


def _are_apart(cuts: list[Cut]) -> bool:
    """Whether they are a few parts of one axis that share nothing."""
    axes = {place for cut in cuts for place, axis in enumerate(cut) if not axis.whole}
    if len(axes) != 1 or len(cuts) > MOST_PARTS:
        return False
    (place,) = axes
    parts = [cut[place] for cut in cuts]
    ranges = [(part.start.static, (part.start + part.size).static) for part in parts]
    known = sorted((begin, end) for begin, end in ranges if begin is not None and end is not None)
    forward = all(part.step == 1 for part in parts) and len(known) == len(parts)
    return forward and all(one[1] <= other[0] for one, other in pairwise(known))


def _is_of_product(
    operation: Any, each: Cut, early: set[Any], kind: str, bound: set[tuple[Any, Cut]]
) -> bool:
    """Whether a cut is one of the columns of a product by a weight, behind ops of its own."""
    way = [(operation.results[0], each)]
    while m.name(operation) not in PRODUCTS and way[-1] not in bound:
        late = _late(operation, each, early, kind)
        if late is None or len(late) != 1:
            return False
        way += late
        ((value, each),) = late
        above = m.owner(value) if m.only_user(value) is not None else None
        if above is None:
            return False
        operation = above
    found = way[-1] in bound or (
        _late(operation, each, early, kind) == [] and _fills_panels(each[-1])
    )
    bound.update(way if found else ())
    return found


def _fills_panels(columns: Axis) -> bool:
    """Whether a kernel computes few columns more than these."""
    size = columns.size.static
    return columns.whole or (size is not None and 8 * (-size % PANEL) <= size)


def _moved(operation: Any, each: Cut, early: set[Any], location: Any) -> Any:
    """The op on what is left of its operands, by slices that have the location."""
    found = needed(operation, each)
    assert found is not None, "whether it pays was asked before"
    cuts, attrs = found
    operands = []
    for value, cut in zip(operation.operands, cuts, strict=True):
        operands.append(sliced(operation, value, cut, location))
        if value in early and (cut is None or _is_known(cut)):
            early.add(operands[-1])
    return m.create(operation, m.name(operation), operands, **{**m.attrs(operation), **attrs})
