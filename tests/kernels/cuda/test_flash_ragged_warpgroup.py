"""Attention of ragged rows by warpgroups: on the emulator, with mistakes, and assembled."""

from dataclasses import replace

import cuda_cases as cases
import cuda_harness
import numpy as np
import pytest
import ragged_batches as ragged
from assembler import needs_assembler
from cuda_harness import run_call
from emulator.memory import EmulatorError
from flash_answers import check_ragged
from reference import size
from test_flash_ragged import batch
from test_flash_warpgroup import HOPPER, assembled, check_code

from heddle.kernels.cuda.flash import feed as flash_feed
from heddle.kernels.cuda.flash import tiles
from heddle.kernels.cuda.warpgroup import instructions as warpgroup
from heddle.kernels.cuda.warpgroup import tma
from heddle.kernels.registry import find

PAGED, RAGGED = "paged_attention", "ragged_attention"
ONE = ragged.attention(RAGGED, "bfloat16", heads=1, key_heads=1, size=64)
CASES = {
    # spec, tokens of rows, keys of rows, elements that buffers are shifted by
    "paged, few and many, of several steps": (
        ragged.attention(PAGED, "bfloat16", heads=2, key_heads=1, size=64, block=16),
        ([40, 1, 0, 17], [66, 41, 5, 200]),
        0,
    ),
    "a box for a step, no keys, every key": (
        ragged.attention(PAGED, "bfloat16", heads=1, key_heads=1, size=64, block=256, causal=False),
        ([20, 1], [200, 0]),
        0,
    ),
    "window": (
        ragged.attention(PAGED, "bfloat16", heads=1, key_heads=1, size=64, block=32, window=30),
        ([33, 20], [300, 20]),
        0,
    ),
    "heads of 128": (
        ragged.attention(PAGED, "float16", heads=4, key_heads=1, size=128, block=8),
        ([20, 1], [140, 20]),
        0,
    ),
    "heads of 256, window, cap": (
        ragged.attention(PAGED, "float16", heads=2, size=256, block=16, window=50, softcap=9.0),
        ([40, 1], [170, 20]),
        0,
    ),
    "ragged, groups that do not divide a tile": (
        ragged.attention(RAGGED, "float16", heads=3, key_heads=1, size=64),
        ([45, 6], [50, 140]),
        0,
    ),
    "ragged, window, groups of more rows than are few": (
        ragged.attention(RAGGED, "bfloat16", heads=32, key_heads=1, size=64, window=50),
        ([1, 6], [9, 139]),
        0,
    ),
    "unaligned": (
        ragged.attention(PAGED, "bfloat16", heads=1, key_heads=1, size=64, block=16),
        ([1, 34], [70, 40]),
        1,
    ),
}


def check(spec, dims, arrays, shift=0):
    return check_ragged(spec, dims, arrays, shift, HOPPER)


@pytest.mark.parametrize("name", CASES)
def test_on_the_emulator(name):
    spec, rows, shift = CASES[name]
    assert find(spec.op, "cuda").launch_on(spec, HOPPER).tensor_maps
    check(spec, *ragged.batch(spec, *rows), shift)


def test_tokens_in_no_row_get_zeros():
    dims, arrays = batch(ONE, [20], [30])
    found = check(ONE, dims, arrays)
    assert not found[:2].any()
    assert not found[-3:].any()


def test_blocks_that_rows_share():
    spec = ragged.attention(PAGED, "bfloat16", heads=1, key_heads=1, size=64, block=16)
    dims, arrays = ragged.batch(spec, [20, 30], [50, 61])
    arrays[-1][1, :2] = arrays[-1][0, :2]
    check(spec, dims, arrays)


def test_what_sees_most_keys_comes_first(monkeypatch):
    monkeypatch.setattr(tiles, "_LONG", (150, 90))
    spec = ragged.attention(RAGGED, "bfloat16", heads=1, key_heads=1, size=64)
    dims, arrays = ragged.batch(spec, [130, 20, 17], [130, 200, 100])
    ends = [0, 128, 130, 150, 167]  # Of the tiles, which see 128, 130, 200 and 100 keys.
    order = [2, 1, 0, 3]
    (wanted,), _ = run_call(spec, arrays, dims, machine=HOPPER)
    for count in (1, 3):
        monkeypatch.setattr(cuda_harness, "blocks_started", lambda *_, count=count: count)
        (found,), _ = run_call(spec, arrays, dims, machine=HOPPER)
        right = (found.view(np.uint16) == wanted.view(np.uint16)).all(axis=(1, 2))
        made = [bool(right[ends[i] : ends[i + 1]].all()) for i in range(4)]
        assert made == [i in order[:count] for i in range(4)]


def beside_nothing():
    """A row of one sequence, in front of keys and values of another that are no numbers."""
    dims, arrays = ragged.batch(ONE, [40, 1], [300, 90])
    for array in arrays[1:3]:
        array[300:] = np.nan
    return arrays, dims


