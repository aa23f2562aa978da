"""Attention in a decoder's layers: queries, keys and values, their rotation, and the cache."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heddle.graph import Dim, DType, TensorValue, ops
from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.pipelines.models.decoder.layers import Layer
from heddle.pipelines.models.decoder.norms import Norms
from heddle.pipelines.models.products import Products, Rows, scaled
from heddle.pipelines.models.rotary import Growth, Rope
from heddle.runtime.errors import GraphError

Turns = Mapping[Rope | Growth, tuple[TensorValue, ...]]
"""Of the tokens of a step: cosines and sines of the angles of each rotation, and each growth."""


@dataclass(frozen=True)
class Cached:
    """Which tokens of a step belong to which row, and where the rows' keys and values are."""

    offsets: TensorValue
    lengths: TensorValue
    blocks: TensorValue

    def write(self, cache: TensorValue, new: TensorValue) -> TensorValue:
        """The cache with the step's tokens in it."""
        return ops.paged_write(cache, new, self.offsets, self.lengths, self.blocks)

    def attend(
        self,
        query: TensorValue,
        keys: TensorValue,
        values: TensorValue,
        sinks: Sequence[TensorValue] = (),
        **attrs: float | None,
    ) -> TensorValue:
        """Causal attention of each token to its own row."""
        return ops.paged_attention(
            query, keys, values, self.offsets, self.lengths, self.blocks, *sinks, **attrs
        )


@dataclass(frozen=True)
class Whole:
    """Rows of tokens that are a sequence each, from its first token on, in place of a cache.

    What fills up the ends of shorter ones is behind their tokens, which do not see it.
    """

    batch: Dim
    sequence: Dim

    def attend(
        self,
        query: TensorValue,
        keys: TensorValue,
        values: TensorValue,
        sinks: Sequence[TensorValue] = (),
        **attrs: float | None,
    ) -> TensorValue:
        """Causal attention of each token to its own row."""
        if sinks:
            raise GraphError("sinks: wanted a step with a cache, got whole sequences")
        rows = [
            ops.reshape(x, (self.batch, self.sequence, *x.shape[1:])) for x in (query, keys, values)
        ]
        mixed = ops.attention(*rows, causal=True, layout="bshd", **attrs)
        return ops.reshape(mixed, query.shape)


