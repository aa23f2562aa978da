"""A call whose accesses are counted."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from reference import numpy_dtype, shape

from heddle.kernels.spec import Spec

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Call:
    """A spec with the sizes of a call, and its arrays, where not any will do."""

    spec: Spec
    dims: dict[str, int]
    arrays: Callable[[], Arrays] | None = None

    def inputs(self) -> Arrays:
        """The arrays that the call is given."""
        if self.arrays:
            return self.arrays()
        random = np.random.default_rng(0)
        found = []
        for operand in self.spec.inputs:
            size, dtype = shape(operand.shape, self.dims), numpy_dtype(operand.dtype)
            numbers = random.integers(0, 100, size) if dtype.kind in "iub" else random.random(size)
            found.append(numbers.astype(dtype))
        return found


def call(spec: Spec, *sizes: int) -> Call:
    """With sizes of `d0`, `d1`, ..."""
    return Call(spec, {f"d{i}": size for i, size in enumerate(sizes)})
