"""What dense attention asks memory for beside the products of its tiles: prefetches.

Where heads lie side by side, the rows of one lie too far apart for what a CPU fetches by itself. So
while a block of keys is worked on, the next one is fetched, and results find their lines in the
cache. It is spread over the loops: where too much is asked for at once, requests are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.flash.block import Ahead, Block
from heddle.kernels.cpu.flash.cut import ordered, row_of
from heddle.kernels.cpu.products.asks import FRACTION
from heddle.kernels.memory import LINE
from heddle.kernels.sizes import Size


@dataclass(frozen=True)
class Queries:
    """The queries from `first` to `stop - 1` of `group` heads from `head` on.

    Those of a position are together.
    """

    group: int
    item: Size
    head: Size
    first: Size
    stop: Size

    def place(self, r: Size) -> tuple[Size, Size, Size]:
        """Batch, head and position of query `r`."""
        number = self.first + r
        return self.item, self.head + sizes.mod(number, self.group), self.position(r)

    def position(self, r: Size) -> Size:
        """The position of query `r`."""
        return sizes.floordiv(self.first + r, self.group)


class Asks:
    """What the tiles of a task's `count` queries ask for beside a block of `present` keys.

    Each its share of the keys and values from `key` on of the head of `source`, the next block; as
    many rows as it has itself of the queries of the task `after` this one, and its own results.
    """

    def __init__(
        self,
        frame: host.Frame,
        block: Block,
        present: Any,
        count: Any,
        query: Queries,
        after: Queries,
        source: Sequence[Any],
    ) -> None:
        self._frame, self._block = frame, block
        self._query, self._after, self._source = query, after, source
        self._each = LINE // emit.ITEM_SIZE[frame.spec.result.dtype]
        self._lines = -(-block.size // self._each)
        self._steps = block.steps_beside(present)
        keys = emit.index(block.keys * block.parts)
        keys = sizes.least(keys, frame.size(ordered(frame.spec, 1)[2]))
        self._keys, self._count = keys, count
        tiles = sizes.ceildiv(count, block.rows)
        self._quota = sizes.ceildiv(keys, tiles)
        fetched, own = ((n * self._lines << FRACTION) for n in (keys, emit.index(block.rows)))
        self._share = [fetched // (tiles * steps) for steps in self._steps]
        self._own = [own // steps for steps in self._steps]

    def beside(self, top: Any) -> tuple[Ahead, Ahead]:
        """For the loops over scores and over values of the tile of queries from `top` on.

        What is more than a line for each of their turns is asked for at once.
        """
        tile = sizes.floordiv(top, self._block.rows)

        def asking(which: int, own: Callable[[Any], None]) -> Ahead:
            steps, share = self._steps[which], self._share[which]
            fetch = partial(self._fetch, which + 1)
            for ask, before, each in (
                (fetch, tile * steps, share),
                (own, emit.index(0), self._own[which]),
            ):
                with emit.when(emit.compare("greater", each * self._block.turn, 1 << FRACTION)):
                    first, last = (n * each >> FRACTION for n in (before, before + steps))
                    for line in emit.loop(first, last + 1):
                        ask(line)

            def ahead(step: Any, _: int) -> None:
                fetch((tile * steps + step) * share >> FRACTION)
                own(step * self._own[which] >> FRACTION)

            return ahead

        return asking(0, partial(self._result, top)), asking(1, partial(self._queries, top))

    def beside_strip(self, top: Any, steps: Any) -> list[Callable[[Any], None]]:
        """For a strip of AMX tiles: what asks for keys, values, queries and results in each step.

        A row of more than a line is not asked for: the rest of it, and what follows, come by
        themselves. What is more than a row for each step is asked for at once.
        """
        if self._lines > 1:
            return []
        rows = self._block.rows
        shared = self._quota, sizes.floordiv(top, rows) * self._quota
        return self._all(top, shared, (emit.index(rows), emit.index(0)), steps)

    def beside_strips(self, steps: Any) -> list[Callable[[Any], None]]:
        """The same for all strips of a task whose numbers are split, where a row is two lines."""
        if self._lines > 2:
            return []
        shared, own = ((count * self._lines, emit.index(0)) for count in (self._keys, self._count))
        return self._all(emit.index(0), shared, own, steps)

    def _all(
        self, top: Any, shared: tuple[Any, Any], own: tuple[Any, Any], steps: Any
    ) -> list[Callable[[Any], None]]:
        """Asks for so many lines, from one on: of keys and values, and of queries and results."""

        def asking(ask: Callable[[Any], None], due: Any, before: Any) -> Callable[[Any], None]:
            share = (due << FRACTION) // steps
            with emit.when(emit.compare("greater", share, 1 << FRACTION)):
                for line in emit.loop(before, before + due):
                    ask(line)
            return lambda step: ask(before + (step * share >> FRACTION))

        return [
            *(asking(partial(self._fetch, number), *shared) for number in (1, 2)),
            *(asking(partial(ask, top), *own) for ask in (self._queries, self._result)),
        ]

    def _fetch(self, number: int, line: Any) -> None:
        item, head, key = self._source
        row = row_of(self._frame, number, item, head, key + self._row(line))
        self._ask(self._frame.inputs[number], row, line)

    def _result(self, top: Any, line: Any) -> None:
        row = row_of(self._frame, 0, *self._query.place(top + self._row(line)))
        self._ask(self._frame.outputs[0], row, line)

    def _queries(self, top: Any, line: Any) -> None:
        row = row_of(self._frame, 0, *self._after.place(top + self._row(line)))
        self._ask(self._frame.inputs[0], row, line)

    def _row(self, line: Any) -> Any:
        return sizes.floordiv(line, self._lines)

    def _ask(self, pointer: Any, row: Any, line: Any) -> None:
        column = sizes.mod(line, self._lines) * self._each
        dtype = self._frame.spec.result.dtype
        memory.prefetch(pointer, row * self._block.size + column, dtype, level=2)
