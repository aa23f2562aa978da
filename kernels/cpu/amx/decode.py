"""Attention of a row that decodes in AMX tiles: sixteen keys by the queries that share them.

Keys and values stay where they lie, as in `wide`: sixteen keys, in rows, are the left side, so that
scores have keys in rows and queries in lanes, as `decode.tile` has them. Exponentials are turned,
and are the left side of products with values, each in two rows: beside a pair of columns it is a
pair with zero for the sum of the even one, and with zero first for that of the odd one. So a tile
has the sums of up to eight queries. Those of all even columns of a query lie before the odd ones'.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any

from heddle.kernels import convert, crosslane, emit, memory, row_totals
from heddle.kernels.cpu import _bfloat16
from heddle.kernels.cpu.amx.tiles import TILE_ROW, TILE_ROWS, WORDS, load, multiply, store, zero
from heddle.kernels.cpu.decode.block import Chunk, Tiles
from heddle.kernels.cpu.decode.parts import STEP
from heddle.kernels.cpu.decode.places import Places
from heddle.kernels.cpu.decode.sums import bring_forward, combined, hide, raised
from heddle.kernels.cpu.flash.cut import decode_rows
from heddle.kernels.cpu.flash.reads import words_of
from heddle.kernels.emit import select
from heddle.kernels.functions.powers_of_two import exp2_falling, finite
from heddle.kernels.memory import LINE
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

arith, llvm = dialect("arith"), dialect("llvm")

PAIRS = 2 * TILE_ROWS
"""Elements of a row of a tile."""

SUMS = 4
"""Tiles of sums in registers."""

FETCHED, LEAST, MOST = 2**17, 2, 12
"""Bytes of keys and values from what is worked on to what is asked for, which are so many steps at
least and at most: fewer than `places` has room for."""

ASKED = 512
"""Bytes of a row from one that is asked for to the next: the second cache fetches those between.
Of 8 bits, which are copied, each line is."""


def ahead(tiles: Tiles) -> int:
    """Steps from what is worked on to what is asked for."""
    return max(LEAST, min(MOST, FETCHED // (2 * STEP * _row(tiles))))


class Step:
    """Sixteen keys from one place on; those that are asked for begin at the place `later`."""

    def __init__(self, tiles: Tiles, places: Places, place: Any, later: Any) -> None:
        self.tiles = tiles
        self._places, self._place, self._later = places, place, later
        self._evenly = self._lie_evenly()

    def _lie_evenly(self) -> Any:
        """Whether the keys lie one behind the other, as bfloat16."""
        if _narrow(self.tiles):
            return emit.constant(emit.integer(1), 0)
        starts = [self._start(r) for r in range(STEP)]
        uneven = (after - before ^ self._places.row for before, after in pairwise(starts))
        return emit.compare("equal", reduce(or_, uneven), 0)

    def _start(self, r: Any) -> Any:
        return self._places.start(self._place + r)

    def side(self, number: int, head: Any) -> tuple[Any, Any]:
        """The address of the rows of a head, keys' (1) or values' (2), and the bytes between them.

        Rows that lie apart are copied.
        """
        block, frame = self.tiles.block, self.tiles.frame
        across = block.size if number == 1 else block.columns

        def here() -> list[Any]:
            place = memory.at(frame.inputs[number], self._start(0) + head * block.size, "bfloat16")
            return [llvm.ptrtoint(emit.integer(64), place), emit.index(_row(self.tiles))]

        def copied() -> list[Any]:
            room = self.tiles.copies
            for r in emit.loop(0, STEP):
                start = self._start(r) + head * block.size
                for column in emit.loop(0, across, PAIRS):
                    value = words_of(frame, block, number, start + column, None)
                    block.put_words(value, room, (r * across + column) // 2)
            return [llvm.ptrtoint(emit.integer(64), room), emit.index(across * 2)]

        address, apart = emit.either(self._evenly, [emit.integer(64)] * 2, here, copied)
        return llvm.inttoptr(emit.pointer_type(), address), apart

    def ask(self, turn: Any) -> None:
        """Asks for a share of what is worked on later: of keys first, then of values.

        There are as many turns as heads of both, and again for each token and further vector.
        """
        frame, row = self.tiles.frame, _row(self.tiles)
        dtype, apart = frame.spec.operands[1].dtype, LINE if _narrow(self.tiles) else ASKED
        each = -(-row // apart)
        share = -(-STEP * each // self.tiles.key_heads)
        for number in (turn * share + n for n in range(share)):
            element = self._places.start(self._later + number // each % STEP)
            element = element + number % each * (apart // emit.ITEM_SIZE[dtype])
            values = emit.compare("greater_equal", number, STEP * each)
            base = select(values, frame.inputs[2], frame.inputs[1])
            memory.prefetch(base, element, dtype, 2)


def clear(tiles: Tiles) -> None:
    """Clears the scores, of which lanes without a query stay as they are."""
    block = tiles.block
    for place in emit.loop(0, tiles.tokens * tiles.vectors * WORDS, block.lanes):
        block.put(block.fill(0), tiles.score, place)


def read_queries(tiles: Tiles, first: Any, count: Any) -> None:
    """Puts the queries of `count` tokens from `first` on on the stack, turned."""
    block = tiles.block
    for token in emit.loop(0, count):
        for chunk in tiles.chunks():
            row = (first + token) * tiles.queries + chunk.query
            for step in emit.loop(0, block.size // PAIRS):
                lines = [
                    words_of(tiles.frame, block, 0, (row + n) * block.size + step * PAIRS, None)
                    for n in range(chunk.used)
                ]
                zero = emit.constant(emit.integer(32), 0, TILE_ROWS)
                lines += [zero] * (TILE_ROWS - len(lines))
                place = _query_at(tiles, token, chunk) + step * WORDS
                for n, line in enumerate(crosslane.transposed(lines)):
                    block.put_words(line, block.query, place + n * TILE_ROWS)


def attend(step: Step, token: Any, at: Any, seen: tuple[Any, Any]) -> None:
    """Brings a token's sums, at `at`, forward to a step, of which it sees keys from and to."""
    for chunk in step.tiles.chunks():
        _scores(step, token, chunk)
        _exponentials(step.tiles, token, chunk, at, seen)
        _add_values(step, chunk, at)


