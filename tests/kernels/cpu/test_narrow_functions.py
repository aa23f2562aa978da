"""Functions of every float16 and every bfloat16: what float32 errs by, then one rounding."""

import math

import ml_dtypes
import numpy as np
import pytest
from native import ARCHS, run

from heddle.kernels.spec import Body, Operand, Spec, Step

FUNCTIONS = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "softplus": lambda x: np.logaddexp(0, x),
    "tanh": np.tanh,
    "erf": np.frompyfunc(math.erf, 1, 1),
    "sin": np.sin,
    "cos": np.cos,
}
BOUND = 0.501
"""Units in the last place: a half, and 5 of float32, less than a thousandth of a float16's."""


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_number(dtype, arch):
    kind = np.dtype({"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype])
    info = ml_dtypes.finfo(kind)
    x = np.arange(2**16, dtype=np.uint16).view(kind)
    operand = Operand(dtype, x.shape)
    steps = tuple(Step(name, (0,), dtype) for name in FUNCTIONS)
    body = Body((operand,), steps, tuple(range(1, len(steps) + 1)))
    spec = Spec("map", (operand,), operand, (operand,) * len(steps), (), body)
    for (name, function), got in zip(FUNCTIONS.items(), run(spec, [x], arch=arch)[0], strict=True):
        with np.errstate(all="ignore"):
            exact = np.asarray(function(x.astype(np.float64)), np.float64)
            stored, unit = exact.astype(kind), np.maximum(np.abs(exact), float(info.tiny))
        np.testing.assert_array_equal(np.isnan(got), np.isnan(stored), name)
        ends = np.isinf(stored)
        np.testing.assert_array_equal(got[ends], stored[ends], name)
        inside = np.isfinite(stored)
        last = np.exp2(np.floor(np.log2(unit[inside])) - info.nmant)
        assert (np.abs(got[inside].astype(np.float64) - exact[inside]) / last).max() < BOUND, name
