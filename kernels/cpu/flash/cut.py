"""How attention is cut into blocks, and where its operands' rows are."""

from __future__ import annotations

from contextlib import AbstractContextManager

from heddle.kernels import convert, emit, host, row_spans, sizes
from heddle.kernels.cpu import _bfloat16
from heddle.kernels.cpu.amx.tiles import TILE_ROW, TILE_ROWS
from heddle.kernels.cpu.products.tile import ROWS
from heddle.kernels.functions.powers_of_two import LOG2_E
from heddle.kernels.registry import Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Spec, fold

LARGEST_TILED = 128
"""The largest head size in tiles."""

LARGEST_WIDE = 640
"""The largest of wide heads in tiles: blocks of their keys and values fill the stack."""

SPLIT_QUERIES, FEWER, TASKS = 512, 128, 64
"""Queries of a task whose numbers are split for tiles, at most: putting 16 keys and their values on
the stack takes as long as two tiles of scores and sums. Fewer, where there are not so many tasks
otherwise, which the cores of a large machine share."""


def unit_of(spec: Spec) -> float:
    """What differences of scores are multiplied by to be exponents of two.

    Scores are in units of ln(2), but not where a mask is added: that may be the least number of its
    type, as which it hides nothing where all keys have it, and in units of ln(2) would be -inf.
    """
    added = spec.attr("masked") and spec.operands[3].dtype != "bool"
    return LOG2_E if added else 1.0


def scale_of(spec: Spec) -> float:
    """What makes scores of products of queries and keys."""
    scale: float = spec.attr("scale")
    return scale * (LOG2_E / unit_of(spec))


def cap_of(spec: Spec) -> float:
    """What scores are capped to, in their unit; 0 for none."""
    cap: float = spec.attr("softcap", 0.0)
    return cap * (LOG2_E / unit_of(spec))


def pair_work(spec: Spec) -> Expr:
    """Operations of a query and a key: of two products, an exponential, and a cap."""
    others = 20 + (18 if spec.attr("softcap") else 0)
    columns = fold("add", spec.operands[0].shape[-1], spec.result.shape[-1])
    return fold("add", fold("mul", columns, 2), others)


def in_pairs(spec: Spec, machine: Machine) -> bool:
    """Whether products are dot products of pairs of bfloat16."""
    return machine.dots and "dots" in uses(spec)


def rounding(spec: Spec, machine: Machine) -> AbstractContextManager[None]:
    """What is emitted in it rounds results as products are rounded."""
    return _bfloat16.conversions(machine, loses=in_pairs(spec, machine))


def uses(spec: Spec) -> tuple[str, ...]:
    """Dot products and tiles multiply bfloat16, which 8-bit floats become on the way.

    Of float32, which three of bfloat16 add up to, tiles alone win by it.
    """
    if not _in_bfloat16(spec):
        return ("tiles",) if splits(spec) else ()
    tiled = fills_tiles(spec) or is_wide(spec) or decodes_in_tiles(spec)
    return ("dots", "tiles") if tiled else ("dots",)


def fills_tiles(spec: Spec) -> bool:
    """Whether heads of bfloat16 are whole rows of tiles.

    Tiles find the greatest product before it is scaled, so that scales have to be positive.
    """
    return _in_bfloat16(spec) and _is_whole(spec) and spec.attr("scale") > 0


