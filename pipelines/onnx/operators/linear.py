"""Products."""

from __future__ import annotations

from heddle.graph import TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.table import operator


@operator("MatMul")
def matmul(node: Node) -> TensorValue:
    """Of the last two axes, as NumPy's."""
    return product(*node.tensors())


def product(x: TensorValue, y: TensorValue) -> TensorValue:
    """NumPy's matmul: a vector is a row on the left and a column on the right."""
    row, column = x.rank == 1, y.rank == 1
    x = ops.unsqueeze(x, 0) if row else x
    y = ops.unsqueeze(y, 1) if column else y
    result = x @ y
    if column:
        result = ops.squeeze(result, -1)
    return ops.squeeze(result, -1 if column else -2) if row else result


@operator("Gemm")
def gemm(node: Node) -> TensorValue:
    """`alpha * a @ b + beta * c`, either side transposed."""
    a, b = node(0), node(1)
    a = a.T if node["transA"] else a
    b = b.T if node["transB"] else b
    result = a @ b
    if node["alpha"] != 1:
        result = result * node["alpha"]
    c = node.optional(2)
    if c is None or node["beta"] == 0:
        return result
    return result + (c if node["beta"] == 1 else c * node["beta"])


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
