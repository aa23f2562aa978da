"""What single PTX instructions compute, where the emulator of MLIR has no operation like them."""

import ml_dtypes
import numpy as np
import pytest
from emulator.memory import EmulatorError
from ptx.probe import apply, run

NUMBERS = np.array([0, 1, -1, 5, -7, 2**31 - 1, -(2**31), 0x12345678] * 4, np.int32)
FLOATS = np.array([0, -0.0, 1.5, -2.25, np.inf, -np.inf, np.nan, 1e-40] * 4, np.float32)
U = NUMBERS.view(np.uint32).astype(np.uint64)


def spread(x: np.ndarray, bits: int) -> np.ndarray:
    """The low `bits` of numbers, as signed ones."""
    return (x.astype(np.int64) << (64 - bits)) >> (64 - bits)


INTEGERS = {
    "mad.lo.s32 %r11, %r10, 3, -4;": NUMBERS * np.int32(3) - np.int32(4),
    "sub.s32 %r11, 7, %r10;": np.int32(7) - NUMBERS,
    "mul.hi.u32 %r11, %r10, -2;": (U * np.uint64(2**32 - 2)) >> np.uint64(32),
    "mul.hi.s32 %r11, %r10, -2;": (NUMBERS.astype(np.int64) * -2) >> 32,
    "shl.b32 %r11, %r10, 40;": np.zeros(32),
    "shr.u32 %r11, %r10, 32;": np.zeros(32),
    "shr.s32 %r11, %r10, 99;": NUMBERS >> 31,
    "shr.u32 %r11, %r10, 5;": U >> np.uint64(5),
    "bfe.u32 %r11, %r10, 4, 8;": (U >> np.uint64(4)) & np.uint64(255),
    "bfe.s32 %r11, %r10, 4, 8;": spread(NUMBERS >> 4, 8),
    "bfe.s32 %r11, %r10, 28, 8;": NUMBERS >> 28,
    "bfe.u32 %r11, %r10, 0, 32;": U,
    "bfe.u32 %r11, %r10, 3, 0;": np.zeros(32),
    "prmt.b32 %r11, %r10, 0, 0x4440U;": U & np.uint64(255),
    "prmt.b32 %r11, %r10, 0, 0x0123U;": U.astype(np.uint32).byteswap(),
    "max.u32 %r11, %r10, 6;": np.maximum(U, np.uint64(6)),
    "max.s32 %r11, %r10, 6;": np.maximum(NUMBERS, 6),
    "popc.b32 %r11, %r10;": np.bitwise_count(U),
    "not.b32 %r11, %r10;": ~NUMBERS,
    # Parts of registers
    "mov.b32 {%rs1, %rs2}, %r10; mov.b32 %r11, {%rs2, %rs1};": np.roll(
        NUMBERS.view(np.uint16).reshape(-1, 2), 1, axis=1
    ).reshape(-1).view(np.uint32),
    "mov.b32 {_, %rs2}, %r10; cvt.u32.u16 %r11, %rs2;": U >> np.uint64(16),
    "cvt.u16.u32 %rs1, %r10; cvt.s16.s8 %rs2, %rs1; cvt.u32.u16 %r11, %rs2;": spread(NUMBERS, 8)
    & 0xFFFF,
    "cvt.s64.s32 %rd9, %r10; shr.u64 %rd9, %rd9, 32; cvt.u32.u64 %r11, %rd9;": NUMBERS >> 31,
    "cvt.u64.u32 %rd9, %r10; shr.u64 %rd9, %rd9, 32; cvt.u32.u64 %r11, %rd9;": np.zeros(32),
    "mul.wide.s32 %rd9, %r10, -3; bfe.s64 %rd9, %rd9, 32, 32; cvt.u32.u64 %r11, %rd9;": (
        NUMBERS.astype(np.int64) * -3
    ) >> 32,
    "cvt.u64.u32 %rd9, %r10; mul.lo.s64 %rd9, %rd9, 5; mul.hi.u64 %rd9, %rd9, -1;"
    " cvt.u32.u64 %r11, %rd9;": np.where(U > 0, U * np.uint64(5) - np.uint64(1), 0),
    # Conditions
    "setp.lt.u32 %p1, %r10, 6; selp.b32 %r11, 10, -10, %p1;": np.where(U < 6, 10, -10),
    "setp.lt.s32 %p1, %r10, 6; not.pred %p2, %p1; selp.b32 %r11, %r10, 9, %p2;": np.where(
        NUMBERS >= 6, NUMBERS, 9
    ),
}  # fmt: skip


@pytest.mark.parametrize("lines", INTEGERS)
def test_integers(lines):
    wanted = np.asarray(INTEGERS[lines]).astype(np.int64).astype(np.uint32)
    np.testing.assert_array_equal(apply(lines, NUMBERS).view(np.uint32), wanted)


def ordered(function):
    """Of a comparison with 1.5 that is false of NaN."""
    return np.where(~np.isnan(FLOATS) & function(FLOATS), 1, 0)