def _scores(step: Step, token: Any, chunk: Chunk) -> None:
    """The products of the keys with a vector's queries: [keys, queries]."""
    block, scores = step.tiles.block, step.tiles.score_at(token, chunk.number)
    across = chunk.count * 4
    for head in emit.loop(0, chunk.heads):
        keys, apart = step.side(1, chunk.head + head)
        step.ask(2 * chunk.head + head)
        lane = head * chunk.count
        queries = _query_at(step.tiles, token, chunk) + lane
        total = zero(row=across)
        for column in range(0, block.size, PAIRS):
            left = load(memory.at(keys, column, "bfloat16"), apart)
            place = _word(block.query, queries + column // PAIRS * WORDS)
            right = load(place, TILE_ROW, row=across)
            total = multiply("bfloat16", total, left, right, across=across)
        store(total, _word(step.tiles.score, scores + lane), TILE_ROW, row=across)


def _exponentials(tiles: Tiles, token: Any, chunk: Chunk, at: Any, seen: tuple[Any, Any]) -> None:
    """Turns a vector's scores into exponentials, and brings its sums forward to them."""
    block = tiles.block
    base, scale = tiles.score_at(token, chunk.number), block.scale
    if block.cap:
        scale = 1.0
        for place in emit.loop(base, base + WORDS, TILE_ROWS):
            block.put(block.scaled(block.vector(tiles.score, place)), tiles.score, place)
    hide(tiles, base, seen)
    scores = [block.vector(tiles.score, base + key * TILE_ROWS) for key in range(STEP)]
    top_at, weight_at = tiles.statistics_at(chunk)
    before = block.vector(at, top_at)
    top = combined(scores, emit.maximum) * scale
    after = raised(before, top)
    shift = finite(after)
    fade = exp2_falling(before - shift)
    shares = [
        exp2_falling(emit.fma(score, block.fill(scale), -shift), result="bfloat16")
        for score in scores
    ]
    weight = emit.fma(block.vector(at, weight_at), fade, combined(shares, row_totals.add))
    block.put(after, at, top_at)
    block.put(weight, at, weight_at)
    _put_shares(tiles, crosslane.transposed(shares)[: chunk.used])
    bring_forward(tiles, chunk, at, fade)


def _put_shares(tiles: Tiles, shares: Sequence[Any]) -> None:
    """Writes the exponentials of each query, beside zeros, in two rows of words."""
    word = emit.widen(emit.integer(32), TILE_ROWS)
    for first in range(0, len(shares), 2):
        both = _bfloat16.narrowed(shares[first], shares[min(first + 1, len(shares) - 1)])
        for n, query in enumerate(range(first, min(first + 2, len(shares)))):
            half = crosslane.shuffle(both, both, range(n * TILE_ROWS, (n + 1) * TILE_ROWS))
            even = arith.extui(word, half)
            for odd, line in enumerate((even, even << 16)):
                memory.store(line, tiles.share, (2 * query + odd) * TILE_ROWS, "uint32")


def _add_values(step: Step, chunk: Chunk, at: Any) -> None:
    """Adds the values, weighted, to the sums of a vector's queries."""
    block, width = step.tiles.block, step.tiles.width
    queries = decode_rows(step.tiles.group)
    rows, pieces = 2 * queries, chunk.count // queries
    beside = max(1, SUMS // pieces)
    for head in emit.loop(0, chunk.heads):
        values, apart = step.side(2, chunk.head + head)
        step.ask(2 * chunk.head + chunk.heads + head)
        firsts = [head * chunk.count + piece * queries for piece in range(pieces)]
        left = [
            load(_word(step.tiles.share, 2 * first * TILE_ROWS), TILE_ROW, rows=rows)
            for first in firsts
        ]
        for column in range(0, block.columns, beside * PAIRS):
            found = []
            for each in range(column, min(block.columns, column + beside * PAIRS), PAIRS):
                right = load(memory.at(values, each, "bfloat16"), apart)
                for first, shares in zip(firsts, left, strict=True):
                    place = _word(at, (chunk.query + first) * width + each // 2)
                    total = load(place, width * 2, rows=rows)
                    total = multiply("bfloat16", total, shares, right, rows=rows)
                    found.append((total, place))
            for total, place in found:
                store(total, place, width * 2, rows=rows)


def _query_at(tiles: Tiles, token: Any, chunk: Chunk) -> Any:
    """Where the words of a vector's queries are: [tiles of a head, words, queries]."""
    block = tiles.block
    return (token * tiles.vectors + chunk.number) * (block.size // PAIRS * WORDS)


def _word(base: Any, offset: Size) -> Any:
    return memory.at(base, offset, "uint32")


def _row(tiles: Tiles) -> int:
    """Bytes from a key to the next, where they lie one behind the other."""
    item = emit.ITEM_SIZE[tiles.frame.spec.operands[1].dtype]
    return tiles.key_heads * tiles.block.size * item


def _narrow(tiles: Tiles) -> bool:
    """Whether keys or values have 8 bits, which become bfloat16 when they are copied."""
    return any(operand.dtype in convert.FLOAT8 for operand in tiles.frame.spec.operands[1:3])
