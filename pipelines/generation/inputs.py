"""Inputs of a step that no request stands behind: for timing a language model."""

from __future__ import annotations

from collections.abc import Mapping
from string import digits
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heddle.runtime import Buffer, narrow_floats
from heddle.runtime.errors import DeviceError, InputError

if TYPE_CHECKING:
    from heddle.runtime import Artifact, Device

INPUTS = (
    "tokens",
    "positions",
    "row_offsets",
    "lengths",
    "blocks",
    "places",
    "sampling",
    "sampling_integers",
    "seen",
    "seen_offsets",
    "bitmask",
)
"""What a language model takes before its caches, as `models.decoder.model.language_model` says."""


def is_language_model(artifact: Artifact) -> bool:
    """Whether the artifact was made from a graph of `language_model`."""
    return tuple(row["name"] for row in artifact.inputs[: len(INPUTS)]) == INPUTS


def check_cache(artifact: Artifact, blocks: int, device: Device, made_of: str, remedy: str) -> None:
    """Raises InputError where `device` has no memory for the caches of a language model.

    It asks for all of them at once: each by itself may fit.

    Args:
        artifact: A language model.
        blocks: Of each cache.
        device: Where they are to be.
        made_of: Whose tokens they hold, for the message.
        remedy: What makes them smaller.
    """
    caches = artifact.inputs[len(INPUTS) :]
    wanted = sum(narrow_floats.nbytes(row["dtype"], (blocks, *row["shape"][1:])) for row in caches)
    try:
        Buffer("uint8", (wanted,), device)
    except DeviceError as error:
        *_, heads, size = caches[0]["shape"]
        kinds = dict.fromkeys(row["name"].rstrip(digits) for row in caches)
        raise InputError(
            f"cache: wanted {wanted / 2**30:.1f} GiB for {made_of}, with {' and '.join(kinds)} of "
            f"{len(caches) // len(kinds)} layers, {heads} heads of {size}, {caches[0]['dtype']}; "
            f"got less memory ({error}); {remedy}"
        ) from None


def step_inputs(artifact: Artifact, dims: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    """Inputs of a step whose rows have as many tokens each, at the ends of full block tables.

    Every row wants a token, the likeliest one.

    Args:
        artifact: A language model.
        dims: `rows` (1), `tokens` (as many as rows) and `row_blocks` (1); `cache_blocks` is their
            product.

    Returns:
        The inputs before the caches by name.

    Raises:
        InputError: Tokens that are no multiple of rows, or more for each than its blocks hold.
    """
    rows = dims.get("rows", 1)
    tokens, row_blocks = dims.get("tokens", rows), dims.get("row_blocks", 1)
    length = row_blocks * int(artifact.inputs[-1]["shape"][1])
    each = tokens // rows
    if tokens % rows or not 0 < each <= length:
        raise InputError(
            f"step: wanted tokens as a multiple of rows, {rows}, with 1 to {length} for each, "
            f"got {tokens}"
        )
    words = int(artifact.inputs[len(INPUTS) - 1]["shape"][1])
    greedy = np.tile(np.array([0, 1, 0, 0, 0, 1], np.float32), (rows, 1))
    return {
        "tokens": np.arange(tokens) % (32 * words - 31),
        "positions": np.tile(np.arange(length - each, length), rows),
        "row_offsets": np.arange(rows + 1) * each,
        "lengths": np.full(rows, length),
        "blocks": np.arange(rows * row_blocks, dtype=np.int32).reshape(rows, row_blocks),
        "places": np.arange(1, rows + 1) * each - 1,
        "sampling": greedy,
        "sampling_integers": np.ones((rows, 2), np.int64),
        "seen": np.zeros((0, 2), np.int64),
        "seen_offsets": np.zeros(rows + 1, np.int64),
        "bitmask": np.full((rows, words), -1, np.int32),
    }
