"""Pairs of each row turned by the angles whose cosines and sines are given (arXiv:2104.09864).

A task is one row. Pairs are the two halves of what is turned of a row, or neighbours, which are
taken apart in registers; what is behind them is copied. cos and sin broadcast along the rows;
16-bit floats are computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import bodies, crosslane, emit, host, memory, rows
from heddle.kernels.broadcast import join
from heddle.kernels.emit import fma
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Body, Launch, Spec, Step


def launch(spec: Spec) -> Launch:
    """One task for each row."""
    return rows.launch(spec, 8)


def emit_rope(spec: Spec, machine: Machine) -> None:
    """Emits the loop over rows, in one of the two forms."""
    frame = host.frame(spec, machine)
    x, *tables = spec.operands
    half, size = (frame.size(operand.shape[-1]) for operand in (tables[0], x))
    body = angles(spec)
    lanes = host.lanes_for(machine, [x.dtype], [body, spec.epilogue])
    layout = join((*x.shape[:-1], half), tables, keep_last=True)
    turns = rows.Computed(frame, body, frame.inputs[1:3], layout, lanes)
    pairs = Pairs(half, size, lanes, spec.attr("interleaved"))
    finish = rows.Finish(frame, pairs.width)
    finish.stream = finish.stream.aligned((half * pairs.width // lanes, size))
    for row in finish.stream.tasks():
        source = reader(frame.inputs[0], row * size, x.dtype)
        pairs.turn(source, turns.row(row), finish.row(row, streams=True))


def angles(spec: Spec) -> Body:
    """The body that gives cos and sin in the dtype that the pairs are turned in."""
    x, *tables = spec.operands
    if x.dtype == "float64" and tables[0].dtype != "float64":
        return Body(tuple(tables), tuple(Step("cast", (i,), "float64") for i in (0, 1)), (2, 3))
    return Body(tuple(tables), (), (0, 1))


def turned(a: Any, b: Any, cos: Any, sin: Any) -> tuple[Any, Any]:
    """The pair (a, b) after its turn."""
    return fma(a, cos, -(b * sin)), fma(b, cos, a * sin)


Load = Callable[[Any, int, Any], Any]
"""So many elements of a row from a column on, under a mask or None."""


def reader(pointer: Any, start: Any, dtype: str) -> Load:
    """Reads the row that starts at element `start`, and asks for what comes after it."""

    def load(column: Any, lanes: int, mask: Any) -> Any:
        place = start + column
        memory.prefetch(pointer, place + rows.AHEAD // emit.ITEM_SIZE[dtype], dtype)
        return memory.load(pointer, place, dtype, lanes, mask)

    return load


@dataclass(frozen=True)
class Pairs:
    """The `half` pairs of a row of `size` elements, `lanes` at a time.

    They are the halves of its first elements, or neighbours.
    """

    half: int
    size: int
    lanes: int
    neighbours: bool

    @property
    def width(self) -> int:
        """Elements of a row that are written at a time."""
        return 2 * self.lanes if self.neighbours else self.lanes

    def turn(
        self,
        load: Load,
        angles_at: Callable[[Any, Any], Sequence[Any]],
        store: Callable[[Any, Any, Any], None],
    ) -> None:
        """Emits a row's turn; `store(column, mask, value)` takes what becomes of all of it."""
        for i, mask in host.vectors(0, self.half, self.lanes):
            turn = self._neighbours if self.neighbours else self._halves
            turn(i, mask, load, angles_at(i, mask), store)
        for column, mask in host.vectors(2 * self.half, self.size, self.width):
            store(column, mask, load(column, self.width, mask))

    def _halves(self, i: Any, mask: Any, load: Load, angles: Sequence[Any], store: Any) -> None:
        columns = (i, i + self.half)
        pair = (load(column, self.lanes, mask) for column in columns)
        for column, value in zip(columns, turned(*pair, *angles), strict=True):
            store(column, mask, value)

    def _neighbours(self, i: Any, mask: Any, load: Load, angles: Sequence[Any], store: Any) -> None:
        width = self.width
        both = None if mask is None else host.first_lanes((i * -1 + self.half) * 2, width)
        x = load(i * 2, width, both)
        pair = (crosslane.shuffle(x, x, range(first, width, 2)) for first in (0, 1))
        a, b = turned(*pair, *angles)
        places = [number // 2 + number % 2 * self.lanes for number in range(width)]
        store(i * 2, both, crosslane.shuffle(a, b, places))


def supports(spec: Spec) -> str | None:
    """Floats."""
    if not emit.is_float(spec.operands[0].dtype):
        return f"wanted floats, got {spec.operands[0].dtype}"
    return bodies.unsupported(spec.epilogue)


KERNEL = Kernel("rope", "cpu", emit_rope, launch, supports)