HALF = FLOATS.astype(np.float16).view(np.uint16).astype(np.uint32)
SHORT = FLOATS.astype(ml_dtypes.bfloat16).view(np.uint16).astype(np.uint32)
FLOATING = {
    "setp.ne.f32 %p1, %r10, 0f3FC00000; selp.b32 %r11, 1, 0, %p1;": ordered(lambda x: x != 1.5),
    "setp.neu.f32 %p1, %r10, 0f3FC00000; selp.b32 %r11, 1, 0, %p1;": np.where(FLOATS != 1.5, 1, 0),
    "setp.ltu.f32 %p1, %r10, 0f3FC00000; selp.b32 %r11, 1, 0, %p1;": 1
    - ordered(lambda x: x >= 1.5),
    "setp.nan.f32 %p1, %r10, %r10; selp.b32 %r11, 1, 0, %p1;": np.isnan(FLOATS),
    "cvt.rn.f16x2.f32 %r11, %r10, 0f3F800000;": HALF << 16 | 0x3C00,
    "cvt.rn.bf16x2.f32 %r11, 0f3F800000, %r10;": 0x3F800000 | SHORT,
    "cvt.rn.bf16.f32 %rs1, %r10; cvt.u32.u16 %r11, %rs1;": SHORT,
    "cvt.rzi.s32.f32 %r11, %r10;": [0, 0, 1, -2, 2**31 - 1, -(2**31), 0, 0] * 4,
    "cvt.rzi.u32.f32 %r11, %r10;": [0, 0, 1, 0, 2**32 - 1, 0, 0, 0] * 4,
}


@pytest.mark.parametrize("lines", FLOATING)
def test_floats(lines):
    wanted = np.asarray(FLOATING[lines]).astype(np.int64).astype(np.uint32)
    np.testing.assert_array_equal(apply(lines, FLOATS).view(np.uint32), wanted)


RESULTS = {
    "max.f32 %r11, %r10, 0f40000000;": np.fmax(FLOATS, 2),
    "max.NaN.f32 %r11, %r10, 0f40000000;": np.maximum(FLOATS, 2),
    "fma.rn.f32 %r11, %r10, 0f40000000, 0f3F800000;": FLOATS * 2 + 1,
    "ex2.approx.ftz.f32 %r11, %r10;": np.exp2(FLOATS),
    "rcp.approx.ftz.f32 %r11, %r10;": [np.inf, -np.inf, 1 / 1.5, -1 / 2.25, 0, 0, np.nan, np.inf]
    * 4,
    "neg.f32 %r11, %r10;": -FLOATS,
}


@pytest.mark.parametrize("lines", RESULTS)
def test_results_in_float32(lines):
    with np.errstate(all="ignore"):
        wanted = np.asarray(RESULTS[lines], np.float32)
    found = apply(lines, FLOATS, np.float32)
    exact = np.array_equal(found, wanted, equal_nan=True)
    assert exact is not ("approx" in lines)  # Which is off by as much as it may.
    np.testing.assert_allclose(found, wanted, rtol=2.0**-21)


def test_pairs_of_halves():
    x = np.arange(-32, 32, dtype=np.float16)
    found = run(
        "ld.global.b32 %r10, [%rd3]; fma.rn.f16x2 %r11, %r10, %r10, %r10;"
        " st.global.b32 [%rd4], %r11;",
        x.view(np.int32),
    )
    np.testing.assert_array_equal(found.view(np.float16), x * x + x)


@pytest.mark.parametrize(
    ("name", "dtype"), [("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)]
)
def test_floats_of_8_bits(name, dtype):
    x = np.linspace(-500, 500, 32, dtype=np.float32)
    found = apply(
        f"cvt.rn.satfinite.{name}x2.f32 %rs1, 0f3F800000, %r10; cvt.rn.f16x2.{name}x2 %r11, %rs1;",
        x,
    )
    low, high = found.view(np.float16).reshape(-1, 2).T
    largest = np.float32(ml_dtypes.finfo(dtype).max)
    np.testing.assert_array_equal(low, np.clip(x, -largest, largest).astype(dtype).astype(float))
    np.testing.assert_array_equal(high, 1)


def test_narrow_loads_and_stores():
    x = np.arange(-16, 16, dtype=np.int8).repeat(4)
    found = run(
        """
        ld.global.s8 %r10, [%rd3];
        ld.global.b8 %r11, [%rd3];
        ld.global.s8 %rs1, [%rd3];
        shr.u16 %rs1, %rs1, 8;
        st.global.b8 [%rd4], %r10;
        st.global.b8 [%rd4+1], %r11;
        shr.u32 %r11, %r11, 8;
        st.global.b8 [%rd4+2], %r11;
        st.global.b8 [%rd4+3], %rs1;
        """,
        x,
    ).view(np.int8).reshape(-1, 4)  # fmt: skip
    signs = np.where(x[::4] < 0, -1, 0)
    np.testing.assert_array_equal(found, np.stack([x[::4], x[::4], 0 * signs, signs], axis=1))


def test_vectors_and_spaces():
    x = np.arange(128, dtype=np.int32)
    found = run(
        """
        mul.wide.u32 %rd7, %r0, 16;
        add.s64 %rd8, %rd0, %rd7;
        ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd8];
        cvta.shared.u64 %rd9, %rd6;
        cvta.to.shared.u64 %rd9, %rd9;
        st.shared.b32 [%rd9], %r13;
        ld.shared.b32 %r14, [%rd6];
        st.global.b32 [%rd4], %r14;
        """,
        x,
    )
    np.testing.assert_array_equal(found, x[3::4])


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("ld.global.b32 %r11, [%rd6];", "out of bounds"),
        ("ld.shared.b32 %r11, [%rd3];", "out of bounds"),
        ("cvta.shared.u64 %rd9, %rd6; ld.shared.b32 %r11, [%rd9];", "out of bounds"),
        ("ld.shared.b32 %r11, [%rd6];", "uninitialised"),
        ("ld.global.v2.b32 {%r11, %r12}, [%rd3];", "misaligned"),
        ("mov.b32 %r12, 0; div.u32 %r11, %r10, %r12;", "divides by zero"),
        ("shfl.sync.bfly.b32 %r11, %r10, 1, 31, 255;", "the member mask"),
    ],
)
def test_refused(lines, says):
    with pytest.raises(EmulatorError, match=says):
        apply(lines, NUMBERS)
