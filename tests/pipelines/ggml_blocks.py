"""Tensors in blocks of GGML: any bytes, or values that are rounded to Q4_K and Q6_K.

The package gguf reads these types and writes some of them.
"""

import gguf
import numpy as np

HALVES = {
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    "Q6_K": (208,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "MXFP4": (),
}
"""Where blocks have numbers in float16, if not in the beginning alone."""


def drawn(kind, *shape):
    """Rows of bytes, of which every one is drawn, but for scales that are none too large."""
    rng = np.random.default_rng(0)
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    rows = rng.integers(0, 256, (*shape[:-1], shape[-1] // block, size), np.uint8)
    if kind == "MXFP4":
        rows[..., 0] = rng.integers(110, 140, rows.shape[:-1])
    for at in HALVES.get(kind, (0,)):
        scales = rng.standard_normal((*rows.shape[:-1], 1)).astype(np.float16)
        rows[..., at : at + 2] = scales.view(np.uint8)
    return rows.reshape(*shape[:-1], -1)


def dequantized(kind, rows):
    """The values of rows of bytes, float32."""
    return gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[kind])


def in_float16(values):
    """Numbers as their bytes, one for each block."""
    return values.astype(np.float16)[..., None].view(np.uint8)


def q4_k(weight):
    """A weight [..., k] as rows of Q4_K: scales and minimums of groups in 6 bits each."""
    groups = weight.reshape(*weight.shape[:-1], -1, 8, 32)
    low, high = groups.min(-1).clip(max=0), groups.max(-1)
    steps = (high - low) / 15
    units = [side.max(-1).astype(np.float16) / np.float16(63) for side in (steps, -low)]
    scales, minimums = (
        np.rint(side / np.maximum(unit.astype(np.float32), 1e-12)[..., None])
        .clip(0, 63)
        .astype(np.uint8)
        for side, unit in zip((steps, -low), units, strict=True)
    )
    d, dmin = (unit.astype(np.float32)[..., None, None] for unit in units)
    step = d * scales[..., None]
    exact = (groups + dmin * minimums[..., None]) / np.where(step == 0, 1, step)
    integers = np.rint(exact).clip(0, 15).astype(np.uint8)
    first = scales[..., :4] | scales[..., 4:] >> 4 << 6
    second = minimums[..., :4] | minimums[..., 4:] >> 4 << 6
    third = scales[..., 4:] & 15 | minimums[..., 4:] << 4
    pairs = integers[..., 0::2, :] | integers[..., 1::2, :] << 4
    parts = [*map(in_float16, units), first, second, third, pairs.reshape(*units[0].shape, -1)]
    return np.concatenate(parts, axis=-1).reshape(*weight.shape[:-1], -1)


def q6_k(weight):
    """A weight [..., k] as rows of Q6_K: scales of 16 elements in 8 bits each."""
    groups = weight.reshape(*weight.shape[:-1], -1, 16, 16)
    steps = np.abs(groups).max(-1) / 31
    unit = steps.max(-1).astype(np.float16) / np.float16(127)
    d = np.maximum(unit.astype(np.float32), 1e-12)[..., None]
    scales = np.rint(steps / d).clip(0, 127).astype(np.int8)
    step = (unit.astype(np.float32)[..., None] * scales)[..., None]
    integers = np.rint(groups / np.where(step == 0, 1, step)).clip(-32, 31) + 32
    # Halves of 128 elements, each of four times 32: bits 0 to 3 of two of them share a byte, and
    # bits 4 and 5 of all four.
    fours = integers.astype(np.uint8).reshape(*unit.shape, 2, 4, 32)
    low = fours[..., :2, :] & 15 | (fours[..., 2:, :] & 15) << 4
    places = 2 * np.arange(4, dtype=np.uint8)[:, None]
    high = np.bitwise_or.reduce(fours >> 4 << places, axis=-2)
    flat = [part.reshape(*unit.shape, -1) for part in (low, high)]
    parts = [*flat, scales.view(np.uint8), in_float16(unit)]
    return np.concatenate(parts, axis=-1).reshape(*weight.shape[:-1], -1)


WRITERS = {"Q4_K": q4_k, "Q6_K": q6_k}


def quantized(weight, kind):
    """A weight, float32, as rows of a type."""
    if kind in WRITERS:
        return WRITERS[kind](weight)
    return gguf.quants.quantize(weight, gguf.GGMLQuantizationType[kind])