def is_wide(spec: Spec) -> bool:
    """Whether heads of bfloat16 are whole rows of tiles though they are larger, as latents are.

    Their values are narrower, which dense attention does not take.
    """
    size, columns = spec.operands[0].shape[-1], spec.result.shape[-1]
    if spec.op == "attention" or not isinstance(size, int) or not isinstance(columns, int):
        return False
    narrower = LARGEST_TILED < size <= LARGEST_WIDE and columns < size
    whole = size % (TILE_ROW // 2) == columns % TILE_ROW == 0
    return narrower and whole and _in_bfloat16(spec) and spec.attr("scale") > 0


def decodes_in_tiles(spec: Spec) -> bool:
    """Whether heads of rows that decode are whole rows of tiles, and their queries in even shares.

    Where they stay in the first cache; see `heddle.kernels.cpu.decode.parts.crowded`. Fewer than
    four queries of a key are faster on vectors if the key has 8 bits.
    """
    if spec.op == "attention" or not _in_bfloat16(spec):
        return False
    columns = spec.operands[0].shape[-1], spec.result.shape[-1]
    whole = all(isinstance(size, int) and size % (TILE_ROW // 2) == 0 for size in columns)
    group = row_spans.group_of(spec)
    narrow = any(operand.dtype in convert.FLOAT8 for operand in spec.operands[1:3])
    many = group >= (4 if narrow else 1)
    return whole and many and spec.attr("scale") > 0 and decode_rows(group) > 0


def decode_rows(group: int) -> int:
    """Queries of a key head whose sums are in a tile, where `group` share it; 0 for too few.

    They have no rest, nor in vectors of 16 where there are more.
    """
    if group > TILE_ROWS and group % TILE_ROWS:
        return 0
    most = TILE_ROWS // 2
    rows = max(n for n in range(1, most + 1) if group % n == 0)
    return rows if 2 * rows > most or rows == group else 0


def splits(spec: Spec) -> bool:
    """Whether heads of float32 are split into whole rows of tiles."""
    query, key, value = (operand.dtype for operand in spec.operands[:3])
    return query == key == value == "float32" and _is_whole(spec)


def _is_whole(spec: Spec) -> bool:
    sizes = spec.operands[0].shape[-1], spec.result.shape[-1]
    return all(
        isinstance(size, int) and size % (TILE_ROW // 2) == 0 and size <= LARGEST_TILED
        for size in sizes
    )


def _in_bfloat16(spec: Spec) -> bool:
    query, key = (operand.dtype for operand in spec.operands[:2])
    return query == "bfloat16" and key in (query, *convert.FLOAT8)


def group_of(spec: Spec) -> int:
    """Heads of queries that share one of the keys: 1 where they are not static."""
    heads, key_heads = (ordered(spec, number)[1] for number in (0, 1))
    return heads // key_heads if isinstance(heads, int) and isinstance(key_heads, int) else 1


def row_of(frame: host.Frame, number: int, item: Size, head: Size, position: Size) -> Size:
    """The row of operand `number` (0 also: of the result) at a position of a head.

    `head` counts heads of the queries, of which each head of keys serves a few.
    """
    _, heads, length, _ = (frame.size(extent) for extent in ordered(frame.spec, number))
    if number > 0:
        head = sizes.floordiv(head, sizes.floordiv(frame.size(ordered(frame.spec, 0)[1]), heads))
    if frame.spec.attr("layout") == "bshd":
        return (item * length + position) * heads + head
    return (item * heads + head) * length + position


def ordered(spec: Spec, number: int) -> tuple[Expr, Expr, Expr, Expr]:
    """Batch, heads, length and head size of operand `number`."""
    batch, second, third, size = spec.operands[number].shape
    if spec.attr("layout") == "bshd":
        return batch, third, second, size
    return batch, second, third, size


def query_block(spec: Spec) -> int:
    """Queries of a task: 132, or fewer where their rows are long.

    Whole tiles of 12 rows, of which 128 queries leave little unused. More for heads that fill
    AMX tiles: beside their products, what puts keys and values into them would take long.
    """
    if fills_tiles(spec):
        return 512 if row_bytes(spec) <= 256 else 256
    return next((n for n in (132, 96, 48, 24) if n * row_bytes(spec) <= 48 << 10), ROWS)


def split_blocks(spec: Spec) -> Expr:
    """Tasks that share the queries of a head of keys, if their numbers are split."""
    batch, heads, queries, _ = ordered(spec, 0)
    group = group_of(spec)
    queries, heads = fold("mul", queries, group), fold("floordiv", heads, group)
    least, most = (fold("ceildiv", queries, each) for each in (SPLIT_QUERIES, FEWER))
    wanted = fold("ceildiv", TASKS, fold("max", fold("mul", batch, heads), 1))
    return fold("max", least, fold("min", most, wanted))


def least_split(spec: Spec) -> int:
    """Queries of a head of keys, and keys, that are worth splitting."""
    return 96 if row_bytes(spec) < 256 else 64


def key_block(spec: Spec) -> int:
    """Keys of a block: 16 KiB of them, 16 to 128; where rows are long, two vectors all the same."""
    if row_bytes(spec) > 2**10:
        return 32
    return next((n for n in (128, 64, 32) if n * row_bytes(spec) <= 2**14), 16)


def row_bytes(spec: Spec) -> int:
    """Bytes of a query's row on the stack."""
    size = spec.operands[0].shape[-1]
    assert isinstance(size, int)
    return -(-size // 16) * 16 * emit.ITEM_SIZE[wide_of(spec.result.dtype)]


def wide_of(dtype: str) -> str:
    """What numbers of a dtype are on the stack."""
    return "float64" if dtype == "float64" else "float32"
