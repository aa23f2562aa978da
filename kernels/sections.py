"""Rows that are read in four places at once, where one place leaves memory idle.

A core reads from one place no faster than its prefetchers ask for there, and they stop at the end
of each page. Four places, pages apart, keep four of them busy. Rows that are reduced one by one
need that without AVX-512 (measured on Zen 3), columns with it, too (on Zen 5).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heddle.kernels import bodies, emit, sizes
from heddle.kernels.host import Frame
from heddle.kernels.sizes import Size

PLACES = 4


def rows_together(frame: Frame, work: Callable[[Sequence[Any]], None]) -> Any:
    """Emits `work(rows)` of `PLACES` rows of the frame's tasks, from as many sections of them.

    Returns the first of the tasks that are left: all of them where registers have 64 bytes, or a
    long prologue lets memory wait.
    """
    if frame.machine.vector_bytes != 32 or bodies.long(frame.spec.prologue):
        return frame.first
    return in_places(frame.first, frame.last, work)


def in_places(first: Size, last: Size, work: Callable[[Sequence[Any]], None]) -> Size:
    """Emits `work(rows)` of `PLACES` of the rows from `first` on; returns the first one left."""
    each = sizes.floordiv(last - first, PLACES)
    for row in emit.loop(first, first + each):
        work([row + place * each for place in range(PLACES)])
    return first + each * PLACES
