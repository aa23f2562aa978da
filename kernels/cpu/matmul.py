"""a @ b by a b that is read where it lies: to pack it would take longer.

A task is some rows by a block of columns, whose sums stay in registers along k: the fewer rows, the
more columns, so that b is read in long stretches of its rows. As those lie far apart, what comes
some steps later is asked for. A sum takes its products in the order of k, so that a row's bits do
not depend on the others. By a transposed b sums of a few rows, or of a few columns, are made along
k instead (`products.lines`): in another order, which does not depend on other rows either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from heddle.kernels import bodies, emit, host, memory, rows, sizes
from heddle.kernels.cpu.products import lines, unpacked
from heddle.kernels.memory import LINE
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

DTYPES = ("float32", "float64")
"""Of both sides."""

FEW = 12
"""Rows that are few, at most: by two vectors of columns they fill the registers of AVX-512, as half
of them do those of AVX2, which goes through a block twice."""

WIDE = 8
"""Lines of a row of b that a block of a few rows has at most."""

STRIP = 2
"""Those that a block of more rows has: a tile of registers then has many rows."""

MOST, LEAST = 96, {False: 28, True: 64}
"""Rows of a task at most, and at least where they are shared out: more if b is to be turned."""

TASKS = 16
"""Tasks that a product has if its rows suffice, so that threads end together."""

LINES = 8
"""Columns of a transposed b that are few, at most: its lines and those of a are multiplied."""

FLAT = 16
"""Columns of a product with a transposed left side that are few, at most: rows of the product that
is turned as a whole, by that side as it lies."""

LATE = 1 << 24
"""Products of elements at most by a b that is not known before the call; half as many by one that
is to be turned. Beyond, it is better packed."""

MEDIUM, MEDIUM_SIDE = 64, 1 << 19
"""Rows at most by a larger one, if that stays in a second cache, and its elements."""

EARLY = 1 << 25
"""The same by a b that would be packed before the call."""

LATE_LEFT = 1 << 25
"""The same by columns of a left side that would be turned by a kernel in front."""

NARROW, SHALLOW = 72, 48
"""Columns, or rows, of a b known early at most: panels, and tiles of AMX, would be partly empty."""


def pays(shape: tuple[int | None, int | None, int | None], turned: bool, early: bool) -> bool:
    """Whether m rows of k elements, n columns, are faster so than by panels; None is not known.

    The right side is known `early`, so that panels cost nothing, or it is to be `turned`.
    """
    m, k, n = shape
    if n is not None and n <= LINES:
        return True
    if m is not None and m <= FEW:
        return not early
    if m is None or k is None or n is None:
        return False
    if early:
        return (n <= NARROW or k <= SHALLOW) and m * k * n <= EARLY
    if turned:
        return m * k * n <= LATE // 2
    return m * k * n <= LATE or (m <= MEDIUM and k * n <= MEDIUM_SIDE)


def emit_matmul(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks."""
    frame = host.frame(spec, machine)
    dtype, (_, m, k) = spec.operands[0].dtype, frame.shape(_extents(spec))
    lanes = host.lanes_for(machine, [dtype])
    finish, cut, transposed = rows.Finish(frame, lanes), cut_of(spec), bool(spec.attr("transposed"))
    n = finish.length
    parts, blocks = sizes.ceildiv(m, cut.rows), sizes.ceildiv(n, cut.columns)
    across, along = (1, m) if spec.attr("turned") else (k, 1)
    for task in emit.loop(frame.first, frame.last):
        item, number, block = sizes.split(task, (1, parts, blocks))
        top, column = number * cut.rows, block * cut.columns
        row = item * m + top
        left = memory.at(frame.inputs[0], item * (m * k) + top * across, dtype)
        right = memory.at(frame.inputs[1], item * (k * n), dtype)
        if along_k(spec):
            pairs = lines.Lines(left, right, dtype, k, n, lanes)
            span = column, sizes.least(column + cut.columns, n)
            for height in unpacked.counts(m, cut.rows, number):
                known = height if isinstance(m, int) else sizes.least(height, m - top)
                pairs.multiply(known, span, partial(_row, finish, row))
            continue
        sides = left, across, along, right, dtype, k, n, transposed, row
        for height in unpacked.counts(m, cut.rows, number):
            for width in unpacked.counts(n, cut.columns, block):
                for columns in _strips(finish, height, column, width):
                    part = unpacked.Part(*sides, columns, lanes)
                    unpacked.Strip(finish, part, height).multiply()


