"""Few rows by weights of 8 and 4 bits in AMX tiles of bytes, emulated, and the machine code."""

import amx_emulation
import machine_code
import native
import numpy as np
import pytest
from amx_products import ARCH, MACHINE
from native import run
from quantized_specs import close, numbers, product
from reference import evaluate

from heddle.kernels.cpu.amx import byte_row, byte_sums, digits, narrow_bytes
from heddle.runtime._core import cpu_info

HELD = tuple(narrow_bytes.LEAST)


def tiled(held, *extents, **options):
    return product(held, *extents, dtype="bfloat16", **options)


def given(spec, x, scale=2.0**-6, seed=0):
    """Rows `x` by random weights, which are all scaled alike."""
    arrays = numbers(spec, {"d0": len(x)}, seed)
    arrays[0] = np.asarray(x).astype(arrays[0].dtype)
    arrays[2] = np.full_like(arrays[2], scale)
    return arrays


def products(spec, arrays):
    """What the emulated kernel gives, which has to have used its tiles of bytes.

    One row takes registers.
    """
    (found,), _ = run(spec, arrays, {"d0": len(arrays[0])}, ARCH)
    assert set(amx_emulation.products) == ({"tdpbssd"} if len(arrays[0]) > 1 else set())
    return found.astype(np.float64)


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize(
    ("k", "group"),
    [(64, 32), (192, 96), (384, 128), (512, 32), (640, 320), (768, 32), (1024, 512)],
)
def test_sums_of_integers_are_exact(held, k, group):
    """Of every number of rows, through spans of all lengths; each row has a scale of its own."""
    spec, rng = tiled(held, "d0", k, 70, group=group), np.random.default_rng(0)
    for m in range(narrow_bytes.LEAST[held], narrow_bytes.most_of(held, k, group) + 1):
        x = rng.integers(-128, 129, (m, k)) * np.exp2(np.arange(-m, m, 2))[:, None]
        arrays = given(spec, x)
        (wanted,) = evaluate(spec, {"d0": m}, arrays)
        np.testing.assert_array_equal(products(spec, arrays), wanted.astype(np.float64))


@pytest.mark.parametrize(("held", "m"), [("int8", 7), ("int8", 13), ("uint32", 7)])
def test_more_panels_than_are_added_up_together(held, m):
    spec = tiled(held, m, 256, 32 * (2 * byte_sums.PANELS + 1) + 5, group=64)
    arrays = given(spec, np.random.default_rng(0).integers(-128, 129, (m, 256)))
    (wanted,) = evaluate(spec, {}, arrays)
    np.testing.assert_array_equal(products(spec, arrays), wanted.astype(np.float64))


@pytest.mark.parametrize("held", HELD)
def test_a_row_is_the_same_beside_others(held):
    """The same bits, of up to eight; with more of them sums are added up in another order."""
    for k, group in ((576, 96), (1024, 32), (1024, 256)):
        spec = tiled(held, "d0", k, 70, group=group)
        arrays = numbers(spec, {"d0": digits.ROWS})
        all_rows = products(spec, arrays)
        for m in (narrow_bytes.LEAST[held], digits.ROWS - 1):
            some = products(spec, [arrays[0][:m], *arrays[1:]])
            np.testing.assert_array_equal(some, all_rows[:m])


def beside_a_large_one(held, smallest):
    """Rows of numbers from `smallest` up to twice as much, beside a 1 that counts nothing.

    Their products, and what these are exactly.
    """
    k, rng = 256, np.random.default_rng(0)
    spec = tiled(held, "d0", k, 32, group=128)
    x = rng.integers(128, 256, (4, k)) * rng.choice([-1, 1], (4, k)) * (smallest / 128)
    x[:, ::128] = 1.0
    arrays = given(spec, x)
    zero = 0x88888888 if held == "uint32" else 0
    # The first element along k of each group is the first of a word of its column.
    words = arrays[1].view(np.uint32).reshape(1, -1, 32)
    step = 128 // (8 if held == "uint32" else 4)
    words[:, ::step] = zero
    (wanted,) = evaluate(spec, {"d0": 4}, arrays)
    return products(spec, arrays), wanted.astype(np.float64), arrays


