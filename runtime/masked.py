"""Masked arrays of NumPy: every room refuses them, because none would look at the mask."""

from __future__ import annotations

import sys


def is_masked(value: object) -> bool:
    """Whether `value` is a `numpy.ma.MaskedArray`; imports nothing."""
    module = sys.modules.get("numpy.ma")
    return module is not None and isinstance(value, module.MaskedArray)
