"""ONNX Runtime's weights in blocks of 4 or 8 bits, each block with a scale and a zero point.

Source: onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from heddle.graph import DType, TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators.indexing import from_front
from heddle.pipelines.onnx.table import operator


@operator("MatMulNBits", domain="com.microsoft")
def matmul_blocks(node: Node) -> TensorValue:
    """ONNX Runtime's `x @ w.T + bias` for `w = (q - zero point) * scale`, by blocks of k.

    Inputs are x, q `[n, blocks, bytes]`, scales `[n, blocks]`, zero points and, as the sixth, the
    bias. Zero points other than the middle add the product of the blocks' sums of x by
    `(middle - zero point) * scale`, which is exact but for rounding.
    """
    node.refuse_set("weight_prepacked")
    node.refuse_inputs(g_idx=4)
    x, bits, size = node(0), node["bits"] or 4, node["block_size"]
    n, k = node["N"], node["K"]
    if bits not in (4, 8) or size % 32 or k % size:
        node.refuse(
            "wanted bits of 4 or 8, and a block_size that 32 divides and that divides K, "
            f"got {bits}, {size} and K of {k}"
        )
    blocks = k // size
    scales = ops.reshape(node(2), [n, blocks])
    held = ops.reshape(node(1), [n, k * bits // 8])
    if bits == 8:
        held = ops.cast(ops.cast(held, DType.int32) - 128, DType.int8)
    rows = ops.unsqueeze(x, 0) if x.rank == 1 else x
    result = ops.quantized_matmul(rows, held, scales, bits=bits, group=size)
    if node.has(3):
        parts = ops.reshape(ops.cast(rows, DType.float32), [*rows.shape[:-1], blocks, size])
        sums = ops.squeeze(ops.sum(parts), -1)
        shift = 2 ** (bits - 1) - _zero_points(node, n, blocks, bits)
        more = sums @ (shift * ops.cast(scales, DType.float32)).T
        result = ops.cast(ops.cast(result, DType.float32) + more, x.dtype)
    if node.has(5):
        result = result + node(5)
    return ops.squeeze(result, 0) if x.rank == 1 else result


def _zero_points(node: Node, n: int, blocks: int, bits: int) -> TensorValue:
    """The zero points as float32 `[n, blocks]`: floats, or integers packed as the weights are."""
    given = node(3)
    if given.dtype is not DType.uint8:
        return ops.reshape(ops.cast(given, DType.float32), [n, blocks])
    packed = ops.reshape(given, [n, -(-blocks * bits // 8)])
    return ops.cast(_unpacked(packed, bits)[:, :blocks], DType.float32)


def _unpacked(packed: TensorValue, bits: int) -> TensorValue:
    """Bytes along the last axis as int32 numbers of 4 bits, the lower ones first, or of 8."""
    packed = ops.cast(packed, DType.int32)
    if bits == 8:
        return packed
    high = ops.floor_divide(packed, 16)
    pairs = ops.stack([packed - high * 16, high], axis=packed.rank)
    return ops.reshape(pairs, [*packed.shape[:-1], 2 * packed.shape[-1]])


@operator("GatherBlockQuantized", domain="com.microsoft")
def gather_blocks(node: Node) -> TensorValue:
    """The rows that indices name of a table `(q - zero point) * scale`, by blocks of the last axis.

    Inputs are q as bytes `[rows, ..., bytes]`, indices, scales `[rows, ..., blocks]` and zero
    points, which are packed as q is.
    """
    data, bits, last = node(0), node["bits"] or 4, node(0).rank - 1
    quantize = 1 if node["quantize_axis"] is None else node["quantize_axis"]
    axes = node.axes([node["gather_axis"] or 0, quantize], data.rank)
    if data.dtype is not DType.uint8 or bits not in (4, 8) or axes != [0, last]:
        node.refuse(
            f"wanted uint8 of 4 or 8 bits, a gather_axis of 0 and a quantize_axis of {last}, "
            f"got {data.dtype} of {bits}, {axes[0]} and {axes[1]}"
        )
    indices = from_front(node, data.shape[0])
    tables = [data, node(2), *([node(3)] if node.has(3) else [])]
    packed, scales, *zeros = (ops.gather(table, indices, axis=0) for table in tables)
    q, blocks = _unpacked(packed, bits), scales.shape[-1]

    def of_elements(x: TensorValue) -> TensorValue:
        each = ops.repeat_interleave(x, node["block_size"] or 128, axis=-1)
        return each[..., : q.shape[-1]]

    if zeros:
        whole = q - of_elements(_unpacked(zeros[0], bits)[..., :blocks])
    else:
        whole = q - 2 ** (bits - 1)
    return ops.cast(whole, scales.dtype) * of_elements(scales)
