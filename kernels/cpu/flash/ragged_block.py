"""How attention of ragged rows is cut into tasks, and where a task's keys are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu.flash.block import Ahead, Block
from heddle.kernels.cpu.products.asks import FRACTION
from heddle.kernels.cpu.products.tile import rows_of
from heddle.kernels.emit import compare, select
from heddle.kernels.memory import LINE
from heddle.kernels.registry import Machine
from heddle.kernels.row_spans import QUERY_OFFSETS, Keys, RowSpans, group_of
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Spec, fold

QUERIES = 96
"""Queries of a task, if those of one token are not more."""

LOW = 4
"""Queries of a low tile: those of one token are often no more."""

MANY = 80
"""Queries of a task that are worth splitting for tiles."""

FETCHED = 2**18
"""Most bytes of the block of keys and values that is fetched while another is worked on."""


def piece(spec: Spec) -> int:
    """Tokens of a task."""
    return max(1, QUERIES // group_of(spec))


def tile_rows(queries: Size, rows: int) -> tuple[Size, Size]:
    """The rows of so many queries in whole tiles of `rows`, and with the low ones behind them.

    No low tile reaches beyond where another whole one would end.
    """
    whole = sizes.floordiv(queries + max(rows % LOW - 1, 0), rows) * rows
    return whole, whole + sizes.ceildiv(sizes.greatest(queries - whole, 0), LOW) * LOW


def pieces(spec: Spec) -> Expr:
    """The most pieces of all rows: one of each is short, also before and after all rows."""
    tokens, size = spec.operands[0].shape[0], piece(spec)
    rows = fold("add", spec.operands[QUERY_OFFSETS].shape[0], 1)
    return fold("min", tokens, fold("add", fold("floordiv", tokens, size), rows))


class Pieces:
    """The tokens of each row in pieces of `size`, numbered through all rows.

    What is before the first row and after the last is in pieces as well.
    """

    def __init__(self, frame: host.Frame, spans: RowSpans, size: int) -> None:
        self._spans, self._size, self._pointer = spans, size, frame.inputs[QUERY_OFFSETS]
        self._tokens = emit.as_index(frame.size(frame.spec.operands[0].shape[0]))
        self._count = emit.as_index(frame.size(frame.spec.operands[QUERY_OFFSETS].shape[0]))

    def find(self, wanted: Any) -> tuple[Any, Any, Any, Any]:
        """Row, first token and the row's end of piece number `wanted`; whether the row begins it.

        The row is -1 for none. There are no tokens where a row is wrong: rows may then overlap.
        Every row is looked at, so that each piece finds what is wrong.
        """
        first, last = self._ends()

        def look(number: Any, left: Any, row: Any, token: Any, stop: Any, fine: Any) -> list[Any]:
            start, end, wrong = self._spans.ends(number)
            here, left = self._look(left, self._inside(start), self._inside(end))
            return [
                left,
                select(here[0], number, row),
                select(here[0], here[1], token),
                select(here[0], here[2], stop),
                fine & (wrong ^ True),
            ]

        (found, token, stop), left = self._look(wanted, emit.index(0), first)
        nowhere = self._tokens
        true = emit.constant(emit.integer(1), 1)
        state = [
            left,
            emit.index(-1),
            select(found, token, nowhere),
            select(found, stop, nowhere),
            true,
        ]
        left, row, token, stop, fine = emit.carry(0, self._count - 1, 1, state, look)
        (found, behind, _), _ = self._look(left, last, self._tokens)
        token = select(found, behind, token)
        stop = select(found, self._tokens, stop)
        begins = emit.either(
            compare("greater_equal", row, 0),
            [emit.integer(1)],
            lambda: [compare("equal", memory.load(self._pointer, row, "int64"), token)],
            lambda: [emit.constant(emit.integer(1), 0)],
        )[0]
        return row, token, select(fine, stop, token), begins

    def count(self) -> Any:
        """How many there are."""
        first, last = self._ends()

        def add(number: Any, before: Any) -> list[Any]:
            start, end, _ = self._spans.ends(number)
            return [before + self._of(self._inside(start), self._inside(end))]

        outside = self._of(emit.index(0), first) + self._of(last, self._tokens)
        return emit.carry(0, self._count - 1, 1, [outside], add)[0]

    def _ends(self) -> tuple[Any, Any]:
        """Where the first row begins and where the last one ends; without rows, behind all."""
        some = compare("greater", self._count, 0)
        found = emit.either(
            some,
            [emit.integer(64)] * 2,
            lambda: [memory.load(self._pointer, n, "int64") for n in (0, self._count - 1)],
            lambda: [self._tokens] * 2,
        )
        first, last = map(self._inside, found)
        return first, last

    def _of(self, start: Any, end: Any) -> Any:
        """Pieces of a row."""
        return (emit.maximum(start, end) - start + (self._size - 1)) // self._size

    def _inside(self, offset: Any) -> Any:
        return emit.maximum(emit.minimum(offset, self._tokens), 0)

    def _look(self, left: Any, start: Any, end: Any) -> tuple[tuple[Any, Any, Any], Any]:
        """Whether `left` is a piece of a row, its first token and the row's end; what is left."""
        end, count = emit.maximum(start, end), self._of(start, end)
        here = compare("greater_equal", left, 0) & compare("less", left, count)
        return (here, start + left * self._size, end), left - count


