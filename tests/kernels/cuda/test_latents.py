"""Attention whose values are the first columns of its keys, on the emulator."""

import cuda_harness
import latent_cases
import numpy as np
import pytest
import ragged_batches as ragged
from cuda_harness import run_call, turned
from emulator.memory import EmulatorError
from flash_answers import check_rounded
from reference import evaluate, size

from heddle.kernels.cuda import _handover
from heddle.kernels.cuda.flash import latents, split
from heddle.kernels.registry import MACHINES, find

PAGED, RAGGED = "paged_attention", "ragged_attention"


def attention(op, dtype="bfloat16", **options):
    """Of tiny latents: 192 columns, of which 128 are values."""
    shape = {"heads": 4, "key_heads": 1, "size": 192, "values": 128, "block": 16}
    return ragged.attention(op, dtype, latent=True, **{**shape, **options})


CASES = {
    "one token each": (attention(PAGED), ([1, 1, 1], [3, 70, 1])),
    "few rows, some, many": (attention(PAGED, block=7), ([1, 10, 0, 20], [66, 41, 5, 30])),
    "heads for a tile": (attention(PAGED, heads=64), ([1, 1], [40, 33])),
    "heads for two tiles": (attention(PAGED, heads=128), ([1, 2], [35, 9])),
    "heads for tiles that are not full": (attention(PAGED, heads=100), ([1, 1], [35, 64])),
    "heads for a tile of 32": (attention(PAGED, heads=20), ([1, 1, 2], [70, 33, 9])),
    "two latents": (attention(PAGED, "float16", heads=6, key_heads=2), ([2, 1], [40, 33])),
    "two latents of many heads": (attention(RAGGED, heads=144, key_heads=2), ([2], [5])),
    "window": (attention(PAGED, "float16", window=20, block=3), ([1, 40], [100, 50])),
    "capped": (attention(RAGGED, softcap=3.0), ([3, 20], [40, 20])),
    "sinks": (attention(PAGED, sinks=True), ([1, 20], [70, 20])),
    "sinks of many heads": (attention(PAGED, heads=72, sinks=True), ([1, 2], [70, 20])),
    "every key": (attention(RAGGED, "float16", causal=False), ([5, 40, 1], [0, 3, 65])),
    "values of 256": (attention(RAGGED, size=320, values=256), ([1, 20], [40, 20])),
}


def check(spec, dims, arrays, shift=0):
    """The result, off float64 by less than the rounding of shares and of results."""
    (wanted,) = evaluate(spec, dims, arrays)
    arrays[2] = np.full_like(arrays[2], np.nan)  # Values are not read, but as keys.
    (found,), status = run_call(spec, arrays, dims, shift)
    assert status == [0, 0, 0, 0]
    check_rounded(found, wanted, spec.result.dtype, arrays[1])
    return found


@pytest.mark.parametrize("name", CASES)
def test_on_the_emulator(name):
    spec, rows = CASES[name]
    check(spec, *ragged.batch(spec, *rows))


@pytest.mark.parametrize("heads", [16, 128])
def test_deepseek(monkeypatch, heads):
    """With the stages of sm_90a, all of which a sequence goes through."""
    monkeypatch.setattr(cuda_harness, "MACHINE", MACHINES["sm_90a"])
    spec = attention(PAGED, heads=heads, size=576, values=512, block=64)
    dims, arrays = ragged.batch(spec, [1], [150])
    check(spec, dims, arrays)


@pytest.mark.parametrize("heads", [4, 64])
def test_unaligned_keys(heads):
    spec = attention(PAGED, heads=heads)
    dims, arrays = ragged.batch(spec, [1, 2], [66, 20])
    found = [check(spec, dims, arrays.copy(), shift) for shift in (0, 1)]
    np.testing.assert_array_equal(*found)


def test_what_is_wrong_is_reported():
    spec = attention(PAGED, block=4)
    for number, place, value, status in (
        (-3, 2, 1, [2, 1, 5, 2]),
        (-2, 1, 17, [1, 17, 17, 0]),
        (-1, (1, 1), 99, [1, 99, 4, 0]),
    ):
        dims, arrays = ragged.batch(spec, [2, 3], [4, 7])
        assert (dims["d1"], dims["d4"]) == (4, 4)
        arrays[number][place] = value
        assert run_call(spec, arrays, dims)[1] == status


