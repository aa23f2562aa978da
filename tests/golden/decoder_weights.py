"""The weights of the decoders in `decoders.npz`, which are drawn instead of recorded."""

from zlib import crc32

import numpy as np


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The float32 weight `name`, from a seed of its own; those of norms are around 1.

    Of a stack of experts each has the seed of its own name.
    """
    if ".experts." in name and len(shape) == 3:
        names = [name.replace(".experts.", f".experts.{expert}.") for expert in range(shape[0])]
        return np.stack([weight(each, shape[1:]) for each in names])
    generator = np.random.default_rng(crc32(name.encode()))
    if name.endswith("norm.weight"):
        return (1 + 0.2 * generator.standard_normal(shape)).astype(np.float32)
    scale = 0.3 if "embed_tokens" in name or len(shape) < 2 else 1.5 / shape[-1] ** 0.5
    return np.asarray(scale * generator.standard_normal(shape), np.float32)
