"""Weights as quantizers write them, from integers, zero points and scales that are known."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
MXFP4 = {"quant_method": "mxfp4"}


def compressed(form, **group):
    """The configuration of compressed-tensors with one group."""
    groups = {"group_0": {"targets": ["Linear"], "weights": group}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}


def words(integers, bits, axis, order=None):
    """Integers without a sign in int32, one after another along `axis`."""
    count = 32 // bits
    lines = np.moveaxis(np.asarray(integers), axis, -1)
    lines = np.pad(lines, [(0, 0)] * (lines.ndim - 1) + [(0, -lines.shape[-1] % count)])
    found = np.zeros((*lines.shape[:-1], lines.shape[-1] // count), np.uint32)
    for place in range(count):
        column = place if order is None else order[place]
        found |= lines[..., column::count].astype(np.uint32) << np.uint32(bits * place)
    return np.ascontiguousarray(np.moveaxis(found, -1, axis)).view(np.int32)


@dataclass
class Weight:
    """`(integers - zeros) * scales`: integers [n, k], the others [n, groups]."""

    integers: np.ndarray
    zeros: np.ndarray
    scales: np.ndarray
    places: np.ndarray
    bits: int

    @property
    def floats(self):
        """What it stands for."""
        taken = (self.integers - self.zeros[:, self.places]).astype(np.float32)
        return taken * self.scales[:, self.places]

    def gptq(self, lag=1):
        """Its tensors by the ends of their names."""
        return {
            ".qweight": words(self.integers.T, self.bits, 0),
            ".qzeros": words(self.zeros.T - lag, self.bits, 1),
            ".scales": self.scales.T.astype(np.float16, order="C"),
            ".g_idx": self.places.astype(np.int32),
        }

    def awq(self):
        """Its tensors by the ends of their names."""
        order = (0, 2, 4, 6, 1, 3, 5, 7)
        return {
            ".qweight": words(self.integers.T, 4, 1, order),
            ".qzeros": words(self.zeros.T, 4, 1, order),
            ".scales": self.scales.T.astype(np.float16, order="C"),
        }

    def packed(self, symmetric=False):
        """Its tensors, of compressed-tensors, by the ends of their names."""
        found = {
            ".weight_packed": words(self.integers, self.bits, 1),
            ".weight_scale": self.scales.astype(np.float32),
            ".weight_shape": np.array(self.integers.shape),
            ".weight_zero_point": words(self.zeros, self.bits, 0),
        }
        if symmetric:
            del found[".weight_zero_point"]
        return found


def drawn(bits=4, n=40, k=96, group=32, symmetric=False, seed=0):
    """A weight whose scales float16 has, so that each way to store it is exact."""
    rng = np.random.default_rng(seed)
    groups = -(-k // group)
    top, middle = 2**bits, 2 ** (bits - 1)
    zeros = rng.integers(1, top, (n, groups))
    return Weight(
        rng.integers(0, top, (n, k)),
        np.full_like(zeros, middle) if symmetric else zeros,
        rng.integers(1, 64, (n, groups)).astype(np.float32) / 1024,
        np.arange(k) // group,
        bits,
    )


def rounded(weight, bits, group, symmetric):
    """A float32 weight [n, k], rounded to integers."""
    n, k = weight.shape
    groups = weight.reshape(n, -1, group)
    low, high = groups.min(-1).clip(max=0), groups.max(-1).clip(min=0)
    if symmetric:
        high = np.maximum(high, -low)
        low = -high
    top = 2**bits - 1
    scales = ((high - low) / top).astype(np.float16).astype(np.float32)
    zeros = (
        np.rint(-low / scales).clip(1, top) if not symmetric else np.full_like(low, top // 2 + 1)
    )
    integers = np.rint(groups / scales[..., None] + zeros[..., None]).clip(0, top)
    integers, zeros = integers.reshape(n, k).astype(np.int64), zeros.astype(np.int64)
    return Weight(integers, zeros, scales, np.arange(k) // group, bits)


def awq(weight):
    """The tensors of a weight in 4 bits, each group with a zero point, and its floats."""
    own = rounded(weight, 4, 32, symmetric=False)
    return own.awq(), own.floats


def fp8(weight):
    """The tensors of a weight in float8 with the same scale for each block, and its floats."""
    scale = np.abs(weight).max() / 448
    values = (weight / scale).astype(ml_dtypes.float8_e4m3fn)
    scales = np.full((-(-weight.shape[0] // 128), -(-weight.shape[1] // 128)), scale, np.float32)
    return {".weight": values, ".weight_scale_inv": scales}, values.astype(np.float32) * scale


def named(name, parts):
    """The tensors of the product `name`."""
    return {name + end: array for end, array in parts.items()}
