"""Drawn tokens and penalties, against the ops' references."""

from itertools import pairwise

import numpy as np
import pytest
import sampling_rows as rows
from native import ARCHS, check, run
from reference import evaluate

from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Spec


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("name", rows.SETTINGS)
def test_drawing(name, mask, arch):
    """Equal to the reference: no draw here is within a rounding of another token's.

    (The kernels' exponentials are within 2 ulp, which moves the borders between tokens by less
    than 10^-6 of the whole.)
    """
    spec = rows.drawing(mask=mask)
    for length, ties in ((1, False), (37, False), (1000, True), (5000, False)):
        words = -(-length // 32) - (length > 37) if mask else None
        logits = rows.logits(40, length, ties=ties)
        check(spec, *rows.step(logits, *rows.SETTINGS[name], words=words), arch=arch)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_logits(dtype):
    logits = rows.logits(60, 700, dtype)
    for name in ("plain", "all", "top_p"):
        check(rows.drawing(dtype, mask=True), *rows.step(logits, *rows.SETTINGS[name], words=22))


def test_every_bin():
    """Ties at each distance from the top, in one key and around a border of bins."""
    steps = np.repeat(np.linspace(0, -25, 2400).astype(np.float32), 2)
    logits = np.stack([steps + 1e-7 * i for i in range(16)]).astype(np.float32)
    for temperature in (1, 40):
        for top_k in (2, 3, 700, 4000, 4799):
            check(rows.drawing(), *rows.step(logits, temperature, 0.97, 0, top_k))
    same = np.zeros((40, 999), np.float32)
    for top_k, top_p in ((0, 0.5), (500, 1), (333, 0.1)):
        (found,) = check(rows.drawing(), *rows.step(same, 1, top_p, 0, top_k))
        assert found.max() < 500


@pytest.mark.parametrize("arch", ARCHS)
def test_where_a_sample_says_nothing_about_the_cut(arch):
    """The first vectors of parts have little weight; or more is alike than can be listed."""
    length = 40_000
    assert -(-length // (128 * 16)) == 20, "vectors of 16 in a part"
    hidden = np.random.default_rng(0).uniform(-1, 0, (3, length)).astype(np.float32)
    hidden[:, np.arange(length) // 16 % 20 == 0] = -20
    for logits in (hidden, np.zeros((3, length), np.float32)):
        for top_p, min_p, top_k in ((0.7, 0, 0), (1, 0, 5000), (0.7, 0.5, 5000)):
            check(rows.drawing(), *rows.step(logits, 1, top_p, min_p, top_k), arch=arch)


@pytest.mark.parametrize("top_p", [0.02, 0.5, 0.98])
def test_a_long_row(top_p):
    """The cut is where a sample says, so that few logits are listed, some of them alike."""
    logits = np.round(rows.logits(3, 60_000) * 64) / 64
    for temperature, min_p, top_k in ((1, 0, 0), (2, 0.001, 0), (1, 0, 3000)):
        check(rows.drawing(), *rows.step(logits, temperature, top_p, min_p, top_k))


def test_both_zeros_are_one_logit():
    logits = np.zeros((30, 40), np.float32)
    logits[:, ::2] = -0.0
    (found,) = check(rows.drawing(), *rows.step(logits, 1, 1, 0, 3))
    assert set(found) == {0, 1, 2}


@pytest.mark.parametrize(("temperature", "distance"), [(1e-45, 1e-39), (np.inf, 3e37)])
def test_temperatures_end_where_their_inverses_do(temperature, distance):
    logits = rows.logits(99, 5) * np.float32(distance)
    (found,) = check(rows.drawing(), *rows.step(logits, temperature, 1, 0, 0))
    assert len(set(found)) > 1


@pytest.mark.parametrize("arch", ARCHS)
def test_rows_without_an_answer(arch):
    dims, arrays, wanted = rows.broken()
    (found,) = check(rows.drawing(mask=True), dims, arrays, arch=arch)
    for token, expected in zip(found, wanted, strict=True):
        assert token == expected if expected is not None else 0 <= token < 50
    dims, arrays = rows.step(rows.logits(2, 9), 1, 1, 0, 0, words=0)
    assert run(rows.drawing(mask=True), arrays, dims, arch)[0][0].tolist() == [-1, -1]
    dims, arrays = rows.step(rows.logits(2, 0), 1, 1, 0, 0)
    assert run(rows.drawing(), arrays, dims, arch)[0][0].tolist() == [-1, -1]


def test_a_row_does_not_depend_on_the_others():
    dims, arrays = rows.step(rows.logits(9, 400), *rows.SETTINGS["all"])
    (whole,), _ = run(rows.drawing(), arrays, dims)
    for row in range(9):
        alone = [array[row : row + 1] for array in arrays]
        assert run(rows.drawing(), alone, dims | {"d0": 1})[0][0] == whole[row]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_penalties(dtype):
    """Only what changes is written: an output starts full of one byte."""
    dims, arrays = rows.penalties(dtype)
    before = np.full(arrays[0].nbytes, 0xA5, np.uint8).view(arrays[0].dtype)
    wanted = before.reshape(3, 300)
    (penalized,) = evaluate(rows.penalizing(dtype), dims, arrays)
    for row, (start, stop) in enumerate(pairwise(arrays[3])):
        tokens = arrays[2][start:stop, 0]
        wanted[row, tokens] = penalized[row, tokens]
    for cuts in ((), (0.4, 0.7)):
        (found,), status = run(rows.penalizing(dtype), arrays, dims, cuts=cuts)
        assert status.tolist() == [0, 0, 0, 0]
        assert found.tobytes() == wanted.tobytes()


def test_an_infinite_penalty_spares_what_was_not_generated():
    """Whose count is 0: infinity times it is no number."""
    dims, arrays = rows.penalties()
    arrays[1][:, 4] = np.inf
    (found,), _ = run(rows.penalizing(), arrays, dims)
    (wanted,) = evaluate(rows.penalizing(), dims, arrays)
    for row, (start, stop) in enumerate(pairwise(arrays[3])):
        tokens = arrays[2][start:stop, 0]
        np.testing.assert_array_equal(found[row, tokens], wanted[row, tokens])
    assert np.isinf(wanted).any()
    assert not np.isnan(wanted).any()


@pytest.mark.parametrize(
    ("number", "place", "value", "status"),
    [
        (2, (3, 0), 300, [1, 300, 300, 0]),
        (2, (3, 0), -1, [1, -1, 300, 0]),
        (3, 2, 269, [2, 269, 310, 270]),
        (3, 3, 311, [2, 311, 310, 270]),
        (3, 0, -1, [2, 270, 310, -1]),
    ],
)
def test_what_is_wrong_with_penalties_is_reported(number, place, value, status):
    dims, arrays = rows.penalties()
    arrays[number][place] = value
    assert run(rows.penalizing(), arrays, dims)[1].tolist() == status


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_refusals(target):
    late = Body((), (), (0,))
    for spec in (rows.drawing(), rows.penalizing()):
        supports = find(spec.op, target).supports
        wrong = Spec(spec.op, spec.operands, spec.result, spec.outputs, (), None, late)
        assert supports(wrong) == "it takes no prologue and no epilogue"
    for spec in (rows.drawing("float64"), rows.penalizing("float64")):
        reason = find(spec.op, target).supports(spec)
        assert reason == "wanted floats of up to 32 bits, got float64"
