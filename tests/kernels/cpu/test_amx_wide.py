"""Attention of wide heads in AMX tiles, whose queries are turned: emulated, and as it ships."""

import re

import amx_emulation
import machine_code
import numpy as np
import pytest
import ragged_batches as ragged
import ragged_tiles
from native import BUFFER, llvm_ir, run
from ragged_tiles import ARCH

from heddle.kernels.cpu.amx import wide
from heddle.kernels.cpu.decode.parts import crowded
from heddle.kernels.cpu.flash.cut import is_wide
from heddle.kernels.registry import MACHINES, find

pytestmark = pytest.mark.usefixtures("products")

MACHINE = MACHINES[ARCH]
OPS = ["ragged_attention", "paged_attention"]
CROWD = {"heads": 52, "key_heads": 1, "size": 160, "values": 64}


def latents(op=OPS[1], **options):
    shape = {"heads": 6, "key_heads": 2, "size": 160, "values": 64}
    return ragged.attention(op, "bfloat16", **{**shape, **options})


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": False},
        {"window": 40, "sinks": True, "block": 16},
        {"softcap": 3.0, "block": 3},
        {"cache": "float8_e4m3fn"},
        {"heads": 34, "key_heads": 1, "size": 192, "values": 128, "block": 32},
    ],
)
def test_prompts(op, options):
    """Of rows longer than a block of keys, and of fewer keys than tokens."""
    ragged_tiles.close(latents(op, **options), [11, 0, 20, 5], [150, 3, 47, 2])


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_value_that_is_no_number(number):
    """It makes that of its pair none, too, and no others, for the queries that see it."""
    spec = latents(OPS[0])
    dims, arrays = ragged.batch(spec, [20, 18], [20, 18])
    (before,), _ = run(spec, arrays, dims, ARCH)
    arrays[2][3, 1, 5] = number
    (after,), _ = run(spec, arrays, dims, ARCH)
    changed = (before != after).any(axis=(0, 1))
    assert set(np.flatnonzero(changed)) == {4, 5}
    np.testing.assert_array_equal(before[20:], after[20:])


def test_few_tokens_under_few_heads():
    """They decode beside a prompt."""
    ragged_tiles.close(latents(), [1, 2, 20, 1], [150, 40, 47, 1])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window": 290, "block": 3},
        {"heads": 96, "key_heads": 1, "block": 16, "sinks": True},
        {"heads": 128, "key_heads": 2, "softcap": 3.0},
        {"cache": "float8_e4m3fn"},
    ],
)
def test_rows_that_decode(options):
    """Parts of a row that are no whole tiles, and queries that are, and are not."""
    spec = latents(**{**CROWD, **options})
    assert crowded(spec)
    ragged_tiles.close(spec, [1, 0, 1, 1], [570, 9, 33, 1])


def test_a_row_alone_has_the_bits_of_one_among_others():
    ragged_tiles.a_row_alone_has_its_bits(latents(**CROWD), [1, 20, 1], [300, 40, 7])


@pytest.mark.parametrize(("block", "copied"), [(16, False), (8, True)])
def test_keys_are_multiplied_where_they_lie(block, copied):
    """Sixteen of a block of the cache; those of two blocks lie apart, and their values are copied.

    A copied value follows the one before it at once, no other rows of tiles are as far apart.
    """
    spec = latents(**{**CROWD, "values": 128, "block": block})
    dims, arrays = ragged.batch(spec, [1], [64])
    arrays[5][0, : 64 // block] = np.arange(64 // block)[::-1]
    arrays[1:3] = [np.nan_to_num(cache) for cache in arrays[1:3]]
    run(spec, arrays, dims, ARCH)
    distances = set(np.diff(amx_emulation.rows_touched).tolist())
    assert 2 * 160 in distances
    assert (2 * 128 in distances) == copied


@pytest.mark.parametrize(
    "options",
    [
        {"heads": 128, "key_heads": 1, "size": 576, "values": 512},
        {"heads": 16, "key_heads": 1, "size": 640},
        {"heads": 128, "key_heads": 128, "size": 192, "values": 128},
    ],
)
def test_a_thread_of_2_mib_has_room(options):
    spec = latents(**options)
    sizes = [int(found[2]) for found in BUFFER.finditer(llvm_ir(spec, MACHINE))]
    assert sum(sizes) < 1.9 * 2**20


def test_the_stack():
    ragged_tiles.stays_in_its_buffers(latents(**CROWD), [1, 20], [300, 40])


def test_the_machine_code():
    """A strip of two tiles of queries and one of one: no tile is spilled."""
    text = machine_code.assembly(latents(**CROWD, block=16), MACHINE)
    assert re.search(r"tile(loadd|stored).*%rsp", text) is None
    assert text.count("ldtilecfg") == text.count("tilerelease") == 1


def test_what_is_wide():
    uses = find(OPS[0], "cpu").uses
    assert uses(latents()) == uses(latents(cache="float8_e4m3fn")) == ("dots", "tiles")
    for options in ({}, {"cache": "float8_e4m3fn"}):
        assert is_wide(latents(**options))
    for options in ({"values": 160}, {"values": 96}, {"size": 176}, {"size": 672}):
        assert not is_wide(latents(**options))
    assert uses(latents(size=176)) == ("dots",)
    assert uses(ragged.attention(OPS[0], size=160, values=64)) == ()


MISTAKES = {
    "HALVES": (wide, (0, 15)),
    "LOW": (wide, 0xFFFFFFFF),
    "added": (wide, lambda total, left, right: wide.tiles.multiply("bfloat16", total, left, left)),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.usefixtures("emitted_anew")
def test_mistakes_do_not_pass(name, monkeypatch):
    """Keys of the wrong pair, a column in the sum of another, a side multiplied by itself."""
    place, value = MISTAKES[name]
    monkeypatch.setattr(place, name, value)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        ragged_tiles.close(latents(), [9], [45])
