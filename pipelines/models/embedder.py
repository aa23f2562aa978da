"""Sentence embedders as graphs: an encoder, a pooling, and what a checkpoint has behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heddle.graph import DeviceRef, Dim, DType, Graph, TensorType, TensorValue, ops
from heddle.pipelines.models.activations import ACTIVATIONS
from heddle.pipelines.models.decoder.attention import Whole
from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.pipelines.models.decoder.model import Decoder
from heddle.pipelines.models.decoder.traits import ModelNames
from heddle.pipelines.models.encoder.config import EncoderConfig
from heddle.pipelines.models.encoder.layers import Layers
from heddle.pipelines.models.encoder.model import Encoder
from heddle.pipelines.models.pooling import pool
from heddle.pipelines.models.products import Products, Quantization

MAXIMUM_BATCH = 1024

LEAST = 1e-12
"""The length by which a shorter vector is divided, as PyTorch's `normalize` has it: 0 stays 0."""


@dataclass(frozen=True)
class Dense:
    """An affine map of the pooled vector, and its activation, one of `ACTIVATIONS`, or none.

    `weight` is float32 [outputs, inputs], `bias` float32 [outputs] or None.
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32] | None
    activation: str | None

    def __call__(self, graph: Graph, x: TensorValue) -> TensorValue:
        """Its value, float32 [..., outputs]."""
        result = x @ graph.constant(self.weight).T
        if self.bias is not None:
            result = result + graph.constant(self.bias)
        return ACTIVATIONS[self.activation](result) if self.activation else result


@dataclass(frozen=True)
class Head:
    """What makes the embedding of the vectors of tokens.

    Attributes:
        modes: Modes of `heddle.pipelines.models.pooling`, whose vectors stand side by side.
        dense: What the pooled vector goes through.
        normalized: Whether the embedding has length 1.
    """

    modes: tuple[str, ...] = ("mean",)
    dense: tuple[Dense, ...] = ()
    normalized: bool = True

    def __call__(self, graph: Graph, hidden: TensorValue, mask: TensorValue) -> TensorValue:
        """float32 [batch, width] of float32 [batch, sequence, hidden_size]."""
        # Where the length is made 1, the divisor of a lone mean cancels.
        undivided = self.normalized and not self.dense and len(self.modes) == 1
        pooled = [pool(hidden, mask, mode, undivided) for mode in self.modes]
        vector = pooled[0] if len(pooled) == 1 else ops.concat(pooled, axis=1)
        for dense in self.dense:
            vector = dense(graph, vector)
        if self.normalized:
            vector = vector * ops.rsqrt(ops.max(ops.sum(vector * vector, axis=-1), LEAST**2))
        return vector


def text_inputs(config: EncoderConfig | DecoderConfig, types: bool) -> dict[str, TensorType]:
    """`tokens` int32, `attention_mask` bool and, with `types`, `token_types` int32.

    All are [batch, sequence]: batch 1 to 1024, sequence 1 to the model's positions.
    """
    batch = Dim("batch", 1, MAXIMUM_BATCH)
    sequence = Dim("sequence", 1, config.max_position_embeddings)
    dtypes = {"tokens": DType.int32, "attention_mask": DType.bool}
    if types:
        dtypes["token_types"] = DType.int32
    shape, device = (batch, sequence), DeviceRef.CPU()
    return {name: TensorType(dtype, shape, device) for name, dtype in dtypes.items()}


def sentence_embedder(
    config: EncoderConfig,
    name: str = "bert",
    prefix: str = "",
    types: bool = False,
    dtype: DType = DType.float32,
    stored: Mapping[str, DType] | None = None,
    head: Head | None = None,
) -> Graph:
    """A graph from tokens to embeddings.

    Inputs: those of `text_inputs`. Output: `embeddings` float32 [batch, width].

    Args:
        config: The encoder's.
        name: The graph's name.
        prefix: What the checkpoint puts before its weights' names.
        types: Whether the segments of tokens are an input; without it all are 0.
        dtype: What the encoder computes in; what follows it is float32.
        stored: The dtype of each weight in the checkpoint, by name; of others it is float32.
        head: What follows the encoder; None: the mean over tokens, of length 1.
    """
    inputs = text_inputs(config, types)
    with Graph(name, input_types=list(inputs.values()), input_names=list(inputs)) as graph:
        tokens, mask, *rest = (value.tensor for value in graph.inputs)
        encoder = Encoder(Layers(graph, dtype, stored), config, prefix)
        hidden = ops.cast(encoder(tokens, mask, *rest), DType.float32)
        graph.output((head or Head())(graph, hidden, mask), names=["embeddings"])
    return graph


def decoder_embedder(
    config: DecoderConfig,
    head: Head,
    name: str = "decoder",
    names: ModelNames | None = None,
    dtype: DType = DType.float32,
    quantization: Quantization | None = None,
    stored: Mapping[str, DType] | None = None,
    held: Mapping[str, Quantization] | None = None,
) -> Graph:
    """As `sentence_embedder`, with a decoder's layers (E5-Mistral, arXiv:2401.00368).

    Args:
        config: The decoder's.
        head: What follows its last norm.
        name: The graph's name.
        names: What the checkpoint calls weights outside of layers; None: as its family does.
        dtype: What the decoder computes in; what follows it is float32.
        quantization: How the weights of products are held; None: as they are stored.
        stored: The dtype of each weight in the checkpoint, by name; of others it is `dtype`.
        held: The quantization of products that have one of their own, by name.
    """
    inputs = text_inputs(config, types=False)
    with Graph(name, input_types=list(inputs.values()), input_names=list(inputs)) as graph:
        tokens, mask = (value.tensor for value in graph.inputs)
        batch, sequence = tokens.shape
        decoder = Decoder(config, Products(graph, dtype, quantization, stored, held), names)
        places = ops.broadcast_to(ops.range(sequence), (batch, sequence))
        flat, positions = (ops.reshape(x, (batch * sequence,)) for x in (tokens, places))
        hidden, _ = decoder(flat, positions, Whole(batch, sequence))
        rows = ops.reshape(decoder.normal(hidden), (batch, sequence, config.hidden_size))
        graph.output(head(graph, rows, mask), names=["embeddings"])
    return graph
