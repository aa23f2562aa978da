"""Pairs of each row turned by the angles whose cosines and sines are given (arXiv:2104.09864).

A task is one row. Pairs are the two halves of a row, or neighbours, which are taken apart in
registers. cos and sin broadcast along the rows; 16-bit floats are computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable
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
    half = frame.size(x.shape[-1]) // 2
    body = angles(spec)
    lanes = host.lanes_for(machine, [x.dtype], [body, spec.epilogue])
    layout = join((*x.shape[:-1], half), tables, keep_last=True)
    turns = rows.Computed(frame, body, frame.inputs[1:3], layout, lanes)
    turn_row = (_neighbours if spec.attr("interleaved") else _halves)(frame, half, lanes)
    for row in emit.loop(frame.first, frame.last):
        turn_row(row, turns.row(row))


def angles(spec: Spec) -> Body:
    """The body that gives cos and sin in the dtype that the pairs are turned in."""
    x, *tables = spec.operands
    if x.dtype == "float64" and tables[0].dtype != "float64":
        return Body(tuple(tables), tuple(Step("cast", (i,), "float64") for i in (0, 1)), (2, 3))
    return Body(tuple(tables), (), (0, 1))


def turned(a: Any, b: Any, cos: Any, sin: Any) -> tuple[Any, Any]:
    """The pair (a, b) after its turn."""
    return fma(a, cos, -(b * sin)), fma(b, cos, a * sin)


_TurnRow = Callable[[Any, Callable[..., list[Any]]], None]


def _halves(frame: host.Frame, half: int, lanes: int) -> _TurnRow:
    dtype, finish = frame.spec.operands[0].dtype, rows.Finish(frame, lanes)

    def turn_row(row: Any, angles_at: Callable[..., list[Any]]) -> None:
        out_at = finish.row(row)
        for i, mask in host.vectors(0, half, lanes):
            columns = (i, i + half)
            pair = (
                memory.load(frame.inputs[0], row * (2 * half) + column, dtype, lanes, mask)
                for column in columns
            )
            for column, value in zip(columns, turned(*pair, *angles_at(i, mask)), strict=True):
                out_at(column, mask, value)

    return turn_row


def _neighbours(frame: host.Frame, half: int, lanes: int) -> _TurnRow:
    dtype, finish = frame.spec.operands[0].dtype, rows.Finish(frame, 2 * lanes)
    places = [number // 2 + number % 2 * lanes for number in range(2 * lanes)]

    def turn_row(row: Any, angles_at: Callable[..., list[Any]]) -> None:
        out_at = finish.row(row)
        for i, mask in host.vectors(0, half, lanes):
            both = None if mask is None else host.first_lanes((i * -1 + half) * 2, 2 * lanes)
            start = row * (2 * half) + i * 2
            x = memory.load(frame.inputs[0], start, dtype, 2 * lanes, both)
            pair = (crosslane.shuffle(x, x, range(first, 2 * lanes, 2)) for first in (0, 1))
            a, b = turned(*pair, *angles_at(i, mask))
            out_at(i * 2, both, crosslane.shuffle(a, b, places))

    return turn_row


def supports(spec: Spec) -> str | None:
    """Floats."""
    if not emit.is_float(spec.operands[0].dtype):
        return f"wanted floats, got {spec.operands[0].dtype}"
    return bodies.unsupported(spec.epilogue)


KERNEL = Kernel("rope", "cpu", emit_rope, launch, supports)
