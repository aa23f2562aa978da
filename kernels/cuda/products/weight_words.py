"""Weights of 8 and 4 bits as floats of 16 bits, two in a word: exact, but for a power of two.

A mask leaves two integers below 256 in a word; read as subnormal floats they are the same integers
times a power of two, and one `fma` brings them into the normal range and takes their offset off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit
from heddle.kernels.convert import FLOAT8
from heddle.kernels.cuda import _float8
from heddle.kernels.cuda._halves import HALVES
from heddle.kernels.cuda.products import mma
from heddle.kernels.mlir import dialect, ir

llvm, nvvm = dialect("llvm"), dialect("nvvm")

_LOWER, _UPPER = 0x5410, 0x7632  # Select those halves of two words.
_NOTHING = 0x80008000  # Two times -0, which changes no float that it is added to.


@dataclass(frozen=True)
class WeightWords:
    """Weights of `bits` in words of memory as `held`, and what they become: `kind.a`.

    With `minimums` they are integers without a sign, which stay what they are.
    """

    kind: mma.Kind
    bits: int
    held: str
    minimums: bool = False

    @property
    def is_float(self) -> bool:
        """Whether they are floats of 8 bits."""
        return self.held in FLOAT8

    @property
    def place(self) -> int:
        """The power of two that weights come times."""
        return 0 if self.is_float else HALVES[self.kind.a].place

    def sorted(self, word: Any) -> list[Any]:
        """All weights of a word, in the order in which masks find them.

        Of 4 bits (0, 4), (1, 5), (2, 6), (3, 7); of 8 bits (0, 2), (1, 3); 8-bit floats as they
        lie.
        """
        if self.is_float:
            return self._floats(word)
        if self.bits == 4:
            parts = [(source, shift) for source in (word, word >> 8) for shift in (0, 4)]
            return [self._integers(source & 0x000F000F << s, (s, s)) for source, s in parts]
        unsigned = self._unsigned(word)
        return [self._integers(part & 0x00FF00FF, (0, 0)) for part in (unsigned, unsigned >> 8)]

    def fragment(self, words: list[Any], member: Any) -> list[Any]:
        """Of 16 neighbours, those that a lane has of a row of a: 2 m, 2 m + 1; 2 m + 8, 2 m + 9.

        m is the lane's `member` of four, i32.
        """
        if self.bits == 4:  # The byte m of each of two words.
            alone = [mma.bytes_of(word, word, member * 0x1111) & 0x00F0000F for word in words]
            return [self._integers(both, (0, 4)) for both in alone]
        first, second, third, fourth = words
        pairs = (first, second), (third, fourth)
        if self.is_float:
            low, high = (mma.bytes_of(a, b, member * 0x22 + 0x10) for a, b in pairs)
            return self._floats(mma.bytes_of(low, high, emit.constant(emit.integer(32), _LOWER)))
        apart = [mma.bytes_of(a, b, member * 0x2222 + 0x1100) for a, b in pairs]
        return [self._integers(self._unsigned(both) & 0x00FF00FF, (0, 0)) for both in apart]

    def _unsigned(self, word: Any) -> Any:
        """Four integers of 8 bits, without a sign where they have one: plus 128."""
        return word if self.minimums else word ^ 0x80808080

    def _floats(self, word: Any) -> list[Any]:
        widen = _float8.halves if self.kind.a == "f16" else _float8.bfloats
        return widen(word, self.held)

    def _integers(self, both: Any, shifts: tuple[int, int]) -> Any:
        """Two integers that lie so many bits too high in the halves of a word, without offset."""
        half, word = HALVES[self.kind.a], emit.integer(32)
        float_type = ir.F16Type.get() if self.kind.a == "f16" else ir.BF16Type.get()
        pair = ir.VectorType.get([2], float_type)
        low, high = (half.lift(shift) for shift in shifts)
        lift = low & 0xFFFF | high & 0xFFFF0000
        lower = _NOTHING if self.minimums else half.lower(self.bits - 1)
        times, less = (llvm.bitcast(pair, emit.constant(word, bits)) for bits in (lift, lower))
        return llvm.bitcast(word, emit.fma(llvm.bitcast(pair, both), times, less))


def halves_of(low: Any, high: Any) -> list[Any]:
    """The lower halves of two words as one word, and the upper ones."""
    selectors = [emit.constant(emit.integer(32), bits) for bits in (_LOWER, _UPPER)]
    return [mma.bytes_of(low, high, selector) for selector in selectors]
