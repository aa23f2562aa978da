"""Products by weights in 8 or 4 bits on tensor cores, as fast as the weights can be read.

Weights become numbers of 16 bits in registers, where they are exact; the sums over one group are
multiplied by its scales in float32. Blocks are those of `skinny`: few columns, many stages, k
shared out among warps.

The order along k inside of 32 elements is free, as long as both sides have the same. A lane takes
eight neighbours of a row of x (16 bytes) and eight of a row of weights, and sorts x into the pairs
in which weights come out of their word by masks: of 4 bits (0, 4), (1, 5), ..., of 8 bits (0, 2),
(1, 3), ... 8-bit floats come in the order in which they lie.

Of the two sides of mma.sync one has 16 lines, the other eight. Up to eight rows of x are the side
of eight, with half as many products as where the other rows of 16 would be zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from heddle.kernels import emit, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.products import (
    by_rows,
    group_scales,
    matrices,
    minimums,
    mma,
    outputs,
    scaled_cut,
    scaled_strip,
    staging,
    strip_parts,
)
from heddle.kernels.cuda.products.scaled_strip import LEAST, RUN, Strip
from heddle.kernels.cuda.products.weight_words import halves_of
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Spec, fold

FEW = scaled_strip.FEW
"""Rows of small strips."""

_EACH = 8  # Elements of a lane in a run.
_ALL = outputs.WARP_COLUMNS // 8


def fits(spec: Spec) -> bool:
    """Whether x has 16 bits, groups are whole runs, and nothing is computed before."""
    x, *_ = spec.operands
    kind = mma.KINDS.get((x.dtype, x.dtype))
    return kind is not None and spec.prologue is None and spec.attr("group") % RUN == 0


def joins(spec: Spec) -> bool:
    """Whether one kernel computes the product and others of the same few rows."""
    return fits(spec) and by_rows.may_be_few(spec, FEW)


def ways(spec: Spec) -> Sequence[by_rows.Way]:
    """The ways to compute the product."""
    problem, dtype = matrices.problem(spec), spec.operands[0].dtype
    weights = spec.attr("bits"), spec.attr("group"), spec.operands[1].dtype
    behind = 2 if spec.gate else 1, minimums.number(spec) is not None
    wide = Strip(mma.KINDS[dtype, dtype], 64, 64, *weights, *behind)
    low, parts = scaled_cut.best(replace(wide, rows=FEW), problem)
    found = []
    strips: list[tuple[int | None, Strip]] = [(FEW, low), (None, wide)]
    if isinstance(problem.m, int) or spec.attr(by_rows.MOST) == FEW:
        strips.insert(0, (LEAST, replace(low, rows=LEAST)))
    for most, strip in strips:
        across, steps = _counts(strip, problem)
        down = 1 if most else fold("ceildiv", problem.m, strip.rows)
        number = fold("mul", down, across)
        count = parts if most else strip_parts.count(number, steps, strip.stages)
        found.append(strip_parts.way(most, strip, number, steps, strip.shared, _emit_strip, count))
    return by_rows.possible(spec, found)


def _counts(strip: Strip, problem: matrices.Problem) -> tuple[Expr, Expr]:
    """How many strips there are side by side, and steps of each."""
    return fold("ceildiv", problem.n, strip.each), fold("ceildiv", problem.k, strip.depth)


def _emit_strip(
    strip: Strip,
    frame: _frame.Frame,
    shared: mma.DynamicShared,
    number: Size,
    part: strip_parts.Part | None,
) -> None:
    problem = matrices.problem(frame.spec)
    m, n, k = (frame.size(x) for x in (problem.m, problem.n, problem.k))
    down = sizes.ceildiv(m, strip.rows)
    row, column = number % down * strip.rows, number // down * strip.each
    emit_strip_at(strip, frame, shared, outputs.Place(emit.index(0), row, column, m, n, k), part)


def emit_strip_at(
    strip: Strip,
    frame: _frame.Frame,
    shared: mma.DynamicShared,
    where: outputs.Place,
    part: strip_parts.Part | None = None,
) -> None:
    """Emits the strip at `where`, or a part of it, and the wait for the kernels in front."""
    if strip.rows > FEW:
        _block.share_multiprocessor(1)  # 64 sums and their operands do not fit 128 registers.
    row, column, m, n, k = where.row, where.column, where.m, where.n, where.k
    x_type, weight_type, scale_type = (operand.dtype for operand in frame.spec.operands[:3])
    each = 8 // strip.bits  # Weights of a byte.
    x = staging.Matrix(frame.inputs[0], x_type, 0, m, k)
    width = RUN * strip.kind.item
    rows = staging.Lines(x, 0, strip.rows, strip.x_line, strip.depth, row, True, width)
    products, steps = frame.products(), strip_parts.steps(sizes.ceildiv(k, strip.depth), part)
    of_weights = [
        staging.Matrix(product.inputs[1], weight_type, 0, n, sizes.floordiv(k, each))
        for product in products
    ]

    given = []
    for i, weights in enumerate(of_weights):
        place, line = strip.place + i * strip.each * strip.line, strip.line
        given.append(
            staging.Lines(weights, place, strip.each, line, line, column, True, strip.width)
        )
    warp = _block.thread() // _block.WARP
    across = strip.columns // outputs.WARP_COLUMNS
    slice_, first = warp // across, warp % across * outputs.WARP_COLUMNS
    lanes = _Lanes(strip, shared, slice_, first)
    whose = group_scales.Whose(
        pointers=[product.inputs[2] for product in products],
        dtype=scale_type,
        each=strip.each,
        first=first,
        column=column,
        n=n,
        k=k,
        group=strip.group,
        depth=strip.depth,
        turned=strip.turned,
    )
    scales = group_scales.of(whose, shared, strip.scales)
    given += scales.parts
    corrections = None
    if (number := minimums.number(frame.spec)) is not None:
        theirs = replace(
            whose, pointers=[product.inputs[number] for product in products], turned=True
        )
        least = group_scales.of(theirs, shared, strip.behind)
        given += least.parts
        corrections = _Corrections(strip, least, slice_)

    def multiply(step: Size, stage: Size, sums: Sequence[Any]) -> Sequence[Any]:
        groups = corrections.zeros() if corrections else []
        for start in range(0, strip.slice, strip.span):
            factors = scales.load(stage, step, slice_ * strip.slice + start)
            runs = range(start // RUN, (start + strip.span) // RUN)
            weights = [lanes.weights(stage, run) for run in runs]
            found: list[Any] = []
            for i in range(strip.tiles):
                x = [lanes.x(stage, run, i) for run in runs]
                total = lanes.products(x, weights)
                if corrections:
                    groups[i] = corrections.add(x, start // strip.span, groups[i])
                here = sums[len(found) : len(found) + len(total)]
                pairs = zip(total, factors, here, strict=True)
                found += [emit.fma(part, factor, before) for part, factor, before in pairs]
            sums = found
        return corrections(stage, step, groups, sums) if corrections else sums

    element = emit.register_type(strip.kind.sums)
    zeros = [emit.constant(element, 0)] * (strip.tiles * strip.sums)
    ring = staging.Ring(shared, strip.stages, strip.stage)
    sums = ring.stream(frame, [rows], given, steps, zeros, multiply)
    result = outputs.SlicedSums(
        shared, strip.kind.sums, strip.warps_along_k, strip.rows, strip.columns
    )
    whole = 2.0**-strip.weights.place
    store = result.store_turned if strip.turned else result.store
    store([part * whole for part in sums], slice_, first)
    _block.barrier()
    strip_parts.write(frame, where, result, part)


class _Corrections:
    """What minimums add to the sums of a stage, in the slice of a warp."""

    def __init__(
        self,
        strip: Strip,
        least: group_scales.StagedScales | group_scales.GroupScales,
        slice_: Size,
    ) -> None:
        self._strip, self._least = strip, least
        self._sums = minimums.GroupSums(strip.kind)
        own = minimums.own_group(strip.slice // strip.span)
        self._inner = slice_ * strip.slice + own * strip.span

    def zeros(self) -> list[list[Any]]:
        """The sums of x's groups before anything is added, for each tile of rows."""
        return [self._sums.zeros() for _ in range(self._strip.tiles)]

    def add(self, x: Sequence[Any], group: int, sums: list[Any]) -> list[Any]:
        """`sums` of a tile and what `_Lanes.x` has of some runs, which are of that group.

        Eight rows take the place of 16: another four pairs along k are the other ones.
        """
        for run in x:
            if self._strip.turned:
                ((first, second, third, fourth),) = run
                sums = self._sums.add([first, third, second, fourth], group, sums)
                continue
            low, high = run
            for pair in (0, 2):
                a = [low[pair], high[pair], low[pair + 1], high[pair + 1]]
                sums = self._sums.add(a, group, sums)
        return sums

    def __call__(
        self, stage: Size, step: Size, groups: list[list[Any]], sums: Sequence[Any]
    ) -> list[Any]:
        """`sums` of all tiles, and what minimums make of those of x's `groups`."""
        stored = self._least.of_columns(stage, step, self._inner)
        words = [minimums.word(value, self._strip.kind) for value in stored]
        if self._strip.turned:
            ((above, _, below, _),) = groups
            return minimums.add_to_rows(sums, words, above + below)
        found: list[Any] = []
        for total, _, below, _ in groups:
            here = sums[len(found) : len(found) + self._strip.sums]
            found += minimums.add_to_columns(here, words, (total, below))
        return found