SPLIT = {
    "few rows": (attention(PAGED), ([1, 2, 30], [300, 70, 30])),
    "some rows": (attention(PAGED, "float16"), ([7, 1], [300, 40])),
    "many heads": (attention(PAGED, heads=64), ([1], [300])),
    "many heads, two tiles": (attention(PAGED, heads=128), ([1], [200])),
    "sinks": (attention(RAGGED, heads=24, sinks=True), ([2, 1], [200, 70])),
}


@pytest.mark.parametrize("name", SPLIT)
@pytest.mark.usefixtures("short_parts")
def test_split_keys(name):
    spec, rows = SPLIT[name]
    check(spec, *ragged.batch(spec, *rows))


@pytest.mark.usefixtures("short_parts")
def test_a_sequence_has_a_bounded_number_of_parts(monkeypatch):
    """Two of its three stages are one part then, and there is a block less."""
    monkeypatch.setattr(latents, "PARTS", {16: 2})
    monkeypatch.setattr(cuda_harness, "keeps", False)
    spec = attention(PAGED)
    dims, arrays = ragged.batch(spec, [1], [190])
    assert size(find(PAGED, "cuda").launch(spec).grid[0], dims) == 1 + 3 + 1
    check(spec, dims, arrays)


@pytest.mark.parametrize("heads", [4, 64])
@pytest.mark.usefixtures("short_parts")
def test_it_does_not_matter_who_is_last(monkeypatch, heads):
    spec = attention(PAGED, heads=heads)
    dims, arrays = ragged.batch(spec, [1], [200])
    first = check(spec, dims, arrays.copy())
    turned(monkeypatch)
    np.testing.assert_array_equal(check(spec, dims, arrays), first)


def nothing(*_) -> None:
    pass


MISTAKES = {
    "no fence": (_handover, "fence", nothing, "race: two threads write buffer"),
    "slots of too few lines": (
        split,
        "slot",
        lambda size, lines: lines * size // 2,
        "race: writes|race: two",
    ),
    "scores that nobody has left yet": (latents, "_meet", nothing, "reads uninitialised bytes"),
    "a row of scores less": (latents, "_PITCH", 24, "race: "),
}


@pytest.mark.parametrize("heads", [4, 64])
@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.usefixtures("short_parts")
def test_a_mistake_is_caught(monkeypatch, name, heads):
    module, what, planted, message = MISTAKES[name]
    monkeypatch.setattr(module, what, planted)
    monkeypatch.setattr(cuda_harness, "keeps", False)
    spec = attention(PAGED, heads=heads)
    with pytest.raises(EmulatorError, match=message):
        run_call(spec, *ragged.batch(spec, [1], [200])[::-1])


PLAIN = {
    "float32": {"dtype": "float32"},
    "values that are no keys": {"latent": False},
    "a cache of 8 bits": {"cache": "float8_e4m3fn"},
    "values of another size": {"values": 100},
    "keys of another size": {"size": 200},
}


@pytest.mark.parametrize("op", [PAGED, RAGGED])
@pytest.mark.parametrize("name", PLAIN)
def test_others_are_for_plain_threads(op, name):
    shape = {"dtype": "bfloat16", "heads": 3, "key_heads": 1, "size": 192, "values": 128}
    spec = ragged.attention(op, **{**shape, "latent": True, **PLAIN[name]})
    assert not latents.fits(spec)
    dims, arrays = ragged.batch(spec, [1, 5, 0, 3], [7, 5, 3, 40])
    (found,), status = run_call(spec, arrays, dims)
    assert status == [0, 0, 0, 0]
    (wanted,) = evaluate(spec, dims, arrays)
    step = 2e-2 if spec.result.dtype == "bfloat16" else 1e-5
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=step, atol=step)


def test_parts_of_the_heads_of_a_latent():
    wanted = {4: 1, 16: 1, 64: 1, 72: 2, 100: 2, 128: 2, 67: 67}
    found = {heads: latents.parts(attention(PAGED, heads=heads)) for heads in wanted}
    assert found == wanted


def test_as_many_blocks_as_keys_ask_for():
    """Of one token of 128 heads, two for each part of its keys."""
    spec = latent_cases.of_heads(128)
    launch = find(PAGED, "cuda").launch(spec)
    dims = {"d0": 1, "d1": 999, "d2": 2, "d3": 1, "d4": 8192 // 64}
    assert size(launch.grid[0], dims) == 2 * (1 + 3 + 15)
    assert size(launch.workspace, dims) == 2 * 2 * 15 * 64 * (512 + 2) * 4
