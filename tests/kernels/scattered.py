"""Specs and operands of scatter, for both targets."""

import numpy as np
from reference import numpy_dtype, shape

from heddle.kernels.spec import Operand, Spec


def scattering(dtype, outer, limit, count, inner, reduce="none", kind="int64") -> Spec:
    """Into `[*outer, limit, *inner]`, `count` rows for each of the outer ones."""
    x = Operand(dtype, (*outer, limit, *inner))
    operands = (x, Operand(kind, (*outer, count)), Operand(dtype, (*outer, count, *inner)))
    attrs = (("axis", len(outer)), ("reduce", reduce))
    return Spec("scatter", operands, x, (x,), attrs)


def operands(spec, dims=None, seed=0, values=None) -> list[np.ndarray]:
    """Small whole numbers, of which sums and products are exact; places repeat."""
    rng = np.random.default_rng(seed)
    x, indices, updates = (shape(o.shape, dims or {}) for o in spec.operands)
    kind, limit = numpy_dtype(spec.result.dtype), x[spec.attr("axis")]
    few = values or ([0, 1] if spec.result.dtype == "bool" else [1, 2, 3])
    chosen = rng.integers(0, limit, indices).astype(numpy_dtype(spec.operands[1].dtype))
    return [rng.choice(few, x).astype(kind), chosen, rng.choice(few, updates).astype(kind)]
