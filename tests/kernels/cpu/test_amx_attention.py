"""Attention in AMX tiles, emulated, and the machine code that ships."""

import re

import amx_emulation
import cache_model
import least_masks
import machine_code
import numpy as np
import pytest
import ragged_batches
from attention_specs import attention, sizes
from native import check, run
from prefetches import lines_asked_for
from reference import shape
from tiled_attention import (
    ARCH,
    MASKS,
    check_a_query_without_keys,
    check_capped,
    numbers,
    stands_poison,
)

from heddle.kernels import emit
from heddle.kernels.cpu import _bfloat16
from heddle.kernels.cpu.amx import strip, tiles
from heddle.kernels.cpu.flash import block as flash_block
from heddle.kernels.cpu.flash import reads, splits
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Operand

MACHINE = MACHINES[ARCH]


def tiled(size=32, **options):
    return attention("bfloat16", **{"batch": 1, "heads": 1, "key_heads": 1, "size": size} | options)


def close(spec, queries, keys, arrays=None):
    """Exponentials are rounded to bfloat16: an error of 2**-9 of the greatest value."""
    return check(spec, sizes(queries, keys), arrays, ARCH, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (17, 33), (40, 150), (70, 128), (300, 20)])
def test_lengths(queries, keys):
    close(tiled(), queries, keys)


@pytest.mark.usefixtures("emitted_anew")
def test_more_keys_than_the_stack_holds(monkeypatch):
    monkeypatch.setattr(flash_block, "TILED_STACK", 2 * 64 * 256)
    close(tiled(64, causal=True, window=200), 50, 290)


@pytest.mark.parametrize(("size", "window"), [(64, 0), (96, 40), (128, 0)])
def test_head_sizes(size, window):
    close(tiled(size, layout="bshd", causal=True, window=window), 40, 150)


@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (40, 20), (100, 150)])
def test_the_next_head_is_asked_for(queries, keys):
    """Its keys, values and queries, and the lines of the results, where a row is one line."""
    spec = tiled(heads=2, key_heads=2, layout="bshd")
    extents = [shape(operand.shape, sizes(queries, keys)) for operand in spec.buffers]
    buffers = [np.zeros(extent, np.uint16) for extent in extents]
    asked = lines_asked_for(spec, MACHINE, buffers, (queries, keys), 0, 1)
    for number, (extent, head) in enumerate(zip(extents, (1, 1, 1, 0), strict=True)):
        assert set(range(head, extent[1] * 2, 2)) <= asked[number]


def test_more_queries_than_keys():
    close(tiled(causal=True), 90, 40)


@pytest.mark.parametrize(("dtype", "extents"), [("float32", ("d0", "d1")), ("bool", ("d0", 1))])
def test_masks(dtype, extents):
    close(tiled(mask=Operand(dtype, extents)), 33, 140)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_least_number_as_a_mask(dtype):
    spec = tiled(heads=2, mask=Operand(dtype, ("d0", "d1")))
    arrays = least_masks.arrays(spec, sizes(40, 140))
    (found,) = check(spec, sizes(40, 140), arrays, ARCH, rtol=1e-5, atol=4e-3)
    least_masks.check(found, arrays)


@pytest.mark.parametrize("name", MASKS)
def test_capped_scores(name):
    """The mask comes after the cap."""
    check_capped(tiled(softcap=2.0, **MASKS[name]), close)


def test_batches_of_grouped_heads():
    close(tiled(batch=2, heads=6, key_heads=2, causal=True), 13, 40)


def test_a_query_without_keys_gives_zeros():
    check_a_query_without_keys(tiled(mask=Operand("bool", ("d0", "d1"))), 140, close)


@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("ragged_attention", {}),
        ("paged_attention", {"size": 64, "window": 60}),
        ("ragged_attention", {"softcap": 1.0, "sinks": True}),
        ("paged_attention", {"window": 30, "cache": "float8_e4m3fn", "sinks": True}),
    ],
)
def test_ragged_rows(op, options):
    """Those of a few tokens, whose keys stay where they are, and those of more."""
    spec = ragged_batches.attention(op, "bfloat16", **options)
    dims, arrays = ragged_batches.batch(spec, [1, 0, 50, 9], [40, 3, 117, 9])
    check(spec, dims, arrays, ARCH, rtol=1e-5, atol=1e-2)
    assert amx_emulation.products


def test_a_ragged_row_does_not_depend_on_the_others():
    spec = ragged_batches.attention("ragged_attention", "bfloat16")
    dims, (query, key, value, _, ends) = ragged_batches.batch(spec, [3, 20], [10, 40])
    offsets = np.array([0, 3, 23])
    (both,), _ = run(spec, [query, key, value, offsets, ends], dims, ARCH)
    alone = [query[3:], key[10:], value[10:], np.array([0, 20]), np.array([0, 40])]
    (one,), _ = run(spec, alone, {"d0": 20, "d1": 40, "d2": 2}, ARCH)
    assert one.tobytes() == both[3:].tobytes()


