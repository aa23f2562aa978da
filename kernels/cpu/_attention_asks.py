"""What dense attention asks memory for beside the products of its tiles: prefetches.

Where heads lie side by side, the rows of one lie too far apart for what a CPU fetches by itself. So
while a block of keys is worked on, the next one is fetched, and results find their lines in the
cache. It is spread over the loops: where too much is asked for at once, requests are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu._asks import FRACTION
from heddle.kernels.cpu._attention_block import Ahead, Block
from heddle.kernels.cpu._attention_cut import ordered, row_of
from heddle.kernels.memory import LINE
from heddle.kernels.sizes import Size


@dataclass(frozen=True)
class Queries:
    """The queries from `first` on of `group` heads from `head` on, those of a position together."""

    group: int
    item: Size
    head: Size
    first: Size

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
        source: tuple[Any, Any, Any],
    ) -> None:
        self._frame, self._block = frame, block
        self._query, self._after, self._source = query, after, source
        self._each = LINE // emit.ITEM_SIZE[frame.spec.result.dtype]
        self._lines = -(-block.size // self._each)
        self._steps = block.steps_beside(present)
        keys = sizes.least(emit.index(block.keys), frame.size(ordered(frame.spec, 1)[2]))
        tiles = sizes.ceildiv(count, block.rows)
        fetched, own = ((n * self._lines << FRACTION) for n in (keys, emit.index(block.rows)))
        self._share = [fetched // (tiles * steps) for steps in self._steps]
        self._own = [own // steps for steps in self._steps]

    def beside(self, top: Any) -> tuple[Ahead, Ahead]:
        """For the loops over scores and over values of the tile of queries from `top` on.

        What is more than a line for each of their turns is asked for at once.
        """
        tile = sizes.floordiv(top, self._block.rows)
        frame, (item, head, key) = self._frame, self._source

        def fetch(number: int, line: Any) -> None:
            row = row_of(frame, number, item, head, key + self._row(line))
            self._ask(frame.inputs[number], row, line)

        def result(line: Any) -> None:
            row = row_of(frame, 0, *self._query.place(top + self._row(line)))
            self._ask(frame.outputs[0], row, line)

        def query(line: Any) -> None:
            row = row_of(frame, 0, *self._after.place(top + self._row(line)))
            self._ask(frame.inputs[0], row, line)

        def asking(which: int, own: Callable[[Any], None]) -> Ahead:
            steps, share = self._steps[which], self._share[which]
            for ask, before, each in (
                (partial(fetch, which + 1), tile * steps, share),
                (own, emit.index(0), self._own[which]),
            ):
                with emit.when(emit.compare("greater", each * self._block.turn, 1 << FRACTION)):
                    first, last = (n * each >> FRACTION for n in (before, before + steps))
                    for line in emit.loop(first, last + 1):
                        ask(line)

            def ahead(step: Any, _: int) -> None:
                fetch(which + 1, (tile * steps + step) * share >> FRACTION)
                own(step * self._own[which] >> FRACTION)

            return ahead

        return asking(0, result), asking(1, query)

    def _row(self, line: Any) -> Any:
        return sizes.floordiv(line, self._lines)

    def _ask(self, pointer: Any, row: Any, line: Any) -> None:
        column = sizes.mod(line, self._lines) * self._each
        dtype = self._frame.spec.result.dtype
        memory.prefetch(pointer, row * self._block.size + column, dtype, level=2)
