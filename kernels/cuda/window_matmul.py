"""Convolution with channels last as a product whose left side is the windows of x.

Of 16 bits it runs on tensor cores: where a chunk of 16 bytes is within one tap, cp.async brings it
from x to where a chunk of a matrix would be, or zeros where the tap is outside; on sm_90a for wgmma
(`warpgroup.windows`). Others go by fused multiply-adds. No matrix of windows is in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from heddle.kernels import bodies, emit, memory, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import fma, matrices, mma, staging
from heddle.kernels.cuda.products import tiles as products_tiles
from heddle.kernels.cuda.products.outputs import Place
from heddle.kernels.cuda.products.tile import ROWS, Tile
from heddle.kernels.cuda.warpgroup import plan as warpgroup_plan
from heddle.kernels.cuda.warpgroup import product as warpgroup_product
from heddle.kernels.emit import compare, select
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product
from heddle.kernels.windows import Windows

_COLUMNS = 128


def emit_windows(spec: Spec, machine: Machine) -> None:
    """Emits the tile of this block."""
    frame = _frame.frame(spec, machine)
    plan = warpgroup_plan.plan_for(spec, machine)
    with frame.unless_empty():
        if plan:
            warpgroup_product.emit_product(frame, plan)
            return
        left = _Left(frame, Windows.of(frame), frame.size(spec.operands[1].shape[0]))
        if _on_tensor_cores(spec):
            tile = Tile(mma.KINDS[_dtypes(spec)], _COLUMNS, transposed=True)
            where = _place(frame, left, ROWS, _COLUMNS)
            shared = mma.DynamicShared("stages")
            a = left.matrix(where)
            b = staging.Matrix(frame.inputs[1], a.dtype, emit.index(0), where.stop, where.k)
            products_tiles.emit_tile(frame, tile, shared, where, (a, b))
        else:
            side = fma.side_of(spec)
            where = _place(frame, left, side, side)
            where = replace(where, k=_of_what_is_there(left, where.k))
            sides = left.side(where), frame.reader(1)
            fma.emit_tile_at(frame, sides, True, where, (emit.index(0), emit.index(0)))


def _of_what_is_there(left: _Left, k: Size) -> Size:
    """The sums' length, which is 0 where x is empty and all that is seen is padding.

    Taps outside read some element of x in their place, and there is none.
    """
    places = sizes.product(left.windows.sizes)
    if isinstance(places, int):
        return k if places else 0
    return select(compare("greater", places, 0), emit.as_index(k), 0)


def _dtypes(spec: Spec) -> tuple[str, str]:
    a, b = spec.operands
    return a.dtype, b.dtype


def _on_tensor_cores(spec: Spec) -> bool:
    return _dtypes(spec) in mma.KINDS


def _place(frame: _frame.Frame, left: _Left, rows: int, columns: int) -> Place:
    """The place of this block; its columns are in one group."""
    m, n = left.windows.number, frame.size(frame.spec.result.shape[-1])
    each = sizes.floordiv(n, left.groups)
    m_tiles, n_tiles = (
        emit.as_index(sizes.ceildiv(size, step)) for size, step in ((m, rows), (each, columns))
    )
    tiles = m_tiles * n_tiles
    group, rest = _block.block() // tiles, _block.block() % tiles
    row, column = products_tiles.ordered(rest, m_tiles, n_tiles)
    first = group * each + column * columns
    return Place(emit.index(0), row * rows, first, m, n, left.k, each)


@dataclass(frozen=True)
class _Left:
    """The windows as rows of a matrix [windows, k], for each group of channels."""

    frame: _frame.Frame
    windows: Windows
    groups: Size

    @property
    def each(self) -> Size:
        """Channels of a group."""
        return sizes.floordiv(self.windows.channels, self.groups)

    @property
    def k(self) -> Size:
        return self.each * prod(self.windows.kernel)

    def matrix(self, where: Place) -> _Matrix:
        """For copies to shared memory, by the group of a block's columns."""
        frame = self.frame
        dtype, channel = frame.spec.operands[0].dtype, self.channel(where)
        start = emit.index(0)
        return _Matrix(frame.inputs[0], dtype, start, where.m, where.k, self, channel)

    def side(self, where: Place) -> _Side:
        """For loads, by the group of a block's columns."""
        return _Side(self, self.channel(where))

    def channel(self, where: Place) -> Any:
        """The first channel of the group that a block's columns are in."""
        return sizes.floordiv(where.column, where.each) * self.each

    def element(self, row: Size, column: Size, channel: Any) -> tuple[Any, Any]:
        """Where element `column` of a window is in x, and whether it is inside."""
        tap, inner = sizes.floordiv(column, self.each), sizes.mod(column, self.each)
        item, starts = self.windows.starts(row)
        at = self.windows.at(starts, sizes.split(tap, self.windows.kernel))
        return self.windows.place(item, at) + channel + inner, self.windows.inside(at)


