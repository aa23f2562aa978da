"""Floats of 8 bits: every code, every place where rounding changes; caches of them."""

import float8_values as values
import numpy as np
import pytest
import ragged_batches as ragged
from native import ARCHS, DOTS, check, run

ROWS = ([1, 5, 0, 40, 1, 3], [7, 5, 3, 77, 100, 0])


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


def test_attention_to_keys_of_8_bits():
    spec = ragged.attention("paged_attention", cache="float8_e5m2", size=72, window=30)
    check(spec, *ragged.batch(spec, *ROWS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("cache", "op", "arch"),
    [
        ("float8_e4m3fn", "paged_attention", DOTS[-1]),
        ("float8_e5m2", "ragged_attention", DOTS[-1]),
        ("float8_e4m3fn", "ragged_attention", ARCHS[0]),
    ],
)
def test_keys_of_8_bits_give_the_bits_of_the_same_in_16(cache, op, arch):
    narrow, wide = (ragged.attention(op, "bfloat16", dtype, size=80) for dtype in (cache, None))
    dims, (query, key, value, *rows) = ragged.batch(narrow, *ROWS)
    (found,), _ = run(narrow, [query, key, value, *rows], dims, arch)
    widened = (x.astype("bfloat16") for x in (key, value))
    (same,), _ = run(wide, [query, *widened, *rows], dims, arch)
    assert np.isfinite(found.astype(np.float32)).all()
    assert found.tobytes() == same.tobytes()


def test_writing_codes():
    spec = ragged.writing("float8_e4m3fn", heads=3, size=21)
    dims, arrays = ragged.batch(spec, [1, 0, 6, 3], [7, 2, 6, 30])
    (found,), _ = run(spec, arrays, dims)
    rows, block = arrays[2:], arrays[0].shape[1]
    for row, (start, stop) in enumerate(zip(rows[0], rows[0][1:], strict=False)):
        for number, token in enumerate(arrays[1][start:stop], rows[1][row] - (stop - start)):
            place = found[rows[2][row, number // block], number % block]
            assert place.tobytes() == token.tobytes()
