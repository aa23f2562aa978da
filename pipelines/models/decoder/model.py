"""Decoders as graphs: Llama (arXiv:2407.21783) and what has become of it.

One graph serves every step of a batch: whole prompts, chunks of prompts and single tokens, whose
keys and values lie in the blocks of a cache (`heddle.graph.ops.paged`). Weights have the names of
the Hugging Face checkpoint. `heddle.pipelines.models.decoder.config` reads its configuration, and
`heddle.pipelines.models.decoder.families` has what sets the families apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heddle.graph import DeviceRef, Dim, DType, Graph, TensorType, TensorValue, ops
from heddle.pipelines.models.activations import ACTIVATIONS
from heddle.pipelines.models.decoder.attention import Attention, Cached, Turns, Whole
from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.pipelines.models.decoder.experts import Mixture
from heddle.pipelines.models.decoder.latent_attention import LatentAttention
from heddle.pipelines.models.decoder.layers import Layer
from heddle.pipelines.models.decoder.mlp import FeedForward
from heddle.pipelines.models.decoder.norms import Norms
from heddle.pipelines.models.decoder.traits import ModelNames
from heddle.pipelines.models.products import Products, Quantization, scaled

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
        names: What the checkpoint calls weights outside of layers; None: as its family does.
    """

    def __init__(
        self, config: DecoderConfig, products: Products, names: ModelNames | None = None
    ) -> None:
        self.config = config
        self.products = products
        self.names = names or config.family.names
        self.feed_forward = FeedForward(products, config.hidden_act, config.mlp_bias)
        self.norm = Norms(products, config.rms_norm_eps, config.family)
        kind = Attention if config.latent is None else LatentAttention
        self.attention = kind(config, products, self.norm)

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
            caches: Those of each layer in turn, of the products' dtype, [blocks, block size,
                heads, columns] as `config.caches` says; none where `rows` is `Whole`.
        """
        config, names = self.config, self.names
        name = f"{names.prefix}{names.embeddings}"
        hidden = self.products.lookup(name, tokens, config.vocab_size, config.hidden_size)
        hidden = scaled(hidden, config.embedding_scale)
        if names.positions:
            name, count = f"{names.prefix}{names.positions}", config.positions
            hidden = hidden + self.products.lookup(name, positions, count, config.hidden_size)
        turns = self.attention.turns(positions)
        changed: list[TensorValue] = []
        for number, layer in enumerate(config.layers):
            each = len(config.caches)
            old = caches[each * number : each * (number + 1)]
            hidden, *new = self._layer(
                f"{names.prefix}{names.layers}.{number}", layer, hidden, turns, rows, old
            )
            changed += new
        return hidden, changed

    def normal(self, hidden: TensorValue, dtype: DType = DType.float32) -> TensorValue:
        """The last norm of what the call gave."""
        return self.norm(f"{self.names.prefix}{self.names.norm}", hidden, dtype)

    def logits(self, hidden: TensorValue) -> TensorValue:
        """float32 [..., vocab_size] of what the call gave, [..., hidden_size]."""
        config, names = self.config, self.names
        normal = self.normal(hidden, self.products.dtype)
        tied = config.tie_word_embeddings
        name = f"{names.prefix}{names.embeddings}" if tied else names.head
        found = self.products.product(name, normal, config.vocab_size)
        if config.family.head_bias:
            found = found + self.products.vector(f"{names.head}.bias", config.vocab_size)
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
    ) -> tuple[TensorValue, ...]:
        """The residual stream behind a layer, and its caches."""
        config, family = self.config, self.config.family
        norms, before = family.norms, hidden

        def read(name: str, x: TensorValue) -> TensorValue:
            dtype = self.products.dtype
            return self.norm(f"{at}.{name}", x, dtype) if name else ops.cast(x, dtype)

        def added(name: str, part: TensorValue) -> TensorValue:
            normal = self.norm(f"{at}.{name}", part, DType.float32) if name else part
            return hidden + scaled(normal, config.residual_scale)

        normal = read(norms.before_attention, before)
        mixed, *new = self.attention(at, layer, normal, turns, rows, caches)
        hidden = added(norms.after_attention, mixed)
        if norms.before_mlp or not config.parallel:
            normal = read(norms.before_mlp, before if config.parallel else hidden)
        part = (
            self._mixture(at, normal)
            if layer.sparse
            else self.feed_forward(at, family.mlp, normal, config.intermediate_size)
        )
        return added(norms.after_mlp, part), *new

    def _mixture(self, at: str, x: TensorValue) -> TensorValue:
        config, names = self.config, self.config.family.experts
        assert config.experts is not None, "a sparse layer has experts"
        assert names is not None, "a sparse layer has experts"
        activation = ACTIVATIONS[config.hidden_act]
        mixture = Mixture(self.products, config.experts, names, activation, self.feed_forward)
        return mixture(at, x)


def language_model(
    config: DecoderConfig,
    name: str = "llama",
    dtype: DType = DType.float32,
    quantization: Quantization | None = None,
    stored: Mapping[str, DType] | None = None,
    block_size: int = BLOCK_SIZE,
    held: Mapping[str, Quantization] | None = None,
    names: ModelNames | None = None,
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
      head_dim]: the cache of each layer; where keys and values are made of latents, `latents0`,
      `latents1`, ..., [cache_blocks, block_size, 1, kv_lora_rank + qk_rope_head_dim]

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
    cached = {
        f"{name}{i}": (dtype, (cache_blocks, block_size, *heads))
        for i in range(len(config.layers))
        for name, heads in config.caches.items()
    }
    shapes |= cached
    caches = list(cached)
    types = [TensorType(kind, shape, DeviceRef.CPU()) for kind, shape in shapes.values()]
    with Graph(name, input_types=types, input_names=list(shapes)) as graph:
        given = dict(zip(shapes, (value.tensor for value in graph.inputs), strict=True))
        decoder = Decoder(config, Products(graph, dtype, quantization, stored, held), names)
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
