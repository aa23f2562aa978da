"""Floats of 8 bits in registers: every code, and every place where rounding changes."""

import float8_values as values
import numpy as np
import pytest
from native import ARCHS, run


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", values.DTYPES)
def test_every_code_as_float32(dtype, arch):
    codes = values.codes().view(dtype)
    [found], _ = run(values.casting(dtype, "float32", codes.size), [codes], arch=arch)
    wanted = codes.astype(np.float32)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found[wanted == 0]), np.signbit(wanted[wanted == 0]))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", values.DTYPES)
def test_float32_is_rounded_to_the_nearest_even_code(dtype, arch):
    x = values.boundaries(dtype)
    [found], _ = run(values.casting("float32", dtype, x.size), [x], arch=arch)
    np.testing.assert_array_equal(found.view(np.uint8), values.rounded(x, dtype))
