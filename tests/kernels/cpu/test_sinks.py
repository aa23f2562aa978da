"""Sinks of attention over ragged rows: one more key of each head, whose values are zeros."""

import numpy as np
import pytest
import ragged_batches as ragged
from native import ARCHS, DOTS, check, run

TILES = "sapphirerapids"
OPS = ["ragged_attention", "paged_attention"]
ROWS = ([1, 5, 0, 40, 1, 3, 2], [7, 5, 3, 77, 100, 0, 290])


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "options",
    [
        {"causal": False},
        {"window": 5, "heads": 10, "key_heads": 5, "size": 24, "block": 3},
        {"window": 200, "heads": 3, "key_heads": 1, "size": 1},
        {"softcap": 2.0, "heads": 12, "cache": "float16", "size": 40},
        {"heads": 9, "key_heads": 9, "cache": "float8_e4m3fn", "size": 16},
        {"dtype": "float16", "heads": 20, "size": 256, "key_heads": 1},
        {"dtype": "bfloat16", "heads": 40, "key_heads": 2, "size": 64, "window": 128},
    ],
)
def test_rows(op, options, arch):
    """Rows with no keys, too, and heads of which a sink takes all and nothing."""
    spec = ragged.attention(op, sinks=True, **options)
    check(spec, *ragged.batch(spec, *ROWS), arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", [DOTS[-1], TILES])
@pytest.mark.parametrize("cache", [None, "float8_e5m2"])
def test_pairs_of_bfloat16(cache, arch):
    spec = ragged.attention("paged_attention", "bfloat16", cache, window=60, sinks=True)
    check(spec, *ragged.batch(spec, *ROWS), arch=arch, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_row_of_many_parts_has_one_sink(arch):
    spec = ragged.attention("paged_attention", sinks=True)
    dims, arrays = ragged.batch(spec, [1, 2], [1500, 700])
    arrays[-1][:] = 6.0  # as much as 400 keys
    check(spec, dims, arrays, arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", [*DOTS, TILES])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("least", [-np.inf, -3.4e38, -1e4])
def test_a_least_sink_takes_nothing(least, dtype, arch):
    """Bit by bit what it is without sinks, and zeros where there is no key."""
    with_sinks, plain = (ragged.attention(OPS[0], dtype, sinks=sinks) for sinks in (True, False))
    dims, arrays = ragged.batch(with_sinks, *ROWS)
    arrays[-1][:] = least
    (found,), _ = run(with_sinks, arrays, dims, arch)
    (wanted,), _ = run(plain, arrays[:-1], dims, arch)
    assert found.tobytes() == wanted.tobytes()
    row = ROWS[1].index(0)
    assert not found[sum(ROWS[0][:row]) : sum(ROWS[0][: row + 1])].any()


@pytest.mark.parametrize("arch", [*DOTS, TILES])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("most", [np.inf, 3.4e38, 1e4])
def test_a_greatest_sink_takes_all(most, dtype, arch):
    spec = ragged.attention(OPS[1], dtype, sinks=True)
    dims, arrays = ragged.batch(spec, *ROWS)
    arrays[-1][:] = most
    (found,), _ = run(spec, arrays, dims, arch)
    np.testing.assert_array_equal(found.astype(np.float32), 0)


@pytest.mark.parametrize("arch", ARCHS)
def test_what_is_no_number_stays_none(arch):
    """Of its head alone, in rows that decode and in longer ones."""
    spec = ragged.attention(OPS[0], sinks=True)
    dims, arrays = ragged.batch(spec, [1, 20], [9, 20])
    arrays[-1][:] = [0.0, np.nan, 0.0, 0.0]
    (found,), _ = run(spec, arrays, dims, arch)
    assert np.isnan(found[:, 1]).all()
    assert np.isfinite(found[:, [0, 2, 3]]).all()
