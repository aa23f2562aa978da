"""The blocks of GGML whose integers a graph holds (ggml-quants.c of the ggml project).

A block is 32 or 256 elements along k. It has a scale in float16, and may have a minimum; one of 256
has the scales and minimums of its eight groups in 6 bits each, in units of these. Elements are
integers; those of the types IQ4 are the numbers of integers in a table. Those of MXFP4, and its
scales, are what `heddle.pipelines.stored.mxfp4` says, but that no scale is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.pipelines.stored.mxfp4 import DOUBLED, halved

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Sides = NDArray[np.float32]

GROUP = 32
"""Elements with one scale."""

NONLINEAR = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)
"""What the elements of the types IQ4 stand for."""


@dataclass(frozen=True)
class Blocks:
    """What is in the blocks of a type, each of which is a row of bytes [..., bytes].

    Attributes:
        kind: What the values are, as `Product.kind` has it.
        values: Makes them of blocks, [..., elements].
        scales: Makes the scales, float32 [..., groups].
        minimums: Makes the minimums, as scales; None: there are none.
        scales_in: As `Product.scales_in` has it.
    """

    kind: str
    values: Callable[[Bytes], NDArray[Any]]
    scales: Callable[[Bytes], Sides]
    minimums: Callable[[Bytes], Sides] | None = None
    scales_in: str = "float16"


def _halves(found: Bytes) -> Bytes:
    """Integers of 4 bits: those in the lower halves of all bytes, then those in the upper ones."""
    return np.concatenate([found & np.uint8(15), found >> np.uint8(4)], axis=-1)


def _fifths(highest: Bytes, rest: Bytes) -> Bytes:
    """Integers of 5 bits: the highest of each is a bit of the first bytes."""
    high = np.unpackbits(highest, axis=-1, bitorder="little")
    found: Bytes = high << np.uint8(4) | _halves(rest)
    return found


def _less(raised: Bytes, middle: int) -> NDArray[np.int8]:
    """Integers that something was added to."""
    found: NDArray[np.int8] = (raised - np.uint8(middle)).view(np.int8)
    return found


def _half(blocks: Bytes, at: int) -> Sides:
    """The float16 at a byte of each block, [..., 1]."""
    return np.ascontiguousarray(blocks[..., at : at + 2]).view("<f2").astype(np.float32)


def _sixths(blocks: Bytes) -> tuple[Bytes, Bytes]:
    """The eight scales and eight minimums in 12 bytes, of 6 bits each.

    Bytes 0 to 3 have the first four scales and bytes 4 to 7 the first four minimums, each with two
    of the highest bits of one of the others, whose lower halves are in bytes 8 to 11.
    """
    first, second, third = (blocks[..., at : at + 4] for at in (4, 8, 12))
    low, high = np.uint8(15), np.uint8(48)
    scales = [first & np.uint8(63), third & low | first >> np.uint8(2) & high]
    minimums = [second & np.uint8(63), third >> np.uint8(4) | second >> np.uint8(2) & high]
    return np.concatenate(scales, axis=-1), np.concatenate(minimums, axis=-1)


def _scales_of_k(blocks: Bytes) -> Sides:
    return _half(blocks, 0) * _sixths(blocks)[0]


def _minimums_of_k(blocks: Bytes) -> Sides:
    return _half(blocks, 2) * -_sixths(blocks)[1].astype(np.float32)


def _values_of_q4_k(blocks: Bytes) -> Bytes:
    """Two groups share 32 bytes: one has their lower halves, one the upper ones."""
    pairs = blocks[..., 16:].reshape(*blocks.shape[:-1], 4, GROUP)
    return _halves(pairs).reshape(*blocks.shape[:-1], 8 * GROUP)


def _values_of_q5_k(blocks: Bytes) -> Bytes:
    """Bit i of byte j before these is the highest of element j in group i."""
    places = np.arange(8, dtype=np.uint8)[:, None]
    high = blocks[..., None, 16:48] >> places & np.uint8(1)
    low = _values_of_q4_k(blocks[..., 32:])
    found: Bytes = high.reshape(low.shape) << np.uint8(4) | low
    return found


def _values_of_iq4_xs(blocks: Bytes) -> NDArray[np.int8]:
    groups = blocks[..., 8:].reshape(*blocks.shape[:-1], 8, GROUP // 2)
    return NONLINEAR[_halves(groups)].reshape(*blocks.shape[:-1], 8 * GROUP)


def _scales_of_iq4_xs(blocks: Bytes) -> Sides:
    """Of 6 bits plus 32, the highest two of each in bytes of their own."""
    ones, pairs = np.arange(2, dtype=np.uint8) * 4, np.arange(4, dtype=np.uint8) * 2
    shape = (*blocks.shape[:-1], 8)
    low = (blocks[..., 4:8, None] >> ones & np.uint8(15)).reshape(shape)
    high = (blocks[..., 2:4, None] >> pairs & np.uint8(3)).reshape(shape)
    return _half(blocks, 0) * _less(high << np.uint8(4) | low, 32)


def _first(blocks: Bytes) -> Sides:
    return _half(blocks, 0)


def _second(blocks: Bytes) -> Sides:
    return _half(blocks, 2)


TYPES = {
    "Q4_0": Blocks("int4", lambda blocks: _less(_halves(blocks[..., 2:]), 8), _first),
    "Q4_1": Blocks("uint4", lambda blocks: _halves(blocks[..., 4:]), _first, _second),
    "Q5_0": Blocks(
        "int8", lambda blocks: _less(_fifths(blocks[..., 2:6], blocks[..., 6:]), 16), _first
    ),
    "Q5_1": Blocks(
        "uint8", lambda blocks: _fifths(blocks[..., 4:8], blocks[..., 8:]), _first, _second
    ),
    "Q8_0": Blocks("int8", lambda blocks: blocks[..., 2:].view(np.int8), _first),
    "Q4_K": Blocks("uint4", _values_of_q4_k, _scales_of_k, _minimums_of_k),
    "Q5_K": Blocks("uint8", _values_of_q5_k, _scales_of_k, _minimums_of_k),
    "IQ4_NL": Blocks("int8", lambda blocks: NONLINEAR[_halves(blocks[..., 2:])], _first),
    "IQ4_XS": Blocks("int8", _values_of_iq4_xs, _scales_of_iq4_xs),
    "MXFP4": Blocks(
        "int8",
        lambda blocks: DOUBLED[_halves(blocks[..., 1:])],
        lambda blocks: halved(blocks[..., :1]),
        scales_in="",
    ),
}
"""The types of tensors whose values a graph holds."""
