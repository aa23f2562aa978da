"""What `rotate_and_write` takes, on both targets."""

from __future__ import annotations

from heddle.kernels.spec import Operand, Spec

ROTATED = ("float32", "bfloat16", "float16")
"""What is turned; in float32."""


def supports(spec: Spec) -> str | None:
    """Floats of up to 32 bits that are rounded once; tables of a row for each token."""
    keys, values, key, value, query, cos, sin, *_ = spec.operands
    for operand, output in ((key, keys), (query, spec.outputs[2])):
        if operand.dtype not in ROTATED or operand.dtype not in ("float32", output.dtype):
            return f"wanted floats of up to 32 bits, rounded once, got {operand.dtype}"
    (tokens, _, size), (*rows, half) = key.shape, cos.shape
    if not isinstance(size, int) or size % 2:
        return f"wanted a static, even head size, got {size}"
    if keys != values or value != Operand(values.dtype, key.shape):
        return f"wanted values like keys, in caches of one type, got {value} and {values}"
    if (query.shape[0], query.shape[2]) != (tokens, size):
        return f"wanted queries of the tokens and the size of keys, got {query.shape}"
    if rows != [tokens, 1] or sin != cos or not isinstance(half, int) or 2 * half > size:
        return f"wanted a row of the tables for each token, got {cos.shape}"
    return None
