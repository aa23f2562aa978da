"""Encoders of the BERT family as graphs; `config` says which, and what they differ in.

Weights have the names of the Hugging Face checkpoint, so that its safetensors file can be given to
`InferenceSession.load` as it is. They are cast where the encoder computes in another dtype than
they are stored in, which the compiler moves to the model's load.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heddle.graph import Dim, DType, TensorValue, ops
from heddle.pipelines.models.activations import ACTIVATIONS
from heddle.pipelines.models.encoder.config import EncoderConfig, LayerKind
from heddle.pipelines.models.encoder.layers import Layers
from heddle.pipelines.models.encoder.names import NAMES
from heddle.pipelines.models.rotary import Rope

FARTHEST = 128
"""Tokens of MPNet that are so far apart, or farther, share a bias."""


@dataclass(frozen=True)
class View:
    """What the tokens of a layer see of each other.

    Attributes:
        mask: What `ops.attention` takes as its mask.
        turns: Cosines and sines of the rotary angles, float32 [sequence, 1, head_size / 2], or
            nothing where there are none.
    """

    mask: TensorValue
    turns: tuple[TensorValue, ...]


class Encoder:
    """Adds an encoder to the graph that is being built.

    Sums, norms and exponentials are float32; so is what layers with norms in front hand on.

    Args:
        layers: What adds layers; its dtype is that of products, and of values in between ops.
        config: The sizes, and what the family is like.
        prefix: What the checkpoint puts before its weights' names (`""` or `"bert."`).
    """

    def __init__(self, layers: Layers, config: EncoderConfig, prefix: str = "") -> None:
        self.layers = layers
        self.config = config
        self.prefix = prefix
        self.names = NAMES[config.model_type]

    def __call__(
        self, tokens: TensorValue, mask: TensorValue, types: TensorValue | None = None
    ) -> TensorValue:
        """The last hidden state, [batch, sequence, hidden_size] of the layers' dtype.

        Args:
            tokens: int32 [batch, sequence]; the first of a row is at position 0.
            mask: bool [batch, sequence], true where there is a token; others are not attended to.
            types: int32 [batch, sequence], the segment of each token; without it all are 0.
        """
        kinds = self.config.kinds
        hidden = self._embed(tokens, types)
        views = {kind: self._view(mask, kind) for kind in dict.fromkeys(kinds)}
        for number, kind in enumerate(kinds):
            hidden = self._layer(number, hidden, views[kind])
        if self.config.pre_norm:
            hidden = self._narrow(self._norm(self.names.final_norm, hidden))
        return hidden

    def _embed(self, tokens: TensorValue, types: TensorValue | None) -> TensorValue:
        config, names = self.config, self.names
        first, sequence = config.first_position, tokens.shape[1]
        words = self._table(names.words, config.vocab_size)
        places = segments = None
        if first is not None:
            places = self._table(names.positions, first + config.max_position_embeddings)
        if config.type_vocab_size:
            segments = self._table(names.types, config.type_vocab_size)
        total = self.layers.rows(words, tokens)
        if places is not None and first is not None:
            total = total + ops.cast(places[first : sequence + first], DType.float32)
        if segments is not None:
            zero = ops.cast(segments[0], DType.float32)
            total = total + (zero if types is None else self.layers.rows(segments, types))
        normal = self._norm(names.embedding_norm, total)
        return normal if config.pre_norm else self._narrow(normal)

    def _view(self, mask: TensorValue, kind: LayerKind) -> View:
        batch, sequence = mask.shape
        seen = ops.reshape(mask, (batch, 1, 1, sequence))
        if kind.window:
            near = ops.less_equal(ops.abs(_distances(sequence)), kind.window)
            seen = ops.logical_and(seen, near)
        if self.config.relative_buckets:
            seen = self._narrow(ops.where(seen, self._relative(sequence), -math.inf))
        if kind.theta is None:
            return View(seen, ())
        places = ops.reshape(ops.range(sequence, dtype=DType.float32), (sequence, 1, 1))
        rope = Rope(kind.theta, self.config.head_size)
        angles = places * self.layers.graph.constant(rope.frequencies())
        return View(seen, (ops.cos(angles), ops.sin(angles)))

    def _relative(self, sequence: Dim) -> TensorValue:
        """What is added to the scores of queries and keys, float32 [heads, sequence, sequence]."""
        config, longest = self.config, self.config.max_position_embeddings
        name = f"{self.prefix}{self.names.relative}.weight"
        table = self.layers.weight(name, config.relative_buckets, config.num_attention_heads)
        shares = self.layers.graph.constant(buckets(longest, config.relative_buckets))
        chosen = ops.gather(shares, _distances(sequence) + (longest - 1), axis=0)
        return ops.permute(self.layers.rows(table, chosen), (2, 0, 1))

    def _layer(self, number: int, x: TensorValue, view: View) -> TensorValue:
        names = self.names
        at = names.layer.format(number)
        attention_norm, outer_norm = f"{at}.{names.attention_norm}", f"{at}.{names.outer_norm}"
        if self.config.pre_norm:
            # The embeddings' norm is the first layer's, too.
            normal = self._norm(attention_norm, x) if number else x
            x = x + self._attention(at, self._narrow(normal), view)
            return x + self._feed_forward(at, self._narrow(self._norm(outer_norm, x)))
        mixed = self._attention(at, x, view) + ops.cast(x, DType.float32)
        x = self._narrow(self._norm(attention_norm, mixed))
        inner = self._feed_forward(at, x) + ops.cast(x, DType.float32)
        return self._narrow(self._norm(outer_norm, inner))

    def _attention(self, at: str, x: TensorValue, view: View) -> TensorValue:
        config, biased = self.config, self.config.attention_bias
        batch, sequence, size = x.shape
        split = (batch, sequence, config.num_attention_heads, config.head_size)

        def heads(product: TensorValue) -> TensorValue:
            # A cast behind the reshape would be a kernel of its own.
            return ops.reshape(self._narrow(product), split)

        def turned(product: TensorValue) -> TensorValue:
            return self._narrow(ops.rope(ops.reshape(product, split), *view.turns))

        products = self._products(at, self.names.qkv, x, 3, config.hidden_size, biased)
        placed = turned if view.turns else heads
        query, key, value = (
            make(product) for make, product in zip((placed, placed, heads), products, strict=True)
        )
        mixed = ops.attention(query, key, value, mask=view.mask, layout="bshd")
        mixed = ops.reshape(mixed, (batch, sequence, size))
        return self._linear(f"{at}.{self.names.attention}", mixed, config.hidden_size, biased)

    def _feed_forward(self, at: str, x: TensorValue) -> TensorValue:
        config, names = self.config, self.names
        count = 2 if config.gated else 1
        inner, *gate = self._products(
            at, names.inner, x, count, config.intermediate_size, config.mlp_bias
        )
        inner = ACTIVATIONS[config.hidden_act](inner)
        inner = self._narrow(inner * gate[0] if gate else inner)
        return self._linear(f"{at}.{names.outer}", inner, config.hidden_size, config.mlp_bias)

    def _products(
        self, at: str, names: tuple[str, ...], x: TensorValue, count: int, size: int, biased: bool
    ) -> Iterator[TensorValue]:
        """`count` affine maps of x, [..., size] each, whether they are stored apart or together."""
        parts = count // len(names)
        for name in names:
            product = self._linear(f"{at}.{name}", x, size * parts, biased)
            yield from ops.split(product, [size] * parts, axis=-1) if parts > 1 else [product]

    def _linear(self, name: str, x: TensorValue, outputs: int, biased: bool) -> TensorValue:
        return self.layers.linear(self.prefix + name, x, outputs, biased)

    def _norm(self, name: str, x: TensorValue) -> TensorValue:
        config = self.config
        return self.layers.norm(self.prefix + name, x, config.layer_norm_eps, config.norm_bias)

    def _narrow(self, x: TensorValue) -> TensorValue:
        return ops.cast(x, self.layers.dtype)

    def _table(self, name: str, rows: int) -> TensorValue:
        return self.layers.weight(f"{self.prefix}{name}.weight", rows, self.config.hidden_size)


def _distances(sequence: Dim) -> TensorValue:
    """How far each key is behind each query, int64 [queries, keys]."""
    places = ops.range(sequence)
    return ops.reshape(places, (1, sequence)) - ops.reshape(places, (sequence, 1))


def buckets(longest: int, count: int) -> NDArray[np.int32]:
    """Which bias the distances -longest + 1 ... longest - 1 have, int32 (arXiv:1910.10683, 2.1).

    Each direction has half of them: one for each short distance, then one for as many as are a
    step of the logarithm, up to `FARTHEST`.
    """
    half = count // 2
    short = half // 2
    distances = np.arange(1 - longest, longest)
    far = np.abs(distances)
    steps = np.log(np.maximum(far, 1) / short) / math.log(FARTHEST / short) * (half - short)
    coarse = np.minimum(short + steps.astype(int), half - 1)
    found: NDArray[np.int32] = np.where(far < short, far, coarse) + half * (distances > 0)
    return found.astype(np.int32)
