"""How strips by weights of 8 and 4 bits are cut: columns of each, and parts of those along k."""

from __future__ import annotations

from dataclasses import replace

from heddle.kernels.cuda import _handover
from heddle.kernels.cuda.products import matrices
from heddle.kernels.cuda.products.scaled_strip import Strip

_MOST_PARTS = 4
_LEAST_STEPS = 8  # Of a part: among other kernels, shorter ones are slower than the strip whole.

# In nanoseconds, as fitted to an H200 for one row: a step of a strip of so many columns by weights
# of so many bits, and what it takes to bring parts together.
_STEP = {4: {32: 240, 64: 390, 128: 690}, 8: {32: 300, 64: 490, 128: 1360}}
_MEETING = 1500.0


def best(strip: Strip, problem: matrices.Problem) -> tuple[Strip, int]:
    """The strip with as many columns, and parts of each along k, as are estimated to be fastest.

    128 columns where those fill all multiprocessors: what bounds strips is instructions, of which
    there are fewer where more columns share a row of x. 8-bit floats of a product and its gate
    would take registers for one block on each then.
    """
    gated, n, k = strip.products > 1, problem.n, problem.k
    narrow = gated and strip.weights.is_float
    if not isinstance(n, int):
        return replace(strip, columns=64 if gated else 32), 1
    if not narrow and n * strip.products >= 128 * _handover.PROCESSORS:
        return replace(strip, columns=128), 1
    most = 1
    if isinstance(k, int):
        most = min(_MOST_PARTS, max(1, k // (_LEAST_STEPS * strip.depth)))
    possible = [
        (replace(strip, columns=columns), parts)
        for parts in range(1, most + 1)
        for columns in (32, 64, 128)
        if not (gated and columns == 32) and not (narrow and columns == 128)
    ]
    return min(possible, key=lambda cut: _time(cut[0], cut[1], problem))


def _time(strip: Strip, parts: int, problem: matrices.Problem) -> float:
    """An estimate in nanoseconds of what strips in so many parts take."""
    n, k = map(matrices.known, (problem.n, problem.k))
    waves = max(1.0, -(-n // strip.each) * parts / _handover.PROCESSORS)
    steps = -(-k // (strip.depth * parts))
    meeting = _MEETING if parts > 1 else 0.0
    if strip.bits == 4:  # Bound by instructions; 8 bits by memory, in whose time parts meet.
        meeting *= waves
    return waves * steps * _STEP[strip.bits][strip.columns] + meeting