@dataclass(frozen=True)
class _Matrix(staging.Matrix):
    """A matrix whose rows are windows; `channel`: the first one of the group."""

    left: _Left
    channel: Any

    def whole(self) -> Any:
        """Whether all chunks are aligned, and each within one tap."""
        columns = self.left.each
        return staging.Matrix(self.pointer, self.dtype, self.start, self.rows, columns).whole()

    def copy(self, target: Any, row: Size, column: Size, position: Size) -> None:
        place, inside = self._find(row, column)
        mma.copy(target, mma.byte_at(self.pointer, place * self.item), inside)

    def elements(self, row: Size, column: Size, position: Size) -> Any:
        dtype = memory.raw(self.dtype)
        kind = emit.memory_type(dtype)
        values = []
        for i in range(self.each):
            place, inside = self._find(row, column + i)

            def there(place: Any = place) -> list[Any]:
                return [memory.load(self.pointer, place, dtype)]

            values += emit.either(inside, [kind], there, lambda: [emit.constant(kind, 0)])
        return staging.vector.from_elements(emit.widen(kind, self.each), values)

    def _find(self, row: Size, column: Size) -> tuple[Any, Any]:
        place, inside = self.left.element(row, column, self.channel)
        there = compare("less", row, self.rows) & compare("less", column, self.columns)
        return place, inside & there


@dataclass(frozen=True)
class _Inputs:
    """Those of x, whose vectors are within a tap: of `row` channels."""

    inputs: _frame.Inputs
    row: Size

    @property
    def streamed(self) -> list[tuple[Any, str]]:
        return self.inputs.streamed


class _Side:
    """Loads for fused multiply-adds: a vector is channels of one tap."""

    def __init__(self, left: _Left, channel: Any) -> None:
        self._left, self._channel = left, channel
        self._reader = left.frame.reader(0)
        self.inputs = _Inputs(self._reader.inputs, left.each)

    def __call__(self, position: Any, lanes: int) -> Any:
        """The elements of the matrix of windows from `position` on; zeros outside of x."""
        k = self._left.k
        row, column = sizes.floordiv(position, k), sizes.mod(position, k)
        place, inside = self._left.element(row, column, self._channel)
        value = self._reader(select(inside, place, self._channel), lanes)
        return select(emit.splat(inside, lanes), value, 0)


def launch(spec: Spec) -> Launch:
    """A block for each tile of each group."""
    *windows, n = spec.result.shape
    groups, each, k = spec.operands[1].shape
    on_tensor_cores = _on_tensor_cores(spec)
    side = fma.side_of(spec)
    rows, columns = (ROWS, _COLUMNS) if on_tensor_cores else (side, side)
    m: Expr = product(tuple(windows))
    tiles = product((groups, fold("ceildiv", m, rows), fold("ceildiv", each, columns)))
    work = product((m, n, k, 2))
    if on_tensor_cores:
        threads, shared = (staging.THREADS, 1, 1), products_tiles.shared_bytes(_COLUMNS)
    else:
        threads, shared = fma.launch(spec).block, 0
    return Launch((fold("max", 1, tiles), 1, 1), work, threads, shared)


def supports(spec: Spec) -> str | None:
    """The floating dtypes, both sides of one, without a prologue."""
    dtypes = sorted({operand.dtype for operand in spec.operands})
    if len(dtypes) > 1 or not emit.is_float(dtypes[0]):
        return f"window_matmul of {' and '.join(dtypes)}"
    if spec.prologue is not None:
        return "it takes no prologue"
    return bodies.unsupported(spec.epilogue)


KERNEL = Kernel(
    "window_matmul",
    "cuda",
    emit_windows,
    launch,
    supports,
    space=matrices.SPACE,
    own_launch=warpgroup_plan.own_launch,
)
