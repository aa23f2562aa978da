"""Where the k largest (or smallest) elements of each row are, in order; the first of equal ones.

A short row is held in the registers of a warp, which takes the best key that follows the last one,
k times. A block reads a long row twice for each 128 of k (`ranking.best`). NaN is the best.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from heddle.kernels import bodies, convert, crosslane, emit, ordering
from heddle.kernels.cuda import _block, _frame, _rows
from heddle.kernels.cuda.ranking import best
from heddle.kernels.emit import compare, select
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec, product

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


def emit_top_k(spec: Spec, machine: Machine) -> None:
    """Emits the search in each row."""
    frame = _frame.frame(spec, machine)
    x, write, kind = frame.reader(0), frame.writer(), ordering.key_dtype(spec.operands[0].dtype)
    rows = _rows.Rows(frame, spec.operands[0].shape, emit.integer(64))
    k = frame.size(spec.result.shape[-1])
    is_short = _rows.group_size(spec.operands[0].shape[-1]) == _block.WARP
    search = None if is_short else best.Search(8 * emit.ITEM_SIZE[kind])

    def body(row: Any, lanes: int) -> None:
        def key_at(column: Any) -> Any:
            found = x(row * rows.length + column, lanes)
            found = ordering.key(x.dtype, found, spec.attr("smallest"))
            return convert.cast(found, kind, "int64")

        def put(number: Any, place: Any) -> None:
            write(place, row * k + number)

        if search is None:
            _take_each(rows, rows.read(lanes, key_at), k, lanes, put)
        else:
            distances = rows.stream(lanes, lambda column: _distance(key_at(column), kind))
            some = compare("greater", emit.as_index(rows.length), 0)
            with emit.when(some):
                _take_many(search, distances, k, put)
            # Of nothing only argmax and argmin ask for one.
            with emit.when((some ^ True) & compare("equal", rows.member, 0)):
                put(emit.index(0), emit.index(0))

    rows.each([x.inputs], body, written=False)


def _distance(key: Any, kind: str) -> Any:
    """How far a key is below the greatest one, unsigned."""
    return emit.like(key, 2 ** (8 * emit.ITEM_SIZE[kind] - 1) - 1) - key


def _take_many(search: best.Search, distances: _rows.Row, k: Any, put: Any) -> None:
    """Takes as many at a time as a block finds at once."""

    def take(first: Any, *taken: Any) -> list[Any]:
        elements = best.Elements(distances, best.Range(*taken))
        count = emit.minimum(emit.as_index(k) - first, best.TAKE)
        found = search.best(elements, count, lambda number, place: put(first + number, place))
        return [found.distance, found.stop]

    nothing = [emit.index(0), emit.index(0)]
    emit.carry(0, k, best.TAKE, nothing, take)


def _take_each(rows: _rows.Rows, keys: _rows.Row, k: Any, lanes: int, put: Any) -> None:
    """Takes one after the other."""
    word = emit.integer(64)

    def take(number: Any, last: Any, place: Any) -> list[Any]:
        def here(column: Any) -> Any:
            return emit.splat(column, lanes) + crosslane.numbers(word, lanes)

        def follows(column: Any, found: Any) -> Any:
            later = compare("equal", found, last) & compare("greater", here(column), place)
            return compare("less", found, last) | later

        def better(column: Any, found: Any, so_far: Any) -> Any:
            return emit.maximum(so_far, select(follows(column, found), found, _LOWEST))

        lowest = emit.constant(word, _LOWEST, lanes)
        top = rows.combined(keys.over(lowest, better), emit.maximum)

        def nearer(column: Any, found: Any, so_far: Any) -> Any:
            is_top = follows(column, found) & compare("equal", found, top)
            return emit.minimum(so_far, select(is_top, here(column), _HIGHEST))

        highest = emit.constant(word, _HIGHEST, lanes)
        first = rows.combined(keys.over(highest, nearer), emit.minimum)
        with emit.when(compare("equal", rows.member, 0)):
            put(number, first)
        return [top, first]

    # Nothing is as good as this, and nothing has that place.
    emit.carry(0, k, 1, [emit.index(_HIGHEST), emit.index(-1)], take)


def launch(spec: Spec) -> Launch:
    """A warp or a block for each row."""
    shape = spec.operands[0].shape
    work = product((*shape, spec.result.shape[-1], 8))
    return Launch(_rows.grid(shape), work, (_frame.THREADS, 1, 1))


KERNEL = Kernel("top_k", "cuda", emit_top_k, launch, partial(bodies.of_numbers, what="order"))
