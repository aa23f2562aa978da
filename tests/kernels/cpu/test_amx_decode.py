"""Rows that decode in AMX tiles: emulated, and as they ship."""

import re

import amx_emulation
import machine_code
import native
import numpy as np
import pytest
import ragged_batches as ragged
import ragged_tiles
from native import BUFFER, llvm_ir, run
from prefetches import all_lines_asked_for
from ragged_tiles import ARCH

from heddle.kernels.cpu.amx import decode
from heddle.kernels.cpu.decode import sums as decode_sums
from heddle.kernels.cpu.decode.parts import drafts
from heddle.kernels.cpu.flash.cut import decode_rows, decodes_in_tiles
from heddle.kernels.registry import MACHINES
from heddle.runtime._core import cpu_info

pytestmark = pytest.mark.usefixtures("products")

MACHINE = MACHINES[ARCH]
OPS = ["ragged_attention", "paged_attention"]


def attention(op=OPS[1], **options):
    shape = {"heads": 6, "key_heads": 2, "size": 64, "block": 16}
    spec = ragged.attention(op, "bfloat16", **{**shape, **options})
    assert decodes_in_tiles(spec)
    return spec


def close(spec, counts, lengths):
    """As in `ragged_tiles`, of rows that decode."""
    assert max(counts) <= drafts(spec, tiled=True)
    return ragged_tiles.close(spec, counts, lengths)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": False},
        {"window": 40, "sinks": True},
        {"softcap": 3.0, "block": 3},
        {"heads": 4, "key_heads": 4, "size": 32},
        {"heads": 40, "key_heads": 8, "size": 32, "block": 48},
        {"heads": 16, "key_heads": 1, "size": 96},
        {"heads": 32, "key_heads": 1, "size": 32},
        {"heads": 10, "key_heads": 1, "size": 256},
        {"heads": 8, "key_heads": 2, "cache": "float8_e4m3fn"},
        {"size": 160, "values": 32},
    ],
)
def test_rows_that_decode(op, options):
    """Of parts of a row, of less than a step, and with drafts where they are few enough."""
    spec = attention(op, **options)
    most = drafts(spec, tiled=True)
    close(spec, [1, 0, most, 1], [570, 9, 33, 1])


def test_parts_of_a_window():
    """The first step begins before the window, so that a row may have a part more."""
    close(attention(window=507), [1, 2], [1000, 777])


def test_a_row_alone_has_the_bits_of_one_among_others():
    ragged_tiles.a_row_alone_has_its_bits(attention(), [1, 20, 2], [300, 40, 7])


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_value_that_is_no_number(number):
    """It makes that of its pair none, too, and no others, for the queries that see it."""
    spec = attention(OPS[0])
    dims, arrays = ragged.batch(spec, [1, 1], [20, 18])
    (before,), _ = run(spec, arrays, dims, ARCH)
    arrays[2][3, 1, 5] = number
    (after,), _ = run(spec, arrays, dims, ARCH)
    changed = before != after
    assert set(np.flatnonzero(changed.any(axis=(0, 1)))) == {4, 5}
    assert set(np.flatnonzero(changed.any(axis=(0, 2)))) == {3, 4, 5}
    np.testing.assert_array_equal(before[1:], after[1:])


def test_a_key_that_is_no_number():
    """It spoils the queries of its head, and no others in the same vector."""
    spec = attention(OPS[0])
    dims, arrays = ragged.batch(spec, [1, 1], [20, 18])
    (before,), _ = run(spec, arrays, dims, ARCH)
    arrays[1][3, 1, 5] = np.nan
    (after,), _ = run(spec, arrays, dims, ARCH)
    assert np.isnan(after[0, 3:].astype(np.float32)).all()
    np.testing.assert_array_equal(before[0, :3], after[0, :3])
    np.testing.assert_array_equal(before[1:], after[1:])


