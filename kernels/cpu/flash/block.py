"""A block of attention: its sizes, and where its numbers lie on the stack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu import _bfloat16
from heddle.kernels.cpu.amx.tiles import TILE_ROWS
from heddle.kernels.cpu.flash.cut import cap_of, in_pairs, row_bytes, scale_of, unit_of, wide_of
from heddle.kernels.cpu.products.tile import rows_of
from heddle.kernels.functions.powers_of_two import capped
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec

TILED_ROWS = 2 * TILE_ROWS
"""Queries of two tiles, which are multiplied by two of keys at a time."""

TILED_KEYS = 2 * TILE_ROWS
"""Keys of a block in tiles: two tiles of scores, one of exponentials."""

TILED_STACK = 256 << 10
"""Bytes of keys and values on the stack: the second cache has them for all strips."""

UNROLLED = 128
"""Bytes of a vector by steps of a product in one turn of its loop: a turn has as many instructions
for any width, beside which it asks memory ahead."""

Ahead = Callable[[Any, int], None]
"""What a loop does beside its own work: `ahead(step, count)`, for `count` steps from `step` on."""


def nothing(step: Any, count: int) -> None:
    """Nothing beside."""


@dataclass(frozen=True)
class Seen:
    """The keys of a block that some queries attend to: none before `start`, nor from `stop` on.

    `whole`: every query attends to all of them, which fill pairs of vectors. `finish(r, column,
    score, partial=)`: the scores of row r from a column on, scaled and masked; where the tile is
    `partial`, -inf where there is no key. `changed`: a mask may change scores that are scaled late.
    """

    start: Any
    stop: Any
    whole: Any
    finish: Callable[..., Any]
    changed: Any = False


@dataclass(frozen=True)
class Block:
    """The sizes of a task's blocks, and its places on the stack.

    What one step of a product takes of each side is a word: a number, or a pair of bfloat16 where
    `paired`. `query` is [queries, steps up to `depth`] in words, `key` [steps, keys] in words,
    `value` [keys / group, width] in words, `score` [rows, keys] and then their exponentials (where
    `tiled` two of scores, then two of exponentials), `peak` [rows, lanes] (where `tiled` a tile of
    ones), `total` [queries, across]; `top` and `weight` hold, for each query, the greatest score
    (where `tiled` what is taken off the scores) and the sum of exponentials, `shift` and `fade`,
    for each row, what is taken off the scores and what the sums are scaled by.

    Attributes:
        dtype: Of scores and sums.
        lanes: Of a vector of it.
        rows: Queries of a register tile.
        queries: Of a task.
        keys: Of a block.
        parts: Blocks of keys that are on the stack at a time.
        size: Elements of a head of queries and keys, and from one head of values to the next.
        columns: Elements of a value.
        width: The same, up to whole vectors.
        steps: Words of a head of queries and keys.
        depth: The same, up to whole vectors.
        turn: Steps of a product in one turn of its loop.
        pair: Vectors of keys of a register tile.
        paired: Words are pairs of bfloat16.
        tiled: Products are made in AMX tiles; `rows` are those of two.
        turned: They are made there as in `amx.wide`: sums of even columns lie beside odd ones'.
        split: Parts of each number, one after another: each is the sum of so many of bfloat16.
        scale: What products of queries and keys are multiplied by.
        unit: What differences of scores are multiplied by to be exponents of two.
        mask: The dtype of the mask operand, if there is one.
    """

    dtype: str
    lanes: int
    rows: int
    queries: int
    keys: int
    parts: int
    size: int
    columns: int
    width: int
    steps: int
    depth: int
    turn: int
    pair: int
    paired: bool
    tiled: bool
    turned: bool
    split: int
    scale: float
    cap: float
    unit: float
    mask: str | None
    query: Any
    key: Any
    value: Any
    score: Any
    peak: Any
    total: Any
    top: Any
    weight: Any
    shift: Any
    fade: Any

    @staticmethod
    def make(
        spec: Spec,
        machine: Machine,
        queries: int,
        keys: int,
        tiled: bool = False,
        split: int = 1,
        turned: bool = False,
    ) -> Block:
        """The block of a kernel, at the start of its function."""
        dtype, paired = wide_of(spec.result.dtype), split > 1 or in_pairs(spec, machine)
        lanes = host.lanes_for(machine, [dtype])
        rows = TILED_ROWS if tiled or turned else rows_of(machine)
        whole = -(-queries // rows) * rows
        size, columns = spec.operands[0].shape[-1], spec.result.shape[-1]
        assert isinstance(size, int)
        assert isinstance(columns, int)
        steps = -(-size // 2) if paired else size
        width, depth = (-(-count // lanes) * lanes for count in (columns, steps))
        words = keys // 2 if paired else keys
        parts = TILED_STACK // (keys * row_bytes(spec) * split) if tiled else 1
        # A tile that is lower than a vector has lanes reads no further than its last query's lane.
        across = width + TILE_ROWS if tiled else width
        sides = whole * depth, parts * steps * keys, parts * words * width
        elements = (
            *(split * count for count in sides),
            *((2 + _shares(split) if tiled else 1) * rows * keys, rows * lanes),
            *(whole * across, whole, whole, rows, rows),
        )
        places = [host.byte_buffer(count * emit.ITEM_SIZE[dtype]) for count in elements]
        turn = UNROLLED // machine.vector_bytes
        heads = (size, columns, width, steps, depth)
        sizes = (queries, keys, parts, *heads, turn, min(2, keys // lanes))
        scale = scale_of(spec) if paired and split == 1 else 1.0
        mask = spec.operands[3].dtype if spec.attr("masked") else None
        how = paired, tiled, turned, split, scale, cap_of(spec), unit_of(spec), mask
        return Block(dtype, lanes, rows, *sizes, *how, *places)

    def part(self, number: Any) -> Block:
        """The block of keys of that number, of those on the stack."""
        key = memory.at(self.key, number * (self.split * self.key_part), self.word)
        value = memory.at(self.value, number * (self.split * self.value_part), self.word)
        return replace(self, key=key, value=value)

    @property
    def query_part(self) -> int:
        """Words from a part of the queries to the next."""
        return -(-self.queries // self.rows) * self.rows * self.depth

    @property
    def key_part(self) -> int:
        """Words from a part of a block's keys to the next."""
        return self.steps * self.keys

    @property
    def value_part(self) -> int:
        """Words from a part of a block's values to the next."""
        return self.keys // self.group * self.width

    @property
    def share_tiles(self) -> int:
        """Pairs of tiles that hold a block's exponentials: their parts, and what is summed."""
        return _shares(self.split)

    @property
    def across(self) -> int:
        """Sums of a query: one for each column, and in tiles that of exponentials behind them."""
        return self.width + TILE_ROWS if self.tiled else self.width

    def weight_at(self, r: Any) -> Any:
        """The sum of a query's exponentials."""
        if self.tiled and self.split == 1:
            return self.scalar(self.total, r * self.across + self.width)
        return self.scalar(self.weight, r)

    def steps_beside(self, keys: Size) -> tuple[Size, Size]:
        """Steps of the loops over scores and over values of a tile by so many keys."""
        return (
            sizes.ceildiv(keys, self.pair * self.lanes) * self.steps,
            sizes.ceildiv(keys, self.group) * -(-self.width // (2 * self.lanes)),
        )

    @property
    def late(self) -> bool:
        """Scores are scaled when exponentials are taken: they are not capped, no mask is added."""
        return self.tiled and self.mask in (None, "bool") and not self.cap

    def scaled(self, score: Any) -> Any:
        """The scores of products, scaled and capped, unless they are scaled late."""
        if self.late:
            return score
        return capped(score, self.cap, self.scale) if self.cap else score * self.scale

    @property
    def group(self) -> int:
        """Elements of a word."""
        return 2 if self.paired else 1

    @property
    def word(self) -> str:
        """What a word is loaded as."""
        return "uint32" if self.paired else self.dtype

    @property
    def share_dtype(self) -> str:
        """What exponentials are rounded to."""
        return "bfloat16" if self.paired else self.dtype

    def vector(self, base: Any, offset: Any) -> Any:
        """A vector of the stack."""
        return memory.load(base, offset, self.dtype, self.lanes)

    def words(self, base: Any, offset: Any) -> Any:
        """A vector of words of the stack."""
        return memory.load(base, offset, self.word, self.lanes)

    def scalar(self, base: Any, offset: Any) -> Any:
        """A number of the stack."""
        return memory.load(base, offset, self.dtype)

    def spread(self, base: Any, offset: Any) -> Any:
        """A number of the stack in every lane."""
        return emit.splat(self.scalar(base, offset), self.lanes)

    def spread_word(self, base: Any, offset: Any) -> Any:
        """A word of the stack in every lane."""
        return emit.splat(memory.load(base, offset, self.word), self.lanes)

    def fill(self, number: float) -> Any:
        """`number` in every lane."""
        return emit.constant(emit.register_type(self.dtype), number, self.lanes)

    def put(self, value: Any, base: Any, offset: Any) -> None:
        """Writes numbers to the stack."""
        memory.store(value, base, offset, self.dtype)

    def put_words(self, value: Any, base: Any, offset: Any) -> None:
        """Writes words to the stack."""
        memory.store(value, base, offset, self.word)

    def add_product(self, left: Any, right: Any, total: Any) -> Any:
        """`total` with the product of words added."""
        if not self.paired:
            return emit.fma(left, right, total)
        return _bfloat16.add_dots(right, left, total)


def _shares(split: int) -> int:
    return split + 1 if split > 1 else 1
