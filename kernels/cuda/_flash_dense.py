"""Attention of dense tensors on tensor cores: whose rows and keys a block has."""

from __future__ import annotations

import math
from typing import Any

from heddle.kernels import emit, sizes
from heddle.kernels.cuda import _block, _flash, _flash_stages, _frame
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product


def fits(spec: Spec) -> bool:
    """Whether tensor cores take `spec`: 16 bits, and heads known at compile time."""
    heads = _heads(spec)
    return _flash.fits(spec) and all(isinstance(count, int) and count > 0 for count in heads)


def emit_dense(frame: _frame.Frame) -> None:
    """Emits a block's tile; the result has elements."""
    spec = frame.spec
    heads, key_heads = (int(count) for count in _heads(spec))  # type: ignore[arg-type]
    group, size = heads // key_heads, int(spec.operands[0].shape[3])  # type: ignore[arg-type]
    queries, keys = (frame.size(operand.shape[_axes(spec)[1]]) for operand in spec.operands[:2])
    count = sizes.evaluate(_flash.tiles(spec, _queries(spec), group), frame.dims)
    # The last tiles of causal attention have the most keys: they come first.
    rest, tile = _block.block() // count, emit.as_index(count) - 1 - _block.block() % count
    batch, key_head = rest // key_heads, rest % key_heads

    def place(heads: Size, length: Size, head: Size, number: Size) -> Size:
        if spec.attr("layout") == "bhsd":
            return ((batch * heads + head) * length + number) * size
        return ((batch * length + number) * heads + head) * size

    def query(number: Size, member: Size) -> Size:
        return place(heads, queries, key_head * group + member, number)

    def key(number: Size) -> Size:
        return place(key_heads, keys, key_head, number)

    masked = spec.attr("masked")
    mask = frame.reader(3) if masked else None
    added = masked and spec.operands[3].dtype != "bool"

    def bias(number: Size, member: Size, key: Size, score: Any) -> Any:
        assert mask is not None
        where = place_of_mask(frame, (batch, key_head * group + member, number, key))
        value = mask(where, 1)
        if added:
            return emit.fma(value, math.log2(math.e), score)
        return emit.select(value, score, -math.inf)

    task = _flash.Task(group, queries, keys, query, key, bias if masked else None, added)
    _flash.emit_tile(frame, task, tile)


def launch(spec: Spec, work: Expr) -> Launch:
    """A block for each tile of the rows of each key head."""
    heads, key_heads = (int(count) for count in _heads(spec))  # type: ignore[arg-type]
    tiles = _flash.tiles(spec, _queries(spec), heads // key_heads)
    grid = fold("max", 1, product((spec.operands[0].shape[0], key_heads, tiles)))
    return Launch((grid, 1, 1), work, (_flash_stages.THREADS, 1, 1), _flash.shared_bytes(spec))


def _axes(spec: Spec) -> tuple[int, int]:
    """Of the heads and of the sequence."""
    return (1, 2) if spec.attr("layout") == "bhsd" else (2, 1)


def _heads(spec: Spec) -> tuple[Expr, Expr]:
    axis = _axes(spec)[0]
    return spec.operands[0].shape[axis], spec.operands[1].shape[axis]


def _queries(spec: Spec) -> Expr:
    return spec.operands[0].shape[_axes(spec)[1]]


def place_of_mask(frame: _frame.Frame, indices: tuple[Size, Size, Size, Size]) -> Size:
    """Where the mask's value of a batch, head, query and key is; its dims that are 1 stretch."""
    shape = frame.spec.operands[3].shape
    where: Size = 0
    stride: Size = 1
    for index, size in zip(reversed(indices), reversed(shape), strict=False):
        if size != 1:
            where = index * stride + where
            stride = frame.size(size) * stride
    return where
