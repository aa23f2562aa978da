"""Attention of ragged rows on tensor cores: on the emulator against float64, and assembled."""

import cuda_cases as cases
import numpy as np
import pytest
import ragged_batches as ragged
from assembler import check_no_spills, needs_assembler
from cuda_harness import run_call
from emulator.memory import EmulatorError
from flash_answers import check_ragged

from heddle.kernels.cuda.flash import stages, tiles

CASES = {
    "paged, one token each": (
        ragged.attention("paged_attention", "bfloat16", heads=8, size=64, block=16),
        ([1, 1, 1], [3, 70, 1]),
    ),
    "paged, few and many": (
        ragged.attention("paged_attention", "float16", heads=4, size=128, block=7),
        ([1, 40, 0, 3], [66, 41, 5, 30]),
    ),
    "paged, window": (
        ragged.attention("paged_attention", "bfloat16", heads=2, size=32, block=3, window=20),
        ([1, 70, 2], [100, 90, 2]),
    ),
    "paged, few and many of 256": (
        ragged.attention("paged_attention", "bfloat16", heads=4, size=256, block=7, softcap=9.0),
        ([1, 20], [66, 35]),
    ),
    "ragged": (
        ragged.attention("ragged_attention", "bfloat16", heads=3, key_heads=1, size=96),
        ([25, 0, 2], [25, 4, 70]),
    ),
    "ragged, window": (
        ragged.attention("ragged_attention", "float16", heads=6, size=64, window=9),
        ([1, 23], [80, 30]),
    ),
    "ragged, every key": (
        ragged.attention("ragged_attention", "float16", size=32, causal=False),
        ([5, 40, 1], [0, 3, 65]),
    ),
    "many rows": (
        ragged.attention("ragged_attention", "float16", heads=1, key_heads=1, size=32),
        ([1, 0, 2] * 13, [2, 1, 2] * 13),
    ),
}


def batch(spec, counts, lengths):
    """A batch with two tokens before its first row, and three after its last one."""
    dims, arrays = ragged.batch(spec, counts, lengths)
    query, offsets = arrays[0], arrays[3]
    around = [np.ones((count, *query.shape[1:]), query.dtype) for count in (2, 3)]
    arrays[0], arrays[3] = np.concatenate([around[0], query, around[1]]), offsets + 2
    return dims | {"d0": len(arrays[0])}, arrays


@pytest.mark.parametrize("name", CASES)
def test_on_the_emulator(name):
    check(*CASES[name])


@pytest.mark.parametrize("causal", [False, True])
def test_tiles_in_the_order_of_their_keys(monkeypatch, causal):
    monkeypatch.setattr(tiles, "_LONG", (70, 30, 8))
    spec = ragged.attention(
        "ragged_attention", "float16", heads=3, key_heads=1, size=96, causal=causal
    )
    check(spec, ([40, 0, 70, 9], [41, 3, 100, 5]))


def check(spec, rows):
    found = check_ragged(spec, *batch(spec, *rows))
    assert not found[:2].any()
    assert not found[-3:].any()


def test_unaligned_keys():
    spec = ragged.attention("paged_attention", "bfloat16", size=32)
    dims, arrays = batch(spec, [1, 17], [66, 20])
    found = [run_call(spec, arrays, dims, shift)[0][0] for shift in (0, 1)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("number", "place", "value", "status"),
    [
        (-3, 2, 1, [2, 1, 5, 2]),
        (-2, 1, 17, [1, 17, 17, 0]),
        (-1, (1, 1), 99, [1, 99, 4, 0]),
        (-1, (1, 0), -1, [1, -1, 4, 0]),
    ],
)
def test_what_is_wrong_is_reported(number, place, value, status):
    spec = ragged.attention("paged_attention", "bfloat16")
    dims, arrays = ragged.batch(spec, [2, 3], [4, 7])
    assert (dims["d1"], dims["d4"]) == (4, 4)
    arrays[number][place] = value
    assert run_call(spec, arrays, dims)[1] == status


def test_a_missing_barrier_is_caught(monkeypatch):
    spec, rows = CASES["paged, one token each"]
    monkeypatch.setattr(stages, "meet_in_warp", lambda: None)
    dims, arrays = batch(spec, *rows)
    with pytest.raises(EmulatorError, match=r"race: reads what a cp\.async in flight"):
        run_call(spec, arrays, dims)


ASSEMBLED = {
    f"{op}, {size}, window {window}": ragged.attention(
        op, "bfloat16", heads=8, size=size, block=16, window=window
    )
    for op, size, window in (
        ("ragged_attention", 128, 9),
        ("paged_attention", 64, 9),
        ("paged_attention", 96, 0),
        ("paged_attention", 256, 9),
    )
}
ASSEMBLED["64, fused"] = cases.fused(
    ragged.attention("paged_attention", "float16", size=64, window=9), prologue=False
)


@needs_assembler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ASSEMBLED)
def test_no_register_is_spilled(name, arch):
    text = check_no_spills(ASSEMBLED[name], arch)
    for instruction in ("cp.async.cg.shared.global", "mma.sync.aligned.m16n8k16", "redux.sync.max"):
        assert instruction in text
