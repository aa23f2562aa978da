"""ONNX Runtime's operators of attention, as exporters and its optimizer write them.

Source: onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.graph import Dim, DType, Shape, TensorValue, ops
from heddle.pipelines.onnx.node import Node
from heddle.pipelines.onnx.operators import attending
from heddle.pipelines.onnx.operators.attending import Sight, exchanged, split_heads
from heddle.pipelines.onnx.operators.quantized_contrib import scalar, scaled_product
from heddle.pipelines.onnx.table import operator


@operator("MultiHeadAttention", domain="com.microsoft")
def multi_head(node: Node) -> list[TensorValue | None]:
    """Of query, key and value in rows, packed, or as heads that are in a cache already.

    Further inputs are a bias of all three, a mask of keys, what is added to the scores, past key
    and past value; outputs are the result, present key and present value.
    """
    node.refuse_inputs(past_sequence_length=8, cache_indirection=9)
    if any(node.outputs[3:]):
        node.refuse("wanted no output qk, which shows the softmax")
    query, key, value = _three(node)
    if node.has(6) != node.has(7):
        node.refuse("wanted past_key and past_value, or none of them, got one")
    past = Dim(0)
    if node.has(6):
        past = node(6).shape[2]
        key, value = ops.concat([node(6), key], axis=2), ops.concat([node(7), value], axis=2)
    result = _attended(node, query, key, value, past, mask=4, added=5)
    return [result, key, value]


def _three(node: Node) -> list[TensorValue]:
    """Query, key and value as heads `[batch, heads, sequence, size]`, with their biases."""
    query, heads = node(0), node["num_heads"]
    if query.rank == 5:
        if node.has(3):
            node.refuse("wanted no bias for a packed query, got one")
        return [exchanged(query[:, :, :, part]) for part in range(3)]
    if not node.has(1):
        node.refuse("wanted a key for a query that is not packed, got none")
    key = node(1)
    biases: list[TensorValue | None] = [None] * 3
    width = int(query.shape[-1])
    if node.has(3):
        rest = int(node(3).shape[0]) - 2 * width
        biases = list(ops.split(node(3), [width, width, rest]))
    query = _rows(node, query, biases[0], heads)
    if key.rank == 5:
        if node.has(3):
            node.refuse("wanted no bias for a packed key, got one")
        return [query, *(exchanged(key[:, :, :, part]) for part in range(2))]
    pairs = zip((key, node(2)), biases[1:], strict=True)
    return [query, *(x if x.rank == 4 else _rows(node, x, bias, heads) for x, bias in pairs)]


def _rows(node: Node, x: TensorValue, bias: TensorValue | None, heads: int) -> TensorValue:
    """Rows `[batch, sequence, heads * size]` and a bias as heads, which come first."""
    return exchanged(split_heads(node, x if bias is None else x + bias, heads))


def _attended(
    node: Node,
    query: TensorValue,
    key: TensorValue,
    value: TensorValue,
    past: Dim,
    *,
    mask: int,
    added: int | None,
) -> TensorValue:
    """The result in rows; `mask` and `added` are the numbers of inputs."""
    masks = [_key_mask(node, mask, key.shape[2], query.dtype)] if node.has(mask) else []
    if added is not None and node.has(added):
        masks.append(node(added))
    sight = Sight(past, None, 0) if node["unidirectional"] else None
    result = attending.attend(query, key, value, masks, sight, scale=node["scale"])
    return attending.joined_heads(result, "bhsd")


def _key_mask(node: Node, number: int, keys: Dim, dtype: DType) -> TensorValue:
    """What a mask of keys adds to the scores: 0, or where it is 0 `mask_filter_value`.

    It is `[batch, keys]`, `[batch, queries, keys]`, or the lengths `[batch]`. What it hides has
    still a share where a query sees nothing else, as in ONNX Runtime.
    """
    mask, batch = node(number), node(0).shape[0]
    if mask.rank == 1 and mask.shape[0] == batch:
        shown = ops.range(keys, dtype=mask.dtype) < ops.unsqueeze(mask, 1)
    elif mask.rank in (2, 3) and mask.shape[-1] == keys:
        shown = ops.not_equal(mask, 0)
    else:
        node.refuse(
            f"wanted a mask [{batch}], [{batch}, {keys}] or [{batch}, queries, {keys}], "
            f"got {mask.shape}"
        )
    hidden = -10000.0 if node["mask_filter_value"] is None else node["mask_filter_value"]
    shown = ops.unsqueeze(shown, 1) if shown.rank == 3 else ops.reshape(shown, [-1, 1, 1, keys])
    return ops.where(shown, ops.constant(0, dtype), ops.constant(hidden, dtype))


@operator("Attention", domain="com.microsoft")
def projected(node: Node) -> list[TensorValue | None]:
    """Of rows, which weights turn to query, key and value: inputs x, weights, bias and mask.

    The past, `[2, batch, heads, sequence, size]`, has keys and values; so has the second output.
    """
    node.refuse_set("do_rotary", "past_present_share_buffer")
    node.refuse_inputs(past_sequence_length=6)
    product = node(0) @ node(1)
    product = product + node(2) if node.has(2) else product
    return _of_product(node, product, mask=3, past=4, added=5)


@operator("QAttention", domain="com.microsoft")
def quantized(node: Node) -> list[TensorValue | None]:
    """`Attention` of quantized rows and weights.

    Inputs are x, weights, bias, the scales of x and of the weights (one, or one for each column),
    a mask, the zero points likewise, and the past.
    """
    node.refuse_set("do_rotary", "past_present_share_buffer")
    x = node(0), scalar(node, 3), node.optional(6)
    product = scaled_product(*x, node(1), node(4), node.optional(7), node(2))
    return _of_product(node, product, mask=5, past=8, added=None)


def _of_product(
    node: Node, product: TensorValue, *, mask: int, past: int, added: int | None
) -> list[TensorValue | None]:
    """Attention of query, key and value side by side; `mask`, `past` and `added` number inputs."""
    width = int(product.shape[-1])
    sizes = node["qkv_hidden_sizes"] or [width // 3] * 3
    parts = ops.split(product, sizes, axis=2)
    query, key, value = (_rows(node, part, None, node["num_heads"]) for part in parts)
    before = Dim(0)
    if node.has(past):
        before = node(past).shape[3]
        key, value = (ops.concat([node(past)[i], x], axis=2) for i, x in enumerate((key, value)))
    result = _attended(node, query, key, value, before, mask=mask, added=added)
    return [result, ops.stack([key, value]) if any(node.outputs[1:]) else None]


@operator("GroupQueryAttention", domain="com.microsoft")
def grouped(node: Node) -> list[TensorValue | None]:
    """Causal attention of few key heads, with rotary positions and a cache that grows.

    Inputs are query (or all three packed), key, value, past key, past value, the place of each
    row's last token, how many tokens there are at most, cosines, sines, positions, what is added
    to the scores, and sinks, which are zeros in a smooth softmax without any. A row of a batch may
    be shorter than others: its new tokens follow its own last one in the cache, and what is behind
    them is nothing.
    """
    node.refuse_set("sliding_window_cache", "qk_output")
    names = ("k_scale", "v_scale", "q_norm_weight", "k_norm_weight", "query_seqlens")
    node.refuse_inputs(**{name: number for number, name in enumerate(names, 12)})
    if node["causal"] == 0:
        node.refuse("wanted causal of 1, got 0")
    if node.has(3) != node.has(4):
        node.refuse("wanted past_key and past_value, or none of them, got one")
    sinks = _sinks(node)
    query, key, value = _grouped_heads(node)
    new = query.shape[1]
    past = node(3).shape[2] if node.has(3) else Dim(0)
    _check_growing(node, past, new)
    before = _tokens_before(node, past, new)
    if node["do_rotary"]:
        tables = _tables(node, before, new)
        interleaved = bool(node["rotary_interleaved"])
        query, key = (ops.rope(x, *tables, interleaved=interleaved) for x in (query, key))
    query, key, value = map(exchanged, (query, key, value))
    if node.has(3):
        pairs = ((node(3), key), (node(4), value))
        key, value = (_appended(*pair, before) for pair in pairs)
    window = node["local_window_size"]
    left = None if window in (None, -1) else window - 1
    result = attending.attend(
        query,
        key,
        value,
        [node(10)] if node.has(10) else [],
        Sight(before, left, 0),
        scale=node["scale"],
        softcap=node["softcap"] or 0.0,
        sinks=sinks,
    )
    return [attending.joined_heads(result, "bhsd"), key, value]


def _sinks(node: Node) -> TensorValue | None:
    """The score of one more key for each head, whose value is zeros; None where there is none."""
    heads = Dim(node["num_heads"])
    if node.has(11):
        if node(11).shape != (heads,):
            node.refuse(f"wanted head_sink of {Shape((heads,))}, got {node(11).shape}")
        return node(11)
    is_smooth = node["smooth_softmax"] == 1
    return ops.broadcast_to(ops.constant(0, node(0).dtype), [heads]) if is_smooth else None


def _grouped_heads(node: Node) -> Sequence[TensorValue]:
    """Query, key and value, `[batch, sequence, heads, size]`."""
    query, heads, shared = node(0), node["num_heads"], node["kv_num_heads"]
    if not shared or heads % shared:
        node.refuse(f"wanted kv_num_heads that divide num_heads {heads}, got {shared}")
    if node.has(1):
        pairs = ((query, heads), (node(1), shared), (node(2), shared))
        return [split_heads(node, x, count) for x, count in pairs]
    packed = split_heads(node, query, heads + 2 * shared)
    return ops.split(packed, [heads, shared, shared], axis=2)


def _check_growing(node: Node, past: Dim, new: Dim) -> None:
    """Refuses a cache with room for more tokens than there are."""
    value = node.values[6]
    known = None if value is None or value.known is None else value.known.reshape(-1)[0]
    if known is None or Dim(0) + known != past + new:
        found = "what the model computes" if known is None else known
        node.refuse(
            f"wanted a cache that grows, with total_sequence_length of {past + new}, got {found}; "
            "if it is the size of an input, say so in dims"
        )


def _tokens_before(node: Node, past: Dim, new: Dim) -> Dim | TensorValue:
    """The tokens in the cache: a size, or int64 `[batch, 1, 1, 1]` where rows may differ."""
    if past == 0 or node(0).shape[0] == 1:
        return past
    lengths = ops.reshape(ops.cast(node(5), DType.int64), [-1, 1, 1, 1])
    return ops.maximum(lengths + 1 - ops.size(new), 0)


def _tables(node: Node, before: Dim | TensorValue, new: Dim) -> list[TensorValue]:
    """Cosines and sines `[batch or 1, sequence, 1, columns]` of the tokens' positions."""
    if node.has(9):
        positions = node(9)
    elif isinstance(before, Dim):
        positions = ops.unsqueeze(ops.range(before, before + new), 0)
    else:
        positions = ops.reshape(before, [-1, 1]) + ops.range(new)
    return [ops.unsqueeze(ops.gather(node(i), positions, axis=0), 2) for i in (7, 8)]


def _appended(past: TensorValue, new: TensorValue, before: Dim | TensorValue) -> TensorValue:
    """The cache with new tokens `[batch, heads, sequence, size]` behind those that rows have."""
    both = ops.concat([past, new], axis=2)
    if isinstance(before, Dim):
        return both
    batch, heads, total, size = both.shape
    places: Any = ops.range(total)
    moved = ops.minimum(places - before + ops.size(past.shape[2]), ops.size(total) - 1)
    places = ops.where(places < before, places, moved)  # [batch, 1, 1, total]
    rows = ops.reshape(ops.range(batch * heads) * ops.size(total), [batch, heads, 1])
    found = ops.gather(
        ops.reshape(both, [batch * heads * total, size]),
        rows + ops.reshape(places, [batch, 1, total]),
        axis=0,
    )
    return ops.reshape(found, both.shape)
