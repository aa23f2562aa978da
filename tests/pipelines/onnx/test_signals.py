"""Spectra beside NumPy's, and what is refused of them."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_texts import computed, imported, parsed

from heddle.graph import compile
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError

RNG = np.random.default_rng(3)


def pairs(x):
    """Complex numbers as ONNX has them."""
    return np.stack([x.real, x.imag], axis=-1)


def dft(x, length, axis, **settings):
    """The transform of `x`, whose first size the model does not know."""
    given = ", ".join(f"{name} = {value}" for name, value in {"inverse": 0, **settings}.items())
    shape = ", ".join(["b", *map(str, x.shape[1:])])
    text = f"""m (double[{shape}] x) => (double[{", ".join("b" + str(i) for i in range(x.ndim))}] y)
    <int64 length = {{{length}}}, int64 axis = {{{axis}}}>
    {{ y = DFT<{given}>(x, length, axis) }}"""
    return computed(text, x)[0]


@pytest.mark.parametrize("length", [7, 8, 9, 12, 1])
@pytest.mark.parametrize("axis", [1, 2])
def test_every_kind_of_transform(length, axis):
    """Of as many elements, of more than there are, and of the first ones."""
    x = RNG.standard_normal((2, 9, 8)) + 1j * RNG.standard_normal((2, 9, 8))
    real = x.real[..., None]
    for found, wanted in (
        (dft(pairs(x), length, axis), pairs(np.fft.fft(x, length, axis))),
        (dft(pairs(x), length, axis, inverse=1), pairs(np.fft.ifft(x, length, axis))),
        (dft(real, length, axis), pairs(np.fft.fft(x.real, length, axis))),
        (dft(real, length, axis, inverse=1), pairs(np.fft.ifft(x.real, length, axis))),
        (dft(real, length, axis, onesided=1), pairs(np.fft.rfft(x.real, length, axis))),
        (
            dft(pairs(x), length, axis, onesided=1, inverse=1),
            np.fft.irfft(x, length, axis)[..., None],
        ),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("x", "length", "axis", "settings", "reason"),
    [
        ((2, 8, 2), 8, 2, {}, "another axis than the last one"),
        ((2, 8, 2), 8, 0, {}, "a known size along axis 0"),
        ((2, 8, 3), 8, 1, {}, r"the last one, of 1 or 2, got 1 of \[b, 8, 3\]"),
        ((2, 8, 2), 8, 3, {}, "wanted an axis from -3 to 2, got 3"),
        ((2, 8, 2), 8193, 1, {}, "1 to 8192 elements, got 8193"),
        ((2, 8, 2), 0, 1, {}, "1 to 8192 elements, got 0"),
        ((2, 8, 2), 8, 1, {"onesided": 1}, "one side of real numbers, got complex ones"),
        ((2, 8, 1), 8, 1, {"onesided": 1, "inverse": 1}, "of complex numbers, got real ones"),
    ],
)
def test_what_is_refused(x, length, axis, settings, reason):
    with pytest.raises(GraphError, match=reason):
        dft(np.zeros(x), length, axis, **settings)


@pytest.mark.parametrize("onesided", [0, 1])
def test_frames_of_a_signal(onesided):
    x, window = RNG.standard_normal((3, 50)), RNG.standard_normal(11)
    text = f"""m (double[b, 50, 1] x, double[11] window) => (double[b, f, k, 2] y)
    <int64 step = {{7}}> {{ y = STFT<onesided = {onesided}>(x, step, window) }}"""
    (found,) = computed(text, x[..., None], window)
    frames = np.stack([x[:, at : at + 11] for at in range(0, 40, 7)], axis=1) * window
    wanted = np.fft.rfft(frames) if onesided else np.fft.fft(frames)
    np.testing.assert_allclose(found, pairs(wanted), rtol=1e-12, atol=1e-12)


def test_a_spectrogram_in_the_mel_scale():
    """What speech models begin with, compiled."""
    text = """m (float[b, 400, 1] x) => (float[b, f, 20] y)
    <int64 step = {40}, int64 size = {100}, int64 bands = {20}, int64 rate = {4000},
     float low = {0.0}, float high = {2000.0}, int64[1] last = {-1}>
    { window = HannWindow(size)
      spectrum = STFT<onesided = 1>(x, step, window)
      power = ReduceSumSquare<keepdims = 0>(spectrum, last)
      weights = MelWeightMatrix(bands, size, rate, low, high)
      y = MatMul(power, weights) }"""
    x = RNG.standard_normal((2, 400, 1), np.float32)
    model = InferenceSession(threads=1).load(compile(imported(text).graph, "cpu:native"))
    (found,) = map(np.asarray, model.execute(x))
    (wanted,) = ReferenceEvaluator(parsed(text)).run(None, {"x": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


def test_frames_that_are_none():
    text = """m (double[b, 50, 1] x) => (double[b, f, k, 2] y) <int64 step = {0}, int64 n = {8}>
    { y = STFT(x, step, , n) }"""
    with pytest.raises(GraphError, match="a step of 0"):
        computed(text, np.zeros((1, 50, 1)))