@pytest.mark.parametrize("held", HELD)
def test_numbers_down_to_a_128th_of_the_largest_are_exact(held):
    found, wanted, _ = beside_a_large_one(held, 2.0**-7)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("smallest", [2.0**-9, 2.0**-12, 2.0**-18])
def test_smaller_numbers_are_rounded_within_their_bound(held, smallest):
    """By 2^-15 of the largest one each, which is 1 here, beside the rounding of the result."""
    found, wanted, arrays = beside_a_large_one(held, smallest)
    largest = 7 if held == "uint32" else 128
    bound = 256 * 2.0**-15 * largest * float(arrays[2].flat[0])
    assert (np.abs(found - wanted) <= bound + np.abs(wanted) * 2.0**-8).all()


@pytest.mark.parametrize("held", HELD)
def test_the_number_that_is_no_sum_of_bytes(held):
    """255 is: 32640 = 127 * 256 + 128. It is one less, below what a bfloat16 shows."""
    spec = tiled(held, "d0", 64, 32, group=32)
    for number in (255.0, -255.0):
        x = np.zeros((3, 64))
        x[:, 5] = number
        arrays = given(spec, x)
        (wanted,) = evaluate(spec, {"d0": 3}, arrays)
        np.testing.assert_array_equal(products(spec, arrays), wanted.astype(np.float64))


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("exponent", [-115, -90, 100])
def test_magnitudes(held, exponent):
    """Of rows whose scales reach as far as those of float32, and of some that would reach further.

    Their largest number's exponent is `LEAST` then.
    """
    spec = tiled(held, "d0", 64, 32, group=32)
    for m in (narrow_bytes.LEAST[held], 3):
        x = np.random.default_rng(0).integers(-100, 100, (m, 64)) * 2.0**exponent
        arrays = given(spec, x)
        (wanted,) = evaluate(spec, {"d0": m}, arrays)
        np.testing.assert_array_equal(products(spec, arrays), wanted.astype(np.float64))


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("m", [1, 5])
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_what_is_no_number(held, m, number):
    """Rows beside it are multiplied in another way, one by one."""
    spec, row = tiled(held, "d0", 128, 40, group=64), m // 2
    arrays = numbers(spec, {"d0": m})
    arrays[0][row, 70] = number
    (found,), _ = run(spec, arrays, {"d0": m}, ARCH)
    assert not amx_emulation.products
    with np.errstate(invalid="ignore"):
        (wanted,) = evaluate(spec, {"d0": m}, arrays)
    found, wanted = found.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=1.6e-2, atol=0.05)
    assert not np.isfinite(found[row]).any()
    assert np.isfinite(np.delete(found, row, 0)).all()


def test_scales_in_float16_and_float32():
    for scales in ("float16", "float32"):
        for m in (1, 7):
            close(tiled("uint32", m, 128, 33, scales=scales), arch=ARCH)


@pytest.mark.parametrize("held", HELD)
def test_an_odd_number_of_groups(held):
    """Those of 128 are halved; of 32 elements there is no half, and tiles are of bfloat16."""
    for k, group, used in ((384, 128, "tdpbssd"), (96, 32, "tdpbf16ps")):
        spec = tiled(held, "d0", k, 40, group=group)
        close(spec, {"d0": 5}, ARCH)
        run(spec, numbers(spec, {"d0": 5}), {"d0": 5}, ARCH)
        assert set(amx_emulation.products) == {used}


@pytest.mark.parametrize(("held", "m"), [("int8", 5), ("int8", 11), ("uint32", 1)])
def test_the_stack_may_hold_anything(held, m):
    """Rows of tiles that there are not are dropped, whatever is in them."""
    spec = tiled(held, "d0", 256, 40, group=128)
    arrays = numbers(spec, {"d0": m})
    apart, _ = run(spec, arrays, {"d0": m}, ARCH, load=native.load_apart)
    np.testing.assert_array_equal(apart[0].astype(np.float64), products(spec, arrays))


@pytest.mark.skipif(bool(cpu_info()["missing"][ARCH]), reason="there is no AMX")
@pytest.mark.parametrize("held", HELD)
def test_a_processor_gives_the_same_bits(held):
    spec = tiled(held, "d0", 384, 100, group=64)
    for m in (narrow_bytes.LEAST[held], narrow_bytes.most_of(held, 384, 64)):
        arrays = numbers(spec, {"d0": m})
        (computed,), _ = run(spec, arrays, {"d0": m}, ARCH, load=native.load_as_shipped)
        np.testing.assert_array_equal(products(spec, arrays), computed.astype(np.float64))


