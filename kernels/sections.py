"""Rows that are read in four places at once, where one place leaves memory idle.

A core without AVX-512 (measured on Zen 3) reads from one place no faster than its prefetchers ask
for there, and they stop at the end of each page. Four places, pages apart, keep four of them busy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heddle.kernels import bodies, emit, sizes
from heddle.kernels.host import Frame

PLACES = 4


def rows_together(frame: Frame, work: Callable[[Sequence[Any]], None]) -> Any:
    """Emits `work(rows)` of `PLACES` rows of the frame's tasks, from as many sections of them.

    Returns the first of the tasks that are left: all of them where registers have 64 bytes, or a
    long prologue lets memory wait.
    """
    if frame.machine.vector_bytes != 32 or bodies.long(frame.spec.prologue):
        return frame.first
    each = sizes.floordiv(frame.last - frame.first, PLACES)
    for row in emit.loop(frame.first, frame.first + each):
        work([row + place * each for place in range(PLACES)])
    return frame.first + each * PLACES
