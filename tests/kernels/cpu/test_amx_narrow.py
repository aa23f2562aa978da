"""Weights of 8 and 4 bits in AMX tiles, emulated, and the machine code that ships."""

import amx_emulation
import cache_model
import machine_code
import numpy as np
import pytest
from native import run
from quantized_specs import HELD, close, numbers, product

from heddle.kernels.cpu.amx import narrow, narrow_bytes, narrow_few, sides, tiles
from heddle.kernels.cpu.products.narrow import FEW
from heddle.kernels.registry import MACHINES

ARCH = "sapphirerapids"
MACHINE = MACHINES[ARCH]


def tiled(held, *extents, **options):
    return product(held, *extents, dtype="bfloat16", **options)


@pytest.mark.parametrize("held", HELD)
def test_rows_and_columns(held):
    """One row takes dot products, few take tiles of bytes, more of them tiles of bfloat16."""
    spec = tiled(held, "d0", 64, "d1")
    least = narrow_bytes.LEAST.get(held, 0)
    most = narrow_bytes.most_of(held, 64, 32) if least else -1
    for m, n in ((1, 33), (2, 33), (8, 40), (9, 1), (16, 70), (17, 1), (70, 64)):
        dims = {"d0": m, "d1": n}
        close(spec, dims, ARCH)
        run(spec, numbers(spec, dims), dims, ARCH)
        used = "tdpbssd" if least <= m <= most else "tdpbf16ps"
        assert set(amx_emulation.products) == ({used} if m > FEW else set())


@pytest.mark.parametrize("rows", [7, 20])
@pytest.mark.parametrize(
    ("held", "k", "group"),
    [("int8", 32, 32), ("uint32", 288, 96), ("float8_e5m2", 320, 64), ("int8", 640, 320)],
)
def test_groups(held, k, group, rows):
    """They end with the rows on the stack, within them, and behind them; panels with odd steps."""
    close(tiled(held, rows, k, 70, group=group), arch=ARCH)


def test_scales_in_float16():
    """Of one row, of few and of many."""
    spec = tiled("uint32", "d0", 64, 33, scales="float16")
    for m in (FEW, 7, 20):
        close(spec, {"d0": m}, ARCH)


@pytest.mark.parametrize("rows", [6, 20])
def test_more_panels_than_a_run(rows):
    close(tiled("uint32", rows, 320, 32 * (narrow.RUN + 2), group=160), arch=ARCH)


@pytest.mark.parametrize("held", ["float8_e4m3fn", "uint32"])
@pytest.mark.parametrize("group", [32, 96, 192])
def test_a_row_is_the_same_beside_more(held, group):
    """Rows that are widened step by step have the sums of those that are by parts of a panel."""
    spec = tiled(held, "d0", 576, 70, group=group)
    arrays = numbers(spec, {"d0": 40})
    (many,), _ = run(spec, arrays, {"d0": 40}, ARCH)
    (few,), _ = run(spec, [arrays[0][:9], *arrays[1:]], {"d0": 9}, ARCH)
    np.testing.assert_array_equal(few, many[:9])


def test_rows_that_do_not_lie_on_the_stack():
    """Few rows of so many elements go the way of more."""
    k = 32 * (narrow_few.DEEP + 1)
    close(tiled("uint32", 2, k, 32, group=k), arch=ARCH)


def test_the_stack_may_hold_anything():
    """Rows of a tile that there are not are dropped, whatever is in them."""
    spec = tiled("int8", "d0", 320, 40)
    for m in (40, 5):
        (found,), _ = run(spec, numbers(spec, {"d0": m}), {"d0": m}, ARCH)
        assert np.isfinite(found.astype(np.float32)).all()


_load = tiles.load
MISTAKES = {
    "stride": (tiles, "load", lambda base, stride: _load(base, 2 * stride)),
    "rows that overlap": (sides.Left, "_place", lambda self, r: r // 2 * tiles.TILE_ROW),
    "spans longer than groups": (narrow.math, "gcd", lambda group, chunk: chunk),
    "steps of other sizes": (narrow, "ALONG", 64),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.usefixtures("emitted_anew")
def test_mistakes_do_not_pass(name, monkeypatch):
    monkeypatch.setattr(*MISTAKES[name])
    with pytest.raises(AssertionError):
        close(tiled("float8_e4m3fn", 40, 256, 32), arch=ARCH)


FEW_MISTAKES = {
    "units that are left out": (narrow_few, "UNITS", 3),
    "steps in one place": (narrow_few.Few, "_place", lambda self, step: self._widened),
}


@pytest.mark.parametrize("name", FEW_MISTAKES)
@pytest.mark.usefixtures("emitted_anew")
def test_mistakes_with_few_rows_do_not_pass(name, monkeypatch):
    monkeypatch.setattr(*FEW_MISTAKES[name])
    with pytest.raises(AssertionError):
        close(tiled("float8_e4m3fn", 8, 256, 32), arch=ARCH)


@pytest.mark.parametrize(("chunk", "stays"), [(narrow.CHUNK, True), (4 * narrow.CHUNK, False)])
@pytest.mark.usefixtures("emitted_anew")
def test_rows_stay_in_the_first_cache(chunk, stays, monkeypatch):
    """Of 64 rows 16 KiB lie on the stack, and of two panels 8 each."""
    monkeypatch.setattr(narrow, "CHUNK", chunk)
    spec = tiled("int8", 64, 512, 64, group=128)
    run(spec, numbers(spec, {}), arch=ARCH)
    missed = cache_model.misses(amx_emulation.rows_touched) / len(amx_emulation.products)
    assert (missed < 6) == stays


@pytest.mark.parametrize("group", [32, 128])
def test_the_machine_code(group):
    """A step loads three tiles for two products; those of sums are stored once, none is spilled.

    There is one such step for few rows, and one for more.
    """
    text = machine_code.assembly(tiled("float8_e5m2", "d0", 4096, "d1", group=group), MACHINE)
    names = ("tileloadd", "tdpbf16ps", "tilestored")
    assert [text.count(f"\t{name}\t") for name in names] == [6, 4, 4]
    assert text.count("ldtilecfg") == text.count("tilerelease") == 1
