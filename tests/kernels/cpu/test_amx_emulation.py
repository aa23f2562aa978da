"""What emulated tiles do, in cases that are worked out by hand, and what they refuse."""

import ctypes

import amx_emulation
import ml_dtypes
import numpy as np
import pytest
from native import ARCHS, Guarded, place

from heddle.graph.compiler.codegen import cpu
from heddle.graph.compiler.codegen.image import flatten
from heddle.kernels.registry import MACHINES

PRODUCT = """
declare x86_amx @llvm.x86.tileloadd64.internal(i16, i16, ptr, i64) #0
declare void @llvm.x86.tilestored64.internal(i16, i16, ptr, i64, x86_amx) #0
declare x86_amx @llvm.x86.{multiply}.internal(i16, i16, i16, x86_amx, x86_amx, x86_amx) #0

define void @kernel(ptr %dims, ptr %buffers, i64 %first, i64 %last) {{
  %at_b = getelementptr ptr, ptr %buffers, i64 1
  %at_c = getelementptr ptr, ptr %buffers, i64 2
  %pa = load ptr, ptr %buffers
  %pb = load ptr, ptr %at_b
  %pc = load ptr, ptr %at_c
  %c = call x86_amx @llvm.x86.tileloadd64.internal(i16 {m}, i16 {n}, ptr %pc, i64 {n})
  br label %next

next:
  %sums = phi x86_amx [ %c, %0 ]
  %a = tail call x86_amx @llvm.x86.tileloadd64.internal(i16 {m}, i16 {k}, ptr %pa, i64 {stride})
  %b = call x86_amx @llvm.x86.tileloadd64.internal(i16 {words}, i16 {n}, ptr %pb, i64 {n})
  %d = call x86_amx @llvm.x86.{multiply}.internal(i16 {m}, i16 {n}, i16 {across},
                                                  x86_amx %sums, x86_amx %a, x86_amx %b)
  call void @llvm.x86.tilestored64.internal(i16 {stored}, i16 {n}, ptr %pc, i64 {n}, x86_amx %d)
  ret void
}}
attributes #0 = {{ nounwind }}
"""
"""c += a @ b in one tile each. Sizes in bytes and rows; `words` rows of b are `k` bytes of a."""


def multiply(a, b, c, **changes):
    """`c + a @ b` by the instruction for the dtype of a, with `changes` to what is right."""
    m, k = a.shape[0], a.shape[1] * a.itemsize
    n, words = c.shape[1] * 4, k // 4
    name = {"uint8": "tdpbusd", "int8": "tdpbssd"}.get(a.dtype.name, "tdpbf16ps")
    shape = {"m": m, "n": n, "k": k, "words": words, "stride": k, "across": k, "stored": m}
    text = amx_emulation.emulated(PRODUCT.format(**(shape | {"multiply": name} | changes)))
    function, _memory = place(flatten(cpu.to_object(text, MACHINES[ARCHS[0]]), cpu.SYMBOL))
    # Words of b lie side by side: the elements of a word follow each other along k.
    group = 4 // a.itemsize
    side_by_side = b.reshape(words, group, -1).swapaxes(1, 2)
    buffers = [Guarded(np.ascontiguousarray(array)) for array in (a, side_by_side, c)]
    pointers = (ctypes.c_void_p * 3)(*(buffer.address for buffer in buffers))
    amx_emulation.checked(function)(None, ctypes.addressof(pointers), 0, 0)
    for buffer in buffers:
        buffer.check()
    return buffers[2].array


def bf16(*numbers):
    return np.array(numbers, ml_dtypes.bfloat16)


def one(left, right, before=0.0):
    """The sum that a row of bfloat16 and a column add to `before`."""
    c = np.full((1, 1), before, np.float32)
    return multiply(bf16(*left)[None], bf16(*right)[:, None], c)[0, 0]


@pytest.mark.parametrize(("m", "k", "n"), [(16, 32, 16), (1, 2, 1), (5, 6, 3)])
def test_products_of_bfloat16(m, k, n):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (k, n)))
    c = rng.integers(-8, 8, (m, n)).astype(np.float32)
    wanted = c + a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(multiply(a, b, c), wanted)


def test_even_and_odd_elements_are_summed_apart():
    ones = [1.0] * 4
    # The even ones lose each 1.0 beside 2**24, half of the last place; the odd ones add up first.
    assert one([2.0**24, 0, 1.0, 0], ones) == 2.0**24
    assert one([2.0**24, 1.0, 0, 1.0], ones) == 2.0**24 + 2
    # The tile's own number comes last: 2**24 + (1 + 1), not (2**24 + 1) + 1.
    assert one([1.0, 0, 1.0, 0], ones, before=2.0**24) == 2.0**24 + 2


def test_rounding_is_to_nearest_even():
    # Between neighbours that are 2 apart: 2**24 + 1 is a tie, 2**24 + 3 as well.
    assert one([2.0**24, 1.0], [1.0, 1.0]) == 2.0**24
    assert one([2.0**24, 3.0], [1.0, 1.0]) == 2.0**24 + 4


def test_denormals_are_zero():
    denormal, normal = 2.0**-127, 2.0**-126
    assert float(bf16(denormal)[0]) == denormal
    assert one([denormal, 0], [2.0**127, 0]) == 0.0
    assert one([2.0**127, 0], [denormal, 0]) == 0.0
    assert one([0, 0], [0, 0], before=denormal) == 0.0
    assert one([normal, 0], [1.0, 0]) == normal
    # A denormal sum is zero even where a larger number would have come after it.
    assert one([2.0**-70, 0, 2.0**-70, 0], [2.0**-57, 0, 2.0**-57, 0]) == 0.0


