"""Products by weights of 8 and 4 bits for tests."""

import numpy as np
from native import ARCHS, check, random
from reference import shape

from heddle.kernels.spec import Operand, Spec, fold

FLOATS = ("float8_e4m3fn", "float8_e5m2")
HELD = ("int8", "uint32", *FLOATS)


def product(held, m, k, n, group=32, dtype="float32", epilogue=None, scales=None):
    """Of x in a dtype, with scales in another one, if it is given."""
    left = "bfloat16" if dtype == "bfloat16" else "float32"
    a, result = Operand(left, (m, k)), Operand(dtype, (m, n))
    panels = fold("ceildiv", n, 32)
    packed = (panels, k // 8, 32) if held == "uint32" else (panels, k // 4, 32, 4)
    weight = Operand(held, packed)
    scales = Operand(scales or dtype, (panels, k // group, 32))
    attrs = (("group", group),)
    return Spec(
        "quantized_matmul_packed", (a, weight, scales), result, (result,), attrs, None, epilogue
    )


def numbers(spec, dims, seed=0):
    """Integers up to 127, or floats, and scales of about 1/100."""
    rng = np.random.default_rng(seed)
    arrays = [random(rng, shape(o.shape, dims), o.dtype) for o in spec.inputs]
    arrays[2] = (arrays[2] / 100).astype(arrays[2].dtype)
    return arrays


def close(spec, dims=None, arch=ARCHS[-1], seed=0):
    """Nothing is rounded but sums, and the result."""
    dims = dims or {}
    return check(spec, dims, numbers(spec, dims, seed), arch=arch, rtol=1e-5, atol=5e-5)
