"""Decoders of the Llama family as graphs: Llama (arXiv:2407.21783), Mistral, Qwen2 and Qwen3.

One graph serves every step of a batch: whole prompts, chunks of prompts and single tokens, whose
keys and values lie in the blocks of a cache (`heddle.graph.ops.paged`). Weights have the names of
the Hugging Face checkpoint. `heddle.pipelines.models.decoder_config` reads its configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from heddle.graph import DeviceRef, Dim, DType, Graph, TensorType, TensorValue, Weight, ops
from heddle.pipelines.models.decoder_config import DecoderConfig
from heddle.runtime.errors import GraphError

MAXIMUM_ROWS = 1024
MAXIMUM_TOKENS = 16384
MAXIMUM_BLOCKS = 1 << 22
"""The largest batch, step and cache that one artifact serves."""

BLOCK_SIZE = 16
"""Tokens in a block of the cache, unless asked otherwise."""

ACTIVATIONS: dict[str, Callable[[TensorValue], TensorValue]] = {
    "silu": ops.silu,
    "gelu": ops.gelu,
    "gelu_pytorch_tanh": lambda x: ops.gelu(x, approximate="tanh"),
    "relu": ops.relu,
}


@dataclass(frozen=True)
class Quantization:
    """How the weights of products are held: `bits` 8 or 4, one scale for each `group` along k.

    `activations` is what they are multiplied by: `"float"`, or `"int8"` (see `quantized_matmul`).
    """

    bits: int
    group: int
    activations: str = "float"

    @staticmethod
    def parse(text: str, group: int = 128, activations: str = "float") -> Quantization:
        """The quantization called `"int8"` or `"int4"`."""
        if text not in ("int8", "int4"):
            raise GraphError(f"quantization: wanted int8 or int4, got {text!r}")
        return Quantization(int(text[3:]), group, activations)

    @property
    def dtype(self) -> DType:
        """What the integers are held in."""
        return DType.int8 if self.bits == 8 else DType.uint8


@dataclass(frozen=True)
class Rows:
    """Which tokens of a step belong to which row, and where the rows' keys and values are."""

    offsets: TensorValue
    lengths: TensorValue
    blocks: TensorValue

    def write(self, cache: TensorValue, new: TensorValue) -> TensorValue:
        """The cache with the step's tokens in it."""
        return ops.paged_write(cache, new, self.offsets, self.lengths, self.blocks)

    def attend(
        self, query: TensorValue, keys: TensorValue, values: TensorValue, window: int
    ) -> TensorValue:
        """Causal attention of each token to its own row."""
        return ops.paged_attention(
            query, keys, values, self.offsets, self.lengths, self.blocks, window=window
        )


