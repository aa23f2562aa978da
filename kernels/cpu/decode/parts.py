"""How the keys of a row that decodes are shared out: parts of a row, and where their sums are.

A part's sums are of its own keys alone, and those of a row are joined in the order of its parts,
which depend on how many keys the row's tokens see: so a row has the same bits wherever its parts
are computed (flash decoding, pytorch.org/blog/flash-decoding).
"""

from __future__ import annotations

from heddle.kernels import sizes
from heddle.kernels.cpu.flash.cut import decodes_in_tiles, key_block
from heddle.kernels.row_spans import group_of
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Spec, fold

KEYS = 256
"""Keys of a part, where the row does not have more parts than `MOST` so."""

MOST = 32
"""Parts of a row."""

SLOTS = 1024
"""Parts of all tokens that have room in the workspace; with more, rows are not shared out."""

COUNTERS = SLOTS // 2
"""One for each token: each has two parts or more where they are shared out."""

STEP = 16
"""Keys that are worked on together; parts are multiples of it."""

LANES = 16
"""The most lanes of a vector."""

ROOM = 7 * 2**15
"""Numbers of the tokens of a row that decodes, at most: seven eighths of a MiB of the stack."""

CROWD = 2**13
"""Elements of the queries of a key head, half of which fill the first cache beside their sums."""


def drafts(spec: Spec, tiled: bool) -> int:
    """The most tokens of a row that decodes: with more, it is bound by what it computes.

    Or the stack has no room for them. In AMX tiles more are bound by memory.
    """
    most = min(8, 16 // group_of(spec)) if tiled else 8 // group_of(spec)
    return max(1, min(most, ROOM // held(spec)))


def held(spec: Spec) -> int:
    """Numbers of a token on the stack: queries, scores and shares of a step, and two sums."""
    heads, size = spec.operands[0].shape[1:]
    assert isinstance(heads, int)
    assert isinstance(size, int)
    of_step = STEP * max(statistics(spec, n) for n in (LANES // 2, LANES))
    return heads * -(-size // LANES) * LANES + of_step + 2 * sums(spec)


def crowded(spec: Spec) -> bool:
    """Whether the queries of a key head are too many for the first cache."""
    size = spec.operands[0].shape[-1]
    assert isinstance(size, int)
    return group_of(spec) * size > CROWD


def most_parts(spec: Spec, keys: Expr) -> Expr:
    """The most parts of a row, of which a token may see all `keys`; 1 where none are shared out."""
    window = spec.attr("window")
    tiled = decodes_in_tiles(spec)
    before = key_block(spec) if crowded(spec) else STEP * tiled  # where the first block begins
    tokens = drafts(spec, tiled)
    seen = fold("min", keys, window + tokens + before) if window else keys
    parts = fold("max", 1, fold("min", MOST, fold("ceildiv", seen, KEYS)))
    wanted = fold("mul", fold("max", 1, spec.operands[0].shape[0]), parts)
    fits = fold("min", 1, fold("floordiv", SLOTS, wanted))
    return fold("add", 1, fold("mul", fold("sub", parts, 1), fits))


def workspace(spec: Spec, keys: Expr) -> Expr:
    """Bytes of scratch memory: the sums of every part of every token, where they are shared out."""
    parts = most_parts(spec, keys)
    shared = fold("min", 1, fold("sub", parts, 1))
    slots = fold("mul", fold("mul", spec.operands[0].shape[0], parts), shared)
    return fold("mul", slots, 4 * sums(spec))


def sums(spec: Spec) -> int:
    """Numbers of a token in a part: a row of weighted values for each query, and statistics."""
    heads, size = spec.result.shape[1:]
    assert isinstance(heads, int)
    assert isinstance(size, int)
    # The same on every machine.
    return heads * (-(-size // LANES) * LANES) + max(
        statistics(spec, n) for n in (LANES // 2, LANES)
    )


def statistics(spec: Spec, lanes: int) -> int:
    """Numbers of the greatest scores and the weights of a token's queries, in whole vectors."""
    group, key_heads = group_of(spec), spec.operands[1].shape[-2]
    assert isinstance(key_heads, int)
    heads = vector_heads(group, lanes)
    vectors = -(-key_heads // heads) if heads else key_heads * -(-group // lanes)
    return 2 * lanes * vectors


def vector_heads(group: int, lanes: int) -> int:
    """Key heads whose queries share a vector; 0 where those of one need several."""
    return lanes // group


def part_size(keys: Size, step: int) -> Size:
    """Keys of each part of a row whose tokens see `keys`: parts are of nearly one size.

    They are multiples of `step`.
    """
    most = sizes.greatest(sizes.ceildiv(keys, MOST), KEYS)
    count = sizes.greatest(sizes.ceildiv(keys, most), 1)
    each = sizes.ceildiv(sizes.ceildiv(keys, count), step) * step
    return sizes.greatest(each, step)


def share(first: Size, last: Size, slots: Size, parts: Size) -> tuple[Size, Size]:
    """The parts, from and to, of the tasks from `first` to `last - 1` of a row's `slots`.

    A row with fewer parts than slots has them all over its slots: so every thread gets some.
    """
    return sizes.ceildiv(first * parts, slots), sizes.ceildiv(last * parts, slots)
