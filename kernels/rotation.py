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
    tokens, _, size = key.shape
    if not isinstance(size, int) or size % 2:
        return f"wanted a static, even head size, got {size}"
    if keys != values or value != Operand(values.dtype, key.shape):
        return f"wanted values like keys, in caches of one type, got {value} and {values}"
    if {cos.shape, sin.shape} != {(tokens, 1, size // 2)} or query.shape[0] != tokens:
        return f"wanted a row of the tables for each token, got {cos.shape}"
    return None
