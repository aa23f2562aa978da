"""Rotary positions (Su et al., arXiv:2104.09864)."""

from __future__ import annotations

from heddle.graph import TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.attending import split_heads
from heddle.pipelines.onnx.table import operator


@operator("RotaryEmbedding")
def rotary_embedding(node: Node) -> TensorValue:
    """Inputs x, cosines, sines and positions; without these the tables are those of each token."""
    x, tables = node(0), [node(1), node(2)]
    if node.has(3):
        tables = [ops.gather(table, node(3), axis=0) for table in tables]
    columns = node["rotary_embedding_dim"] or (2 * tables[0].shape[-1])
    if tables[0].shape[-1] * 2 != columns:
        node.refuse(f"wanted tables of {columns} / 2 columns, got {node(1).shape}")
    return _turned(node, x, tables, node["num_heads"] or 0)


@operator("RotaryEmbedding", domain="com.microsoft")
def rotary_embedding_by_position(node: Node) -> TensorValue:
    """Inputs x, positions, cosines and sines; one position is that of the first token."""
    node.refuse_set("is_packed_batching")
    if node["scale"] not in (None, 1):
        node.refuse(f"wanted scale of 1, got {node['scale']}")
    x, positions = node(0), node(1)
    if positions.rank == 1:
        positions = ops.unsqueeze(positions + ops.range(x.shape[-2], dtype=positions.dtype), 0)
    tables = [ops.gather(table, positions, axis=0) for table in (node(2), node(3))]
    size = 2 * int(tables[0].shape[-1])
    return _turned(node, x, tables, node["num_heads"] or int(x.shape[-1]) // size)


def _turned(node: Node, x: TensorValue, tables: list[TensorValue], heads: int) -> TensorValue:
    """Heads, or so many of them in rows, by tables `[batch, sequence, columns]`."""
    if tables[0].rank != 3:
        node.refuse(f"wanted cosines [batch, sequence, columns], got {tables[0].shape}")
    rows = split_heads(node, x, heads) if x.rank == 3 else x
    tables = [ops.unsqueeze(table, 2 if x.rank == 3 else 1) for table in tables]
    return ops.reshape(ops.rope(rows, *tables, interleaved=bool(node["interleaved"])), x.shape)
