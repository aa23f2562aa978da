"""How decoding groups queries in vectors, and where their numbers lie on the stack."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from heddle.kernels import convert, emit, host
from heddle.kernels.cpu.decode.parts import (
    LANES,
    STEP,
    crowded,
    drafts,
    statistics,
    sums,
    vector_heads,
)
from heddle.kernels.cpu.flash.block import Block
from heddle.kernels.cpu.flash.cut import decodes_in_tiles
from heddle.kernels.row_spans import group_of


@dataclass(frozen=True)
class Chunk:
    """Queries that have a vector: `count` of each of `heads` key heads, one behind the other.

    `head` is the first key head, `query` the first query of the token, `number` the vector's.
    """

    head: Any
    heads: int
    count: int
    query: Any
    number: Any

    @property
    def used(self) -> int:
        """Lanes with a query."""
        return self.heads * self.count


@dataclass(frozen=True)
class Tiles:
    """The queries of a piece, and their places on the stack.

    `block` says what words are, its `query` holds the queries in words. `score` and `share` hold a
    step's scores and exponentials, [tokens, vectors, keys, lanes], `fade` a vector. Where they are
    `tiled`, products are made in AMX tiles: `share` has the exponentials of one vector's queries,
    and `copies` the keys or values of a head that lie apart.
    """

    frame: host.Frame
    block: Block
    group: int
    key_heads: int
    score: Any
    share: Any
    fade: Any
    tiled: bool
    copies: Any

    @staticmethod
    def make(frame: host.Frame, block: Block) -> Tiles:
        """Of a kernel, at the start of its function."""
        spec, group = frame.spec, group_of(frame.spec)
        heads = spec.operands[0].shape[1]
        assert isinstance(heads, int)
        tiled = frame.machine.tiles and decodes_in_tiles(spec) and not crowded(spec)
        tokens = drafts(spec, tiled)
        lanes = tokens * statistics(spec, block.lanes) // 2
        scores = STEP * lanes
        shares = 2 * STEP * LANES if tiled else scores
        queries = lanes if tiled else tokens * heads
        counts = (queries * block.depth, scores, shares, block.lanes)
        query, score, share, fade = (host.byte_buffer(4 * count) for count in counts)
        copies = host.byte_buffer(4 * STEP * block.depth) if tiled else None
        block = dataclasses.replace(block, query=query)
        return Tiles(frame, block, group, heads // group, score, share, fade, tiled, copies)

    @property
    def tokens(self) -> int:
        """The most tokens of a row that decodes."""
        return drafts(self.frame.spec, self.tiled)

    @property
    def queries(self) -> int:
        """Queries of a token."""
        return self.key_heads * self.group

    @property
    def unit(self) -> int:
        """Keys whose values are added together: sums are read and written once for them."""
        return 2 if self.block.paired else 4

    @property
    def halved(self) -> bool:
        """Whether `avx2` computes: where registers have 32 bytes, two vectors at a time.

        A head of keys for each of queries is read no faster by it, but for those of 8 bits.
        """
        held = {operand.dtype for operand in self.frame.spec.operands[1:3]}
        gains = self.group > 1 or bool(held & set(convert.FLOAT8))
        whole = self.block.size % LANES == 0 and self.block.columns % LANES == 0
        return gains and self.block.lanes < LANES and whole and not self.crowded

    @property
    def crowded(self) -> bool:
        """Whether `crowd` computes."""
        return crowded(self.frame.spec)

    def apart(self, number: int) -> int:
        """Numbers from an even column of keys (1) or values (2) to the odd one; 0 for neighbours.

        Then even columns have a vector, and odd ones another.
        """
        lanes = self.block.lanes
        if number == 2 and self.crowded and self.block.turned:
            return lanes
        if number == 2 and self.tiled:
            return self.width // 2
        held = self.frame.spec.operands[number].dtype
        return lanes if self.halved and (held == "bfloat16" or held in convert.FLOAT8) else 0

    @property
    def token_sums(self) -> int:
        """Numbers of the sums of a token."""
        return sums(self.frame.spec)

    @property
    def width(self) -> int:
        """Numbers from the weighted values of a query to those of the next."""
        return -(-self.block.columns // LANES) * LANES

    def chunks(self) -> Iterator[Chunk]:
        """Emits the Python body of a `for chunk in` this for the vectors of a token."""
        heads, lanes = vector_heads(self.group, self.block.lanes), self.block.lanes
        if heads > 0:
            whole = self.key_heads // heads * heads
            for head in emit.loop(0, whole, heads):
                yield Chunk(head, heads, self.group, head * self.group, head // heads)
            if whole < self.key_heads:
                first, rest = emit.index(whole), self.key_heads - whole
                yield Chunk(first, rest, self.group, first * self.group, first // heads)
            return
        number = -(-self.group // lanes)
        for head in emit.loop(0, self.key_heads):
            for place in range(number):
                count = min(lanes, self.group - place * lanes)
                query = head * self.group + place * lanes
                yield Chunk(head, 1, count, query, head * number + place)

    @property
    def vectors(self) -> int:
        """Vectors of a token's queries."""
        return statistics(self.frame.spec, self.block.lanes) // (2 * self.block.lanes)

    def score_at(self, token: Any, number: Any) -> Any:
        """Where the scores of a vector of queries are."""
        return (token * self.vectors + number) * (STEP * self.block.lanes)

    def statistics_at(self, chunk: Chunk) -> tuple[Any, Any]:
        """Where a vector's greatest scores and weights are among the sums of a token."""
        lanes = self.block.lanes
        top = chunk.number * (2 * lanes) + self.queries * self.width
        return top, top + lanes

    def statistics_of(self, head: Any, number: Any) -> tuple[Any, Any]:
        """The same of one query of a key head, of which none shares a vector with others."""
        lanes = self.block.lanes
        vector = head * -(-self.group // lanes) + number // lanes
        top = vector * (2 * lanes) + self.queries * self.width + number % lanes
        return top, top + lanes
