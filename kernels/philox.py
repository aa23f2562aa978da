"""Philox4x32-10: random words as a function of a counter and a key.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011. Words are in the low halves of
64-bit integers, in which their products fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.kernels import emit
from heddle.kernels.mlir import dialect

arith = dialect("arith")

WORDS = 4
"""Random words for one counter."""

_MULTIPLIERS, _WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
_MASK = 2**32 - 1


def uniform(block: Any, seed: Any, step: Any) -> list[Any]:
    """Four float32 between 0 and 1 for each lane of `block`, the low half of the counter."""
    words = _words([*_halves(block), *_halves(step)], _halves(seed))
    kind = emit.widen(emit.memory_type("float32"), emit.lanes_of(block))
    narrow = emit.widen(emit.integer(32), emit.lanes_of(block))
    # 23 bits and a half fit a float32.
    numbers = [arith.sitofp(kind, arith.trunci(narrow, word >> 9)) for word in words]
    return [(number + 0.5) * 2.0**-23 for number in numbers]


def _halves(value: Any) -> list[Any]:
    return [value & _MASK, value >> 32]


def _words(counter: Sequence[Any], key: Sequence[Any]) -> list[Any]:
    (a, b, c, d), (first, second) = counter, key
    for _ in range(10):
        left, right = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b = (right >> 32) ^ b ^ first, right & _MASK
        c, d = (left >> 32) ^ d ^ second, left & _MASK
        first, second = (first + _WEYL[0]) & _MASK, (second + _WEYL[1]) & _MASK
    return [a, b, c, d]
