"""What the operators of attention share: heads, which keys a query sees, and the products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from heddle.graph import Dim, DType, TensorValue, ops
from heddle.graph.ops.attention import LAYOUTS
from heddle.pipelines.onnx.node import Node


class Sight(NamedTuple):
    """Which keys query i sees: from `i + offset - left` to `i + offset + right`.

    Attributes:
        offset: How many keys lie before the first query: a size, or int64 `[batch, 1, 1, 1]`.
        left: How many before its own place it sees; None for all.
        right: How many behind its own place it sees; None for all.
    """

    offset: Dim | TensorValue
    left: int | None
    right: int | None

    def is_causal(self, queries: Dim, keys: Dim) -> bool:
        """Whether the last query sees all keys and each other one fewer, as in `ops.attention`."""
        aligned = isinstance(self.offset, Dim) and self.offset + queries == keys
        return aligned and self.right == 0

    def mask(self, queries: Dim, keys: Dim) -> TensorValue:
        """Bool `[queries, keys]`, with `[batch, 1]` before where the offset has a batch."""
        offset = self.offset
        if isinstance(offset, Dim):
            rows = ops.range(offset, offset + queries)
        else:
            rows = ops.range(queries) + ops.squeeze(offset, -1)
        distance = ops.range(keys) - ops.unsqueeze(rows, -1)
        bounds = []
        if self.left is not None:
            bounds.append(distance >= -self.left)
        if self.right is not None:
            bounds.append(distance <= self.right)
        return reduce(ops.logical_and, bounds)


@dataclass(frozen=True)
class Steps:
    """Attention step by step, `[batch, heads, queries, keys]` each, and its result.

    Attributes:
        scores: The scaled products of queries and keys.
        capped: `softcap * tanh(scores / softcap)`, where there is a softcap.
        masked: With the mask.
        shares: Their softmax.
        result: The shares of the values, `[batch, heads, queries, size]`.
    """

    scores: TensorValue
    capped: TensorValue
    masked: TensorValue
    shares: TensorValue
    result: TensorValue


def split_heads(node: Node, x: TensorValue, heads: int) -> TensorValue:
    """`[batch, sequence, heads * size]` as `[batch, sequence, heads, size]`."""
    size = x.shape[-1].divided(heads) if heads else None
    if x.rank != 3 or size is None:
        node.refuse(f"wanted [batch, sequence, {heads} heads times their size], got {x.shape}")
    return ops.reshape(x, [*x.shape[:2], heads, size])


def exchanged(x: TensorValue) -> TensorValue:
    """One layout as the other."""
    return ops.transpose(x, 1, 2)


def joined_heads(x: TensorValue, layout: str) -> TensorValue:
    """Heads of a layout as `[batch, sequence, heads * size]`."""
    if layout == "bhsd":
        x = exchanged(x)
    return ops.reshape(x, [*x.shape[:2], x.shape[2] * x.shape[3]])


def combined(masks: Sequence[TensorValue], dtype: DType) -> TensorValue | None:
    """One mask: bools that all hold, floats added up, or -inf where the bools do not hold."""
    bools = [mask for mask in masks if mask.dtype is DType.bool]
    floats = [ops.cast(mask, dtype) for mask in masks if mask.dtype is not DType.bool]
    if not floats:
        return reduce(ops.logical_and, bools) if bools else None
    added = reduce(ops.add, floats)
    return ops.where(reduce(ops.logical_and, bools), added, -math.inf) if bools else added


def attend(
    query: TensorValue,
    key: TensorValue,
    value: TensorValue,
    masks: Sequence[TensorValue] = (),
    sight: Sight | None = None,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    sinks: TensorValue | None = None,
    layout: str = "bhsd",
) -> TensorValue:
    """Attention in a layout: `ops.attention`, unless there are sinks or another value size.

    Masks broadcast to `[batch, heads, queries, keys]`; bools say what is seen, floats are added.
    `sinks`, `[heads]`, are those of `ops.ragged_attention`.
    """
    _, sequence = LAYOUTS[layout]
    queries, keys = query.shape[sequence], key.shape[sequence]
    if sinks is not None or key.shape != value.shape:
        if layout == "bshd":
            query, key, value = map(exchanged, (query, key, value))
        steps = written_out(
            query, key, value, masks, sight, scale=scale, softcap=softcap, sinks=sinks
        )
        return exchanged(steps.result) if layout == "bshd" else steps.result
    causal, window = False, 0
    if sight is not None and sight.is_causal(queries, keys):
        causal, window = True, 0 if sight.left is None else sight.left + 1
    elif sight is not None:
        masks = [*masks, sight.mask(queries, keys)]
    mask = combined(masks, query.dtype)
    return ops.attention(
        query,
        key,
        value,
        *([] if mask is None else [mask]),
        scale=_scale(query, scale),
        causal=causal,
        window=window,
        softcap=softcap,
        layout=layout,
    )


def written_out(
    query: TensorValue,
    key: TensorValue,
    value: TensorValue,
    masks: Sequence[TensorValue] = (),
    sight: Sight | None = None,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    sinks: TensorValue | None = None,
    precision: DType | None = None,
) -> Steps:
    """Attention in the layout "bhsd", each step an op; the softmax in `precision` or the query's.

    Query heads that share a key head are rows of one product, so that no key is repeated.
    """
    batch, heads, queries, size = query.shape
    shared, keys = key.shape[1:3]
    each = heads.divided(shared)
    assert each is not None, "checked by the caller"
    rows = ops.reshape(query * _scale(query, scale), [batch, shared, each * queries, size])
    scores = ops.reshape(rows @ key.T, [batch, heads, queries, keys])
    capped = ops.tanh(scores / softcap) * softcap if softcap else scores
    if sight is not None:
        masks = [*masks, sight.mask(queries, keys)]
    mask = combined(masks, query.dtype)
    if mask is None:
        masked = capped
    elif mask.dtype is DType.bool:
        masked = ops.where(mask, capped, -math.inf)
    else:
        # Where a mask is -inf nothing is seen, even of a score that is infinite.
        masked = ops.where(ops.equal(mask, -math.inf), -math.inf, capped + mask)
    shares = masked
    if sinks is not None:
        sink = ops.reshape(ops.cast(sinks, query.dtype), [heads, 1, 1])
        sink = ops.broadcast_to(sink, [batch, heads, queries, 1])
        shares = ops.concat([masked, sink], axis=-1)
    shares = ops.softmax(shares if precision is None else ops.cast(shares, precision))
    shares = ops.cast(shares[:, :, :, :keys], query.dtype)
    result = ops.reshape(shares, [batch, shared, each * queries, keys]) @ value
    result = ops.reshape(result, [batch, heads, queries, value.shape[-1]])
    return Steps(scores, capped, masked, shares, result)


def _scale(query: TensorValue, scale: float | None) -> float:
    """The scale, by default 1 / sqrt of the head size."""
    return scale or 1 / math.sqrt(int(query.shape[-1]))
