"""How attention of ragged rows is cut into blocks, and where a block's numbers lie on the stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, host, memory
from heddle.kernels.row_spans import group_of
from heddle.kernels.spec import Spec

KEYS = 32
"""Keys of a block."""

QUERIES = 2**12
"""Most elements of the queries that are worked on together, beyond those of one head."""

CHUNK = 4
"""Keys of a tile of scores; its queries are what fills a register with them."""

COLUMNS = 4
"""Vectors of a tile of values."""


@dataclass(frozen=True)
class Block:
    """Sizes of what is worked on together, and its places on the stack, all in float32.

    `tokens` under one head, or `heads` of one token, are worked on together. `query` and `total`
    are [queries, width], `key` is [KEYS, width], `score` is [queries of a head, KEYS]; `top`,
    `weight` and `fade` hold, for each query, the greatest score, the sum of exponentials, and what
    the last block's greatest score scales the sums by. `places` are the elements at which the keys
    of this block and the next start.
    """

    lanes: int
    rows: int
    tokens: int
    heads: int
    group: int
    size: int
    width: int
    query: Any
    total: Any
    key: Any
    score: Any
    top: Any
    weight: Any
    fade: Any
    places: Any

    @staticmethod
    def make(frame: host.Frame) -> Block:
        """The block of a kernel, at the start of its function."""
        lanes = host.lanes_for(frame.machine, ["float32"])
        size, group = head_size(frame.spec), group_of(frame.spec)
        width, tile = -(-size // lanes) * lanes, lanes // CHUNK
        tokens = max(1, QUERIES // (group * width))
        single = -(-group // tile) * tile
        heads = max(1, QUERIES // (single * width))
        of_head = -(-tokens * group // tile) * tile
        queries = max(of_head, heads * single)
        elements = [queries * width, queries * width, KEYS * width, of_head * KEYS, *[queries] * 3]
        query, total, key, score, *statistics = (host.byte_buffer(4 * n) for n in elements)
        top, weight, fade = statistics
        places = host.byte_buffer(8 * 2 * KEYS)
        for number in range(2 * KEYS):
            memory.store(emit.index(0), places, number, "int64")
        return Block(
            lanes,
            tile,
            tokens,
            heads,
            group,
            size,
            width,
            query,
            total,
            key,
            score,
            top,
            weight,
            fade,
            places,
        )

    def vector(self, base: Any, offset: Any) -> Any:
        """A vector of the stack."""
        return memory.load(base, offset, "float32", self.lanes)

    def scalar(self, base: Any, offset: Any) -> Any:
        """An element of the stack."""
        return memory.load(base, offset, "float32")

    def put(self, value: Any, base: Any, offset: Any) -> None:
        """Writes to the stack."""
        memory.store(value, base, offset, "float32")

    def fill(self, number: float) -> Any:
        """A vector of one number."""
        return emit.constant(emit.register_type("float32"), number, self.lanes)


def head_size(spec: Spec) -> int:
    """The head size, static."""
    size = spec.operands[0].shape[2]
    assert isinstance(size, int)
    return size
