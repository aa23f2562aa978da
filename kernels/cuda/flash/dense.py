"""Attention of dense tensors on tensor cores: whose rows and keys a block has."""

from __future__ import annotations

import math
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.flash import attend, calls
from heddle.kernels.cuda.flash import split as flash_split
from heddle.kernels.cuda.flash import stages as flash_stages
from heddle.kernels.cuda.flash.task import Task
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product


def fits(spec: Spec) -> bool:
    """Whether tensor cores take `spec`: 16 bits, and heads known at compile time."""
    heads = _heads(spec)
    return attend.fits(spec) and all(isinstance(count, int) and count > 0 for count in heads)


def emit_dense(frame: _frame.Frame) -> None:
    """Emits a block's tile; the result has elements."""
    spec = frame.spec
    heads, key_heads = (int(count) for count in _heads(spec))  # type: ignore[arg-type]
    group, size = heads // key_heads, int(spec.operands[0].shape[3])  # type: ignore[arg-type]
    queries, keys = (frame.size(operand.shape[axes(spec)[1]]) for operand in spec.operands[:2])
    tiles = frame.size(attend.tiles(spec, _queries(spec), group))
    parts = _parts(spec)
    if not isinstance(parts, int):
        batch, stages = frame.shape((spec.operands[0].shape[0], _stages(spec)))
        length = flash_split.found_length_of_parts(batch * stages * key_heads)
        parts = flash_split.count(stages, length)
    count = tiles * parts  # There are several tiles, or several parts.
    rest = _block.quotient(_block.block(), count)
    number = _block.block() - rest * count
    batch, key_head = rest // key_heads, rest % key_heads
    split = None
    if not (isinstance(parts, int) and parts == 1):
        split = flash_split.Split(number, parts, rest * parts, 1, rest)

    def query(number: Size, member: Size) -> Size:
        return place(spec, (batch, key_head * group + member, number), heads, queries) * size

    def key(number: Size) -> Size:
        return place(spec, (batch, key_head, number), key_heads, keys) * size

    masked = spec.attr("masked")
    mask = frame.reader(3) if masked else None
    added = masked and spec.operands[3].dtype != "bool"

    def bias(number: Size, member: Size, key: Size, score: Any) -> Any:
        assert mask is not None
        where = place_of_mask(frame, (batch, key_head * group + member, number, key))
        value = mask(where, 1)
        if added:
            return score + value
        return emit.select(value, score, -math.inf)

    task = Task(group, queries, keys, query, key, bias if masked else None, added, split)
    # The last tiles of causal attention have the most keys: they come first.
    attend.emit_tile(frame, task, emit.as_index(tiles) - 1 - number)


def launch(spec: Spec, work: Expr, arch: str = "") -> Launch:
    """A block for each tile of the rows of each key head, or for each part of their keys."""
    heads, key_heads = (int(count) for count in _heads(spec))  # type: ignore[arg-type]
    batch, parts = spec.operands[0].shape[0], _parts(spec)
    tiles = attend.tiles(spec, _queries(spec), heads // key_heads)
    grid = fold("max", 1, product((batch, key_heads, tiles, parts)))
    is_split = fold("min", 1, fold("sub", parts, 1))
    slots = product((batch, key_heads, parts, is_split)) if parts != 1 else 0
    return Launch(
        (grid, 1, 1),
        work,
        (flash_stages.THREADS, 1, 1),
        attend.shared_bytes(spec, arch),
        workspace=flash_split.workspace(slots, spec.operands[0].shape[3]),  # type: ignore[arg-type]
        counters=flash_split.BLOCKS if parts != 1 else 0,
    )


def place(spec: Spec, indices: tuple[Size, Size, Size], heads: Size, length: Size) -> Size:
    """Which row of all is that of a batch, a head and a number in the sequence."""
    batch, head, number = indices
    if spec.attr("layout") == "bhsd":
        return (batch * heads + head) * length + number
    return (batch * length + number) * heads + head


def _parts(spec: Spec) -> Expr:
    """Parts of the keys of each key head: one, unless rows are few."""
    if not is_few(spec):
        return 1
    stages = _stages(spec)
    every = product((spec.operands[0].shape[0], _heads(spec)[1], stages))
    length = flash_split.length_of_parts(every)
    return fold("max", fold("ceildiv", stages, length), 1)


def is_few(spec: Spec) -> bool:
    """Whether `spec` is for calls with few rows alone."""
    return calls.is_few(spec, few(spec))


def few(spec: Spec) -> Expr:
    """1 where every warp can have all rows of a key head, else 0."""
    heads, key_heads = (int(count) for count in _heads(spec))  # type: ignore[arg-type]
    rows = fold("mul", _queries(spec), heads // key_heads)
    return fold("min", 1, fold("floordiv", flash_split.FEW, fold("max", 1, rows)))


def _stages(spec: Spec) -> Expr:
    """Stages of the keys of a key head."""
    return fold("ceildiv", spec.operands[1].shape[axes(spec)[1]], flash_stages.KEYS)


def axes(spec: Spec) -> tuple[int, int]:
    """Of the heads and of the sequence."""
    return (1, 2) if spec.attr("layout") == "bhsd" else (2, 1)


def _heads(spec: Spec) -> tuple[Expr, Expr]:
    axis = axes(spec)[0]
    return spec.operands[0].shape[axis], spec.operands[1].shape[axis]


def _queries(spec: Spec) -> Expr:
    return spec.operands[0].shape[axes(spec)[1]]


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
