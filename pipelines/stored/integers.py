"""Integers of 4 or 8 bits with zero points, in words of 32 bits: what GPTQ, AWQ and others share.

A weight is `(q - zero) * scale`, where q has no sign. Heddle's has no zero point, but `q - zero` is
an integer, too: of 4 bits where each zero is 8, else of 5, which int8 holds exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.pipelines.quantization import CHUNK
from heddle.pipelines.stored.parts import Parts
from heddle.pipelines.stored.product import Scaled

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORD = 32
"""Bits of a word."""

IN_ORDER = tuple(range(8))


def unpacked(words: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """The integers in int32 [n, columns], which follow each other along a row: [n, k]."""
    found = np.ascontiguousarray(words).view(np.uint8)
    if bits == 8:
        return found
    halves = np.empty((*found.shape, 2), np.uint8)
    np.bitwise_and(found, 15, out=halves[..., 0])
    np.right_shift(found, 4, out=halves[..., 1])
    return halves.reshape(len(words), -1)


def unpacked_rows(
    words: NDArray[Any], bits: int, order: Sequence[int] = IN_ORDER
) -> NDArray[np.uint8]:
    """The integers in int32 [k, columns], which follow each other along n: [n, k].

    Args:
        words: Lowest bits first.
        bits: Those of an integer: 4 or 8.
        order: The places along n of a word's integers.
    """
    lines, count = np.ascontiguousarray(words.T).view(np.uint32), WORD // bits
    found = np.empty((len(lines), count, lines.shape[1]), np.uint8)
    for number, place in enumerate(order[:count]):
        found[:, place] = lines >> np.uint32(bits * number)
    found &= np.uint8(2**bits - 1)
    return found.reshape(-1, lines.shape[1])


def places_of(parts: Parts, end: str, k: int, groups: int) -> NDArray[Any] | None:
    """The group of each element along k, by the tensor with this end; None: they are in order.

    Raises:
        ArtifactError: There is no such group.
    """
    if end not in parts:
        return None
    places = parts.bits(end, ("int32",), (k,))
    if (places == -1).all():
        return None
    outside = places[(places < 0) | (places >= groups)]
    if outside.size:
        raise parts.error(end, f"groups from 0 to {groups - 1}", f"{outside[0]}")
    return places


def affine(
    bits: int,
    shape: tuple[int, int],
    integers: Callable[[], NDArray[np.uint8]],
    zeros: Callable[[], NDArray[Any]],
    scales: Callable[[], NDArray[np.float32]],
    group: int,
    places: NDArray[Any] | None = None,
) -> Scaled:
    """The weight `(q - zero) * scale`.

    Args:
        bits: Those of q: 4 or 8.
        shape: Its sizes n and k.
        integers: Makes q, [n, k].
        zeros: Makes what is taken off q, [n, groups], or [1, 1].
        scales: Makes the scales, [n, groups].
        group: Elements along k in a group.
        places: The group of each element along k, where they are not side by side: then each has a
            scale of its own.
    """
    n, k = shape
    at = np.arange(k) // group if places is None else places
    scattered = places is not None and not np.array_equal(places, np.arange(k) // group)
    sizes = scales().shape  # A product of a damaged file is refused before it is asked for.
    middle = bool((zeros() == 2 ** (bits - 1)).all())
    kind = f"int{bits}" if middle else "int8" if bits == 4 else "int16"

    def values() -> NDArray[Any]:
        found = np.empty(shape, np.int16 if kind == "int16" else np.int8)
        taken = np.broadcast_to(zeros().astype(found.dtype), sizes)
        given, rows = integers(), max(1, CHUNK // k)
        for start in range(0, n, rows):
            part = slice(start, start + rows)
            each = taken[part].take(at, axis=1)
            np.subtract(given[part], each, out=found[part], dtype=found.dtype, casting="unsafe")
        return found

    return Scaled(
        shape,
        kind,
        1 if scattered else group,
        values,
        (lambda: scales()[:, at]) if scattered else scales,
    )
