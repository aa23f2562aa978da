"""Pairs of each row turned by the angles whose cosines and sines are given (arXiv:2104.09864).

The grid sweeps over the pairs, in vectors of them. What is behind those that are turned is copied
as pairs as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from heddle.kernels import bodies, convert, crosslane, emit, sizes
from heddle.kernels.cuda import _frame
from heddle.kernels.emit import fma
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Expr, Launch, Operand, Spec, fold, product

Load = Callable[[Any], Any]
"""Loads vectors at an offset."""


def emit_rope(spec: Spec, machine: Machine) -> None:
    """Emits the sweep, in one of the two forms."""
    frame = _frame.frame(spec, machine)
    x, write = frame.reader(0), frame.writer()
    tables, shape = spec.operands[1:], _pairs(spec)
    pairs = Pairs.of(frame, spec.operands[0], tables[0])
    angles = _frame.Inputs(frame, (*shape[:-1], pairs.half), tables, frame.inputs[1:3])

    def turn(position: Any, lanes: int) -> None:
        row, first = (f(position, pairs.count) for f in (sizes.floordiv, sizes.mod))
        number = position - row * (pairs.count - pairs.half)  # Among those that are turned.

        def load_angles(offset: Any) -> list[Any]:
            values = angles.load(number + offset, lanes, (row, first + offset))
            return [
                convert.cast(value, operand.dtype, _wide(x.dtype))
                for value, operand in zip(values, tables, strict=True)
            ]

        def place(offset: Any) -> Any:
            start = position * 2 if pairs.neighbours else row * (2 * pairs.count) + first
            return start + offset

        moved = pairs.turn(first, lanes, load_angles, lambda offset: x(place(offset), lanes))
        for offset, value in moved:
            write(value, place(offset))

    def body(lanes: int) -> None:
        for position in _frame.sweep(frame.size(product(shape)), lanes):
            turn(position, lanes)

    _frame.in_vectors(frame, [angles, x.inputs, write.inputs], pairs.lengths, body)


@dataclass(frozen=True)
class Pairs:
    """The `count` pairs of a row, of which the first `half` are turned.

    Those that are turned are neighbours, or the halves of what they are in; so are the others.
    """

    half: int
    count: int
    neighbours: bool

    @staticmethod
    def of(frame: _frame.Frame, x: Operand, table: Operand) -> Pairs:
        """The pairs of the rows of an operand, by one of the tables."""
        half, size = (frame.size(operand.shape[-1]) for operand in (table, x))
        return Pairs(half, size // 2, frame.spec.attr("interleaved"))

    @property
    def lengths(self) -> tuple[int, int]:
        """Vectors are whole where their length divides both."""
        return self.half, self.count - self.half

    def column(self, first: Any) -> Any:
        """Where the first vector of the pairs from `first` on begins, where they are turned."""
        return first * 2 if self.neighbours else first

    def turn(self, first: Any, lanes: int, angles: Load, load: Load) -> Iterator[tuple[Any, Any]]:
        """What becomes of the pairs from `first` on: two vectors, each behind its offset.

        `load` gives a vector at an offset from `column`, `angles` those at one from `first`.
        """
        turns = emit.compare("less", first, self.half) if self.half < self.count else None

        def either(turned: Any, copied: Any) -> Any:
            return turned if turns is None else emit.select(turns, emit.as_index(turned), copied)

        cos, sin = angles(either(0, self.half - lanes - first))
        offset, apart = 0, lanes
        if not self.neighbours:
            offset, apart = either(0, self.half), either(self.half, self.count - self.half)
        offsets = (offset, offset + apart)
        values = [load(offset) for offset in offsets]
        results = turned(values, cos, sin, self.neighbours)
        for offset, value, result in zip(offsets, values, results, strict=True):
            yield offset, either(result, value)


def turned(values: list[Any], cos: Any, sin: Any, neighbours: bool) -> list[Any]:
    """Two vectors of a row, the first and the second ones of its pairs or neighbours, turned."""
    lanes = emit.lanes_of(cos)
    a, b = _exchanged(values, lanes, True) if neighbours else values
    values = [fma(a, cos, -(b * sin)), fma(b, cos, a * sin)]
    return _exchanged(values, lanes, False) if neighbours else values


def _exchanged(values: list[Any], lanes: int, separate: bool) -> list[Any]:
    """Neighbours in two vectors as the first and the second ones of pairs, or back again."""
    if lanes == 1:
        return values
    order = [*range(0, 2 * lanes, 2), *range(1, 2 * lanes, 2)]
    if not separate:
        order = [number // 2 + number % 2 * lanes for number in range(2 * lanes)]
    first, second = values
    return [crosslane.shuffle(first, second, part) for part in (order[:lanes], order[lanes:])]


def _wide(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def _pairs(spec: Spec) -> tuple[Expr, ...]:
    """The shape of x, in pairs."""
    *outer, size = spec.operands[0].shape
    return (*outer, fold("floordiv", size, 2))


def launch(spec: Spec) -> Launch:
    """Blocks enough for four pairs in each thread."""
    shape = _pairs(spec)
    work = fold("mul", product(shape), 8 + 2 * bodies.work(spec.epilogue))
    return Launch(_frame.sweep_grid(shape), work, (_frame.THREADS, 1, 1))


def supports(spec: Spec) -> str | None:
    """Floats, with any body after them."""
    if not emit.is_float(spec.operands[0].dtype):
        return f"rope of {spec.operands[0].dtype}"
    return bodies.unsupported(spec.epilogue)


KERNEL = Kernel("rope", "cuda", emit_rope, launch, supports)
