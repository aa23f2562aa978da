"""ragged_attention, paged_attention and paged_write: rows of every kind, and what is not read."""

from itertools import pairwise

import numpy as np
import pytest
import ragged_batches as ragged
from native import ARCHS, check, run
from prefetches import all_lines_asked_for
from reference import evaluate

from heddle.kernels.cpu.decode.parts import drafts
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Body, Operand, Spec, Step

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
        {"heads": 2, "size": 100, "block": 64},
        {"cache": "bfloat16", "heads": 12, "size": 40},
        {"cache": "float16"},
        {"dtype": "bfloat16", "size": 128},
        {"dtype": "float16", "heads": 20, "size": 256, "key_heads": 1},
    ],
)
def test_attention(op, options, arch):
    spec = ragged.attention(op, **options)
    check(spec, *ragged.batch(spec, *ROWS), arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"cache": "float8_e4m3fn", "heads": 9, "key_heads": 9, "size": 16},
        {"heads": 10, "key_heads": 5, "size": 48, "window": 21},
        {"dtype": "float16", "heads": 3, "key_heads": 1, "size": 80},
        {"dtype": "bfloat16", "heads": 12, "key_heads": 3, "size": 64},
        {"dtype": "bfloat16", "heads": 8, "key_heads": 1, "size": 128, "causal": False},
        {"cache": "bfloat16", "heads": 24, "key_heads": 2, "size": 96},
        {"cache": "float8_e4m3fn", "heads": 10, "key_heads": 2, "size": 256},
        {"cache": "float8_e5m2", "heads": 6, "key_heads": 3, "size": 112, "block": 16},
    ],
)
def test_two_vectors_at_a_time(options):
    """What AVX2 decodes of heads of 16 n: also what is no number, and scores far apart."""
    spec = ragged.attention("paged_attention", **options)
    dims, arrays = ragged.batch(spec, [1, 2, 1, 1], [1, 19, 80, 290])
    check(spec, dims, arrays, arch="x86-64-v3", rtol=1e-5, atol=1e-5)
    key, value = (array.copy() for array in arrays[1:3])
    block = arrays[5][3, 288 // spec.operands[1].shape[1]]
    key[block, 0, 0, 3] = value[block, 1, -1, 5] = np.nan
    check(spec, dims, [arrays[0], key, value, *arrays[3:]], "x86-64-v3", rtol=1e-5, atol=1e-5)
    arrays[0] = (arrays[0].astype(np.float32) * 9).astype(arrays[0].dtype)
    check(spec, dims, arrays, arch="x86-64-v3", rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("options", [{"size": 128}, {"heads": 7, "key_heads": 1, "size": 31}])
def test_pairs_of_bfloat16(op, options):
    """Exponentials are rounded to bfloat16: an error of 2**-9 of the greatest value."""
    spec = ragged.attention(op, "bfloat16", window=60, **options)
    assert "dots" in find(op, "cpu").uses(spec)
    dims, arrays = ragged.batch(spec, *ROWS)
    check(spec, dims, arrays, arch="cooperlake", rtol=1e-5, atol=1e-2)
    (whole,), _ = run(spec, arrays, dims, "cooperlake")
    for cuts in ((0.2, 0.5, 0.51), (0.9,)):
        (found,), _ = run(spec, arrays, dims, "cooperlake", cuts)
        assert found.tobytes() == whole.tobytes()


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("group", [1, 2, 103])
def test_every_height_of_the_last_tile(group, arch):
    """Also where the heads of keys are worked on together, whose queries follow one another."""
    spec = ragged.attention("ragged_attention", heads=2 * group, key_heads=2, size=8)
    counts = {1: [*range(9, 21), *range(85, 97)], 2: [*range(5, 17), 22, 47], 103: [2]}[group]
    check(spec, *ragged.batch(spec, counts, counts), arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("op", OPS)
def test_a_row_does_not_depend_on_the_others(op, arch):
    """Bit by bit, in another place among other rows; also the blocks of a table do not matter."""
    spec = ragged.attention(op, size=48, window=60)
    dims, arrays = ragged.batch(spec, *ROWS)
    (whole,), _ = run(spec, arrays, dims, arch)
    query, key, value, offsets, *rest = arrays
    for row, (start, stop) in enumerate(pairwise(offsets.tolist())):
        alone = [query[start:stop], key, value, np.array([0, stop - start])]
        if op == "paged_attention":
            alone += [array[row : row + 1] for array in rest]
        else:
            (ends,) = rest
            part = slice(ends[row], ends[row + 1])
            alone[1:3] = key[part], value[part]
            alone.append(np.array([0, ends[row + 1] - ends[row]]))
        sizes = {"d0": stop - start, "d1": len(alone[1]), "d2": 2, "d3": 1}
        (part,), _ = run(spec, alone, dims | sizes, arch)
        assert part.tobytes() == whole[start:stop].tobytes()


@pytest.mark.parametrize("tokens", [24, 27, 4])
def test_the_next_block_of_keys_is_asked_for(tokens):
    """Beside tiles of many queries and of few, of a prompt and of a token with drafts."""
    spec = ragged.attention("ragged_attention", heads=2)
    dims, arrays = ragged.batch(spec, [tokens], [300])
    asked = all_lines_asked_for(spec, MACHINES[ARCHS[-1]], arrays, dims)
    line = 64 // 4
    behind = set(range(128 * 2 * 32 // line, 300 * 2 * 32 // line))
    assert behind <= asked[1]
    assert behind <= asked[2]


def test_paged_is_contiguous():
    """The same keys in blocks and side by side: the same bits."""
    spec, plain = (ragged.attention(op, block=3) for op in reversed(OPS))
    dims, (query, *caches, offsets, lengths, table) = ragged.batch(spec, *ROWS)
    (wanted,), _ = run(spec, [query, *caches, offsets, lengths, table], dims)
    keys = [
        np.concatenate(
            [
                cache[row[: -(-length // 3)]].reshape(-1, 2, 32)[:length]
                for row, length in zip(table, lengths, strict=True)
            ]
        )
        for cache in caches
    ]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    sizes = {"d0": len(query), "d1": len(keys[0]), "d2": len(offsets)}
    (found,), _ = run(plain, [query, *keys, offsets, ends], sizes)
    assert found.tobytes() == wanted.tobytes()


def test_chunks_of_a_prompt_are_the_whole_prompt():
    """Bit by bit where a chunk is no row that decodes, whose sums have another order."""
    spec = ragged.attention("paged_attention")
    dims, arrays = ragged.batch(spec, [70], [70])
    (whole,), _ = run(spec, arrays, dims)
    for start, stop in ((0, 33), (33, 34), (34, 70)):
        chunk = [arrays[0][start:stop], *arrays[1:3], np.array([0, stop - start]), np.array([stop])]
        (part,), _ = run(spec, [*chunk, arrays[5]], dims | {"d0": stop - start})
        if stop - start > drafts(spec, tiled=False):
            assert part.tobytes() == whole[start:stop].tobytes()
        np.testing.assert_allclose(part, whole[start:stop], rtol=1e-5, atol=1e-5)


def test_tokens_without_keys_give_zeros():
    """A row that is longer than its keys; tokens before the first row and after the last."""
    spec = ragged.attention("paged_attention")
    dims, arrays = ragged.batch(spec, [9], [9])
    arrays[3], arrays[4] = np.array([2, 7]), np.array([3])
    (found,), status = run(spec, arrays, dims)
    assert status.tolist() == [0, 0, 0, 0]
    np.testing.assert_array_equal(found.any(axis=(1, 2)), np.isin(np.arange(9), (4, 5, 6)))


def test_epilogue():
    spec = ragged.attention("paged_attention")
    body = Body((spec.result,), (Step("add", (0, 1), "float32"),), (2,))
    spec = Spec(spec.op, spec.operands, spec.result, spec.outputs, spec.attrs, None, body)
    dims, arrays = ragged.batch(spec, *ROWS)
    check(spec, dims, [*arrays, arrays[0]], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_writing(dtype, arch):
    """Only the new rows are written: an output starts full of one byte."""
    spec = ragged.writing(dtype, heads=3, size=21)
    dims, arrays = ragged.batch(spec, [1, 0, 6, 3], [7, 2, 6, 30])
    before = np.full(arrays[0].nbytes, 0xA5, np.uint8).view(arrays[0].dtype)
    before = before.reshape(arrays[0].shape)
    (wanted,) = evaluate(spec, dims, [before, *arrays[1:]])
    for cuts in ((), (0.3, 0.35, 0.8)):
        (found,), status = run(spec, arrays, dims, arch, cuts)
        assert found.tobytes() == wanted.tobytes()
        assert status.tolist() == [0, 0, 0, 0]


def wrong(arrays, number, place, value):
    changed = [array.copy() for array in arrays]
    changed[number][place] = value
    return changed


@pytest.mark.parametrize("op", ["paged_attention", "paged_write"])
@pytest.mark.parametrize(
    ("place", "value", "status"),
    [
        ((-3, 2), 1, [2, 1, 9, 2]),
        ((-3, 2), 10, [2, 10, 9, 2]),
        ((-3, 0), -1, [2, 2, 9, -1]),
        ((-2, 1), 21, [1, 21, 21, 0]),
        ((-2, 1), -5, [1, -5, 21, 0]),
        ((-1, (1, 2)), 99, [1, 99, 6, 0]),
        ((-1, (1, 2)), -1, [1, -1, 6, 0]),
    ],
)
def test_what_is_wrong_is_reported(op, place, value, status):
    """And nothing outside is read or written: every buffer ends where memory ends."""
    spec = ragged.writing() if op == "paged_write" else ragged.attention(op)
    dims, arrays = ragged.batch(spec, [2, 7], [6, 10])
    assert run(spec, wrong(arrays, *place, value), dims)[1].tolist() == status


def test_offsets_of_keys_are_checked():
    spec = ragged.attention("ragged_attention")
    dims, arrays = ragged.batch(spec, [2, 7], [6, 10])
    assert run(spec, wrong(arrays, 4, 2, 17), dims)[1].tolist() == [2, 17, 16, 6]
    assert run(spec, wrong(arrays, 4, 2, 5), dims)[1].tolist() == [2, 5, 16, 6]


@pytest.mark.parametrize("length", [4, 0])
def test_more_new_tokens_than_the_row_is_long(length):
    spec = ragged.writing()
    dims, arrays = ragged.batch(spec, [length + 1], [length + 1])
    assert run(spec, wrong(arrays, 3, 0, length), dims)[1].tolist() == [1, -1, length, 0]


def test_a_cache_without_blocks_is_not_read():
    spec = ragged.attention("paged_attention")
    dims, arrays = ragged.batch(spec, [1], [3])
    arrays[1:3] = [array[:0] for array in arrays[1:3]]
    (found,), status = run(spec, arrays, dims | {"d1": 0})
    assert status.tolist() == [1, 3, 1, 0]
    assert not found.any()


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_refusals(target):
    attention = ragged.attention
    body = Body((Operand("float32", ("d0", 4, 32)),), (), (0,))
    plain = attention("ragged_attention")
    early = Spec(plain.op, plain.operands, plain.result, plain.outputs, plain.attrs, body)
    for spec, reason in (
        (attention("ragged_attention", "float64"), "wanted floats of up to 32 bits, got float64"),
        (attention("ragged_attention", heads="d7"), "wanted static heads, got ('d7', 32, 2)"),
        (attention(OPS[1], size=1025), "wanted a head size of at most 1024, got 1025"),
        (early, "it takes no prologue"),
    ):
        assert find(spec.op, target).supports(spec) == reason
    write = ragged.writing()
    late = Spec(write.op, write.operands, write.result, write.outputs, (), None, body)
    assert find("paged_write", target).supports(late) == "it takes no prologue and no epilogue"