class Decoder:
    """Adds the layers of a decoder to the graph that is being built.

    Between the layers values are float32, so are norms and sums; products and the cache are in
    `dtype`.

    Args:
        graph: The graph that the weights are added to.
        config: The sizes.
        dtype: What products multiply and the cache holds.
        quantization: How the weights of products are held; None: as they are stored.
        stored: The dtype of each weight in the checkpoint, by name; of others it is `dtype`.
    """

    def __init__(
        self,
        graph: Graph,
        config: DecoderConfig,
        dtype: DType,
        quantization: Quantization | None = None,
        stored: Mapping[str, DType] | None = None,
    ) -> None:
        self.graph = graph
        self.config = config
        self.dtype = dtype
        self.quantization = quantization
        self.stored = stored or {}
        self._weights: dict[str, TensorValue] = {}

    def __call__(
        self,
        tokens: TensorValue,
        positions: TensorValue,
        rows: Rows,
        caches: Sequence[TensorValue],
    ) -> tuple[TensorValue, list[TensorValue]]:
        """The last layer's result for each token, float32 [tokens, hidden_size], and the caches.

        Args:
            tokens: int64 [tokens], those of all rows one after another.
            positions: int64 [tokens], the place of each in its sequence.
            rows: Where rows begin and their blocks are.
            caches: Keys and values of each layer in turn, of `dtype`, [blocks, block size,
                num_key_value_heads, head_dim].
        """
        config = self.config
        table = self._weight("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
        hidden = ops.cast(ops.gather(table, tokens, axis=0), DType.float32)
        turns = self._turns(positions)
        changed: list[TensorValue] = []
        for layer in range(config.num_hidden_layers):
            at = f"model.layers.{layer}"
            normal = self._norm(f"{at}.input_layernorm", hidden)
            old = caches[2 * layer : 2 * layer + 2]
            mixed, *new = self._attention(f"{at}.self_attn", normal, turns, rows, old, layer)
            changed += new
            hidden = hidden + mixed
            normal = self._norm(f"{at}.post_attention_layernorm", hidden)
            hidden = hidden + self._mlp(f"{at}.mlp", normal)
        return hidden, changed

    def logits(self, hidden: TensorValue) -> TensorValue:
        """float32 [..., vocab_size] of what the call gave, [..., hidden_size]."""
        normal = self._norm("model.norm", hidden)
        tied = self.config.tie_word_embeddings
        name = "model.embed_tokens" if tied else "lm_head"
        return self._product(name, normal, self.config.vocab_size)

    def _turns(self, positions: TensorValue) -> tuple[TensorValue, TensorValue]:
        """Cosines and sines of the rotary angles, float32 [tokens, 1, head_dim / 2]."""
        frequencies = self.graph.constant(self.config.frequencies())
        places = ops.reshape(ops.cast(positions, DType.float32), (positions.shape[0], 1, 1))
        angles = places * frequencies
        return ops.cos(angles), ops.sin(angles)

    def _attention(
        self,
        at: str,
        x: TensorValue,
        turns: tuple[TensorValue, TensorValue],
        rows: Rows,
        caches: Sequence[TensorValue],
        layer: int,
    ) -> tuple[TensorValue, TensorValue, TensorValue]:
        config = self.config

        def linear(name: str, count: int, dtype: DType) -> TensorValue:
            found = self._linear(f"{at}.{name}_proj", x, count * config.head_dim, config.qkv_bias)
            # A cast behind the reshape would be a kernel of its own.
            return ops.reshape(ops.cast(found, dtype), (x.shape[0], count, config.head_dim))

        def turned(name: str, count: int) -> TensorValue:
            found = linear(name, count, DType.float32)
            if config.qk_norm:
                found = self._norm(f"{at}.{name}_norm", found, DType.float32)
            return ops.cast(ops.rope(found, *turns), self.dtype)

        query = turned("q", config.num_attention_heads)
        keys = rows.write(caches[0], turned("k", config.num_key_value_heads))
        values = rows.write(caches[1], linear("v", config.num_key_value_heads, self.dtype))
        mixed = rows.attend(query, keys, values, config.windows[layer])
        flat = ops.reshape(mixed, (x.shape[0], config.num_attention_heads * config.head_dim))
        out = self._linear(f"{at}.o_proj", flat, config.hidden_size, config.output_bias)
        return out, keys, values

    def _mlp(self, at: str, x: TensorValue) -> TensorValue:
        config = self.config
        gate, up = (
            self._linear(f"{at}.{name}_proj", x, config.intermediate_size, config.mlp_bias)
            for name in ("gate", "up")
        )
        inner = ops.cast(ACTIVATIONS[config.hidden_act](gate) * up, self.dtype)
        return self._linear(f"{at}.down_proj", inner, config.hidden_size, config.mlp_bias)

    def _linear(self, name: str, x: TensorValue, outputs: int, biased: bool) -> TensorValue:
        """The affine map of x, whose product is in the decoder's dtype, as float32."""
        product = self._product(name, x, outputs)
        return product + self._vector(f"{name}.bias", outputs) if biased else product

    def _product(self, name: str, x: TensorValue, outputs: int) -> TensorValue:
        size = int(x.shape[-1])
        if self.quantization:
            product = self._quantized_product(name, x, outputs, size, self.quantization)
        else:
            weight = self._weight(f"{name}.weight", outputs, size)
            product = x @ ops.cast(weight, self.dtype).T
        return ops.cast(product, DType.float32)

    def _quantized_product(
        self, name: str, x: TensorValue, outputs: int, size: int, held: Quantization
    ) -> TensorValue:
        if size % held.group:
            raise GraphError(
                f"{name}: wanted inputs in whole groups of {held.group}, got {size}; choose "
                "another group"
            )

        def added(end: str, dtype: DType, width: int) -> TensorValue:
            return self.graph.add_weight(
                Weight(f"{name}.{end}", dtype, (outputs, width), DeviceRef.CPU())
            )

        integers = added("integers", held.dtype, size * held.bits // 8)
        scales = added("scales", self.dtype, size // held.group)
        return ops.quantized_matmul(x, integers, scales, **asdict(held))

    def _norm(self, name: str, x: TensorValue, dtype: DType | None = None) -> TensorValue:
        gamma = self._vector(f"{name}.weight", int(x.shape[-1]))
        normal = ops.rms_norm(x, gamma, epsilon=self.config.rms_norm_eps)
        return ops.cast(normal, dtype or self.dtype)

    def _vector(self, name: str, size: int) -> TensorValue:
        return ops.cast(self._weight(name, size), DType.float32)

    def _weight(self, name: str, *shape: int) -> TensorValue:
        """The weight `name` as it is stored; tied embeddings are asked for twice."""
        if name not in self._weights:
            dtype = self.stored.get(name, self.dtype)
            weight = Weight(name, dtype, shape, DeviceRef.CPU())
            self._weights[name] = self.graph.add_weight(weight)
        return self._weights[name]


def language_model(
    config: DecoderConfig,
    name: str = "llama",
    dtype: DType = DType.float32,
    quantization: Quantization | None = None,
    stored: Mapping[str, DType] | None = None,
    block_size: int = BLOCK_SIZE,
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
    caches = [f"{name}{i}" for i in range(config.num_hidden_layers) for name in ("keys", "values")]
    shapes |= dict.fromkeys(caches, (dtype, cache))
    types = [TensorType(kind, shape, DeviceRef.CPU()) for kind, shape in shapes.values()]
    with Graph(name, input_types=types, input_names=list(shapes)) as graph:
        given = dict(zip(shapes, (value.tensor for value in graph.inputs), strict=True))
        decoder = Decoder(graph, config, dtype, quantization, stored)
        hidden, changed = decoder(
            given["tokens"],
            given["positions"],
            Rows(given["row_offsets"], given["lengths"], given["blocks"]),
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
