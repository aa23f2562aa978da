"""What both kernels of sums along an axis know alike."""

from __future__ import annotations

from heddle.kernels.spec import Spec

NOTHING = -0.0
"""What sums begin with: -0.0 and -0.0 are -0.0, which 0.0 and -0.0 are not."""


def along_rows(spec: Spec) -> bool:
    """Whether the axis is the last one."""
    return bool(spec.attr("axis") == len(spec.result.shape) - 1)
