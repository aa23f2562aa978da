"""BERT encoders (Devlin et al. 2019, https://arxiv.org/abs/1810.04805) as graphs.

Weights have the names of the Hugging Face checkpoint, so that its safetensors file can be given to
`InferenceSession.load` as it is: they are float32 there, and cast where the encoder computes in
another dtype, which the compiler moves to the model's load.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from heddle.graph import DeviceRef, Dim, DType, Graph, TensorType, TensorValue, Weight, ops
from heddle.runtime.errors import GraphError

MAXIMUM_BATCH = 1024

ACTIVATIONS: dict[str, Callable[[TensorValue], TensorValue]] = {
    "gelu": ops.gelu,
    "gelu_new": lambda x: ops.gelu(x, approximate="tanh"),
    "relu": ops.relu,
    "silu": ops.silu,
}


@dataclass(frozen=True)
class BertConfig:
    """The keys of a checkpoint's `config.json` that the graph depends on."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    hidden_act: str

    @staticmethod
    def read(path: Path) -> BertConfig:
        """The configuration in the JSON file `path`.

        Raises:
            GraphError: The file is missing or no JSON object, a key is missing, or the model is
                not one that this graph computes.
        """
        try:
            values = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise GraphError(f"{path}: wanted a model's config.json, got {error}") from None
        if not isinstance(values, dict):
            raise GraphError(f"{path}: wanted a model's config.json, got no JSON object")
        names = [field.name for field in fields(BertConfig)]
        missing = [name for name in names if name not in values]
        if missing:
            raise GraphError(
                f"{path}: wanted the keys of a BERT model, got no {', '.join(missing)}"
            )
        for name, wanted in (("model_type", "bert"), ("position_embedding_type", "absolute")):
            if values.get(name, wanted) != wanted:
                raise GraphError(f"{path}: {name}: wanted {wanted!r}, got {values[name]!r}")
        config = BertConfig(**{name: values[name] for name in names})
        if config.hidden_act not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise GraphError(
                f"{path}: hidden_act: wanted one of {known}, got {config.hidden_act!r}"
            )
        heads, size = config.num_attention_heads, config.hidden_size
        if size % heads:
            raise GraphError(f"{path}: hidden_size: wanted a multiple of {heads} heads, got {size}")
        return config


