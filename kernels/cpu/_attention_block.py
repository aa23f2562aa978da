"""How attention is cut into blocks, and where a block's numbers lie on the stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu._tile import ROWS, rows_of
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Spec


@dataclass(frozen=True)
class Block:
    """The sizes of a task's blocks, and its places on the stack; all rows of padded width.

    `query` is [queries, width] and scaled, `key` is [size, keys], `score` is [rows, keys], `total`
    is [queries, width]; `top`, `weight` and `fade` hold, for each query, the greatest score, the
    sum of exponentials, and what the last block's greatest score scales the sums by.
    """

    dtype: str
    lanes: int
    rows: int
    queries: int
    keys: int
    size: int
    width: int
    pair: int
    query: Any
    key: Any
    score: Any
    total: Any
    top: Any
    weight: Any
    fade: Any

    @staticmethod
    def make(frame: host.Frame) -> Block:
        """The block of a kernel, at the start of its function."""
        spec = frame.spec
        dtype = _wide(spec.result.dtype)
        lanes = host.lanes_for(frame.machine, [dtype])
        size = spec.operands[0].shape[-1]
        assert isinstance(size, int)
        width = -(-size // lanes) * lanes
        queries, keys = query_block(spec), key_block(spec)
        elements = [queries * width, size * keys, ROWS * keys, queries * width, *[queries] * 3]
        places = [host.byte_buffer(count * emit.ITEM_SIZE[dtype]) for count in elements]
        pair = min(2, keys // lanes)
        return Block(
            dtype, lanes, rows_of(frame.machine), queries, keys, size, width, pair, *places
        )

    def vector(self, base: Any, offset: Any) -> Any:
        """A vector of the stack."""
        return memory.load(base, offset, self.dtype, self.lanes)

    def scalar(self, base: Any, offset: Any) -> Any:
        """An element of the stack."""
        return memory.load(base, offset, self.dtype)

    def spread(self, base: Any, offset: Any) -> Any:
        """An element of the stack in every lane."""
        return emit.splat(self.scalar(base, offset), self.lanes)

    def put(self, value: Any, base: Any, offset: Any) -> None:
        """Writes to the stack."""
        memory.store(value, base, offset, self.dtype)

    def fill(self, number: float) -> Any:
        """A vector of one number."""
        return emit.constant(emit.register_type(self.dtype), number, self.lanes)


def row_of(frame: host.Frame, number: int, item: Size, head: Size, position: Size) -> Size:
    """The row, of head size, of a position in operand `number`; a key head serves several."""
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
    """Queries of a task: 96, or fewer where their rows are long or see fewer keys than the last."""
    counts = (48, 24) if spec.attr("causal") else (96, 48, 24)
    return next((n for n in counts if n * row_bytes(spec) <= 2**14), ROWS)


def key_block(spec: Spec) -> int:
    """Keys of a block: 16 KiB of them, 16 to 128."""
    return next((n for n in (128, 64, 32) if n * row_bytes(spec) <= 2**14), 16)


def row_bytes(spec: Spec) -> int:
    size = spec.operands[0].shape[-1]
    assert isinstance(size, int)
    return -(-size // 16) * 16 * emit.ITEM_SIZE[_wide(spec.result.dtype)]


def _wide(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"