def test_denormals_are_zero_beside_what_is_no_number():
    left = bf16([np.nan, 1.0], [2.0**-70, 0])
    found = multiply(left, bf16([2.0**-57], [0]), np.zeros((2, 1), np.float32))
    assert np.isnan(found[0, 0])
    assert found[1, 0] == 0.0


@pytest.mark.parametrize("size", [amx_emulation.GENTLE, 1 / amx_emulation.GENTLE / 2])
def test_gentle_products_are_as_others(size):
    """They are not flushed one by one; the bits are those of products that are."""
    rng = np.random.default_rng(0)
    left, right = ((rng.integers(128, 256, (16, 32)) * np.float32(size / 128)) for _ in range(2))
    left *= rng.choice([-1, 0, 1], left.shape)
    sums = rng.standard_normal((16, 16)).astype(np.float32) * np.float32(size * size)
    a, b = bf16(*left.ravel()).reshape(16, 32), bf16(*right.ravel()).reshape(32, 16)
    exact = multiply(a, b, sums)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(amx_emulation, "_gentle_pairs", None)  # is not called
        patch.setattr(amx_emulation, "GENTLE", np.inf)
        flushed = multiply(a, b, sums)
    assert exact.tobytes() == flushed.tobytes()


@pytest.mark.parametrize(
    ("numbers", "gentle"),
    [
        ([0.0, -0.25, 3.0], True),
        ([amx_emulation.GENTLE, 1 / amx_emulation.GENTLE], True),
        ([1.0, amx_emulation.GENTLE / 2], False),
        ([2 / amx_emulation.GENTLE, 1.0], False),
        ([2.0**-130], False),
        ([np.inf], False),
        ([np.nan], False),
    ],
)
def test_which_tiles_are_gentle(numbers, gentle):
    data = np.zeros((16, 64), np.uint8)
    data[3, : 2 * len(numbers)] = bf16(*numbers).view(np.uint8)
    assert amx_emulation.Tile(4, 8, data).gentle is gentle


def test_a_sum_that_is_rounded_up_to_a_normal_one_is_kept():
    numbers = np.array([2.0**-126 * (1 - 2.0**-26), 2.0**-126 * (1 - 2.0**-24)])
    np.testing.assert_array_equal(amx_emulation._flushed(numbers), np.float32([2.0**-126, 0.0]))


def test_infinities_and_nan():
    assert one([np.inf, 0], [1.0, 0]) == np.inf
    assert np.isnan(one([np.inf, 0], [0, 0]))


@pytest.mark.parametrize("left", [np.uint8, np.int8])
@pytest.mark.parametrize(("m", "k", "n"), [(16, 64, 16), (1, 4, 1), (7, 12, 5)])
def test_products_of_bytes(m, k, n, left):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 256, (m, k), np.uint8).view(left)
    b = rng.integers(-128, 128, (k, n), np.int8)
    c = rng.integers(-(2**31), 2**31, (m, n)).astype(np.int32)
    wanted = c.astype(np.int64) + a.astype(np.int64) @ b.astype(np.int64)
    wrapped = (wanted & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    np.testing.assert_array_equal(multiply(a, b, c), wrapped)


MISTAKES = {
    "tileloadd64: a tile of 17 rows of 64 bytes": {"m": 17},
    "tileloadd64: a tile of 16 rows of 65 bytes": {"k": 65},
    "tileloadd64: a tile of 0 rows of 64 bytes": {"words": 0},
    "tileloadd64: row 8 of a load lies outside of memory": {"stride": 128},
    "tdpbf16ps: wanted a tile of 16 rows of 64 bytes, found 15 rows of 64 bytes": {"words": 15},
    "tdpbf16ps: wanted a tile of 16 rows of 60 bytes, found 16 rows of 64 bytes": {"across": 60},
    "tdpbf16ps: a product of parts of words: 64 and 62 bytes": {"across": 62},
    "tilestored64: wanted a tile of 15 rows of 64 bytes, found 16 rows of 64 bytes": {"stored": 15},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_faults(message):
    zero = np.zeros((16, 32), ml_dtypes.bfloat16)
    with pytest.raises(AssertionError) as caught:
        multiply(zero, zero.reshape(32, 16), np.zeros((16, 16), np.float32), **MISTAKES[message])
    assert message in str(caught.value)


def test_a_store_stays_in_memory_that_may_be_written():
    tile = amx_emulation.tilezero(2, 64)
    buffer = Guarded(np.zeros(96, np.uint8))
    with pytest.raises(amx_emulation.TileError, match=r"^row 1 of a store lies outside of memory$"):
        amx_emulation.tilestored64(2, 64, buffer.address, 64, tile)
    with pytest.raises(amx_emulation.TileError, match=r"^a tile that nothing made \(0\)$"):
        amx_emulation.tilestored64(2, 64, buffer.address, 64, 0)


def test_an_instruction_that_is_not_emulated_stops_the_test():
    with pytest.raises(KeyError, match="tdpfp16ps"):
        amx_emulation.emulated("call x86_amx @llvm.x86.tdpfp16ps.internal()")