@pytest.mark.parametrize(("block", "copied"), [(16, False), (8, True)])
def test_keys_are_multiplied_where_they_lie(block, copied):
    """Sixteen of a block of the cache; those of two blocks lie apart, and are copied.

    A copied key follows the one before it at once, no other rows of tiles are as far apart.
    """
    spec = attention(size=96, values=64, block=block)
    dims, arrays = ragged.batch(spec, [1], [64])
    arrays[5][0, : 64 // block] = np.arange(64 // block)[::-1]
    arrays[1:3] = [np.nan_to_num(cache) for cache in arrays[1:3]]
    run(spec, arrays, dims, ARCH)
    distances = np.abs(np.diff(amx_emulation.rows_touched)).tolist()
    in_place, in_copies = distances.count(2 * 2 * 96), distances.count(2 * 96)
    assert bool(in_copies) == copied
    assert bool(in_place) == (not copied)


@pytest.mark.parametrize("key_heads", [1, 2, 5])
def test_keys_are_asked_for_ahead(key_heads):
    """And values: of rows shorter than `ASKED` bytes each, as far ahead as they are to be."""
    heads = 2 * key_heads
    spec = attention(OPS[0], heads=heads, key_heads=key_heads, size=32, causal=False)
    dims, arrays = ragged.batch(spec, [1], [512])
    asked = all_lines_asked_for(spec, MACHINE, arrays, dims)
    row = key_heads * 32 * 2
    behind = {key * row // 64 for key in range(decode.MOST * 16, 512)}
    for number in (1, 2):
        assert behind <= asked[number]


@pytest.mark.parametrize(
    "options",
    [
        {"heads": 128, "key_heads": 128, "size": 128},
        {"heads": 32, "key_heads": 8, "size": 128},
        {"heads": 64, "key_heads": 8, "size": 256},
    ],
)
def test_a_thread_of_2_mib_has_room(options):
    sizes = [int(found[2]) for found in BUFFER.finditer(llvm_ir(attention(**options), MACHINE))]
    assert sum(sizes) < 1.9 * 2**20


def test_the_stack():
    ragged_tiles.stays_in_its_buffers(attention(block=5), [1, 2], [300, 40])


@pytest.mark.parametrize(
    ("heads", "key_heads"), [(32, 8), (8, 8), (64, 8), (10, 2), (32, 2), (28, 4)]
)
def test_the_machine_code(heads, key_heads):
    """A function of its own, in which no tile is spilled; others are as they were."""
    text = machine_code.assembly(attention(heads=heads, key_heads=key_heads, size=128), MACHINE)
    assert re.search(r"tile(loadd|stored).*%rsp", text) is None
    assert re.search(r"^decode:", text, re.MULTILINE)
    assert text.count("tilerelease") == 2


@pytest.mark.skipif(bool(cpu_info()["missing"][ARCH]), reason="there is no AMX")
def test_a_processor_gives_the_same_bits():
    spec = attention(heads=32, key_heads=8, size=128)
    dims, arrays = ragged.batch(spec, [1, 2, 1], [300, 40, 5])
    (emulated,), _ = run(spec, arrays, dims, ARCH)
    (computed,), _ = run(spec, arrays, dims, ARCH, load=native.load_as_shipped)
    assert emulated.tobytes() == computed.tobytes()


def test_what_decodes_in_tiles():
    """Even shares of up to eight queries; of 8 bits, four queries or more."""
    shares = {1: 1, 4: 4, 7: 7, 9: 0, 10: 5, 11: 0, 12: 6, 13: 0, 15: 5, 16: 8, 24: 0, 32: 8, 48: 8}
    assert {group: decode_rows(group) for group in shares} == shares
    narrow = {"cache": "float8_e4m3fn"}
    for options in ({"size": 80}, {"values": 48}, {"heads": 18}, {"heads": 6, **narrow}):
        shape = {"heads": 8, "key_heads": 2, "size": 64, **options}
        assert not decodes_in_tiles(ragged.attention(OPS[0], "bfloat16", **shape))
    assert decodes_in_tiles(attention(OPS[0], heads=8, **narrow))
    assert not decodes_in_tiles(ragged.attention(OPS[0]))


def one_query(tiles, shares):
    put(tiles, [shares[0]] * len(shares))


def odd_ones_as_even(block, sums, row, share, out_at, apart):
    write(block, sums, row, share, out_at, 0)


put, write = decode._put_shares, decode_sums.write_apart
MISTAKES = {
    "queries that overlap": (decode, "WORDS", 128),
    "a side of two tiles": (decode, "PAIRS", 64),
    "the shares of another query": (decode, "_put_shares", one_query),
    "columns in each other's place": (decode_sums, "write_apart", odd_ones_as_even),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.usefixtures("emitted_anew")
def test_mistakes_do_not_pass(name, monkeypatch):
    monkeypatch.setattr(*MISTAKES[name])
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        close(attention(), [1], [45])
