"""Questions to masks: for as few lanes as a warp has, a third of the cost of any and all."""

import numpy as np

Mask = np.ndarray


def some(mask: Mask) -> bool:
    return np.count_nonzero(mask) > 0


def every(mask: Mask) -> bool:
    return np.count_nonzero(mask) == mask.size
