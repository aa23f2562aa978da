"""Masks that are added to scores, with the least number of their type: it is not -inf."""

import ml_dtypes
import numpy as np
from reference import numpy_dtype, shape

from heddle.kernels.spec import Spec


def arrays(spec: Spec, dims: dict[str, int]) -> list[np.ndarray]:
    """Operands whose mask [queries, keys] has a row of each kind, and ordinary ones.

    Row 0 is the least number, row 1 -inf, row 2 both; row 3 the least number but for one key, row 4
    but for the last keys, row 5 but for the first ones, row 6 -inf but for one key.
    """
    rng = np.random.default_rng(3)
    found = [
        rng.standard_normal(shape(operand.shape, dims)).astype(numpy_dtype(operand.dtype))
        for operand in spec.operands
    ]
    mask = found[3]
    least, half = ml_dtypes.finfo(mask.dtype).min, mask.shape[1] // 2
    mask[:6] = least
    mask[1] = -np.inf
    mask[2, half:] = -np.inf
    mask[3, half] = 1
    mask[4, half:] = 1
    mask[5, :half] = 1
    mask[6] = -np.inf
    mask[6, half] = 1
    return found


def check(found: np.ndarray, operands: list[np.ndarray]) -> None:
    """The rows of `found` [batch, heads, queries, size] that no score decides, of one key head."""
    value = operands[2][:, 0].astype(np.float64)
    half = value.shape[1] // 2
    wanted = {1: np.zeros_like(value[:, 0]), 3: value[:, half], 6: value[:, half]}
    # That of float16 is small enough that scores still tell beside it.
    if operands[3].dtype != np.float16:
        wanted |= {0: value.mean(1), 2: value[:, :half].mean(1)}
    for row, rows in wanted.items():
        for head in range(found.shape[1]):
            np.testing.assert_allclose(
                found[:, head, row].astype(np.float64), rows, rtol=2**-7, atol=2**-6
            )
