"""Scores that are capped before the mask, in every form that attention takes on a CPU."""

import numpy as np
import pytest
import ragged_batches as ragged
from attention_specs import attention, sizes
from native import ARCHS, DOTS, check
from reference import numpy_dtype, shape

from heddle.kernels.registry import find
from heddle.kernels.spec import Operand

TILES = "sapphirerapids"
OPS = ["ragged_attention", "paged_attention"]
ROWS = ([1, 5, 0, 40, 1, 3], [7, 5, 3, 77, 100, 0])


def spread(spec, dims):
    """Random operands whose scores, with a scale of 0.2, go far beyond a cap of 5."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape(o.shape, dims)) for o in spec.inputs]
    arrays[0] *= 4
    pairs = zip(arrays, spec.inputs, strict=True)
    return [a > 0 if o.dtype == "bool" else a.astype(numpy_dtype(o.dtype)) for a, o in pairs]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("softcap", [0.5, 5.0, 30.0, 50.0])
@pytest.mark.parametrize("options", [{}, {"causal": True, "window": 40}, {"layout": "bshd"}])
def test_dense(options, softcap, arch):
    spec = attention(softcap=softcap, **options)
    for queries, keys in ((1, 1), (13, 150), (70, 33)):
        dims = sizes(queries, keys)
        check(spec, dims, spread(spec, dims), arch=arch, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("mask", ["bool", "float32"])
def test_the_mask_comes_after_the_cap(mask, arch):
    """What it hides stays hidden, and what it adds goes beyond the cap."""
    spec = attention(softcap=3.0, mask=Operand(mask, ("d0", "d1")))
    dims = sizes(29, 150)
    *arrays, hidden = spread(spec, dims)
    hidden = hidden * 20 if mask == "float32" else hidden
    check(spec, dims, [*arrays, hidden], arch=arch, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("arch", [*DOTS, TILES])
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_dtypes(dtype, arch):
    spec = attention(dtype, softcap=5.0)
    dims = sizes(29, 70)
    atol = 1e-3 if dtype == "bfloat16" and arch not in ARCHS else 2e-5
    check(spec, dims, spread(spec, dims), arch=arch, rtol=1e-5, atol=atol)


@pytest.mark.parametrize("arch", [*DOTS, TILES])
def test_a_scale_of_nothing(arch):
    """All scores are 0: each result is the mean of the values."""
    spec = attention("bfloat16", scale=0.0, softcap=5.0)
    dims = sizes(29, 70)
    check(spec, dims, spread(spec, dims), arch=arch, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("arch", ARCHS)
def test_scores_without_end(arch):
    """An infinite score is the cap, and one that is no number stays none."""
    spec = attention(batch=1, heads=1, key_heads=1, softcap=30.0)
    dims = sizes(40, 40)
    arrays = spread(spec, dims)
    arrays[0][0, 0, 3] = np.inf
    arrays[1][0, 0] = np.abs(arrays[1][0, 0])
    arrays[0][0, 0, 7, 5] = np.nan
    (found,) = check(spec, dims, arrays, arch=arch, rtol=1e-5, atol=2e-5)
    assert np.isfinite(found[0, 0, 3]).all()
    assert np.isnan(found[0, 0, 7]).all()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "options",
    [
        {"softcap": 30.0},
        {"softcap": 1.0, "window": 5, "heads": 10, "key_heads": 5, "size": 24},
        {"softcap": 1.0, "dtype": "float16", "heads": 20, "size": 256, "key_heads": 1},
        {"softcap": 1.0, "dtype": "bfloat16", "size": 128, "causal": False},
        {"softcap": 1.0, "cache": "float8_e4m3fn", "heads": 10, "size": 48},
        {"softcap": 50.0, "cache": "float8_e5m2", "heads": 2, "size": 112},
    ],
)
def test_ragged_rows(op, options, arch):
    spec = ragged.attention(op, **options)
    check(spec, *ragged.batch(spec, *ROWS), arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", [DOTS[-1], TILES])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("cache", [None, "float8_e4m3fn"])
def test_ragged_rows_of_bfloat16(cache, op, arch):
    spec = ragged.attention(op, "bfloat16", cache, softcap=1.0, window=60)
    assert "dots" in find(op, "cpu").uses(spec)
    check(spec, *ragged.batch(spec, *ROWS), arch=arch, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("arch", ARCHS)
def test_parts_of_a_row_are_joined(arch):
    spec = ragged.attention("paged_attention", softcap=2.0)
    dims, arrays = ragged.batch(spec, [1, 2], [1500, 700])
    arrays[0] = arrays[0] * 4
    check(spec, dims, arrays, arch=arch, rtol=1e-5, atol=1e-5)