@dataclass(frozen=True)
class Attention:
    """Adds the attention of a layer to the graph that is being built.

    Attributes:
        config: The sizes.
        products: The weights.
        norm: Of queries and keys.
    """

    config: DecoderConfig
    products: Products
    norm: Norms

    def turns(self, positions: TensorValue) -> Turns:
        """Each cosine and sine float32 [tokens, 1, size / 2], each growth [tokens, 1, 1]."""
        places = ops.reshape(ops.cast(positions, DType.float32), (positions.shape[0], 1, 1))
        turns: dict[Rope | Growth, tuple[TensorValue, ...]] = {}
        for rope in dict.fromkeys(layer.rope for layer in self.config.layers):
            if rope is not None:
                angles = places * self.products.graph.constant(rope.frequencies())
                both = (ops.cos(angles), ops.sin(angles))
                cos, sin = (scaled(part, rope.scaling.magnitude) for part in both)
                turns[rope] = cos, sin
        for growth in dict.fromkeys(layer.growth for layer in self.config.layers):
            if growth is not None:
                later = places + float(growth.first) if growth.first else places
                times = ops.log(ops.floor(later / growth.length) + 1.0)
                turns[growth] = (times * growth.gain + 1.0,)
        return turns

    def __call__(
        self,
        at: str,
        layer: Layer,
        x: TensorValue,
        turns: Turns,
        rows: Cached | Whole,
        caches: Sequence[TensorValue],
    ) -> tuple[TensorValue, ...]:
        """What attention adds to the residual stream, float32 [tokens, hidden_size], and caches."""
        config, dtype, names = self.config, self.products.dtype, self.config.family.attention
        at = f"{at}.{names.at}"
        size, heads = config.head_dim, config.num_attention_heads
        counts = {"q": heads, "k": config.num_key_value_heads, "v": config.num_key_value_heads}
        firsts = {"q": 0, "k": heads, "v": heads + counts["k"]}
        total = sum(counts.values()) * size

        each = {"q": names.query, "k": names.key, "v": names.value}
        grouped = self._grouped(f"{at}.{names.joined}", x) if names.grouped else {}

        def linear(name: str) -> TensorValue:
            """float32 [tokens, heads * size] of queries, keys or values."""
            if names.grouped:
                return grouped[name]
            first, count = firsts[name] * size, counts[name] * size
            part = Rows(slice(first, first + count), total) if names.joined else None
            product = f"{at}.{names.joined or each[name]}"
            return self.products.linear(product, x, count, config.qkv_bias, part)

        def bounded(found: TensorValue, dtype: DType) -> TensorValue:
            if config.qkv_limit < math.inf:
                found = ops.clip(found, -config.qkv_limit, config.qkv_limit)
            # A cast behind the reshape would be a kernel of its own.
            return ops.cast(found, dtype)

        def split(found: TensorValue, name: str) -> TensorValue:
            return ops.reshape(found, (x.shape[0], counts[name], size))

        def turned(name: str, norm: str) -> TensorValue:
            found, last = linear(name), config.family.turned_first
            if config.qk_norm == "all":
                found = self.norm(f"{at}.{norm}", found, DType.float32)
            found = split(bounded(found, DType.float32), name)
            if config.qk_norm == "head" and not last:
                found = self.norm(f"{at}.{norm}", found, DType.float32)
            found = self._rotated(found, layer.rope, turns)
            if config.qk_norm == "turned" and layer.rope:
                found = self.norm.plain(found)
            found = self._grown(found, layer.growth, turns) if name == "q" else found
            if config.qk_norm == "head" and last:
                found = self.norm(f"{at}.{norm}", found, DType.float32)
            return ops.cast(found, dtype)

        query, keys = turned("q", names.query_norm), turned("k", names.key_norm)
        values = split(bounded(linear("v"), dtype), "v")
        if isinstance(rows, Cached):
            keys, values = rows.write(caches[0], keys), rows.write(caches[1], values)
        sinks = [self.products.vector(f"{at}.sinks", heads)] if config.family.sinks else []
        mixed = rows.attend(
            query,
            keys,
            values,
            sinks,
            window=layer.window,
            scale=config.attention_scale,
            softcap=config.attention_softcap,
        )
        flat = ops.reshape(mixed, (x.shape[0], heads * size))
        out = self.products.linear(
            f"{at}.{names.out}", flat, config.hidden_size, config.output_bias
        )
        return out, keys, values

    def _grouped(self, name: str, x: TensorValue) -> dict[str, TensorValue]:
        """Queries, keys and values, float32 [tokens, heads * size], where they are in groups."""
        config = self.config
        groups, size = config.num_key_value_heads, config.head_dim
        each = config.num_attention_heads // groups
        found = self.products.linear(name, x, groups * (each + 2) * size, config.qkv_bias)
        found = ops.reshape(found, (x.shape[0], groups, each + 2, size))
        parts = {"q": slice(0, each), "k": slice(each, each + 1), "v": slice(each + 1, each + 2)}
        return {
            part: ops.reshape(found[:, :, chosen], (x.shape[0], -1))
            for part, chosen in parts.items()
        }

    def _rotated(self, x: TensorValue, rope: Rope | None, turns: Turns) -> TensorValue:
        """Heads whose first elements are turned, if the layer turns them."""
        return ops.rope(x, *turns[rope], interleaved=self.config.interleaved) if rope else x

    def _grown(self, query: TensorValue, growth: Growth | None, turns: Turns) -> TensorValue:
        """Queries, grown with their position where they do."""
        return query * turns[growth][0] if growth else query
