"""ONNX's own operator of attention."""

from __future__ import annotations

import math

from heddle.graph import Dim, DType, TensorValue, ops
from heddle.graph.ops.attention import LAYOUTS
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators import attending
from heddle.pipelines.onnx.operators.attending import Sight
from heddle.pipelines.onnx.table import operator


@operator("Attention")
def attention(node: Node) -> list[TensorValue | None]:
    """Of heads `[batch, heads, sequence, size]` or rows `[batch, sequence, heads * size]`.

    Inputs are query, key, value, mask, past key, past value and how many keys are no padding;
    outputs are the result, present key, present value and one of the steps before the result.
    """
    query, key, value, layout = _heads(node)
    is_cache = any(node.outputs[1:3])
    if layout == "bshd" and (node.has(4) or is_cache or any(node.outputs[3:])):
        # A cache has its heads first.
        query, key, value = map(attending.exchanged, (query, key, value))
        layout = "bhsd"
    if node.has(4) != node.has(5):
        node.refuse("wanted past_key and past_value, or none of them, got one")
    if node.has(4):
        key, value = ops.concat([node(4), key], axis=2), ops.concat([node(5), value], axis=2)
    present = [key, value] if is_cache else [None, None]
    _, sequence = LAYOUTS[layout]
    keys = key.shape[sequence]
    masks = [_mask(node, keys)] if node.has(3) else []
    if node.has(6):
        masks.append(ops.range(keys) < _lengths(node))
    sight = _sight(node, query.shape[sequence])
    wanted = node["softmax_precision"]
    precision = node.dtype("softmax_precision") if wanted else None
    is_wide = precision is DType.float64 and query.dtype is not DType.float64
    scale, softcap = node["scale"], node["softcap"]
    if not any(node.outputs[3:]) and not is_wide:
        result = attending.attend(
            query, key, value, masks, sight, scale=scale, softcap=softcap, layout=layout
        )
        return [_as_given(node, result, layout), *present]
    if layout == "bshd":
        query, key, value = map(attending.exchanged, (query, key, value))
    steps = attending.written_out(
        query, key, value, masks, sight, scale=scale, softcap=softcap, precision=precision
    )
    mode = node["qk_matmul_output_mode"]
    step = (steps.scores, steps.capped, steps.masked, steps.shares)[mode]
    return [_as_given(node, steps.result, "bhsd"), *present, step]


def _heads(node: Node) -> tuple[TensorValue, TensorValue, TensorValue, str]:
    """Query, key and value as heads, and their layout."""
    values = [node(number) for number in range(3)]
    if {value.rank for value in values} not in ({3}, {4}):
        text = ", ".join(str(value.shape) for value in values)
        node.refuse(f"wanted query, key and value of rank 3, or of rank 4, got {text}")
    if len({value.dtype for value in values}) > 1:
        text = ", ".join(str(value.dtype) for value in values)
        node.refuse(f"wanted query, key and value of one dtype, got {text}")
    layout = "bhsd"
    if values[0].rank == 3:
        names = ("q_num_heads", "kv_num_heads", "kv_num_heads")
        for name in names[:2]:
            if not node[name]:
                node.refuse(f"wanted {name} for query, key and value of rank 3, got none")
        pairs = zip(values, names, strict=True)
        values = [attending.split_heads(node, value, node[name]) for value, name in pairs]
        layout = "bshd"
    head, _ = LAYOUTS[layout]
    heads, shared = values[0].shape[head], values[1].shape[head]
    if heads.divided(shared) is None:
        node.refuse(f"wanted key heads that divide the query's {heads}, got {shared}")
    query, key, value = values
    return query, key, value, layout


def _mask(node: Node, keys: Dim) -> TensorValue:
    """The mask; a shorter one sees none of the other keys."""
    mask = node(3)
    length = mask.shape[-1]
    if length == keys or (length == 1 and node.version < 24):
        return mask
    if length.static is None or keys.static is None or length.static > keys.static:
        node.refuse(f"wanted a mask of {keys} keys as its last dim, got {mask.shape}")
    less = keys.static - length.static
    fill = False if mask.dtype is DType.bool else -math.inf
    return ops.pad(mask, [0] * (2 * mask.rank - 1) + [less], fill)


def _sight(node: Node, queries: Dim) -> Sight | None:
    """What `is_causal` and the windows of opset 25 leave to see."""
    left, right = (
        None if node[name] in (None, -1) else node[name]
        for name in ("left_window_size", "right_window_size")
    )
    if node["is_causal"]:
        right = 0
    if left is None and right is None:
        return None
    offset: Dim | TensorValue = node(4).shape[2] if node.has(4) else Dim(0)
    if node.has(6):
        offset = _lengths(node) - ops.size(queries)
    return Sight(offset, left, right)


def _lengths(node: Node) -> TensorValue:
    """How many keys of each row are no padding, as int64 `[batch, 1, 1, 1]`."""
    return ops.reshape(ops.cast(node(6), DType.int64), [-1, 1, 1, 1])


def _as_given(node: Node, result: TensorValue, layout: str) -> TensorValue:
    """The result in the rank of the query."""
    return result if node(0).rank == 4 else attending.joined_heads(result, layout)
