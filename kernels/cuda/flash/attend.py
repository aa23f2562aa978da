"""Attention on tensor cores: tiles of queries against tiles of keys, softmax on the way.

Dao, "FlashAttention-2", arXiv:2307.08691. The rows of a tile are the queries of all heads that
share a key head, so that keys are read once for them. Each warp has rows of its own; where 16 rows
are all there are (decoding), each warp has all of them and keys of its own instead.

Products are summed in float32, and the shares of values are rounded to 16 bits before they are
multiplied: a result is off by at most that rounding, its own, and for float16 2 ** -25 for each
key, times the largest value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heddle.kernels import convert, emit, sizes
from heddle.kernels.cuda import _block, _frame, _rounding
from heddle.kernels.cuda.flash import keys as flash_keys
from heddle.kernels.cuda.flash import latents, softmax, stages
from heddle.kernels.cuda.flash import split as flash_split
from heddle.kernels.cuda.flash import warp as flash_warp
from heddle.kernels.cuda.flash.latents import LatentLayout, LatentWarp
from heddle.kernels.cuda.flash.narrow_warp import NarrowWarp
from heddle.kernels.cuda.flash.split import FEW
from heddle.kernels.cuda.flash.stages import WARPS
from heddle.kernels.cuda.flash.task import Task
from heddle.kernels.cuda.products import mma, outputs
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Spec, fold

vector = dialect("vector")

_SIZES = (32, 64, 80, 96, 112, 128, 256)


def fits(spec: Spec) -> bool:
    """Whether tensor cores take the operands; heads have to be known at compile time."""
    q, k = spec.operands[:2]
    taken = q.dtype in ("float16", "bfloat16") and k.dtype in (q.dtype, *convert.FLOAT8)
    whole = spec.result.shape[-1] == q.shape[-1] in _SIZES
    if not taken or not whole or spec.attr("softcap", 0.0) > softmax.MOST_CAP:
        return False
    return stages.Layout(_size(spec), FEW, _narrow(spec)).keys.pairs


def rows(spec: Spec) -> int:
    """Rows of a tile."""
    return WARPS * 16 * _down(spec)


def tiles(spec: Spec, queries: Expr, group: int) -> Expr:
    """Tiles of the rows of a sequence."""
    return fold("ceildiv", fold("mul", queries, group), rows(spec))


def shared_bytes(spec: Spec, arch: str = "") -> int:
    """Dynamic shared memory of a block, on one architecture or on any."""
    few = stages.Layout.deep(_size(spec), FEW, _narrow(spec), arch)
    return max(few.total, stages.Layout(_size(spec), rows(spec), _narrow(spec)).total)


def emit_few(
    frame: _frame.Frame, task: Task, shared: mma.DynamicShared, first: Size, end: Size
) -> None:
    """Emits `FEW` rows of a task from row `first` on, as far as they are before `end`."""
    spec = frame.spec
    layout = stages.Layout.deep(_size(spec), FEW, _narrow(spec), frame.machine.arch)
    across, warp = layout.across, _block.thread() // _block.WARP
    keys, columns = layout.step * across // WARPS, layout.size // across
    column = warp % across * columns if across > 1 else 0
    own = flash_warp.WarpTile(0, 1, warp // across * keys, keys, column, columns)
    work = _Tile(frame, task, layout, shared, (first, end), own)
    _write_together(work, work.attend(task.split))


def emit_tile(frame: _frame.Frame, task: Task, tile: Size) -> None:
    """Emits tile number `tile` of a task, whose rows are at least one; 0 where rows are few."""
    shared, down = mma.DynamicShared("stages"), _down(frame.spec)
    _block.share_multiprocessor(2)

    def few() -> list[Any]:
        emit_few(frame, task, shared, emit.index(0), task.rows)
        return []

    def many() -> list[Any]:
        layout = stages.Layout(_size(frame.spec), rows(frame.spec), _narrow(frame.spec))
        line = _block.thread() // _block.WARP * (16 * down)
        own = flash_warp.WarpTile(line, down, 0, layout.step, 0, layout.size)
        work = _Tile(frame, task, layout, shared, (tile * layout.rows, task.rows), own)
        _write_apart(work, work.attend())
        return []

    if isinstance(task.rows, int):
        few() if task.rows <= FEW else many()
    else:
        emit.either(emit.compare("less_equal", task.rows, FEW), [], few, many)


def emit_latents(frame: _frame.Frame, task: Task, tile: Size) -> None:
    """As `emit_tile`, of keys that are latents."""
    spec, shared = frame.spec, mma.DynamicShared("stages")

    def of(rows: int) -> list[Any]:
        layout = LatentLayout.of(spec, rows, frame.machine.arch)
        work = _Tile(frame, task, layout, shared, (tile * rows, task.rows), layout.tile())
        _write_together(work, work.attend(task.split))
        return []

    few, *more = latents.tiles(spec)
    if more:
        is_few = emit.compare("less_equal", task.rows, few)
        emit.either(is_few, [], lambda: of(few), lambda: of(more[0]))
    else:
        of(few)


class _Tile:
    """A block's tile of rows, from the first to that before an end, and what each warp has."""

    def __init__(
        self,
        frame: _frame.Frame,
        task: Task,
        layout: stages.Layout,
        shared: mma.DynamicShared,
        rows: tuple[Size, Size],
        own: flash_warp.WarpTile,
    ) -> None:
        self.frame, self.task, self.layout, self.shared = frame, task, layout, shared
        self.first, self.end = (emit.as_index(row) for row in rows)
        spec = frame.spec
        pointers = tuple(frame.reader(number).inputs.pointers[0] for number in layout.operands)
        keys = stages.Keys(pointers, spec.operands[1].dtype, task.key)
        self._stages = stages.Stages(keys, layout, shared, own.keys == layout.step // layout.warps)
        bias, scale, cap = task.bias and self._bias, spec.attr("scale"), spec.attr("softcap", 0.0)
        self.own, self._scores = own, softmax.Scores.of(scale, cap, bias, task.added)

    def _warp(self) -> flash_warp.Warp:
        """What a warp knows of the queries, which this brings to shared memory."""
        frame, layout, shared = self.frame, self.layout, self.shared
        read = frame.reader(0)
        stages.store_queries(
            frame, read, layout, shared, lambda line: self.task.place(self._inside(line))
        )
        _block.barrier()  # The queries are there.
        dtype = frame.spec.operands[0].dtype
        if isinstance(layout, LatentLayout):
            return LatentWarp(dtype, layout, shared, self.own, self._scores)
        if layout.narrow:
            held = frame.spec.operands[1].dtype
            return NarrowWarp(dtype, held, layout, shared, self.own, self._scores)
        return flash_warp.Warp(dtype, layout, shared, self.own, self._scores)

    def attend(self, split: flash_split.Split | None = None) -> Sequence[Any]:
        """Over the keys, a stage at a time; the state of the warp after the last one."""
        last = emit.minimum(self.first + self.layout.rows, self.end) - 1
        low, stop = self._range(self.first)[0], self._range(last)[1]
        start = emit.index(0) if low is None else low
        keys = self.layout.step
        count = sizes.ceildiv(emit.maximum(stop - start, 0), keys)
        if split is not None:
            before, count = split.share(count)
            start = start + before * keys
        # Keys that not every row sees: before the window of the last, after the end of the first.
        late, early = self._range(last)[0], self._range(self.first)[1]

        ahead = self.layout.stages - 1

        def place(number: Size) -> Any:
            return self._stages.place(start + emit.as_index(number) * keys, stop)

        def fill(number: Size, found: Any) -> None:
            number = emit.as_index(number)
            with emit.when(emit.compare("less", number, count)):
                stage = self.layout.first_stage + number % self.layout.stages * self.layout.stage
                self._stages.fill(stage, start + number * keys, stop, found)
            mma.commit()

        def step(number: Size, *state: Any) -> Sequence[Any]:
            mma.wait(ahead - 1)
            self._stages.meet()  # The stage is there, and the one before it is free.
            fill(number + ahead, place(number + ahead))
            first = start + number * keys
            edge = emit.compare("greater", first + keys, early)
            if late is not None:
                edge = edge | emit.compare("less", first, late)
            stage = self.layout.first_stage + number % self.layout.stages * self.layout.stage
            return self.warp.step(stage, first, edge, ranges, state)

        places = [place(number) for number in range(ahead)] if self.frame.ahead else []
        self.frame.wait()
        for number in range(ahead):
            fill(number, places[number] if places else place(number))
        # Behind what the first keys take: queries come while those do.
        self.warp = self._warp()
        ranges = [softmax.in_words(self._range(self._inside(line))) for line in self.warp.lines]
        state = emit.carry(0, count, 1, self.warp.start(), step)
        mma.wait(0)
        _block.barrier()  # Shared memory is free.
        return state

    def _inside(self, line: Size) -> Size:
        """The row of a line; beyond the last one, it is repeated."""
        return emit.minimum(self.first + line, self.end - 1)

    def _range(self, row: Size) -> softmax.Range:
        task = self.task
        return flash_keys.seen(self.frame.spec, task.group, task.queries, task.length, row)

    def _bias(self, line: Size, key: Size, score: Any) -> Any:
        assert self.task.bias is not None
        row = self._inside(line)
        query, member = sizes.floordiv(row, self.task.group), sizes.mod(row, self.task.group)
        inside = emit.minimum(key, emit.as_index(self.task.length) - 1)
        return self.task.bias(query, member, inside, score)

    def inverses(
        self, lines: Sequence[Size], tops: Sequence[Any], totals: Sequence[Any]
    ) -> list[Any]:
        """What lines are multiplied by at the end, given their greatest scores and sums."""
        sinks = self.task.sinks([self.first + line for line in lines])
        return [self.warp.inverse(*line) for line in zip(tops, totals, sinks, strict=True)]

    def write(self, rows: int, value: Callable[[Size, Size, int], Any]) -> None:
        """Writes `value(line, column, lanes)` of `rows` lines, as far as their rows exist."""
        write, size = self.frame.writer(), self.layout.columns
        count = emit.minimum(self.end - self.first, rows)

        def body(lanes: int) -> None:
            across = size // lanes
            for number in emit.loop(_block.thread(), count * across, self.layout.threads):
                line, column = number // across, number % across * lanes
                place = self.task.target(self.first + line) + column
                write(value(line, column, lanes), place)

        _frame.in_vectors(self.frame, [write.inputs], [size], body, most=8)


def _write_apart(tile: _Tile, state: Sequence[Any]) -> None:
    """Each warp has its own rows: they go through shared memory in 16 bits."""
    warp, layout, dtype = tile.warp, tile.layout, tile.frame.spec.result.dtype
    scales = tile.inverses(warp.lines, warp.split(state)[0], warp.totals(state))
    for line, column, pair in warp.pairs(state):
        low, high = (value * scales[line] for value in pair)
        place = warp.lines[line] * layout.pitch + column
        tile.shared.store(_rounding.packed((low, high), dtype), place * 2)
    _block.barrier()
    element = emit.memory_type(dtype)

    def value(line: Size, column: Size, lanes: int) -> Any:
        place = (line * layout.pitch + column) * 2
        return convert.from_memory(tile.shared.load(place, element, lanes), dtype)

    tile.write(layout.rows, value)


def _write_together(tile: _Tile, state: Sequence[Any]) -> None:
    """Several warps have all rows: what they found is added up in the order of their numbers."""
    warp, layout, shared = tile.warp, tile.layout, tile.shared
    copies, lines, number = layout.copies, layout.rows, emit.index(0)
    if copies > 1:
        number = _block.thread() // (_block.WARP * layout.across) * lines
    element = emit.register_type("float32")
    for line, column, pair in warp.pairs(state):
        both = vector.from_elements(emit.widen(element, 2), list(pair))
        row, place = number + warp.lines[line], column ^ outputs.turn(warp.lines[line], column)
        shared.store(both, (row * layout.pitch + place) * 4)
    tops = warp.split(state)[0]
    for line, (top, total) in enumerate(zip(tops, warp.totals(state), strict=True)):
        with emit.when(emit.compare("equal", warp.member + tile.own.column, 0)):
            both = vector.from_elements(emit.widen(element, 2), [top, total])
            shared.store(both, layout.maxima + (number + warp.lines[line]) * 8)
    _block.barrier()

    def found(line: Size, column: Size, lanes: int) -> flash_split.Sums:
        rows = [line + lines * i for i in range(copies)]
        place = column ^ outputs.turn(line, column)
        found = [_block.lanes(shared.load(layout.maxima + row * 8, element, 2)) for row in rows]
        top = found[0][0]
        for other, _ in found[1:]:
            top = emit.maximum(other, top)
        shift = warp.shift(top)
        total: Any = emit.constant(element, 0.0)
        result: Any = emit.constant(element, 0.0, lanes)
        for row, (other, part) in zip(rows, found, strict=True):
            weight = warp.power(other, shift)
            total = emit.fma(part, weight, total)
            sums = outputs.load_sums(shared, "float32", row * layout.pitch, place, lanes)
            result = emit.fma(sums, weight, result)
        return top, total, result

    def write(sums: flash_split.Found) -> None:
        def value(line: Size, column: Size, lanes: int) -> Any:
            top, total, result = sums(line, column, lanes)
            return result * tile.inverses([line], [top], [total])[0]

        tile.write(lines, value)

    task = tile.task
    count = emit.minimum(tile.end - tile.first, lines)
    flash_split.bring_together(task.split, tile.frame, count, layout, warp, found, write)


def _down(spec: Spec) -> int:
    """Tiles of 16 rows in a warp: two, which read keys once for both, where registers suffice."""
    return 2 if _size(spec) <= 64 and not spec.attr("masked") and not _narrow(spec) else 1


def _narrow(spec: Spec) -> bool:
    """Whether keys and values have 8 bits."""
    return spec.operands[0].dtype != spec.operands[1].dtype


def _size(spec: Spec) -> int:
    size = spec.operands[0].shape[-1]
    assert isinstance(size, int)
    return size
