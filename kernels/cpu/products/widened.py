"""Weights that stay widened: the first tile of a block keeps its pairs for the tiles below it."""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit, host, memory
from heddle.kernels.cpu.products.blocks import PANEL, Tile
from heddle.kernels.cpu.products.narrow_weights import Reader
from heddle.kernels.mlir import dialect
from heddle.kernels.sizes import Size

vector = dialect("vector")


class Pairs:
    """Room for `length` elements along k of a panel, in pairs of bfloat16."""

    def __init__(self, length: int, lanes: int) -> None:
        self._words, self._lanes = host.byte_buffer(length * PANEL * 2), lanes

    def places(self, tile: Tile, k: Size, number: int) -> list[Size]:
        """Where both vectors are of pair `number` behind element `k`."""
        first = (k // 2 + number) * PANEL + tile.part
        return [first, first + self._lanes]

    def store(self, pairs: Any, place: Size) -> None:
        """Keeps pairs at a place."""
        words = vector.bitcast(emit.widen(emit.integer(32), self._lanes), pairs)
        memory.store(words, self._words, place, "uint32", alignment=4 * self._lanes)

    def load(self, place: Size) -> Any:
        """The pairs that were kept at a place."""
        return memory.load(self._words, place, "uint32", self._lanes, alignment=4 * self._lanes)


class Keeping:
    """Pairs as `right` widens them, which are kept; a stretch begins with element `start`."""

    def __init__(self, right: Reader, kept: Pairs, start: Size) -> None:
        self._right, self._kept, self._start = right, kept, start

    def start(self, tile: Tile, k: Size) -> None:
        """Turns to the eight elements along k from `k` on."""
        self._tile, self._k = tile, k - self._start
        self._right.start(tile, k)

    def pairs(self, number: int) -> list[Any]:
        """Pair `number` along k of each column, as bfloat16 in words of 32 bits."""
        found = self._right.pairs(number)
        places = self._kept.places(self._tile, self._k, number)
        for pairs, place in zip(found, places, strict=True):
            self._kept.store(pairs, place)
        return found


class Kept:
    """The pairs that `Keeping` kept of the stretch that begins with element `start`."""

    def __init__(self, kept: Pairs, start: Size) -> None:
        self._kept, self._start = kept, start

    def start(self, tile: Tile, k: Size) -> None:
        """Turns to the eight elements along k from `k` on."""
        self._tile, self._k = tile, k - self._start

    def pairs(self, number: int) -> list[Any]:
        """Pair `number` along k of each column, as bfloat16 in words of 32 bits."""
        return [self._kept.load(place) for place in self._kept.places(self._tile, self._k, number)]