_by_digit = digits._by_digit
MISTAKES = {
    "digits the other way round": (digits, "_by_digit", lambda *words: _by_digit(*words)[::-1]),
    "elements in another order": (digits, "ORDER", tuple(range(digits.PIECE))),
    "digits that are not raised": (digits, "RAISED", 0),
    "bytes in one place": (narrow_bytes, "SLOTS", 1),
    "bytes that come too late": (narrow_bytes, "BEFORE", 5),
    "weights of another size": (narrow_bytes, "UPPER", 3),
    "both halves in one place": (byte_sums, "TILE", 0),
    "spans that do not fit 32 bits": (narrow_bytes, "SUMMED", 4096),
    "one row: weights that are raised by less": (byte_row, "RAISED", 7),
    "one row: weights in the lower half": (byte_row, "UPPER", 0),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.usefixtures("emitted_anew")
def test_mistakes_do_not_pass(name, monkeypatch):
    """Sums that are exact, of numbers that differ; of the largest ones, which fill 32 bits."""
    spec, m = tiled("uint32", "d0", 8192, 32, group=4096), 1 if "one row" in name else 3
    arrays = given(spec, np.random.default_rng(0).integers(-128, 129, (m, 8192)))
    if "32 bits" in name:
        arrays[0][:], arrays[1][:] = 127.0, 0
    monkeypatch.setattr(*MISTAKES[name])
    (wanted,) = evaluate(spec, {"d0": m}, arrays)
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(products(spec, arrays), wanted.astype(np.float64))


@pytest.mark.parametrize("group", [32, 128])
@pytest.mark.parametrize("held", HELD)
def test_the_machine_code(held, group):
    """Beside each height in its function: a step loads three tiles for two products.

    Beside the tallest of int8, four for four, in one span. Beside the others two spans take turns,
    each of one step in groups of 32, else of two, and the first turn is in front of the loop. Sums
    are stored for each. None is spilled. For more rows weights are widened, for up to 16 by code of
    its own: two products in a step, three loads, and two stores.
    """
    text = machine_code.assembly(tiled(held, "d0", 4096, "d1", group=group), MACHINE)
    names = ("tdpbssd", "tdpbf16ps", "tileloadd", "tilestored")
    counts = [text.count(f"\t{name}\t") for name in names]
    tallest = narrow_bytes.most_of(held, 4096, group)
    low = len([height for height in narrow_bytes.HEIGHTS if height <= digits.ROWS])
    tall, steps = tallest > digits.ROWS, 2 * (1 if group == 32 else 2)
    widened = 1 if tall else 2
    products = (2 * 2 * low + 2 * tall) * steps
    loads = (2 * 3 * low + 2 * tall) * steps + 3 * widened
    assert counts == [products, 2 * widened, loads, 8 * low + 4 * tall + 2 * widened]
    # One of each in a function, and one more where the kernel goes on behind those it called.
    assert text.count("tilerelease") == low + tall + 1
    assert text.count("ldtilecfg") == low + tall + 2


@pytest.mark.parametrize("group", [32, 128])
def test_the_machine_code_of_one_row(group):
    """Both digits by both halves of each line of a step; nothing else is loaded, or spilled."""
    text = machine_code.assembly(tiled("uint32", 1, 4096, "d1", group=group), MACHINE)
    (loop,) = machine_code.loops(text, "vpdpbusd")
    lines = min(group, 64) * 32 // 2 // 64
    assert loop.count("vpdpbusd") == 4 * lines
    assert loop.count("vmovdqu64") == lines
    assert not {"vmovups", "vmovaps", "tileloadd"} & set(loop)


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("m", [2, 3, 8, 9, 16])
def test_rows_that_are_known_have_code_of_one_height(held, m):
    text = machine_code.assembly(tiled(held, m, 4096, "d1", group=64), MACHINE)
    as_bytes = m <= narrow_bytes.most_of(held, 4096, 64)
    tall = m > digits.ROWS
    assert text.count("\ttdpbssd\t") == ((4 if tall else 8) if as_bytes else 0)
