"""Rows put at the places along an axis that indices name, in the order of the indices.

A block owns a range of places and some columns. It looks at all the indices that may name one of
its places, notes those that do, in their order, in shared memory, and then works on them: a place
belongs to one group of lanes, which takes its updates in their order. The result is x already when
the kernel starts (`Kernel.updates`). An index out of range is reported, and its row dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from heddle.kernels import convert, emit, memory, scattering, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda._scan import Scan
from heddle.kernels.cuda.gather import report
from heddle.kernels.emit import compare, select
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.row_spans import out_of_range
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

EACH = 4
"""Indices that a thread looks at in one step."""

STEP = EACH * _frame.THREADS
"""Indices of a step."""

NOTED = 2 * STEP
"""Updates that a block notes before it works on them."""

COLUMNS = 1024
"""Columns of a block."""

SHARE, BLOCKS = 2, 264
"""Blocks of a multiprocessor; those that look at the same indices, at most."""


def launch(spec: Spec) -> Launch:
    """Ranges of places, times blocks of columns."""
    outer, _, count, inner = scattering.extents(spec)
    ranges, columns = _grid(spec)
    work = product((outer, count, inner, 2))
    return Launch((fold("mul", ranges, columns), 1, 1), work, (_frame.THREADS, 1, 1))


def _grid(spec: Spec) -> tuple[Expr, Expr]:
    """Into how many parts places and columns are divided."""
    outer, limit, _, inner = scattering.extents(spec)
    columns = fold("max", 1, fold("ceildiv", inner, COLUMNS))
    most = fold("max", 1, fold("floordiv", BLOCKS, columns))
    return fold("max", 1, fold("min", most, fold("mul", outer, limit))), columns


def emit_scatter(spec: Spec, machine: Machine) -> None:
    """Emits a thread's work."""
    frame = _frame.frame(spec, machine)
    _block.share_multiprocessor(SHARE)
    with frame.unless_empty():
        part, noted = _part(frame), _Noted()
        updates = frame.reader(2).inputs

        def body(lanes: int) -> None:
            put = partial(_put, part, noted, lanes)

            def step(number: Any, held: Any) -> list[Any]:
                held = _look(part, noted, number, held)
                full = compare("greater", held, NOTED - STEP)
                return emit.either(full, [emit.integer(64)], partial(put, held), lambda: [held])

            (held,) = emit.carry(part.start, part.stop, STEP, [emit.index(0)], step)
            put(held)

        _frame.in_vectors(frame, [updates], [part.inner], body)


class _Noted:
    """The updates that a block has noted, by their numbers, and their places."""

    def __init__(self) -> None:
        self.numbers, self.places = (
            _block.SharedArray(name, emit.integer(64), NOTED) for name in ("numbers", "places")
        )
        self.scan = Scan("totals", _frame.THREADS)


@dataclass(frozen=True)
class _Part:
    """What a block owns.

    Attributes:
        in_runs: Whether there may be several runs.
        limit, count, inner: Places of a run, updates of a run, elements of a row.
        low, high: The block's places, of those of all runs.
        left, right: Its columns.
        start, stop: The updates of the runs that its places are in.
    """

    frame: _frame.Frame
    in_runs: bool
    limit: Size
    count: Size
    inner: Size
    low: Any
    high: Any
    left: Any
    right: Any
    start: Any
    stop: Any


def _part(frame: _frame.Frame) -> _Part:
    outer, limit, count, inner = frame.shape(scattering.extents(frame.spec))
    ranges, columns = frame.shape(_grid(frame.spec))
    block = _block.block()
    left = sizes.mod(block, columns) * COLUMNS
    places = emit.as_index(sizes.product((outer, limit)))
    each = sizes.ceildiv(places, ranges)
    low = sizes.least(sizes.floordiv(block, columns) * each, places)
    high = sizes.least(low + each, places)
    start, stop = emit.index(0), emit.as_index(count)
    in_runs = not isinstance(outer, int) or outer != 1
    if in_runs:
        start = sizes.floordiv(low, limit) * count
        stop = sizes.ceildiv(high, limit) * count
    right = sizes.least(left + COLUMNS, inner)
    return _Part(frame, in_runs, limit, count, inner, low, high, left, right, start, stop)


def _look(part: _Part, noted: _Noted, number: Any, held: Any) -> Any:
    """Notes which updates of a step are the block's, behind the `held` ones; how many it holds."""
    frame, kind = part.frame, part.frame.spec.operands[1].dtype
    found = []
    first = number + _block.thread() * EACH
    run = sizes.floordiv(first, part.count) if part.in_runs else 0
    for own in range(EACH):
        update = first + own
        if part.in_runs and own:
            begins = compare("equal", update, run * part.count + part.count)
            run = run + select(begins, emit.index(1), 0)

        def there(update: Any = update, run: Any = run) -> list[Any]:
            index = convert.cast(memory.load(frame.inputs[1], update, kind), kind, "int64")
            inside = compare("less", index, part.limit, unsigned=True)
            with emit.when(inside ^ True):
                report(frame.status, index, emit.as_index(part.limit), out_of_range(kind))
            return [select(inside, run * part.limit + index, emit.index(-1))]

        is_there = compare("less", update, part.stop)
        (place,) = emit.either(is_there, [emit.integer(64)], there, lambda: [emit.index(-1)])
        ours = compare("greater_equal", place, part.low) & compare("less", place, part.high)
        found.append((update, place, ours))
    own = emit.index(0)
    for _, _, ours in found:
        own = own + select(ours, emit.index(1), 0)
    before, total = noted.scan(own)
    at = held + before
    for update, place, ours in found:
        with emit.when(ours):
            noted.numbers.store(update, at)
            noted.places.store(place, at)
        at = at + select(ours, emit.index(1), 0)
    return held + total


def _put(part: _Part, noted: _Noted, lanes: int, held: Any) -> list[Any]:
    """Works on the updates that are held; then none is."""
    frame, spec = part.frame, part.frame.spec
    result, dtype = frame.outputs[0], scattering.moved(spec)
    width = _width(part.inner, lanes)
    group, lane = (op(_block.thread(), width) for op in (sizes.floordiv, sizes.mod))
    _block.barrier()
    for entry in emit.loop(0, held):
        place = noted.places.load(entry)
        with emit.when(compare("equal", place % (_frame.THREADS // width), group)):
            number = noted.numbers.load(entry)
            source, target = number * part.inner, place * part.inner
            for column in emit.loop(part.left + lane * lanes, part.right, width * lanes):
                new = _frame.load(frame.inputs[2], source + column, dtype, lanes)
                there = partial(_frame.load, result, target + column, dtype, lanes)
                value = scattering.combined(spec, there, new)
                alignment = lanes * emit.ITEM_SIZE[dtype]
                memory.store(value, result, target + column, dtype, alignment=alignment)
    _block.barrier()
    return [emit.index(0)]


def _width(inner: Size, lanes: int) -> int:
    """The lanes of a group: a warp, or as many as a shorter row has vectors, a power of two."""
    if not isinstance(inner, int):
        return _block.WARP
    return min(_block.WARP, sizes.power_of_two(-(-inner // lanes)))


KERNEL = Kernel(
    "scatter", "cuda", emit_scatter, launch, scattering.unsupported, checks=True, updates=1
)
