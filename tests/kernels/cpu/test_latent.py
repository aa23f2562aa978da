"""Attention whose values are the first columns of keys: of many heads to one latent, and of few."""

import numpy as np
import pytest
import ragged_batches as ragged
from native import ARCHS, DOTS, check, run
from reference import size

from heddle.kernels.cpu.decode.parts import SLOTS, crowded
from heddle.kernels.registry import find
from heddle.kernels.row_spans import LARGEST_HEAD

TILES = "sapphirerapids"
OPS = ["ragged_attention", "paged_attention"]
ROWS = ([1, 5, 0, 40, 1, 3, 2], [7, 5, 3, 77, 100, 0, 290])


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "options",
    [
        {"size": 36, "values": 33, "heads": 6, "causal": False},
        {"size": 24, "values": 1, "heads": 10, "key_heads": 5, "window": 5, "block": 3},
        {"size": 80, "values": 64, "cache": "bfloat16", "heads": 8, "softcap": 3.0},
        {"size": 48, "values": 32, "cache": "float8_e4m3fn", "heads": 9, "key_heads": 9},
        {"size": 64, "values": 24, "dtype": "float16", "heads": 12, "sinks": True},
    ],
)
def test_values_narrower_than_keys(op, options, arch):
    spec = ragged.attention(op, **options)
    check(spec, *ragged.batch(spec, *ROWS), arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_in_tiles(dtype):
    """Whole tiles of keys and of values: of bfloat16, and of float32 in parts."""
    spec = ragged.attention(OPS[1], dtype, heads=8, size=96, values=64)
    dims, arrays = ragged.batch(spec, [40, 70, 1], [200, 70, 90])
    check(spec, dims, arrays, TILES, rtol=1e-5, atol=1e-2 if dtype == "bfloat16" else 1e-5)


@pytest.mark.parametrize("arch", DOTS[1:])
def test_deepseek(arch):
    """As large as in DeepSeek-V2-Lite, keys and values in one cache: decoding, and prompts."""
    dtype = "bfloat16" if arch == DOTS[-1] else "float32"
    spec = ragged.attention(OPS[1], dtype, heads=16, key_heads=1, size=576, values=512)
    dims, arrays = ragged.batch(spec, [1, 9, 1, 2], [700, 30, 5, 40])
    arrays[2] = arrays[1]
    check(spec, dims, arrays, arch, rtol=1e-5, atol=1e-2 if dtype == "bfloat16" else 2e-5)


CROWD = {"heads": 182, "key_heads": 2, "size": 96, "values": 40}


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize(
    "options",
    [
        {"window": 300, "sinks": True, "block": 3},
        {"cache": "float8_e4m3fn", "softcap": 3.0},
    ],
)
def test_rows_that_decode_under_a_crowd_of_queries(options, arch):
    """In parts, of which the first begins before the window, and in one task: the same bits."""
    dtype = "bfloat16" if arch == DOTS[-1] else "float32"
    spec = ragged.attention(OPS[1], dtype, **{**CROWD, **options})
    assert crowded(spec)
    dims, arrays = ragged.batch(spec, [1, 0, 2, 1, 1], [1000, 9, 20, 557, 1])
    check(spec, dims, arrays, arch, rtol=1e-5, atol=1e-2 if dtype == "bfloat16" else 1e-5)
    (whole,), _ = run(spec, arrays, dims, arch)
    for cuts in ((0.1, 0.5, 0.6, 0.9), (0.3,)):
        (found,), _ = run(spec, arrays, dims, arch, cuts)
        assert found.tobytes() == whole.tobytes()


def test_a_crowd_alone_has_the_bits_of_a_crowd_among_others():
    """Also where rows are too many to be shared out."""
    spec = ragged.attention(OPS[1], **CROWD)
    dims, (query, *caches, _, _, table) = ragged.batch(spec, [1], [600])
    (alone,), _ = run(spec, [query, *caches, np.array([0, 1]), np.array([600]), table], dims)
    rows = SLOTS // 2
    offsets, lengths = np.arange(rows + 1), np.array([600, *[0] * (rows - 1)])
    many = dims | {"d0": rows, "d2": rows + 1, "d3": rows}
    arrays = [np.repeat(query, rows, 0), *caches, offsets, lengths, np.repeat(table, rows, 0)]
    assert size(find(spec.op, "cpu").launch(spec).workspace, many) == 0
    (found,), _ = run(spec, arrays, many)
    assert found[:1].tobytes() == alone.tobytes()


def test_sizes_of_heads():
    row = find(OPS[0], "cpu")
    assert row.supports(ragged.attention(OPS[0], size=LARGEST_HEAD, values=512)) is None
    many = ragged.attention(OPS[0], heads=128, key_heads=1, size=1024, values=512)
    message = "wanted heads of which a token takes at most 229376 numbers, got 266752"
    assert row.supports(many) == message
    message = f"wanted a head size of at most {LARGEST_HEAD}, got {LARGEST_HEAD + 1}"
    for target in ("cpu", "cuda"):
        spec = ragged.attention(OPS[0], size=LARGEST_HEAD + 1)
        assert find(OPS[0], target).supports(spec) == message
