"""Floats of 8 bits on the emulator: the bits are those of the CPU."""

import float8_values as values
import numpy as np
import pytest
from cuda_harness import run


@pytest.mark.parametrize("dtype", values.DTYPES)
def test_every_code_as_float32(dtype):
    codes = values.codes().view(dtype)
    [found], _ = run(values.casting(dtype, "float32", codes.size), [codes], {})
    np.testing.assert_array_equal(found, codes.astype(np.float32))


@pytest.mark.parametrize("dtype", values.DTYPES)
def test_float32_is_rounded_to_the_nearest_even_code(dtype):
    x = values.boundaries(dtype)
    [found], _ = run(values.casting("float32", dtype, x.size), [x], {})
    np.testing.assert_array_equal(found.view(np.uint8), values.rounded(x, dtype))
