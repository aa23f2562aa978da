"""From the vectors of tokens to that of their text, by the modes of sentence-transformers."""

from __future__ import annotations

import math
from collections.abc import Callable

from heddle.graph import DType, TensorValue, ops

Shares = Callable[[TensorValue], TensorValue]


def _equal(mask: TensorValue) -> TensorValue:
    return ops.cast(mask, DType.float32)


def _rising(mask: TensorValue) -> TensorValue:
    """1, 2, 3, ...: the later a token, the more it saw of the text (SGPT, arXiv:2202.08904)."""
    return _equal(mask) * (_places(mask, DType.float32) + 1.0)


def _last(mask: TensorValue) -> TensorValue:
    last = ops.sum(ops.cast(mask, DType.int64), axis=1) - 1
    return ops.cast(ops.equal(_places(mask, DType.int64), last), DType.float32)


def _places(mask: TensorValue, dtype: DType) -> TensorValue:
    sequence = mask.shape[1]
    return ops.reshape(ops.range(sequence, dtype=dtype), (1, sequence, 1))


SHARES: dict[str, Shares] = {
    "mean": _equal,
    "mean_sqrt_len_tokens": _equal,
    "weightedmean": _rising,
    "lasttoken": _last,
}
"""What each token adds to the sum, from a mask [batch, sequence, 1]."""

MODES = ("cls", "max", *SHARES)


def pool(hidden: TensorValue, mask: TensorValue, mode: str, undivided: bool = False) -> TensorValue:
    """The vector of each text, float32 [batch, width].

    Args:
        hidden: float32 [batch, sequence, width].
        mask: bool [batch, sequence], true where there is a token; they are at the row's beginning.
        mode: One of `MODES`: the first token, the maximum of each number, the mean, the sum over
            the square root of how many there are, the mean with shares that rise, the last token.
        undivided: Whether the sum will do for a mean.
    """
    batch, sequence, width = hidden.shape
    if mode == "cls":
        return hidden[:, 0]
    column = ops.reshape(mask, (batch, sequence, 1))
    if mode == "max":
        return ops.reshape(ops.max(ops.where(column, hidden, -math.inf), axis=1), (batch, width))
    share = SHARES[mode](column)
    total = ops.reshape(ops.sum(hidden * share, axis=1), (batch, width))
    if undivided:
        return total
    count = ops.reshape(ops.sum(share, axis=1), (batch, 1))
    return total / (ops.sqrt(count) if mode == "mean_sqrt_len_tokens" else count)
