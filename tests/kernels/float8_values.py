"""Float32 values at which rounding to 8 bits could go wrong, and what they become."""

import ml_dtypes  # noqa: F401  (gives NumPy its dtypes)
import numpy as np

from heddle.kernels.spec import Body, Operand, Spec, Step

DTYPES = ("float8_e4m3fn", "float8_e5m2")


def codes() -> np.ndarray:
    return np.arange(256).astype(np.uint8)


def boundaries(dtype: str) -> np.ndarray:
    """Every value and every middle of two with their neighbours, both ends and some of any bits."""
    finite = np.unique(codes().view(dtype).astype(np.float32))
    finite = np.append(finite[np.isfinite(finite)], 2 * finite[-2])
    places = np.concatenate([finite, (finite[:-1] + finite[1:]) / 2])
    near = [np.nextafter(places, np.float32(end)) for end in (-np.inf, np.inf)]
    bits = np.random.default_rng(0).integers(0, 2**32, 5000, np.uint32)
    ends = np.array([0, 1, 0x7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FFFFFFF], np.uint32)
    words = np.concatenate([bits, ends, ends | 0x80000000]).view(np.float32)
    return np.concatenate([places, *near, words])


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """The codes that ml_dtypes gives."""
    with np.errstate(all="ignore"):
        return values.astype(dtype).view(np.uint8)


def casting(source: str, target: str, size: int) -> Spec:
    x = Operand(source, (size,))
    result = Operand(target, (size,))
    body = Body((x,), (Step("cast", (0,), target),), (1,))
    return Spec("map", (result,), result, (result,), (), body)
