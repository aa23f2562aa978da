"""Several products of one left side as one kernel: the blocks of one follow those of another.

A block finds its product by its number. Those that are alike but for their buffers (an attention's
keys and values) share code, which chooses its pointers. Each product is cut along k as it is alone,
into parts with a workspace and counters of their own, so that its bits are the same.

A product and its gate are in the same blocks (`Strip.products`), which have columns of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import groupby
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _frame
from heddle.kernels.cuda.products import by_rows, matrices, mma
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec, fold

_COUNTER = 4  # Bytes.


def ways(spec: Spec, of: Callable[[Spec], Sequence[by_rows.Way]]) -> Sequence[by_rows.Way]:
    """The ways to compute all products of `spec`, from those `of` one, for the same rows."""
    if not spec.beside:
        return of(spec)
    return [_together(level) for level in zip(*map(of, spec.each), strict=True)]


def _together(level: Sequence[by_rows.Way]) -> by_rows.Way:
    """The blocks of all products, one product's after another's."""
    return by_rows.Way(
        level[0].most,
        reduce(partial(fold, "add"), (way.blocks for way in level)),
        max(way.shared for way in level),
        partial(_emit, level),
        sum(way.workspace for way in level),
        sum(way.counters for way in level),
    )


def _emit(
    level: Sequence[by_rows.Way],
    frame: _frame.Frame,
    shared: mma.DynamicShared,
    block: Size,
) -> None:
    """Emits what a block of all products does."""
    spec, pointers = frame.spec, _pointers(frame)
    first = workspace = counters = 0
    done: Size = 0
    for one, alike in groupby(spec.each):
        count, way = len(list(alike)), level[first]
        several = [[pointers[i] for i in places] for places in spec.places[first : first + count]]
        blocks, own = frame.size(way.blocks), block - emit.as_index(done)
        inside = emit.compare("greater_equal", own, 0) & emit.compare("less", own, blocks * count)
        with emit.when(inside):
            number = _turn(own, blocks, count)
            product = _product_of(
                frame, one, [chosen(number, p) for p in zip(*several, strict=True)]
            )
            if way.workspace:
                place = number * way.workspace + workspace
                product = _with_memory(product, place, number * way.counters + counters)
            way.body(product, shared, own - number * blocks)
        first, done = first + count, done + blocks * count
        workspace, counters = workspace + count * way.workspace, counters + count * way.counters


def frames(frame: _frame.Frame) -> list[_frame.Frame]:
    """That of each product, without a workspace of its own."""
    spec, pointers = frame.spec, _pointers(frame)
    return [
        _product_of(frame, one, [pointers[i] for i in places])
        for one, places in zip(spec.each, spec.places, strict=True)
    ]


def _pointers(frame: _frame.Frame) -> list[Any]:
    return [*frame.inputs, *frame.outputs]


def _turn(block: Size, blocks: Size, count: int) -> Size:
    """Which of `count` products with so many blocks each a block is of."""
    passed = [emit.compare("greater_equal", block, blocks * i) for i in range(1, count)]
    return sum((emit.select(is_passed, emit.index(1), 0) for is_passed in passed), emit.index(0))


def chosen(number: Size, values: Sequence[Any]) -> Any:
    """The value of that number: a pointer or a size."""
    found, *others = values
    for i, value in enumerate(others, 1):
        if value != found:
            found = emit.select(emit.compare("equal", number, i), value, found)
    return found


def _product_of(frame: _frame.Frame, spec: Spec, buffers: Sequence[Any]) -> _frame.Frame:
    """The frame of one product."""
    reads = len(spec.inputs)
    return replace(frame, spec=spec, inputs=list(buffers[:reads]), outputs=list(buffers[reads:]))


def _with_memory(frame: _frame.Frame, place: Size, counter: Size) -> _frame.Frame:
    """With the workspace from a byte on, and the counters from that of a number on."""
    return replace(
        frame,
        workspace=mma.byte_at(frame.workspace, place),
        counters=mma.byte_at(frame.counters, counter * _COUNTER),
    )


def _alike(spec: Spec, gate: Spec) -> bool:
    """Whether one strip may have columns of both products."""
    one, other = ((x.operands, x.result.shape, x.attrs) for x in (spec, gate))
    return one == other and gate.gate is None and len(gate.outputs) == 1


def supports_each(
    supports: Callable[[Spec], str | None], joins: Callable[[Spec], bool]
) -> Callable[[Spec], str | None]:
    """A kernel's `supports` for several products of the same rows, from that for one.

    Each of them `joins`.
    """

    def supports_all(spec: Spec) -> str | None:
        if spec.source is not None:
            return "it takes no norm in front"
        products = spec.products
        reason = next(filter(None, map(supports, products)), None)
        if reason or len(products) == 1:
            return reason
        gates = [one.gate for one in spec.each if one.gate]
        if gates and (spec.beside or not _alike(spec, gates[0])):
            return "a gate: wanted one product of the same sizes and dtypes, nothing beside it"
        problems = [matrices.problem(one) for one in products]
        rows = {(problem.batch, problem.m) for problem in problems}
        if rows != {((), problems[0].m)} or not all(map(joins, products)):
            return "products of one left side: wanted the same few rows, on tensor cores"
        return None

    return supports_all