class Encoder:
    """Adds a BERT encoder to the graph that is being built.

    Args:
        graph: The graph that the weights are added to.
        config: The sizes.
        prefix: What the checkpoint puts before its weights' names (`""` or `"bert."`).
        dtype: What values are kept in between ops; sums, norms and exponentials are float32.
    """

    def __init__(
        self,
        graph: Graph,
        config: BertConfig,
        prefix: str = "",
        dtype: DType = DType.float32,
    ) -> None:
        self.graph = graph
        self.config = config
        self.prefix = prefix
        self.dtype = dtype

    def __call__(
        self, tokens: TensorValue, mask: TensorValue, types: TensorValue | None = None
    ) -> TensorValue:
        """The last hidden state, [batch, sequence, hidden_size] of the encoder's dtype.

        Args:
            tokens: int32 [batch, sequence].
            mask: bool [batch, sequence], true where there is a token; others are not attended to.
            types: int32 [batch, sequence], the segment of each token; without it all are 0.
        """
        batch, sequence = tokens.shape
        hidden = self._embed(tokens, types)
        keys = ops.reshape(mask, (batch, 1, 1, sequence))
        for layer in range(self.config.num_hidden_layers):
            hidden = self._layer(f"encoder.layer.{layer}", hidden, keys)
        return hidden

    def _embed(self, tokens: TensorValue, types: TensorValue | None) -> TensorValue:
        config, size = self.config, self.config.hidden_size
        words, positions, segments = (
            self._weight(f"embeddings.{name}_embeddings.weight", rows, size)
            for name, rows in (
                ("word", config.vocab_size),
                ("position", config.max_position_embeddings),
                ("token_type", config.type_vocab_size),
            )
        )
        sequence = tokens.shape[1]
        total = ops.gather(words, tokens, axis=0) + positions[:sequence]
        total = total + (segments[0] if types is None else ops.gather(segments, types, axis=0))
        return self._norm("embeddings.LayerNorm", total)

    def _layer(self, at: str, x: TensorValue, keys: TensorValue) -> TensorValue:
        heads, size = self.config.num_attention_heads, self.config.hidden_size
        batch, sequence, _ = x.shape
        query, key, value = (
            ops.reshape(
                ops.cast(self._linear(f"{at}.attention.self.{name}", x, size, size), self.dtype),
                (batch, sequence, heads, size // heads),
            )
            for name in ("query", "key", "value")
        )
        mixed = ops.attention(query, key, value, mask=keys, layout="bshd")
        mixed = ops.reshape(mixed, (batch, sequence, size))
        mixed = self._linear(f"{at}.attention.output.dense", mixed, size, size)
        x = self._norm(f"{at}.attention.output.LayerNorm", mixed + ops.cast(x, DType.float32))
        inner = self._linear(f"{at}.intermediate.dense", x, size, self.config.intermediate_size)
        inner = ops.cast(ACTIVATIONS[self.config.hidden_act](inner), self.dtype)
        inner = self._linear(f"{at}.output.dense", inner, self.config.intermediate_size, size)
        return self._norm(f"{at}.output.LayerNorm", inner + ops.cast(x, DType.float32))

    def _linear(self, name: str, x: TensorValue, inputs: int, outputs: int) -> TensorValue:
        """The affine map, whose product is in the encoder's dtype and whose result is float32."""
        weight = ops.cast(self._weight(f"{name}.weight", outputs, inputs), self.dtype)
        return ops.cast(x @ weight.T, DType.float32) + self._weight(f"{name}.bias", outputs)

    def _norm(self, name: str, x: TensorValue) -> TensorValue:
        size = self.config.hidden_size
        gamma, beta = self._weight(f"{name}.weight", size), self._weight(f"{name}.bias", size)
        normal = ops.layer_norm(x, gamma, beta, epsilon=self.config.layer_norm_eps)
        return ops.cast(normal, self.dtype)

    def _weight(self, name: str, *shape: int) -> TensorValue:
        name = self.prefix + name
        return self.graph.add_weight(Weight(name, DType.float32, shape, DeviceRef.CPU()))


def sentence_embedder(
    config: BertConfig,
    name: str = "bert",
    prefix: str = "",
    types: bool = False,
    dtype: DType = DType.float32,
) -> Graph:
    """A graph from tokens to unit embeddings: the encoder, the mean over tokens, L2 normalisation.

    Inputs: `tokens` int32 [batch, sequence], `attention_mask` bool [batch, sequence] and, where
    `types` is true, `token_types` int32 [batch, sequence]. Output: `embeddings` float32 [batch,
    hidden_size]. Both sizes are symbolic: batch 1 to 1024, sequence 1 to the model's positions.
    The encoder computes in `dtype`; what follows it is float32.
    """
    batch = Dim("batch", 1, MAXIMUM_BATCH)
    sequence = Dim("sequence", 1, config.max_position_embeddings)

    def input_type(dtype: DType) -> TensorType:
        return TensorType(dtype, (batch, sequence), DeviceRef.CPU())

    inputs = {"tokens": input_type(DType.int32), "attention_mask": input_type(DType.bool)}
    if types:
        inputs["token_types"] = input_type(DType.int32)
    with Graph(name, input_types=list(inputs.values()), input_names=list(inputs)) as graph:
        tokens, mask, *rest = (value.tensor for value in graph.inputs)
        hidden = ops.cast(Encoder(graph, config, prefix, dtype)(tokens, mask, *rest), DType.float32)
        # The mean's divisor cancels in the normalisation, so the sum is enough.
        share = ops.cast(ops.reshape(mask, (batch, sequence, 1)), DType.float32)
        total = ops.reshape(ops.sum(hidden * share, axis=1), (batch, config.hidden_size))
        length = ops.rsqrt(ops.sum(total * total, axis=-1))
        graph.output(total * length, names=["embeddings"])
    return graph