class _Lanes:
    """What the lanes of a warp hold: fragments of x and weights, made from a stage."""

    def __init__(self, strip: Strip, shared: mma.DynamicShared, slice_: Size, first: Size) -> None:
        self._strip, self._shared = strip, shared
        lane = _block.thread() % _block.WARP
        self._line, self._member = lane // 4, lane % 4
        self._run, self._first = slice_ * (strip.slice // RUN), first

    def x(self, stage: Size, run: int, i: int) -> list[list[Any]]:
        """The four pairs along k of rows 16 i + 0 to 7, and of eight rows after them, if any."""
        found = []
        for half in range(1 if self._strip.turned else 2):
            line = self._line + 16 * i + 8 * half
            chunk = (self._run + run) * (RUN * self._strip.kind.item // mma.CHUNK) + self._member
            length = self._strip.x_line
            place = staging.swizzled(line, chunk, length, RUN * self._strip.kind.item)
            words = self._load(stage + line * length + place * mma.CHUNK, 4)
            if self._strip.weights.is_float:
                found.append(words)
                continue
            apart = 2 if self._strip.bits == 4 else 1
            pairs = [(words[j], words[j + apart]) for j in range(4) if not j & apart]
            found.append([half for pair in pairs for half in halves_of(*pair)])
        return found

    def weights(self, stage: Size, run: int) -> list[list[Any]]:
        """The four pairs along k of each of the four columns of a lane."""
        strip, found = self._strip, []
        lane_bytes = _EACH * strip.bits // 8
        for j in range(_ALL):
            line = self._first + self._line + 8 * j
            at = (self._run + run) * strip.width + self._member * lane_bytes
            chunk, rest = at // mma.CHUNK, at % mma.CHUNK
            place = staging.swizzled(line, chunk, strip.line, strip.width) * mma.CHUNK
            start = stage + strip.place + line * strip.line + place + rest
            words = self._load(start, lane_bytes // 4)
            found.append([pair for word in words for pair in strip.weights.sorted(word)])
        return found

    def _load(self, place: Size, words: int) -> list[Any]:
        return _block.lanes(self._shared.load(place, emit.integer(32), words))

    def products(self, x: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        """The products of a tile's rows and the warp's columns over some runs."""
        sides = [self._sides(*run) for run in zip(x, weights, strict=True)]
        zero = emit.constant(emit.register_type(self._strip.kind.sums), 0)
        found: list[Any] = []
        for j in range(len(sides[0])):
            sums = [zero] * 4
            for run in sides:
                for pair in (0, 2):
                    (low, high), few = run[j]
                    a = [low[pair], high[pair], low[pair + 1], high[pair + 1]]
                    sums = mma.multiply(self._strip.kind, a, few[pair : pair + 2], sums)
            found += sums
        return found

    def _sides(self, x: Sequence[Any], weights: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Pairs of what mma.sync multiplies: two times eight lines, and eight."""
        if self._strip.turned:
            return [(weights[j : j + 2], x[0]) for j in range(0, _ALL, 2)]
        return [(x, columns) for columns in weights]
