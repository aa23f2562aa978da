"""Specs and arrays of rows that are sorted by group, for the tests of both targets."""

import numpy as np
from reference import numpy_dtype, shape

from heddle.graph.ops.rounded import round_rows
from heddle.kernels.row_groups import offsets as offsets_number
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


def scaling(
    op: str,
    dtype: str,
    held: str,
    k: int,
    n,
    rows=ROWS,
    groups=GROUPS,
    *,
    group=32,
    offsets="int64",
    epilogue=None,
) -> Spec:
    """A product of groups by weights of 8 bits, or of 4 in uint8, as `op` takes them.

    On CPUs `held` is what holds them in panels: uint32 for 4 bits.
    """
    packed = op.endswith("_packed")
    panels = fold("ceildiv", n, 32)
    count = k // group
    left, wide = (k, dtype) if not op.startswith("rounded") else (count * (group + 8), "uint8")
    if packed:
        b = (groups, panels, *((k // 8, 32) if held == "uint32" else (k // 4, 32, 4)))
        scales, attrs = (groups, panels, count, 32), {}
    else:
        b, scales = (groups, n, k // (2 if held == "uint8" else 1)), (groups, n, count)
        attrs = {"bits": 4 if held == "uint8" else 8}
    if packed and wide == "float16":
        wide = "float32"
    operands = (
        Operand(wide, (rows, left)),
        Operand(held, b),
        Operand(dtype, scales),
        Operand(offsets, (fold("add", groups, 1),)),
    )
    result = Operand(dtype, (rows, n))
    named = tuple(sorted({**attrs, "group": group}.items()))
    return Spec(op, operands, result, (result,), named, None, epilogue)


def gated(dtype: str, rows, n) -> Body:
    """silu(gate) * the product, for a gate that is given."""
    steps = (Step("silu", (1,), dtype), Step("mul", (0, 2), dtype))
    return Body((Operand(dtype, (rows, n)),), steps, (3,))


def arrays(spec: Spec, dims: dict[str, int], offsets) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    found = [_values(rng, shape(o.shape, dims), o.dtype) for o in spec.inputs]
    if len(spec.operands) > 3:
        found[2] = (found[2] / 64).astype(found[2].dtype)
    if len(spec.operands) > 4:  # Minimums are as large as what they are added to.
        found[4] = (found[4] / 64 * 2 ** (spec.attr("bits") - 1)).astype(found[4].dtype)
    number = offsets_number(spec)
    found[number] = np.array(offsets, numpy_dtype(spec.operands[number].dtype))
    return _in_8_bits(spec, found) if spec.op.startswith("rounded") else found


def _in_8_bits(spec: Spec, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The arrays of a product of rows in 8 bits, whose rows are rounded ones."""
    rows, group = len(arrays[0]), spec.attr("group")
    k = arrays[2].shape[-2] * group
    x = np.random.default_rng(1).standard_normal((rows, k)).astype(np.float32)
    bits = 4 if spec.operands[1].dtype == "uint32" else 8
    return [round_rows.row.compute(x, bits=bits, group=group), *arrays[1:]]


def _values(rng, size, dtype: str) -> np.ndarray:
    """Normal floats, and integers of all bits."""
    kind = numpy_dtype(dtype)
    if kind.kind in "iu":
        return rng.integers(0, 2 ** (8 * kind.itemsize), size, np.uint64).astype(kind)
    return rng.standard_normal(size).astype(kind)


def sorting(kind: str, groups: int, dtype: str = "int64") -> Spec:
    size = (groups + 1,) if kind == "offsets" else ("d0",)
    result = Operand("int64", size)
    attrs = (("groups", groups), ("kind", kind))
    return Spec("group_rows", (Operand(dtype, ("d0",)),), result, (result,), attrs)
