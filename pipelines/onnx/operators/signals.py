"""Spectra: Fourier transforms as products with a matrix, windows, and the mel scale."""

from __future__ import annotations

import numpy as np

from heddle.graph import TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.axes import along
from heddle.pipelines.onnx.table import operator

LONGEST = 2**13
"""A transform of as many elements has a matrix of 512 MiB."""


@operator("DFT")
def dft(node: Node) -> TensorValue:
    """Of numbers that are real, or pairs of real and imaginary parts, along one axis."""
    x = node(0)
    axis = node["axis"] if node.version < 20 else node.number(2, "the axis", -2)
    (axis,) = node.axes([axis], x.rank)
    if axis == x.rank - 1 or x.shape[-1] not in (1, 2):
        node.refuse(f"wanted another axis than the last one, of 1 or 2, got {axis} of {x.shape}")
    inverse, onesided = bool(node["inverse"]), bool(node["onesided"])
    size, halved = x.shape[axis].static, inverse and onesided
    length = node.number(1, "the length", size if size is None or not halved else 2 * (size - 1))
    if size is None or length is None:
        node.refuse(f"wanted a known size along axis {axis} to transform, got {x.shape}")
    x = _sized(x, axis, size, length // 2 + 1 if halved else length)
    parts = [x[..., number] for number in range(int(x.shape[-1]))]
    if axis != x.rank - 2:
        parts = [ops.transpose(part, axis, -1) for part in parts]
    results = _transformed(node, parts, length, inverse, onesided)
    if axis != x.rank - 2:
        results = [ops.transpose(result, axis, -1) for result in results]
    return ops.stack(results, axis=-1)


def _sized(x: TensorValue, axis: int, size: int, wanted: int) -> TensorValue:
    """The first `wanted` elements along an axis, or all and zeros behind them."""
    if size >= wanted:
        return x if size == wanted else x[along(axis, slice(0, wanted))]
    return ops.pad(x, [n for i in range(x.rank) for n in (0, (wanted - size) * (i == axis))])


@operator("STFT")
def stft(node: Node) -> TensorValue:
    """The transforms of frames of a signal, which a window may weigh."""
    signal, step = node(0), node.number(1, "the step of frames")
    if not node.has(2) and not node.has(3):
        node.refuse("wanted a window or the length of a frame, got neither")
    window = node.optional(2)
    length = node.number(3, "the length of a frame", None)
    if length is None and window is not None:
        length = window.shape[0].static
    size = signal.shape[1].static
    if size is None or length is None or not 0 < length <= size or step < 1:
        node.refuse(
            "wanted frames of a known length in a known signal, a step of 1 or more apart, "
            f"got {length} in {signal.shape}, a step of {step}"
        )
    starts = np.arange(0, size - length + 1, step)
    places = ops.constant(starts[:, None] + np.arange(length))
    parts = [signal]
    if signal.rank == 3:
        parts = [signal[..., number] for number in range(int(signal.shape[-1]))]
    frames = [ops.gather(part, places, axis=1) for part in parts]
    if window is not None:
        frames = [frame * window for frame in frames]
    return ops.stack(_transformed(node, frames, length, False, bool(node["onesided"])), axis=-1)


def _transformed(
    node: Node, parts: list[TensorValue], length: int, inverse: bool, onesided: bool
) -> list[TensorValue]:
    """The real and the imaginary part of the transforms along the last axis.

    With `onesided` the spectrum of real numbers is its frequencies from 0 to half of all, as the
    others are their conjugates: the result, or, of an inverse, what is given, whose result is real.
    """
    if not 1 <= length <= LONGEST:
        node.refuse(f"wanted a transform of 1 to {LONGEST} elements, got {length}")
    if onesided and len(parts) != 1 + inverse:
        wanted, found = ("real", "complex")[:: -1 if inverse else 1]
        node.refuse(f"wanted one side of {wanted} numbers, got {found} ones")
    half, dtype = length // 2 + 1, parts[0].dtype
    sizes = (length, length)
    if onesided:
        sizes = (half, length) if inverse else (length, half)
    rows, columns = map(np.arange, sizes)
    angles = 2 * np.pi / length * (np.outer(rows, columns) % length) * (1 if inverse else -1)
    scale = np.full((len(rows), 1), 1 / length if inverse else 1.0)
    if onesided and inverse:
        scale[1 : (length + 1) // 2] *= 2  # their conjugates, too
    cosines, sines = (
        ops.constant((scale * function(angles)).astype(dtype.value), dtype)
        for function in (np.cos, np.sin)
    )
    if len(parts) == 1:
        return [parts[0] @ cosines, parts[0] @ sines]
    real, imaginary = parts
    results = [real @ cosines - imaginary @ sines]
    return results if onesided else [*results, real @ sines + imaginary @ cosines]


def _window(name: str, *shares: float) -> None:
    """Says that an operator is a sum of cosines with these shares, of 0, 1, 2 waves."""

    def build(node: Node) -> TensorValue:
        size = node.number(0, "the size of the window")
        steps = size if node["periodic"] else size - 1
        at = 2 * np.pi * np.arange(size) / max(steps, 1)
        waves = sum((-1) ** k * share * np.cos(k * at) for k, share in enumerate(shares))
        dtype = node.dtype("output_datatype")
        return ops.constant(np.asarray(waves).astype(dtype.value), dtype)

    operator(name)(build)


_window("HannWindow", 0.5, 0.5)
_window("HammingWindow", 25 / 46, 21 / 46)
_window("BlackmanWindow", 0.42, 0.5, 0.08)


@operator("MelWeightMatrix")
def mel_weight_matrix(node: Node) -> TensorValue:
    """What each frequency of a spectrum gives to each band of the mel scale."""
    names = ("the number of bands", "the length", "the rate", "the lowest", "the highest frequency")
    count, length, rate, low, high = (
        node.number(number, name) for number, name in enumerate(names)
    )
    lowest, highest = (2595 * np.log10(1 + edge / 700) for edge in (low, high))
    mels = lowest + np.arange(count + 2) * (highest - lowest) / (count + 2)
    edges = np.floor((length + 1) * 700 * (10 ** (mels / 2595) - 1) / rate).astype(np.int64)
    dtype = node.dtype("output_datatype")
    weights = np.zeros((length // 2 + 1, count))
    for band, (first, middle, last) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        rises, falls = np.arange(first, middle + 1), np.arange(middle, last)
        weights[rises, band] = (rises - first) / (middle - first) if middle > first else 1
        weights[falls, band] = (last - falls) / (last - middle) if last > middle else 1
    return ops.constant(weights.astype(dtype.value), dtype)
