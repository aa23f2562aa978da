"""Numbers for whole tensors, rows, groups and blocks, as those of groups in each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.pipelines.stored.parts import Parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

Block = tuple[int, int]
"""Rows and elements along k that have one scale."""


def scales_of(
    parts: Parts, end: str, shape: tuple[int, int], block: Block | None
) -> tuple[Callable[[], NDArray[np.float32]], int]:
    """What makes the scales by the tensor with this end, [n, groups]; the elements of a group.

    Raises:
        ArtifactError: It is missing, or of another dtype or shape.
    """

    def found() -> tuple[NDArray[np.float32], int]:
        return spread(parts, end, parts.floats(end), shape, block)

    return lambda: found()[0], found()[1]


def spread(
    parts: Parts, end: str, given: NDArray[Any], shape: tuple[int, int], block: Block | None
) -> tuple[NDArray[Any], int]:
    """What is `given` by the tensor with this end, as [n, groups], and the elements of a group.

    It is one number for all of a weight of this `shape`, [], [1] or [1, 1]; one for each row, [n]
    or [n, 1]; those of groups, [n, groups]; or those of blocks of the size `block`.

    Raises:
        ArtifactError: It is of another shape.
    """
    n, k = shape
    if given.size == 1:
        return np.full((n, 1), given.reshape(())), k
    if block and given.shape == (-(-n // block[0]), -(-k // block[1])):
        return np.repeat(given, block[0], axis=0)[:n], block[1]
    groups = given.size // n
    if given.shape in ((n,), (n, groups)) and groups and k % groups == 0:
        return given.reshape(n, groups), k // groups
    blocks = f" or blocks {list(block)}" if block else ""
    raise parts.error(end, f"one for [{n}, {k}], its rows, groups{blocks}", f"{list(given.shape)}")
