"""Weights in 8 and 4 bits."""

from pathlib import Path

import numpy as np
import pytest

from heddle.graph import ops
from heddle.pipelines.quantization import narrowed, quantize, widened
from heddle.pipelines.stored.selection import Stored
from heddle.runtime import Buffer
from heddle.runtime.errors import ArtifactError, ArtifactReason


def weights(n=40, k=128):
    return np.random.default_rng(0).standard_normal((n, k)).astype(np.float32)


@pytest.mark.parametrize("group", [32, 64])
@pytest.mark.parametrize(("bits", "steps"), [(8, 127), (4, 8)])
def test_each_weight_is_off_by_half_a_step_at_most(bits, steps, group):
    weight = weights()
    integers, scales = quantize(weight, bits, group)
    assert scales.shape == (40, 128 // group)
    identity = np.eye(128, dtype=np.float32)
    found = ops.ROWS["quantized_matmul"].reference(
        identity, integers, scales, bits=bits, group=group
    )
    groups = np.abs(weight.reshape(40, -1, group)).max(axis=-1, keepdims=True)
    off = np.abs(found.T - weight).reshape(40, -1, group) / (groups / steps)
    # In 4 bits the largest of the other sign is cut from 8 to 7.
    assert off.max() < (0.501 if bits == 8 else 1.001)
    assert np.quantile(off, 0.95) < 0.51


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("bits", "top"), [(8, 255), (4, 15)])
def test_integers_without_a_sign_count_from_a_minimum(bits, top, dtype):
    """Of elements that are all on one side, so that it is worth its place."""
    weight = weights() + 8
    integers, *sides = quantize(weight, bits, 32, dtype, signed=False)
    scales, minimums = (np.repeat(widened(side), 32, axis=1) for side in sides)
    if bits == 4:
        integers = np.stack([integers & 15, integers >> 4], axis=-1).reshape(40, 128)
    assert (integers.min(), integers.max()) == (0, top)
    groups = weight.reshape(40, 4, 32)
    step = (groups.max(-1) - groups.min(-1)) / top
    off = np.abs(integers * scales + minimums - weight).reshape(40, 4, 32) / step[..., None]
    # bfloat16 has 8 bits: the least is off by a 512th of 8, and the step, so the largest by more.
    assert off.max() < {"float32": 0.501, "float16": 0.6, "bfloat16": top / 16}[dtype]


def test_integers_fit_scales_that_are_rounded():
    integers, scales = quantize(weights(), 8, 32, "bfloat16")
    assert scales.dtype == np.uint16
    off = np.abs(integers * np.repeat(widened(scales), 32, axis=1) - weights())
    assert (off <= 0.505 * np.repeat(widened(scales), 32, axis=1))[np.abs(integers) < 127].all()


def test_a_group_of_zeros_stays_zero():
    for bits in (8, 4):
        integers, scales = quantize(np.zeros((2, 64), np.float32), bits, 32)
        assert not scales.any()
        assert (integers == (0 if bits == 8 else 0x88)).all()
        assert not any(part.any() for part in quantize(np.zeros((2, 64)), bits, 32, signed=False))


def test_bfloat16_is_rounded_to_even():
    values = np.array([1, 1 + 2.0**-8, 1 + 3 * 2.0**-8, -2.5e-3], np.float32)
    assert widened(narrowed(values, "bfloat16"))[:3].tolist() == [1, 1, 1 + 2.0**-6]
    assert widened(values.astype(np.float16))[3] == np.float16(-2.5e-3)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("signed", [True, False])
def test_scales_that_have_no_inverse(bits, signed):
    """Such are those below float32's normal numbers; a warning would fail the test."""
    weight = np.zeros((1, 32), np.float32)
    weight[0, :2] = 1e-38, -5e-39
    for side in quantize(weight, bits, 32, signed=signed)[1:]:
        assert np.abs(side).max() <= 1e-38


def test_what_a_checkpoint_is_asked_for():
    bits = narrowed(weights(), "bfloat16")
    arrays = {"x.weight": Buffer.from_numpy(bits, dtype="bfloat16"), "norm.weight": weights()[0]}
    wanted = {
        "x.integers": ("uint8", (40, 64)),
        "x.scales": ("bfloat16", (40, 4)),
        "norm.weight": ("float32", (128,)),
        "missing.integers": ("int8", (3, 32)),
        "missing.scales": ("float32", (3, 1)),
    }
    found = Stored(Path("w"), arrays).select(wanted)
    assert sorted(found) == ["norm.weight", "x.integers", "x.scales"]
    integers, scales = quantize(widened(bits), 4, 32, "bfloat16")
    np.testing.assert_array_equal(found["x.integers"], integers)
    assert found["x.scales"].dtype == "bfloat16"
    np.testing.assert_array_equal(np.asarray(found["x.scales"]).view(np.uint16), scales)


@pytest.mark.parametrize("shape", [(128,), (40, 96), (39, 128), (40, 0), (40, 128, 1)])
@pytest.mark.parametrize(("dtype", "width"), [("int8", 128), ("uint8", 64)])
def test_a_weight_of_another_shape_is_named_with_its_file(shape, dtype, width):
    wanted = {"x.integers": (dtype, (40, width)), "x.scales": ("float32", (40, 4))}
    with pytest.raises(ArtifactError) as error:
        Stored(Path("w.safetensors"), {"x.weight": np.zeros(shape, np.float32)}).select(wanted)
    message = f"w.safetensors: x.weight: wanted [40, 128], got {list(shape)}"
    assert str(error.value) == message
    assert error.value.reason is ArtifactReason.WEIGHTS
