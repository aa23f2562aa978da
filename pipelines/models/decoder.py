"""Decoders as graphs: Llama (arXiv:2407.21783) and what has become of it.

One graph serves every step of a batch: whole prompts, chunks of prompts and single tokens, whose
keys and values lie in the blocks of a cache (`heddle.graph.ops.paged`). Weights have the names of
the Hugging Face checkpoint. `heddle.pipelines.models.decoder_config` reads its configuration, and
`heddle.pipelines.models.decoder_families` has what sets the families apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heddle.graph import DeviceRef, Dim, DType, Graph, TensorType, TensorValue, ops
from heddle.pipelines.models.activations import ACTIVATIONS
from heddle.pipelines.models.decoder_attention import Attention, Cached, Turns, Whole
from heddle.pipelines.models.decoder_config import DecoderConfig
from heddle.pipelines.models.decoder_experts import Mixture
from heddle.pipelines.models.decoder_layers import Layer
from heddle.pipelines.models.decoder_norms import Norms
from heddle.pipelines.models.products import Products, Quantization, Rows, scaled

MAXIMUM_ROWS = 1024
MAXIMUM_TOKENS = 16384
MAXIMUM_BLOCKS = 1 << 22
"""The largest batch, step and cache that one artifact serves."""

BLOCK_SIZE = 16
"""Tokens in a block of the cache, unless asked otherwise."""


class Decoder:
    """Adds the layers of a decoder to the graph that is being built.

    Between the layers values are float32, so are norms and sums; products and the cache are in
    the dtype of `products`.

    Args:
        config: The sizes.
        products: The weights.
        prefix: What the checkpoint puts before its weights' names.
    """

    def __init__(self, config: DecoderConfig, products: Products, prefix: str = "model.") -> None:
        self.config = config
        self.products = products
        self.prefix = prefix
        self.activation = ACTIVATIONS[config.hidden_act]
        family = config.family
        self.norm = Norms(products, config.rms_norm_eps, family.centred, family.offset)
        self.attention = Attention(config, products, self.norm)

    def __call__(
        self,
        tokens: TensorValue,
        positions: TensorValue,
        rows: Cached | Whole,
        caches: Sequence[TensorValue] = (),
    ) -> tuple[TensorValue, list[TensorValue]]:
        """The last layer's result for each token, float32 [tokens, hidden_size], and the caches.

        Args:
            tokens: int64 [tokens], those of all rows one after another.
            positions: int64 [tokens], the place of each in its sequence.
            rows: Where rows begin and their blocks are.
            caches: Keys and values of each layer in turn, of the products' dtype, [blocks, block
                size, num_key_value_heads, head_dim]; none where `rows` is `Whole`.
        """
        config = self.config
        name = f"{self.prefix}embed_tokens.weight"
        table = self.products.weight(name, config.vocab_size, config.hidden_size)
        hidden = ops.cast(ops.gather(table, tokens, axis=0), DType.float32)
        hidden = scaled(hidden, config.embedding_scale)
        turns = self.attention.turns(positions)
        changed: list[TensorValue] = []
        for number, layer in enumerate(config.layers):
            old = caches[2 * number : 2 * number + 2]
            hidden, *new = self._layer(
                f"{self.prefix}layers.{number}", layer, hidden, turns, rows, old
            )
            changed += new
        return hidden, changed

    def normal(self, hidden: TensorValue, dtype: DType = DType.float32) -> TensorValue:
        """The last norm of what the call gave."""
        return self.norm(f"{self.prefix}norm", hidden, dtype)

    def logits(self, hidden: TensorValue) -> TensorValue:
        """float32 [..., vocab_size] of what the call gave, [..., hidden_size]."""
        config = self.config
        normal = self.normal(hidden, self.products.dtype)
        name = f"{self.prefix}embed_tokens" if config.tie_word_embeddings else "lm_head"
        found = self.products.product(name, normal, config.vocab_size)
        found = scaled(found, config.logits_scale)
        cap = config.logits_softcap
        return ops.tanh(found / cap) * cap if cap else found

    def _layer(
        self,
        at: str,
        layer: Layer,
        hidden: TensorValue,
        turns: Turns,
        rows: Cached | Whole,
        caches: Sequence[TensorValue],
    ) -> tuple[TensorValue, TensorValue, TensorValue]:
        """The residual stream behind a layer, and its caches."""
        norms, scale = self.config.family.norms, self.config.residual_scale
        inner = self.config.intermediate_size

        def read(name: str) -> TensorValue:
            dtype = self.products.dtype
            return self.norm(f"{at}.{name}", hidden, dtype) if name else ops.cast(hidden, dtype)

        def added(name: str, part: TensorValue) -> TensorValue:
            normal = self.norm(f"{at}.{name}", part, DType.float32) if name else part
            return hidden + scaled(normal, scale)

        normal = read(norms.before_attention)
        mixed, *new = self.attention(f"{at}.self_attn", layer, normal, turns, rows, caches)
        hidden = added(norms.after_attention, mixed)
        if not self.config.family.parallel:
            normal = read(norms.before_mlp)
        part = self._mixture(at, normal) if layer.sparse else self._mlp(f"{at}.mlp", normal, inner)
        return added(norms.after_mlp, part), *new  # type: ignore[return-value]

    def _mixture(self, at: str, x: TensorValue) -> TensorValue:
        config = self.config
        assert config.experts is not None, "a sparse layer has experts"
        assert config.family.experts is not None, "a sparse layer has experts"
        mixture = Mixture(
            self.products, config.experts, config.family.experts, self.activation, self._mlp
        )
        return mixture(at, x)

    def _mlp(self, at: str, x: TensorValue, inner: int) -> TensorValue:
        """A feed-forward part of `inner` columns with a gate (arXiv:2002.05202)."""
        config, products = self.config, self.products

        def outer(name: str, first: int) -> TensorValue:
            part = (
                Rows(slice(first, first + inner), 2 * inner) if config.family.fused_gate else None
            )
            product = f"{at}.{'gate_up' if part else name}_proj"
            return products.linear(product, x, inner, config.mlp_bias, part)

        gate, up = outer("gate", 0), outer("up", inner)
        both = ops.cast(self.activation(gate) * up, products.dtype)
        return products.linear(f"{at}.down_proj", both, config.hidden_size, config.mlp_bias)


def language_model(
    config: DecoderConfig,
    name: str = "llama",
    dtype: DType = DType.float32,
    quantization: Quantization | None = None,
    stored: Mapping[str, DType] | None = None,
    block_size: int = BLOCK_SIZE,
    held: Mapping[str, Quantization] | None = None,
) -> Graph:
    """A graph from the tokens of a step to the next token of those rows that want one.

    Inputs, of a `heddle.contexts.StepBatch` unless said otherwise, with symbolic sizes:

    - `tokens`, `positions` int64 [tokens], `row_offsets` int64 [rows + 1], `lengths` int64 [rows],
      `blocks` int32 [rows, row_blocks]
    - `places` int64 [samples]: the numbers of the tokens whose next one is wanted, mostly the last
      one of each row
    - `sampling` float32 [samples, 6], `sampling_integers` int64 [samples, 2]
    - `seen` int64 [seen, 2], `seen_offsets` int64 [samples + 1]: of `ops.penalize`
    - `bitmask` int32 [samples, ceildiv(vocab_size, 32)]: which tokens may be chosen
    - `keys0`, `values0`, `keys1`, ... of `dtype`, [cache_blocks, block_size, num_key_value_heads,
      head_dim]: the cache of each layer

    Outputs: `next_tokens` int64 [samples]; `logits` float32 [samples, vocab_size], before
    penalties; and the caches. A cache is changed in place where it is given as an output too.

    No row is longer than the config's `max_position_embeddings`: blocks are as short as that, and
    positions beyond the last whole block are left.
    """
    block_size = min(block_size, config.max_position_embeddings)
    rows, tokens = Dim("rows", 1, MAXIMUM_ROWS), Dim("tokens", 1, MAXIMUM_TOKENS)
    samples, seen = Dim("samples", 0, MAXIMUM_TOKENS), Dim("seen", 0, 1 << 30)
    row_blocks = Dim("row_blocks", 1, config.max_position_embeddings // block_size)
    cache_blocks = Dim("cache_blocks", 1, MAXIMUM_BLOCKS)
    words = -(-config.vocab_size // 32)
    shapes: dict[str, tuple[DType, Sequence[Dim | int]]] = {
        "tokens": (DType.int64, (tokens,)),
        "positions": (DType.int64, (tokens,)),
        "row_offsets": (DType.int64, (rows + 1,)),
        "lengths": (DType.int64, (rows,)),
        "blocks": (DType.int32, (rows, row_blocks)),
        "places": (DType.int64, (samples,)),
        "sampling": (DType.float32, (samples, 6)),
        "sampling_integers": (DType.int64, (samples, 2)),
        "seen": (DType.int64, (seen, 2)),
        "seen_offsets": (DType.int64, (samples + 1,)),
        "bitmask": (DType.int32, (samples, words)),
    }
    cache = (cache_blocks, block_size, config.num_key_value_heads, config.head_dim)
    caches = [f"{name}{i}" for i in range(len(config.layers)) for name in ("keys", "values")]
    shapes |= dict.fromkeys(caches, (dtype, cache))
    types = [TensorType(kind, shape, DeviceRef.CPU()) for kind, shape in shapes.values()]
    with Graph(name, input_types=types, input_names=list(shapes)) as graph:
        given = dict(zip(shapes, (value.tensor for value in graph.inputs), strict=True))
        decoder = Decoder(config, Products(graph, dtype, quantization, stored, held))
        hidden, changed = decoder(
            given["tokens"],
            given["positions"],
            Cached(given["row_offsets"], given["lengths"], given["blocks"]),
            [given[name] for name in caches],
        )
        places, sampling = given["places"], given["sampling"]
        logits = decoder.logits(ops.gather(hidden, places, axis=0))
        penalized = ops.penalize(logits, sampling, given["seen"], given["seen_offsets"])
        steps = ops.gather(given["positions"], places, axis=0) + 1
        chosen = ops.sample_tokens(
            penalized, sampling, given["sampling_integers"], steps, given["bitmask"]
        )
        graph.output(chosen, logits, *changed, names=["next_tokens", "logits", *outputs(caches)])
    return graph


def outputs(caches: Sequence[str]) -> list[str]:
    """The names of the caches after a step."""
    return [f"new_{name}" for name in caches]