def _row(finish: rows.Finish, top: Size, number: Size) -> Callable[..., None]:
    """What writes row `number` behind row `top`."""
    return finish.row(top + number)


def _strips(
    finish: rows.Finish, height: int, first: Size, width: int
) -> Iterator[list[tuple[Size, Any]]]:
    """The vectors of `width` columns from the first on, with masks, in strips for so many rows."""
    n, lanes = finish.length, finish.lanes
    registers = finish.frame.machine.vector_bytes // 2
    most = _vectors(min(height, unpacked.rows_fitting(2, registers)), registers) * lanes
    for begin in range(0, width, most):
        found = []
        for at in range(begin, min(begin + most, width), lanes):
            whole = isinstance(n, int) and at + lanes <= width
            found.append((first + at, None if whole else finish.mask(first + at, n, lanes)))
        yield found


def along_k(spec: Spec) -> bool:
    """Whether sums are made along k: of lines of both sides, one of which has few."""
    m, n = _extents(spec)[1], spec.result.shape[-1]
    few = isinstance(m, int) and m <= FEW
    if spec.attr("turned") or not spec.attr("transposed"):
        return False
    return few or (isinstance(n, int) and n <= LINES)


def _vectors(rows: int, registers: int) -> int:
    """Vectors of columns that fit in registers with their sums by so many rows, and one of a."""
    return (registers - 1) // (rows + 1)


@dataclass(frozen=True)
class Cut:
    """Rows, and columns, of a task."""

    rows: int
    columns: int


def cut_of(spec: Spec) -> Cut:
    """How a product's rows and columns are shared out: evenly, and columns in whole lines."""
    m, n = _extents(spec)[1], spec.result.shape[-1]
    line = LINE // emit.ITEM_SIZE[spec.operands[0].dtype]
    if not isinstance(m, int):
        return Cut(MOST, STRIP * line)
    if m > FEW:
        across = max(1, -(-n // (STRIP * line))) if isinstance(n, int) else 1
        least = LEAST[bool(spec.attr("transposed"))]
        parts = max(-(-m // MOST), min(-(-TASKS // across), m // least))
        return Cut(-(-m // parts), STRIP * line)
    most = min(WIDE, _vectors(max(m, 1), 32))
    if isinstance(n, int) and n > 0:
        many = -(-n // line)
        most = -(-many // -(-many // most))
    return Cut(max(m, 1), most * line)


def _extents(spec: Spec) -> tuple[Expr, Expr, Expr]:
    """Batch, m and k; a b without leading dims makes all of a's rows one m.

    A turned a is [..., k, m], and b has its leading dims.
    """
    *leading, m, k = spec.operands[0].shape
    if spec.attr("turned"):
        return product(tuple(leading)), k, m
    if len(spec.operands[1].shape) > 2:
        return product(tuple(leading)), m, k
    return 1, product((*leading, m)), k


def launch(spec: Spec) -> Launch:
    """One task for some rows by a block of columns of each batch."""
    (batch, m, k), n, cut = _extents(spec), spec.result.shape[-1], cut_of(spec)
    tasks = product((batch, fold("ceildiv", m, cut.rows), fold("ceildiv", n, cut.columns)))
    # A core multiplies and adds some four times as fast as it does anything else.
    each = fold("add", fold("ceildiv", k, 2), bodies.work(spec.epilogue))
    read = product((*spec.operands[1].shape, emit.ITEM_SIZE[spec.operands[1].dtype]))
    return Launch((tasks, 1, 1), fold("max", product((batch, m, n, each)), read))


def supports(spec: Spec) -> str | None:
    """float32 and float64, both sides alike; a known number of rows, or few columns along k."""
    dtypes = {operand.dtype for operand in spec.operands}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        return f"wanted float32 or float64 on both sides, got {' and '.join(sorted(dtypes))}"
    left, right = (operand.shape[:-2] for operand in spec.operands[:2])
    if spec.attr("turned") and left != right:
        return f"beside a turned left side wanted {list(left)} in front of the right one's rows"
    m = _extents(spec)[1]
    if not isinstance(m, int) and not along_k(spec):
        return f"wanted a known number of rows, got {m}"
    if spec.prologue or spec.beside or spec.source or spec.gate:
        return "it takes no prologue, and no product beside it"
    return bodies.unsupported(spec.epilogue)


KERNEL = Kernel("matmul", "cpu", emit_matmul, launch, supports, overwrites="epilogue")
