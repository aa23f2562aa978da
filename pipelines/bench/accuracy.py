"""How far a result is off. Needs NumPy alone: it also runs where there is no compiler."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def error_of(got: NDArray[Any], wanted: NDArray[Any]) -> float:
    """The greatest error, relative to the element or, where that is small, to the typical one.

    An infinity has to be met exactly, and says nothing of what is typical; of another shape, all is
    wrong.
    """
    exact, found = wanted.astype(np.float64), got.astype(np.float64)
    if exact.shape != found.shape:
        return math.inf
    if not exact.size:
        return 0.0
    same = (exact == found) | (np.isnan(exact) & np.isnan(found))
    finite = exact[np.isfinite(exact)]
    typical = float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0
    with np.errstate(all="ignore"):
        errors = np.abs(found - exact) / np.maximum(np.abs(exact), typical)
    errors = np.where(same, 0.0, np.where(np.isnan(errors), np.inf, errors))
    return float(errors.max())