def test_scores_far_apart():
    """The greatest score rises from block to block, and scales what was summed before."""
    spec = tiled()
    query, key, value = numbers(spec, 40, 300)
    rising = np.linspace(0, 30, 300)[:, None].astype(key.dtype)
    check(spec, sizes(40, 300), [query, key * rising, value], ARCH, rtol=1e-2, atol=1e-2)


def test_the_stack_may_hold_anything():
    for queries, keys in ((5, 20), (40, 33)):
        assert stands_poison(tiled(), queries, keys)


@pytest.mark.usefixtures("emitted_anew")
def test_values_that_are_not_cleared_are_seen(monkeypatch):
    monkeypatch.setattr(splits, "clear_values", lambda *arguments: None)
    assert not stands_poison(tiled(), 5, 20)


load, narrowed, turn_keys = strip.load, _bfloat16.narrowed, reads.turn_keys


def turned_wrongly(frame, block, *rest):
    """The halves of each pair the other way round."""
    turn_keys(frame, block, *rest)
    for place in emit.loop(0, block.steps * block.keys, block.lanes):
        words = block.words(block.key, place)
        block.put_words((words << 16) | (words >> 16), block.key, place)


MISTAKES = {
    "load": (
        strip,
        lambda *at, **how: load(*at[:2], at[2] // 2),
        "Not equal to tolerance",
    ),
    "narrowed": (_bfloat16, lambda *sides: narrowed(*reversed(sides)), "Not equal to tolerance"),
    "zero": (tiles, lambda: tiles._intrinsic("tilezero", 17, 64), "a tile of 17 rows"),
    "turn_keys": (reads, turned_wrongly, "Not equal to tolerance"),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.usefixtures("emitted_anew")
def test_mistakes_do_not_pass(name, monkeypatch):
    """A wrong stride, keys in the wrong order, rows that no tile has, pairs the other way round."""
    place, value, message = MISTAKES[name]
    monkeypatch.setattr(place, name, value)
    with pytest.raises(AssertionError, match=message):
        close(tiled(), 40, 64)


def test_what_has_tiles():
    uses = find("attention", "cpu").uses
    assert uses(tiled(96)) == ("dots", "tiles")
    assert uses(tiled(80)) == uses(tiled(256)) == ("dots",)
    assert uses(attention("float32")) == ("tiles",)
    assert uses(attention("float32", size=80)) == uses(attention("float64")) == ()
    negative = tuple((name, -1.0 if name == "scale" else value) for name, value in tiled().attrs)
    spec = tiled()
    assert uses(type(spec)(spec.op, spec.operands, spec.result, spec.outputs, negative)) == (
        "dots",
    )


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.usefixtures("emitted_anew")
def test_a_strip_stays_in_the_first_cache(stays, monkeypatch):
    """Keys and values, which go past it, would be 64 lines for each tile of scores."""
    spec = tiled(128, queries=64, keys=192)
    if not stays:
        monkeypatch.setattr(strip, "load", lambda *at, streamed=False: load(*at))
    run(spec, numbers(spec, 64, 192), arch=ARCH)
    missed = cache_model.misses(amx_emulation.rows_touched) / (64 * 192 // 16**2)
    assert (missed < 32) == stays


@pytest.mark.parametrize("size", [64, 128])
def test_tiles_are_not_spilled(size):
    spec = tiled(size, causal=True)
    text, steps, columns = machine_code.assembly(spec, MACHINE), size // 32, size // 16 + 1
    # Scores begin a strip, or come beside exponentials, with sums and without; sums come beside
    # them, with scores and without, or end a strip.
    scores = sums = 3
    assert text.count("tdpbf16ps") == 4 * scores * steps + 2 * sums * columns
    assert text.count("tilezero") == 4 * scores
    # Two ways may end with the same store.
    assert text.count("tilestored") <= 4 * scores + 2 * sums * columns
    assert text.count("tileloadd") == 4 * scores * steps + sums * (2 + 3 * columns)


@pytest.mark.parametrize(
    "spec",
    [
        tiled(),
        tiled(causal=True),
        tiled(mask=Operand("float32", ("d1",))),
        ragged_batches.attention("paged_attention", "bfloat16"),
    ],
    ids=["plain", "causal", "masked", "paged"],
)
def test_the_machine_code(spec):
    text = machine_code.assembly(spec, MACHINE)
    assert re.search(r"tile(loadd|stored).*%rsp", text) is None
    # Who decodes has a function of its own, behind the call of which tiles have their shapes again.
    decodes = spec.op == "paged_attention"
    assert text.count("ldtilecfg") == 1 + 2 * decodes
    assert text.count("tilerelease") == 1 + decodes


@pytest.mark.parametrize("size", [32, 128])
def test_tiles_are_multiplied_beside_exponentials(size):
    """Few at a time, where there are scores of a block after, sums of one before, or both."""
    text = machine_code.assembly(tiled(size), MACHINE)
    most = machine_code.products_beside_rows(text)
    assert len(most) == 3
    assert 1 <= min(most) <= max(most) <= size // 32
