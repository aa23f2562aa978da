"""Where a block's keys and values are for `wide`, and which of a row's keys each query sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit, memory
from heddle.kernels.cpu.amx.tiles import TILE_ROWS
from heddle.kernels.emit import compare
from heddle.kernels.mlir import dialect

arith, llvm = dialect("arith"), dialect("llvm")


@dataclass(frozen=True)
class Sides:
    """Where tiles of a block's keys and values are: addresses, and the bytes from row to row.

    They are [tiles, 4] on the stack.
    """

    places: Any

    def put(self, number: Any, places: Sequence[Any]) -> None:
        """Notes where tile `number` is: its keys, their distance, its values, their distance."""
        for n, place in enumerate(places):
            memory.store(place, self.places, number * 4 + n, "int64")

    def keys(self, number: Any) -> tuple[Any, Any]:
        """Where 16 keys are."""
        return self._at(number * 4)

    def values(self, number: Any) -> tuple[Any, Any]:
        """Where their values are."""
        return self._at(number * 4 + 2)

    def noted(self, number: Any) -> list[Any]:
        """What was noted of a tile."""
        return [memory.load(self.places, number * 4 + n, "int64") for n in range(4)]

    def _at(self, place: Any) -> tuple[Any, Any]:
        address, apart = (memory.load(self.places, place + n, "int64") for n in range(2))
        return llvm.inttoptr(emit.pointer_type(), address), apart


@dataclass(frozen=True)
class Limits:
    """The keys that each query sees, from and to, on the stack as int32."""

    low: Any
    high: Any

    def put(self, r: Any, low: Any, high: Any) -> None:
        """Notes them for query `r`."""
        for side, value in ((self.low, low), (self.high, high)):
            memory.store(arith.trunci(emit.integer(32), emit.as_index(value)), side, r, "int32")

    def of(self, row: Any) -> tuple[Any, Any]:
        """Those of 16 queries from `row` on, in lanes."""
        low, high = (memory.load(side, row, "int32", TILE_ROWS) for side in (self.low, self.high))
        return low, high

    def ends(self, first: Any, last: Any) -> tuple[Any, Any]:
        """The keys that any query from `first` to `last` sees, from and to."""
        low, high = memory.load(self.low, first, "int32"), memory.load(self.high, last, "int32")
        wide = emit.integer(64)
        return arith.extsi(wide, low), arith.extsi(wide, high)

    def all_see(self, first: Any, last: Any, start: Any, stop: Any) -> Any:
        """Whether all of them see the keys from `start` to `stop - 1`."""
        low, high = self.ends(last, first)
        return compare("less_equal", low, start) & compare("greater_equal", high, stop)
