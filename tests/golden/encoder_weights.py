"""The weights of the encoders in `encoders.npz`, which are drawn instead of recorded."""

from zlib import crc32

import numpy as np


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The float32 weight `name` from a seed of its own; those of norms are around 1."""
    generator = np.random.default_rng(crc32(name.encode()))
    if len(shape) == 1 and name.endswith(".weight"):
        return (1 + 0.2 * generator.standard_normal(shape)).astype(np.float32)
    scale = 0.3 if len(shape) == 1 or "embeddings" in name else 1.5 / shape[-1] ** 0.5
    return (scale * generator.standard_normal(shape)).astype(np.float32)
