"""Integers of 4 or 8 bits with zero points, in words of 32 bits: what GPTQ, AWQ and others share.

A weight is `(q - zero) * scale`, where q has no sign. Where each zero is the middle, `q - zero` is
an integer of as many bits with a sign; else q stays as it is, beside the minimum `-zero * scale`,
which float32 has exactly for scales of 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.pipelines.stored.parts import Parts
from heddle.pipelines.stored.product import Product
from heddle.pipelines.stored.scaled import Ordered, Scaled

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORD = 32
"""Bits of a word."""

IN_ORDER = tuple(range(8))

CLOSEST = {"bfloat16": "float16"}
"""What has minimums beside scales of a dtype of 16 bits, with fewer bits rounded than in that."""


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
    scales_in: str,
    places: NDArray[Any] | None = None,
) -> Product:
    """The weight `(q - zero) * scale`.

    Args:
        bits: Those of q: 4 or 8.
        shape: Its sizes n and k.
        integers: Makes q, [n, k].
        zeros: Makes what is taken off q, [n, groups], or [1, 1].
        scales: Makes the scales, [n, groups].
        group: Elements along k in a group.
        scales_in: The dtype that the scales are stored in.
        places: The group of each element along k; None: they are side by side. Where groups are
            whole in another order, the weight has that; else each element has its own scale.
    """
    scales()  # A product of a damaged file is refused before it is asked for.
    k = shape[1]
    middle = 2 ** (bits - 1)
    signed = bool((zeros() == middle).all())
    side_by_side = np.arange(k) // group
    order = np.arange(k) if places is None else np.argsort(places, kind="stable")
    whole = places is None or np.array_equal(places[order], side_by_side)
    in_order = not whole or bool((order == np.arange(k)).all())

    def values() -> NDArray[Any]:
        found = integers() if in_order else integers().take(order, axis=1)
        return (found - np.uint8(middle)).view(np.int8) if signed else found

    def spread(each: NDArray[np.float32]) -> NDArray[np.float32]:
        return each if places is None or whole else each.take(places, axis=1)

    def minimums() -> NDArray[np.float32]:
        found: NDArray[np.float32] = scales() * -zeros().astype(np.float32)
        return spread(found)

    found = Scaled(
        shape,
        f"int{bits}" if signed else f"uint{bits}",
        group if whole else 1,
        values,
        lambda: spread(scales()),
        None if signed else minimums,
        scales_in if signed else CLOSEST.get(scales_in, scales_in),
    )
    return found if in_order else Ordered(found, order)
