"""Rows of logits with what a step says about them, for the kernels of both targets."""

import ml_dtypes
import numpy as np

from heddle.kernels.spec import Operand, Spec

# temperature, top_p, min_p, top_k
SETTINGS = {
    "plain": (1, 1, 0, 0),
    "greedy": (0, 1, 0, 0),
    "cold": (1e-40, 1, 0, 0),
    "hot": (3e38, 1, 0, -1),
    "infinite": (np.inf, 1, 0, 0),
    "one": (1, 1, 0, 1),
    "top_k": (0.7, 1, 0, 7),
    "large top_k": (1, 1, 0, 10**12),
    "top_p": (1.3, 0.6, 0, 0),
    "no top_p": (1, 0, 0, 0),
    "min_p": (1, 1, 0.2, 0),
    "the best": (1, 1, 1, 0),
    "all": (0.9, 0.8, 0.02, 30),
    "temperature is NaN": (np.nan, 0.8, 0.02, 0),
    "top_p is NaN": (1, np.nan, 0, 0),
    "top_p is NaN, top_k": (1, np.nan, 0, 7),
    "min_p is NaN": (1, 0.8, np.nan, 0),
    "infinities": (1, np.inf, -np.inf, 7),
    "other infinities": (1, -np.inf, np.inf, 7),
}


def drawing(dtype="float32", mask=False):
    rows, result = "d0", Operand("int64", ("d0",))
    operands = [
        Operand(dtype, (rows, "d1")),
        Operand("float32", (rows, 6)),
        Operand("int64", (rows, 2)),
        Operand("int64", (rows,)),
    ]
    if mask:
        operands.append(Operand("int32", (rows, "d2")))
    return Spec("sample_tokens", tuple(operands), result, (result,))


def step(logits, temperature, top_p, min_p, top_k, seed=0, words=None):
    """The arrays of a spec and its dims: seeds and steps of their own, and a mask of `words`."""
    rng, rows = np.random.default_rng(seed), len(logits)
    sampling = np.tile(np.float32([temperature, top_p, min_p, 0, 0, 1]), (rows, 1))
    integers = np.stack([np.full(rows, top_k), rng.integers(-(2**63), 2**63 - 1, rows)], axis=1)
    arrays = [logits, sampling, integers, rng.integers(0, 10**6, rows)]
    dims = {"d0": rows, "d1": logits.shape[1]}
    if words is not None:
        arrays.append(rng.integers(-(2**31), 2**31, (rows, words)).astype(np.int32))
        dims["d2"] = words
    return dims, arrays


def logits(rows, length, dtype="float32", ties=False, seed=0):
    """Normal ones, of few different values where there are `ties`."""
    values = np.random.default_rng(seed).standard_normal((rows, length)) * 2
    values = np.round(values) if ties else values
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def broken():
    """Rows that have no answer, and one that has, with what the mask leaves of them."""
    rows = logits(6, 50)
    rows[0, 7], rows[1, 49], rows[2], rows[3, 3] = np.nan, np.inf, -np.inf, -np.inf
    dims, arrays = step(rows, 1, 0.9, 0, 20, words=2)
    arrays[4][...] = -1
    arrays[4][4] = 0
    arrays[4][5] = 0, 1 << 9
    return dims, arrays, [-1, -1, -1, None, -1, 41]


def penalizing(dtype="float32"):
    x = Operand(dtype, ("d0", "d1"))
    others = (
        Operand("float32", ("d0", 6)),
        Operand("int64", ("d2", 2)),
        Operand("int64", (("add", "d0", 1),)),
    )
    return Spec("penalize", (x, *others), x, (x,))


def penalties(dtype="float32"):
    """Three rows, one without entries, and an entry that is in no row."""
    rng = np.random.default_rng(0)
    sampling = rng.uniform(0.5, 1.5, (3, 6)).astype(np.float32)
    tokens = np.concatenate([rng.permutation(300)[:270], rng.permutation(300)[:40]])
    seen = np.stack([tokens, rng.integers(0, 4, 310)], axis=1)
    arrays = [logits(3, 300, dtype), sampling, seen, np.array([0, 270, 270, 309])]
    return {"d0": 3, "d1": 300, "d2": 310}, arrays
