"""Products that are cut by how many rows a call has: one launch, one kernel, several ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block, _frame, _handover
from heddle.kernels.cuda.products import matrices, mma, staging
from heddle.kernels.registry import Portion
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold

FEW = 64
"""Rows that strips are for."""

FEWER = 16
"""Rows up to which they read b as fast as memory gives it."""

ALONE = 115 * 1024
"""Bytes of a block's shared memory that no other one like it fits beside: half of sm_90a's."""

LEAST, MOST = "least_rows", "most_rows"
"""Attributes of products whose rows are known when they run, and are in this range."""


@dataclass(frozen=True)
class Way:
    """How a product of at most `most` rows (None: of any number) is computed.

    By so many `blocks`, with `shared` bytes each; `body` emits what the block of a number does.
    Together they take so many bytes of `workspace`, and `counters`.
    """

    most: int | None
    blocks: Expr
    shared: int
    body: Callable[[_frame.Frame, mma.DynamicShared, Size], None]
    workspace: int = 0
    counters: int = 0


def possible(spec: Spec, ways: Sequence[Way]) -> Sequence[Way]:
    """The ways that the sizes of `spec` leave open, of `ways` for more and more rows."""
    m = matrices.problem(spec).m
    if isinstance(m, int):
        return [next(way for way in ways if way.most is None or m <= way.most)]
    least, most = spec.attr(LEAST, 0), spec.attr(MOST)
    ways = [way for way in ways if way.most is None or way.most >= least]
    if most is None:
        return ways
    few = [way for way in ways if way.most is not None and way.most <= most]
    return few or ways


def split(spec: Spec) -> tuple[Portion, ...]:
    """Products of few rows, of some and of more, where the rows are known when it runs.

    They want other blocks: many small ones, or one that fills a multiprocessor.
    """
    return split_at(spec, FEWER, FEW, whole=2) if in_strips(spec) else (Portion(spec),)


def _apart(portion: Portion) -> Iterator[Portion]:
    """Each product of a portion as one of its own; that of a gate goes through memory."""
    spec, gate = portion.spec, portion.spec.gate
    if gate is None:
        for one, places in zip(spec.each, spec.places, strict=True):
            yield Portion(one, portion.condition, places)
        return
    reads, memory = len(spec.inputs), len(spec.buffers)
    own = reads - len(gate.inputs) + 1
    yield Portion(gate, portion.condition, (0, *range(own, reads), memory))
    behind = (*range(own), memory, *range(reads, memory))
    yield Portion(replace(spec, gate=None), portion.condition, behind)


def split_at(spec: Spec, *bounds: int, whole: int = 1) -> tuple[Portion, ...]:
    """Up to each of `bounds` rows and more, where the rows are known when it runs.

    What is beside each other, and a gate, is computed product by product in all but the first
    portions, so many as are `whole`.
    """
    m = matrices.problem(spec).m
    if isinstance(m, int):
        return (Portion(spec),)
    found, rest = [], spec
    above: Expr = 1
    for most in bounds:
        more: Expr = ("min", 1, ("floordiv", m, most + 1))
        found.append(Portion(rest.with_attr(MOST, most), ("sub", above, more)))
        rest, above = spec.with_attr(LEAST, most + 1), more
    found.append(Portion(rest, above))
    if spec.beside or spec.gate:
        found[whole:] = [one for portion in found[whole:] for one in _apart(portion)]
    return tuple(found)


def are_few(spec: Spec, few: int = FEW) -> bool:
    """Whether rows are known to be no more than strips are for: so `few`."""
    m = matrices.problem(spec).m
    most = m if isinstance(m, int) else spec.attr(MOST)
    return most is not None and most <= few


def may_be_few(spec: Spec, few: int = FEW) -> bool:
    """Whether they are, or only the call knows."""
    m = matrices.problem(spec).m
    return not isinstance(m, int) or m <= few


def given(spec: Spec, count: Callable[[Spec], int] = lambda _: 1) -> tuple[int, ...]:
    """The numbers of the buffers by which each product multiplies its rows, `count(product)`."""
    found = [
        number
        for one, places in zip(spec.each, spec.places, strict=True)
        for number in places[1 : 1 + count(one)]
    ]
    if spec.gate:
        first = len(spec.inputs) - len(spec.gate.inputs) + 1
        found += range(first, first + count(spec.gate))
    return tuple(found)


def in_strips(spec: Spec) -> bool:
    """Whether few rows are multiplied in strips."""
    kind = mma.kind_of(spec)
    strips = kind is not None and has_strips(kind, spec.attr("transposed"))
    return strips and spec.prologue is None


def has_strips(kind: mma.Kind, transposed: bool) -> bool:
    """Whether there are strips of few rows: they sort neither bytes nor words along n."""
    return kind.item == 2 or transposed


def emit_ways(frame: _frame.Frame, ways: Sequence[Way]) -> None:
    """Emits the ways, and the choice by the rows of the call."""
    shared = mma.DynamicShared("stages")
    _emit(frame, shared, frame.size(matrices.problem(frame.spec).m), ways)


def _emit(frame: _frame.Frame, shared: mma.DynamicShared, m: Size, ways: Sequence[Way]) -> None:
    way, *others = ways

    def this() -> list[Any]:
        way.body(frame, shared, _block.block())
        return []

    def rest() -> list[Any]:
        _emit(frame, shared, m, others)
        return []

    if not others:
        this()
        return

    emit.either(emit.compare("less_equal", m, way.most), [], this, rest)


def _shared(way: Way) -> int:
    """Bytes of a block: where strips make about one for each multiprocessor, two share none.

    While a kernel in front ends, blocks go where there is room: two of them to one, none to others.
    """
    most = _handover.PROCESSORS
    one_each = isinstance(way.blocks, int) and most // 2 < way.blocks <= most
    return max(way.shared, ALONE) if way.most is not None and one_each else way.shared


def launch(spec: Spec, ways: Sequence[Way]) -> Launch:
    """The launch of `ways`: the blocks of the one that the rows of the call choose."""
    m = matrices.problem(spec).m
    *others, last = ways
    grid = last.blocks
    for way in reversed(others):
        assert way.most is not None
        more: Expr = ("min", 1, ("floordiv", m, way.most + 1))
        grid = ("add", ("mul", ("sub", 1, more), way.blocks), ("mul", more, grid))
    work = [matrices.problem(one).work for one in spec.products]
    return Launch(
        (fold("max", 1, grid), 1, 1),
        reduce(partial(fold, "add"), work),
        (staging.THREADS, 1, 1),
        max(map(_shared, ways)),
        workspace=max(way.workspace for way in ways),
        counters=max(way.counters for way in ways),
    )
