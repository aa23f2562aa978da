"""Attention of heads that make their keys and values of one latent for each token.

What a head would make of a latent is made of its query instead, and of what it has attended to:
`q . (W_k c)` is `(W_k^T q) . c`, and a sum of weighted `W_v c` is `W_v` of that sum. So a cache
holds latents alone, which are the keys of all heads and, but for the columns that are turned,
their values (arXiv:2405.04434, section 2.1.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from heddle.graph import DType, TensorValue, ops
from heddle.pipelines.models.decoder.attention import Attention, Cached, Turns, Whole
from heddle.pipelines.models.decoder.latent_config import Latent
from heddle.pipelines.models.decoder.layers import Layer
from heddle.runtime.errors import GraphError

EPSILON = 1e-6
"""What is added to the mean squares of latents, whatever `rms_norm_eps` is (the reference code)."""


@dataclass(frozen=True)
class LatentAttention(Attention):
    """Adds the latent attention of a layer to the graph that is being built."""

    def __call__(
        self,
        at: str,
        layer: Layer,
        x: TensorValue,
        turns: Turns,
        rows: Cached | Whole,
        caches: Sequence[TensorValue],
    ) -> tuple[TensorValue, ...]:
        """What attention adds to the residual stream, float32 [tokens, hidden_size], and a cache.

        The cache holds latents with the turned keys behind them.
        """
        if not isinstance(rows, Cached):
            raise GraphError("latent attention: wanted a step with a cache, got whole sequences")
        config, products, names = self.config, self.products, self.config.family.attention
        latent, heads = self._latent, config.num_attention_heads
        at = f"{at}.{names.at}"
        query = ops.reshape(self._queries(at, x), (x.shape[0], heads, latent.head))
        found = products.linear(f"{at}.kv_a_proj_with_mqa", x, latent.cached, config.qkv_bias)
        key = ops.reshape(found[:, latent.size :], (x.shape[0], 1, latent.turned))
        query = self._grown(query, layer.growth, turns)
        turned, key = (
            self._rotated(part, layer.rope, turns) for part in (query[..., latent.plain :], key)
        )
        normal = self._latents(f"{at}.kv_a_layernorm", found[:, : latent.size])
        new = ops.concat([ops.reshape(normal, (x.shape[0], 1, latent.size)), key], axis=-1)
        cache = rows.write(caches[0], ops.cast(new, products.dtype))
        of_keys, of_values = self._weights(f"{at}.kv_b_proj")
        plain = _by_head(query[..., : latent.plain], of_keys, products.dtype)
        mixed = rows.attend(
            ops.concat([plain, ops.cast(turned, products.dtype)], axis=-1),
            cache,
            cache,
            scale=config.attention_scale,
            value_size=latent.size,
        )
        values = ops.reshape(_by_head(mixed, of_values.T, products.dtype), (x.shape[0], -1))
        out = products.linear(f"{at}.{names.out}", values, config.hidden_size, config.output_bias)
        return out, cache

    @property
    def _latent(self) -> Latent:
        assert self.config.latent is not None, "the model has latents"
        return self.config.latent

    def _queries(self, at: str, x: TensorValue) -> TensorValue:
        """float32 [tokens, heads * head]."""
        size, columns = self._latent.query, self.config.num_attention_heads * self._latent.head
        if not size:
            return self.products.product(f"{at}.q_proj", x, columns)
        found = self.products.linear(f"{at}.q_a_proj", x, size, self.config.qkv_bias)
        return self.products.product(
            f"{at}.q_b_proj", self._latents(f"{at}.q_a_layernorm", found), columns
        )

    def _latents(self, name: str, found: TensorValue) -> TensorValue:
        """float32, normalised."""
        return replace(self.norm, epsilon=EPSILON)(name, found, DType.float32)

    def _weights(self, name: str) -> tuple[TensorValue, TensorValue]:
        """What makes keys and values of a latent: [heads, columns, size] each, of floats.

        It is the weight of one product in the checkpoint, and is never quantized here: products of
        each head with a weight of its own are those of floats.
        """
        latent, heads = self._latent, self.config.num_attention_heads
        columns = latent.plain + latent.values
        weight = self.products.weight(f"{name}.weight", heads * columns, latent.size)
        each = ops.reshape(ops.cast(weight, self.products.dtype), (heads, columns, latent.size))
        return each[:, : latent.plain], each[:, latent.plain :]


def _by_head(x: TensorValue, weights: TensorValue, dtype: DType) -> TensorValue:
    """[tokens, heads, n] of x, [tokens, heads, k], and [heads, k, n]."""
    return (ops.cast(x, dtype).transpose(0, 1) @ weights).transpose(0, 1)
