"""Floats of 8 bits on the emulator: the bits are those of the CPU."""

import float8_values as values
import numpy as np
import pytest
import ragged_batches as ragged
from cuda_cases import plain, tensor
from cuda_harness import run
from emulator.memory import EmulatorError

from heddle.graph.compiler.codegen.cuda import to_ptx
from heddle.kernels.cuda import _block
from heddle.kernels.cuda.flash.narrow_warp import NarrowWarp
from heddle.kernels.registry import MACHINES, find

ARCHS = ("sm_80", "sm_90a")
"""By integer operations, and by instructions."""

CONVERTS = {"float8_e4m3fn": "e4m3x2", "float8_e5m2": "e5m2x2"}


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", values.DTYPES)
def test_every_code_as_float32(dtype, arch, shift):
    codes = values.codes().view(dtype)
    spec = values.casting(dtype, "float32", codes.size)
    [found], _ = run(spec, [codes], {}, shift, MACHINES[arch])
    np.testing.assert_array_equal(found, codes.astype(np.float32))
    assert (f"cvt.rn.f16x2.{CONVERTS[dtype]}" in to_ptx(spec, MACHINES[arch])) == (arch != "sm_80")


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", values.DTYPES)
def test_float32_is_rounded_to_the_nearest_even_code(dtype, arch, shift):
    x = values.boundaries(dtype)
    spec = values.casting("float32", dtype, x.size)
    [found], _ = run(spec, [x], {}, shift, MACHINES[arch])
    np.testing.assert_array_equal(found.view(np.uint8), values.rounded(x, dtype))
    instruction = f"cvt.rn.satfinite.{CONVERTS[dtype]}.f32"
    assert (instruction in to_ptx(spec, MACHINES[arch])) == (arch != "sm_80")


@pytest.mark.parametrize("dtype", values.DTYPES)
def test_every_code_is_multiplied(dtype):
    """Column i has code i somewhere along k, and zeros, which infinity and NaN do not meet."""
    codes = values.codes()
    weights = np.zeros((256, 32), np.uint8)
    weights[codes, codes % 32] = codes
    arrays = [np.full((1, 32), 0.5, dtype), weights.view(dtype)]
    operands = [tensor(dtype, 1, 32), tensor(dtype, 256, 32)]
    spec = plain("float8_matmul", operands, tensor("float32", 1, 256), transposed=True)
    [found], _ = run(spec, arrays, {})
    np.testing.assert_array_equal(found[0], codes.view(dtype).astype(np.float32) / 2)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("wide", ["float16", "bfloat16"])
@pytest.mark.parametrize("dtype", values.DTYPES)
def test_every_weight_is_exact(dtype, wide, arch):
    codes = values.codes()
    weights = np.zeros((256, 32), np.uint8)
    weights[codes, codes % 32] = codes
    arrays = [np.full((1, 32), 0.5, wide), weights.view(dtype), np.full((256, 1), 2, wide)]
    operands = [tensor(wide, 1, 32), tensor(dtype, 256, 32), tensor(wide, 256, 1)]
    spec = plain("quantized_matmul", operands, tensor(wide, 1, 256), bits=8, group=32)
    [found], _ = run(spec, arrays, {}, 0, MACHINES[arch])
    wanted = codes.view(dtype).astype(np.float32)
    np.testing.assert_array_equal(found[0].astype(np.float32), wanted)


@pytest.mark.parametrize(
    ("op", "dtype", "narrow", "size", "shift"),
    [
        ("paged_attention", "float16", "float8_e4m3fn", 64, 0),
        ("ragged_attention", "float16", "float8_e4m3fn", 128, 0),
        ("ragged_attention", "float16", "float8_e5m2", 96, 0),
        ("paged_attention", "float16", "float8_e4m3fn", 32, 1),
        ("paged_attention", "float16", "float8_e5m2", 256, 0),
    ],
)
def test_keys_of_8_bits_give_the_bits_of_the_same_in_float16(op, dtype, narrow, size, shift):
    specs = [ragged.attention(op, dtype, held, size=size, block=16) for held in (narrow, None)]
    dims, (query, key, value, *rows) = ragged.batch(specs[0], [1, 20, 2], [70, 33, 5])
    found = []
    for spec, held in zip(specs, (narrow, dtype), strict=True):
        arrays = [query, key.astype(held), value.astype(held), *rows]
        (result,), status = run(spec, arrays, dims, shift)
        assert status == [0, 0, 0, 0]
        found.append(result.view(np.uint16))
    np.testing.assert_array_equal(*found)


def test_queries_that_are_narrowed_before_all_have_read_them_are_caught(monkeypatch):
    store = NarrowWarp._store_queries

    def at_once(warp, fragments):
        with monkeypatch.context() as patched:
            patched.setattr(_block, "barrier", lambda: None)
            store(warp, fragments)

    monkeypatch.setattr(NarrowWarp, "_store_queries", at_once)
    spec = ragged.attention("ragged_attention", "bfloat16", "float8_e4m3fn", size=256)
    dims, arrays = ragged.batch(spec, [1], [40])
    with pytest.raises(EmulatorError, match="race: writes what"):
        run(spec, arrays, dims)


def test_lines_of_an_odd_number_of_chunks_stay_with_plain_threads():
    for size, taken in ((80, False), (96, True), (112, False)):
        spec = ragged.attention("paged_attention", "float16", "float8_e4m3fn", size=size, block=16)
        assert (find(spec.op, "cuda").launch(spec).shared > 0) == taken


@pytest.mark.parametrize(("times", "size"), [(2.0**20, 64), (2.0**-12, 64), (2.0**20, 256)])
def test_queries_of_any_size_meet_keys_of_8_bits(times, size):
    """Which are multiplied in float16: queries too large for it are scaled, small ones as good."""
    spec = ragged.attention("paged_attention", "bfloat16", "float8_e4m3fn", size=size, block=16)
    dims, arrays = ragged.batch(spec, [1, 20], [70, 33])
    found = []
    for one in (1.0, times):
        scaled = spec.with_attr("scale", spec.attr("scale") / one)
        query = (arrays[0].astype(np.float32) * one).astype(arrays[0].dtype)
        (result,), _ = run(scaled, [query, *arrays[1:]], dims)
        found.append(result.astype(np.float32))
    largest = np.nanmax(np.abs(arrays[2].astype(np.float32)))
    np.testing.assert_allclose(*found, rtol=0, atol=2**-8 * largest)
    assert (found[0] != 0).any()