@dataclass(frozen=True)
class Places:
    """Where the keys of a block and of the next one start, as elements under the first head.

    `rows` are those of the keys of two blocks, `fetched` those of the next block by key and head,
    of which there are `heads` at most.
    """

    block: Block
    keys: Keys
    key_heads: int
    heads: int
    rows: Any
    fetched: Any

    @staticmethod
    def make(frame: host.Frame, block: Block, keys: Keys) -> Places:
        """The places of a kernel, at the start of its function."""
        spec = frame.spec
        key_heads, group = spec.operands[1].shape[-2], group_of(spec)
        assert isinstance(key_heads, int)
        fetched = block.keys * block.size * 2 * emit.ITEM_SIZE[spec.operands[1].dtype]
        _, padded = tile_rows(group, block.rows)
        heads = max(1, min(key_heads, block.queries // padded, FETCHED // fetched))
        counts = (2 * block.keys, block.keys * heads)
        buffers = [host.byte_buffer(8 * count) for count in counts]
        for buffer, count in zip(buffers, counts, strict=True):
            for number in emit.loop(0, count):
                memory.store(emit.index(0), buffer, number, "int64")
        return Places(block, keys, key_heads, heads, *buffers)

    def find(self, row: Any, first: Any, stop: Any, head: Any, heads: Any) -> None:
        """Notes where keys of the block from `first` on are, of `heads` heads from `head` on."""
        ring = self._ring(first)
        for number in emit.loop(0, sizes.least(emit.index(self.block.keys), stop - first)):
            place, _ = self.keys.place(row, first + number)
            place = (place * self.key_heads + head) * self.block.size
            memory.store(place, self.rows, ring + number, "int64")
            for other in emit.loop(0, heads):
                at = place + other * self.block.size
                memory.store(at, self.fetched, number * heads + other, "int64")

    def start(self, first: Any, number: Any, head: Any) -> Any:
        """The element at which key `number` of the block from `first` on starts."""
        place = memory.load(self.rows, self._ring(first) + number, "int64")
        return place + head * self.block.size

    def _ring(self, first: Any) -> Size:
        return first % (2 * self.block.keys)


class Next:
    """The next block: its share that is fetched while `head` is worked on.

    As many keys as a block has are fetched of as many heads, in the order of memory: half of the
    keys, the other half, then the values, beside one loop after another. Where too many lines are
    asked for at once, requests are dropped.
    """

    def __init__(self, frame: host.Frame, places: Places, head: Any) -> None:
        self._frame, self._places = frame, places
        self._block = places.block
        self._steps = self._block.steps_beside(self._block.keys)
        self._dtype = frame.spec.operands[1].dtype
        self._first = head * self._block.keys
        self._lines = -(-self._block.size * emit.ITEM_SIZE[self._dtype] // LINE)

    def beside_turning(self, step: Any, count: int) -> None:
        """A share of the keys."""
        block = self._block
        self._share(1, 0, step, count, block.keys * block.depth // block.lanes**2)

    def beside_copying(self, step: Any, count: int) -> None:
        """The other keys."""
        self._share(1, 1, step, count, self._block.keys // self._block.group)

    def beside_scores(self, step: Any, count: int) -> None:
        """A share of the values."""
        self._share(2, 0, step, count, self._steps[0])

    def beside_sums(self, step: Any, count: int) -> None:
        """The other values."""
        self._share(2, 1, step, count, self._steps[1])

    def beside_tile(self, number: Any, tiles: Any) -> tuple[Ahead, Ahead]:
        """All values, of which each of so many `tiles` of other queries asks for its share."""
        lines = self._block.keys // 2 * self._lines

        def beside(half: int) -> Ahead:
            steps = self._steps[half]
            share = emit.index(lines << FRACTION) // (tiles * steps)

            def ahead(step: Any, _: int) -> None:
                line = (number * steps + step) * share >> FRACTION
                self._line(2, line + half * lines)

            return ahead

        return beside(0), beside(1)

    def _share(self, number: int, half: int, step: Any, count: int, steps: int) -> None:
        """Lines for `count` of the `steps` beside which a half is asked for."""
        lines = self._block.keys // 2 * self._lines
        each = -(-lines // steps)
        for extra in range(count * each):
            line = step * each + extra
            # More steps than lines ask for the last one again: none is behind it.
            line = sizes.least(line, lines - 1) if each * steps > lines else line
            self._line(number, line + half * lines)

    def _line(self, number: int, line: Any) -> None:
        at = memory.load(self._places.fetched, self._first + line // self._lines, "int64")
        column = line % self._lines * (LINE // emit.ITEM_SIZE[self._dtype])
        memory.prefetch(self._frame.inputs[number], at + column, self._dtype, level=2)


def block_of(spec: Spec, machine: Machine, keys: int, tiled: bool = False, split: int = 1) -> Block:
    """The block of a kernel, at the start of its function."""
    _, padded = tile_rows(group_of(spec), rows_of(machine))
    return Block.make(spec, machine, max(QUERIES, padded), keys, tiled, split)
