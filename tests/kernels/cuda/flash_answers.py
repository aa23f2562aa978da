"""How far the answers of attention on tensor cores may be from those of float64."""

import numpy as np
from cuda_harness import run_call
from reference import evaluate

ROUNDING = {"bfloat16": 2.0**-9, "float16": 2.0**-12}
"""The largest error of a rounded number, as a share of it."""


def check_rounded(found: np.ndarray, wanted: np.ndarray, dtype: str, values: np.ndarray) -> None:
    """Shares of `values` and the result are rounded, and so is what is wanted."""
    largest = np.nanmax(np.abs(values.astype(np.float64)))
    error = np.max(np.abs(found.astype(np.float64) - wanted.astype(np.float64)), initial=0)
    assert error / largest <= 3 * ROUNDING.get(dtype, 0) + 2**-16


def check_ragged(spec, dims, arrays, shift=0, machine=None) -> np.ndarray:
    """The result of a call for ragged rows, which has to be right."""
    (found,), status = run_call(spec, arrays, dims, shift, machine)
    assert status == [0, 0, 0, 0]
    check_rounded(found, evaluate(spec, dims, arrays)[0], spec.result.dtype, arrays[2])
    return found
