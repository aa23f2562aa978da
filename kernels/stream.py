"""Stores past the cache, for results that are larger than it.

An ordinary store reads its line before it writes to it; a non-temporal one puts the line in memory
without. It wants whole aligned vectors, and loses where the next kernel would have found the result
in cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.host import Frame
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Operand

llvm = dialect("llvm")

LARGE = 32 * 2**20
"""Bytes of outputs from which on they go past the cache: the last cache of a few cores."""

COSTLY = 8 * 2**20
"""The same for results that no kernel reads, of kernels that keep the last cache busy with what
they read themselves."""


class Stream:
    """The vectors of a kernel's outputs, `lanes` elements each, and whether they go past the cache.

    The sizes decide, when the kernel is called: outputs of `LARGE` bytes and more do, or of
    `COSTLY` where they are `costly`, and of half as many where the lines of the result are `apart`:
    a store waits for each of them. Where what is `read` is given, so do those of fewer bytes that
    it drives out of the cache.
    """

    def __init__(
        self,
        frame: Frame,
        lanes: int,
        costly: bool = False,
        read: Sequence[Operand] = (),
        apart: bool = False,
    ) -> None:
        large = COSTLY if costly else LARGE // 2 if apart else LARGE
        self.frame, self.lanes = frame, lanes
        written = _bytes(frame, frame.spec.outputs)
        if read:
            written = sizes.greatest(written, sizes.floordiv(written + _bytes(frame, read), 2))
        self.past: Any = None
        if isinstance(written, int) and written < large:
            return
        places = [
            llvm.ptrtoint(emit.integer(64), pointer) // emit.ITEM_SIZE[operand.dtype]
            for pointer, operand in zip(frame.outputs, frame.spec.outputs, strict=True)
        ]
        self.place = places[0]
        self.past = emit.compare("greater_equal", emit.as_index(written), large)
        # A column that starts a vector of one output has to start one of the others as well.
        for place in places[1:]:
            apart = (place - self.place) % self.lanes
            self.past = self.past & emit.compare("equal", apart, 0)

    def tasks(self) -> Iterator[Any]:
        """Emits the Python body of a `for task in` this over the frame's tasks."""
        yield from emit.loop(self.frame.first, self.frame.last)
        self.fence()

    def fence(self) -> None:
        """Lets whoever waits for the tasks see the stores past the cache as well."""
        if self.past is not None:
            llvm.call_intrinsic(None, "llvm.x86.sse.sfence", [], [], [])

    def whole(self, start: Size, stop: Size, base: Size) -> tuple[Size, Size]:
        """The columns between which whole vectors lie that `store` takes.

        Column 0 is element `base` of each output.
        """
        if self.past is None:
            return start, stop - sizes.mod(stop - start, self.lanes)
        start, stop = emit.as_index(start), emit.as_index(stop)
        ahead = (emit.index(0) - (self.place + base + start)) & (self.lanes - 1)
        low = emit.minimum(start + emit.select(self.past, ahead, 0), stop)
        return low, stop - ((stop - low) & (self.lanes - 1))

    def edge(self, low: Size, high: Size, write: Callable[[Any, Any], None]) -> None:
        """`write(column, mask)` of the columns from `low` to `high`, fewer than a vector's."""
        if isinstance(low, int) and isinstance(high, int) and low == high:
            return
        low = emit.as_index(low)
        with emit.when(emit.compare("less", low, high)):
            write(low, host.first_lanes(high - low, self.lanes))

    def vectors(self, start: Size, stop: Size, base: Size) -> Iterator[tuple[Any, Any]]:
        """As `host.vectors`, for `store`; column 0 is element `base` of each output."""
        for i, mask, _ in self.runs(start, stop, base, 1):
            yield i, mask

    def runs(
        self, start: Size, stop: Size, base: Size, together: int
    ) -> Iterator[tuple[Any, Any, int]]:
        """As `vectors`, with how many vectors it is at a time: `together`, and 1 for the rest."""
        low, high = (start, stop) if self.past is None else self.whole(start, stop, base)
        follow = low
        if together > 1:
            follow = high - sizes.mod(high - low, together * self.lanes)
            for i in emit.loop(low, follow, together * self.lanes):
                yield i, None, together
        if self.past is None:
            yield from ((*each, 1) for each in host.vectors(follow, stop, self.lanes))
            return
        for i in emit.loop(follow, high, self.lanes):
            yield i, None, 1
        for edge in emit.loop(0, 2):
            first = emit.compare("equal", edge, 0)
            begin, end = emit.select(first, start, high), emit.select(first, low, stop)
            with emit.when(emit.compare("less", begin, end)):
                yield begin, host.first_lanes(end - begin, self.lanes), 1

    def store(self, value: Any, pointer: Any, place: Any, dtype: str, mask: Any) -> None:
        """Writes a vector of `vectors`: a whole one past the cache, where the results are large."""

        def write(past: bool) -> list[Any]:
            memory.store(value, pointer, place, dtype, mask, past=past)
            return []

        if mask is None:
            self.either(write)
        else:
            write(False)

    def aligned(self, starts: Sequence[Size]) -> Stream:
        """A stream for whole vectors at elements that are sums of multiples of `starts`.

        They go past the cache where all of them are aligned: `vectors` need not be asked for them.
        """
        found = copy(self)
        if self.past is not None:
            for start in (self.place, *starts):
                apart = emit.as_index(start) & (self.lanes - 1)
                found.past = found.past & emit.compare("equal", apart, 0)
        return found

    def either(self, write: Callable[[bool], Sequence[Any]]) -> Sequence[Any]:
        """`write(past)` of whole vectors that are `aligned`."""
        if self.past is None:
            return write(False)
        return emit.either(self.past, [], lambda: write(True), lambda: write(False))


def _bytes(frame: Frame, operands: Sequence[Operand]) -> Size:
    total: Size = 0
    for operand in operands:
        total = sizes.product(frame.shape(operand.shape)) * emit.ITEM_SIZE[operand.dtype] + total
    return total
