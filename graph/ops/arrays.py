"""What NumPy references share."""

from __future__ import annotations

import math

from heddle.graph.ops.row import Array


def merged(x: Array, first: int, last: int) -> Array:
    """`x` with the dims `first` to `last`, both included, as one, also where it has no elements.

    (NumPy's -1 in a reshape cannot tell a size beside one of 0.)
    """
    start, end = (axis % x.ndim for axis in (first, last))
    size = math.prod(x.shape[start : end + 1])
    return x.reshape(*x.shape[:start], size, *x.shape[end + 1 :])
