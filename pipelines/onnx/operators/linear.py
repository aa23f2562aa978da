"""Products."""

from __future__ import annotations

from heddle.graph import DType, TensorValue, ops
from heddle.graph.bounds import bounds
from heddle.graph.ops.elementwise import at_least_float32
from heddle.pipelines.onnx.node import NarrowerError, Node
from heddle.pipelines.onnx.table import operator
from heddle.runtime.errors import GraphError

EXACT = 2**21
"""Products of two numbers of 16 bits whose sum float64 holds: it has 53 bits."""

LARGEST = 4
"""Rows of a determinant: with each one more there are as many times the products."""


@operator("MatMul")
def matmul(node: Node) -> TensorValue:
    """Of the last two axes, as NumPy's."""
    return product(*node.tensors())


def product(x: TensorValue, y: TensorValue) -> TensorValue:
    """NumPy's matmul: a vector is a row on the left and a column on the right."""
    row, column = x.rank == 1, y.rank == 1
    x = ops.unsqueeze(x, 0) if row else x
    y = ops.unsqueeze(y, 1) if column else y
    result = matrix_product(x, y)
    if column:
        result = ops.squeeze(result, -1)
    return ops.squeeze(result, -1 if column else -2) if row else result


def matrix_product(x: TensorValue, y: TensorValue) -> TensorValue:
    """`x @ y`; of integers exact, modulo what they hold: by products of their parts of 16 bits.

    Raises:
        GraphError: Sums of integers may be longer than is exact.
        NarrowerError: They are not, where a size is less.
    """
    if x.dtype.is_float:
        return x @ y
    k = x.shape[-1]
    low, high = bounds(k, x.graph.symbols)
    if high > EXACT:
        if k.name is None or low > EXACT:
            raise GraphError(
                f"wanted sums of at most {EXACT} integers (give sizes by --dim), got {k}"
            )
        raise NarrowerError(k.name, (low, EXACT))
    count = max(x.dtype.size // 2, 1)
    left, right = ([_part(each, number) for number in range(count)] for each in (x, y))
    total = ops.constant(0, DType.int64)
    for i, a in enumerate(left):
        for j, b in enumerate(right[: count - i]):
            total = total + ops.left_shift(ops.cast(a @ b, DType.int64), 16 * (i + j))
    return ops.cast(total, x.dtype)


def _part(x: TensorValue, number: int) -> TensorValue:
    """The 16 bits of integers that stand before `number` others, as a float."""
    moved = ops.right_shift(ops.cast(x, DType.int64), 16 * number)
    return ops.cast(ops.bitwise_and(moved, 2**16 - 1), DType.float64)


@operator("Gemm")
def gemm(node: Node) -> TensorValue:
    """`alpha * a @ b + beta * c`, either side transposed."""
    a, b = node(0), node(1)
    a = a.T if node["transA"] else a
    b = b.T if node["transB"] else b
    result = matrix_product(a, b)
    if node["alpha"] != 1:
        result = result * node["alpha"]
    c = node.optional(2)
    if c is None or node["beta"] == 0:
        return result
    return result + (c if node["beta"] == 1 else c * node["beta"])


@operator("Det")
def determinant(node: Node) -> TensorValue:
    """Of the last two axes, of at most 4 rows: by the first row and what is left without it."""
    x = at_least_float32(node(0))
    rows, columns = (dim.static for dim in x.shape[-2:])
    if rows is None or rows != columns or not 1 <= rows <= LARGEST:
        node.refuse(f"wanted square matrices of 1 to {LARGEST} known rows, got {x.shape}")
    elements = [[x[..., i, j] for j in range(rows)] for i in range(rows)]
    return ops.cast(_determinant(elements), node(0).dtype)


def _determinant(rows: list[list[TensorValue]]) -> TensorValue:
    """Laplace's expansion along the first row."""
    first, *rest = rows
    if not rest:
        return first[0]
    found = first[0] * _determinant([row[1:] for row in rest])
    for column, element in enumerate(first[1:], 1):
        minor = element * _determinant([row[:column] + row[column + 1 :] for row in rest])
        found = found - minor if column % 2 else found + minor
    return found


@operator("FusedMatMul", domain="com.microsoft")
def fused_matmul(node: Node) -> TensorValue:
    """`alpha * a @ b`, either side transposed."""
    a, b = node(0), node(1)
    node.refuse_set("transBatchA", "transBatchB")
    a = a.T if node["transA"] else a
    b = b.T if node["transB"] else b
    alpha = 1 if node["alpha"] is None else node["alpha"]
    return product(a, b) if alpha == 1 else product(a, b) * alpha


@operator("Einsum")
def einsum(node: Node) -> TensorValue:
    """Einstein's sums, of two operands at a time from the left."""
    from heddle.pipelines.onnx.operators.einsum import contracted

    return contracted(node, node["equation"].replace(" ", ""), node.tensors())
