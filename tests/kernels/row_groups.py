"""Specs and arrays of rows that are sorted by group, for the tests of both targets."""

import numpy as np
from reference import numpy_dtype, shape

from heddle.kernels.spec import Body, Operand, Spec, Step, fold

SPLITS = {
    "one group has all rows": [0, 0, 150, 150, 150],
    "every group has some": [0, 40, 64, 129, 150],
    "rows before and behind": [3, 3, 70, 80, 81],
    "no row in a group": [0, 0, 0, 0, 0],
}
"""Offsets of four groups among 150 rows."""
ROWS, GROUPS = 150, 4


def multiplying(
    op: str, dtype: str, k, n, rows=ROWS, groups=GROUPS, offsets="int64", epilogue=None, **attrs
) -> Spec:
    """A product of groups; `grouped_matmul_packed` of bfloat16 has pairs."""
    a, result = Operand(dtype, (rows, k)), Operand(dtype, (rows, n))
    if op == "grouped_matmul":
        b = (groups, n, k) if attrs["transposed"] else (groups, k, n)
    elif dtype == "bfloat16":
        b = (groups, fold("ceildiv", n, 32), fold("ceildiv", k, 2), 32, 2)
    else:
        b = (groups, fold("ceildiv", n, 32), k, 32)
    operands = (a, Operand(dtype, b), Operand(offsets, (fold("add", groups, 1),)))
    return Spec(op, operands, result, (result,), tuple(sorted(attrs.items())), None, epilogue)


def gated(dtype: str, rows, n) -> Body:
    """silu(gate) * the product, for a gate that is given."""
    steps = (Step("silu", (1,), dtype), Step("mul", (0, 2), dtype))
    return Body((Operand(dtype, (rows, n)),), steps, (3,))


def arrays(spec: Spec, dims: dict[str, int], offsets) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    found = [
        rng.standard_normal(shape(o.shape, dims)).astype(numpy_dtype(o.dtype)) for o in spec.inputs
    ]
    found[2] = np.array(offsets, numpy_dtype(spec.operands[2].dtype))
    return found


def sorting(kind: str, groups: int, dtype: str = "int64") -> Spec:
    size = (groups + 1,) if kind == "offsets" else ("d0",)
    result = Operand("int64", size)
    attrs = (("groups", groups), ("kind", kind))
    return Spec("group_rows", (Operand(dtype, ("d0",)),), result, (result,), attrs)