def test_what_follows_a_sequence_does_not_matter():
    arrays, dims = beside_nothing()
    (found,), _ = run_call(ONE, arrays, dims, machine=HOPPER)
    arrays[1][300:], arrays[2][300:] = 0, 0
    (wanted,), _ = run_call(ONE, arrays, dims, machine=HOPPER)
    np.testing.assert_array_equal(found[:40], wanted[:40])
    assert np.isfinite(found[:40].astype(float)).all()


def test_values_that_stay_are_seen(monkeypatch):
    monkeypatch.setattr(flash_feed.Feed, "_blank_values", lambda feed, number: None)
    arrays, dims = beside_nothing()
    (found,), _ = run_call(ONE, arrays, dims, machine=HOPPER)
    assert np.isnan(found[:40].astype(float)).any()


Turn, meet, initialise = warpgroup.Turn, warpgroup.meet, warpgroup.Ring.initialise
wait = Turn.wait_until_full
MISTAKES = {
    "values are blanked without a fence": (tma, "fence", lambda: None, r"fence\.proxy"),
    "the second does not wait for blanks": (
        warpgroup,
        "meet",
        lambda number, threads: None if number == flash_feed._BLANKED else meet(number, threads),
        "race|fence",
    ),
    "the other phase": (
        Turn,
        "wait_until_full",
        lambda turn: wait(replace(turn, parity=turn.parity ^ 1)),
        "uninitialised|race",
    ),
    "one box is waited for": (
        warpgroup.Ring,
        "initialise",
        lambda ring, full, empty: initialise(ring, full=warpgroup._word(1), empty=empty),
        "mbarrier|uninitialised|race",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_caught(monkeypatch, name):
    spec = ragged.attention(PAGED, "bfloat16", heads=1, key_heads=1, size=64, block=64)
    dims, arrays = ragged.batch(spec, [20], [600])
    place, function, wrong, message = MISTAKES[name]
    monkeypatch.setattr(place, function, wrong)
    with pytest.raises(EmulatorError, match=message):
        run_call(spec, arrays, dims, machine=HOPPER)


@pytest.mark.parametrize(
    ("number", "place", "value", "status"),
    [(-3, 2, 26, [2, 26, 25, 20]), (-2, 0, 65, [1, 65, 65, 0]), (-1, (0, 2), -1, [1, -1, 4, 0])],
)
def test_what_is_wrong_is_reported(number, place, value, status):
    spec = ragged.attention(PAGED, "bfloat16", heads=1, key_heads=1, size=64, block=16)
    dims, arrays = ragged.batch(spec, [20, 5], [33, 0])
    assert (dims["d1"], dims["d4"]) == (4, 5)
    arrays[-1] = arrays[-1][:, :4].copy()
    arrays[number][place] = value
    assert run_call(spec, arrays, dims | {"d4": 4}, machine=HOPPER)[1] == status


def test_few_tokens_are_for_blocks_that_share_a_multiprocessor():
    for op in (PAGED, RAGGED):
        spec = ragged.attention(op, "bfloat16", heads=32, key_heads=8, size=128, block=16)
        kernel = find(op, "cuda")
        few, many = kernel.split(spec)
        for tokens, rows in ((0, 0), (1, 1), (8, 8), (9, 8), (4096, 1)):
            dims = {"d0": tokens, "d2": rows + 1}
            assert [size(share.condition, dims) for share in (few, many)] == [
                int(tokens <= rows),
                int(tokens > rows),
            ]
        launches = [kernel.launch_on(share.spec, HOPPER) for share in (few, many)]
        assert [launch.block[0] for launch in launches] == [128, 384]
        assert [len(launch.tensor_maps) for launch in launches] == [0, 3]
        assert len({kernel.extras(share.spec) for share in (few, many)}) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"cache": "float8_e4m3fn"},  # Widened on the way.
        {"size": 96},
        {"block": 20},
        {"heads": 129, "key_heads": 1},
    ],
)
def test_others_stay_with_warps(options):
    spec = ragged.attention(PAGED, "bfloat16", **{"size": 64, "block": 16} | options)
    for share in find(PAGED, "cuda").split(spec):
        assert find(PAGED, "cuda").launch_on(share.spec, HOPPER).block[0] == 128


ASSEMBLED = {
    "paged": ragged.attention(PAGED, "bfloat16", heads=32, key_heads=8, size=128, block=16),
    "ragged, window": ragged.attention(RAGGED, "float16", heads=28, size=128, window=9),
    "paged, 256": ragged.attention(
        PAGED, "bfloat16", heads=16, key_heads=8, size=256, block=16, window=512, softcap=50.0
    ),
    "ragged, 256": ragged.attention(RAGGED, "float16", heads=6, size=256),
    "fused, 256": cases.fused(
        ragged.attention(PAGED, "float16", heads=8, size=256, block=16), prologue=False
    ),
    "fused, 64": cases.fused(
        ragged.attention(PAGED, "float16", heads=8, size=64, block=16), prologue=False
    ),
}


@needs_assembler
@pytest.mark.parametrize("name", ASSEMBLED)
def test_assembled(name):
    copies = "cp.async.bulk.tensor.3d.shared::cluster.global"
    made = assembled(ASSEMBLED[name], copies)
    if name == "paged":
        check_code(made, "UTMALDG.3D", "HGMMA.64x128x16.F32")
