"""attention: layouts, masks, causal, grouped heads, dtypes, odd sizes."""

import least_masks
import numpy as np
import pytest
from attention_specs import attention, sizes
from native import ARCHS, check, run
from prefetches import lines_asked_for
from reference import shape

from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Body, Operand, Step


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("causal", [False, True])
def test_lengths(layout, causal, arch):
    spec = attention(layout=layout, causal=causal)
    for queries, keys in ((1, 1), (5, 7), (13, 150), (70, 33), (130, 130)):
        check(spec, sizes(queries, keys), arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("window", [1, 40, 128, 500])
def test_windows(window, arch):
    spec = attention(size=128, causal=True, window=window)
    for queries, keys in ((1, 1), (5, 300), (130, 130), (70, 33)):
        check(spec, sizes(queries, keys), arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("size", [1, 24, 100, 256])
def test_head_sizes(size, arch):
    spec = attention(size=size, heads=1, key_heads=1)
    check(spec, sizes(29, 50), arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_dtypes(dtype, arch):
    mask = Operand(dtype, ("d0", "d1"))
    check(attention(dtype, size=20, mask=mask), sizes(29, 33), arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [1, 31, 100])
def test_pairs_of_bfloat16(size):
    """Exponentials are rounded to bfloat16: an error of 2**-9 of the greatest value."""
    for causal in (False, True):
        mask = None if causal else Operand("bool", ("d1",))
        more = {"heads": 2, "key_heads": 1, "layout": "bshd", "causal": causal, "mask": mask}
        spec = attention("bfloat16", size=size, **more)
        for queries, keys in ((1, 1), (13, 150), (70, 33), (140, 131)):
            check(spec, sizes(queries, keys), arch="cooperlake", rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        ("float32", (2, 1, 1, "d1")),
        ("bool", (2, 4, "d0", "d1")),
        ("float32", ("d0", 1)),
        ("bool", (1, 4, 1, 1)),
        ("bool", ("d1",)),
        ("float32", ()),
    ],
)
def test_masks(dtype, shape):
    spec = attention(heads=4, key_heads=2, layout="bshd", mask=Operand(dtype, shape))
    check(spec, sizes(13, 140), rtol=1e-5, atol=1e-5)


def test_a_query_without_keys_gives_zeros():
    spec = attention(batch=1, heads=1, key_heads=1, mask=Operand("bool", ("d0", "d1")))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((1, 1, 20, 32)).astype(np.float32) for _ in range(3)]
    mask = np.ones((20, 20), bool)
    mask[3] = False
    (got,), _ = run(spec, [*arrays, mask], sizes(20, 20))
    assert not got[0, 0, 3].any()
    assert got[0, 0, 4].all()


@pytest.mark.parametrize("arch", [*ARCHS, "cooperlake"])
@pytest.mark.parametrize(
    ("dtype", "mask"),
    [
        ("float32", "float32"),
        ("float64", "float64"),
        ("float16", "float16"),
        ("bfloat16", "bfloat16"),
        ("bfloat16", "float32"),
    ],
)
def test_the_least_number_as_a_mask(dtype, mask, arch):
    spec = attention(dtype, heads=2, key_heads=1, mask=Operand(mask, ("d0", "d1")))
    arrays = least_masks.arrays(spec, sizes(40, 300))
    # Scores of float16 beside its least number are rounded to 2**-8.
    atol = {"float16": 1e-2, "bfloat16": 4e-3}.get(dtype, 1e-5)
    (found,) = check(spec, sizes(40, 300), arrays, arch=arch, rtol=1e-5, atol=atol)
    least_masks.check(found, arrays)


def test_scores_far_apart():
    spec = attention(batch=1, heads=1, key_heads=1)
    rng = np.random.default_rng(0)
    arrays = [(30 * rng.standard_normal((1, 1, 200, 32))).astype(np.float32) for _ in range(3)]
    check(spec, sizes(200, 200), arrays, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("group", [(4, 1), (6, 2)])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_grouped_heads(layout, group):
    """Those that share keys are in one task: 100 of a head end within its rows."""
    heads, key_heads = group
    mask = Operand("bool", (heads, "d0", "d1"))
    more = {"heads": heads, "key_heads": key_heads, "layout": layout, "batch": 1}
    check(attention(mask=mask, **more), sizes(9, 11), rtol=1e-5, atol=1e-5)
    causal = attention(causal=True, window=40, **more)
    for queries, keys in ((9, 11), (100, 110)):
        check(causal, sizes(queries, keys), rtol=1e-5, atol=1e-5)


def test_grouped_heads_of_any_number():
    """Where their number is not known, each has tasks of its own."""
    spec = attention(heads="d2", key_heads="d3", queries=9, keys=11, batch=1)
    check(spec, {"d2": 6, "d3": 3}, rtol=1e-5, atol=1e-5)


def test_epilogue():
    residual = Operand("float32", (2, 3, "d0", 32))
    epilogue = Body((residual,), (Step("add", (0, 1), "float32"),), (2,))
    check(attention(epilogue=epilogue), sizes(9, 11), rtol=1e-5, atol=1e-5)


def test_static_lengths():
    check(attention(queries=20, keys=40), rtol=1e-5, atol=1e-5)


def test_refusals():
    supports = find("attention", "cpu").supports
    wanted = "wanted a static head size of at most 1 KiB"
    assert supports(attention(size="d2")) == f"{wanted}, got d2"
    assert supports(attention(size=257)) == f"{wanted}, got 257"
    assert supports(attention("int8")) == "wanted floats, got int8"
    body = Body((attention().operands[0],), (), (0,))
    assert supports(attention(prologue=body)) == "it takes no prologue"


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("keys", [16, 40, 128])
def test_what_comes_next_is_asked_for(keys, layout):
    """Beside its only block a task asks for all that the next one reads, and for its results."""
    spec, queries = attention(layout=layout), 25
    operands = [shape(operand.shape, sizes(queries, keys)) for operand in spec.buffers]
    buffers = [np.zeros(extents, np.float32) for extents in operands]
    machine = MACHINES[ARCHS[-1]]
    asked = lines_asked_for(spec, machine, buffers, (queries, keys), 0, 1)

    def lines(number, head):
        places = np.arange(buffers[number].size).reshape(buffers[number].shape)
        rows = places[0, head] if layout == "bhsd" else places[0, :, head]
        return set(rows.ravel() * 4 // 64)

    assert lines(3, 0) <= asked[3]
    for number in range(3):
        assert lines(number, 1) <= asked[number]


def test_the_next_block_of_keys_is_asked_for():
    """Of three blocks the first is read at once; the others, and the next task's, are asked for."""
    spec, queries, keys = attention(), 12, 300
    operands = [shape(operand.shape, sizes(queries, keys)) for operand in spec.buffers]
    buffers = [np.zeros(extents, np.float32) for extents in operands]
    asked = lines_asked_for(spec, MACHINES[ARCHS[-1]], buffers, (queries, keys), 0, 1)
    head = range(128 * 2, (keys + 128) * 2)  # two lines each
    for number in (1, 2):
        assert set(head) <= asked[number]
