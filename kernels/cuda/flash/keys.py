"""Which keys a row of attention sees, and how many stages those are."""

from __future__ import annotations

from heddle.kernels import emit, sizes
from heddle.kernels.cuda.flash.softmax import Range
from heddle.kernels.cuda.flash.stages import KEYS
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec


def seen(spec: Spec, group: int, queries: Size, length: Size, row: Size) -> Range:
    """The keys that a row of a sequence sees: one of `queries`, that end its `length` keys."""
    if not spec.attr("causal"):
        return None, emit.as_index(length)
    window = spec.attr("window", 0)
    after = sizes.floordiv(emit.as_index(row), group) + (length - queries) + 1
    low = emit.maximum(after - window, 0) if window else None
    return low, emit.maximum(after, 0)


def stages(spec: Spec, group: int, queries: Size, length: Size) -> Size:
    """Stages of the keys that the rows of a sequence see."""
    low = seen(spec, group, queries, length, 0)[0]
    stop = seen(spec, group, queries, length, queries * group - 1)[1]
    start = emit.index(0) if low is None else low
    return sizes.ceildiv(emit.maximum(stop - start, 0), KEYS)
