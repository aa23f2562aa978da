"""A checkpoint of a language model as a graph, with the dtypes that its weights are stored in."""

from __future__ import annotations

from heddle.graph import DType, Graph
from heddle.pipelines import weights
from heddle.pipelines.checkpoint import Checkpoint
from heddle.pipelines.models.decoder import Quantization, language_model
from heddle.pipelines.models.decoder_config import DecoderConfig
from heddle.runtime.errors import GraphError

LAYERS, COMPUTED = "model.layers.", "rotary_emb.inv_freq"
"""What weights of layers begin with, and those end with that the configuration gives."""

FLOATS = ("float32", "bfloat16", "float16")


def build(
    found: Checkpoint, dtype: DType | None = None, quantization: Quantization | None = None
) -> Graph:
    """The graph of the checkpoint `found`; its weights are those of `weights.select`.

    Args:
        found: The checkpoint.
        dtype: What the model computes in; None: what its embeddings are stored in.
        quantization: How the weights of products are held; None: as they are stored.

    Raises:
        GraphError: It is a model that the graph does not compute, or weights are no floats, or of
            another model: the graph would leave some out.
        ArtifactError: A file is missing or damaged.
    """
    config = DecoderConfig.read(found.config)
    stored = {}
    arrays = weights.read(found.weights)
    for name, array in arrays.items():
        kind = weights.dtype_of(array)
        if kind in FLOATS:
            stored[name] = DType(kind)
    embeddings = "model.embed_tokens.weight"
    if embeddings not in stored:
        raise GraphError(
            f"{found.weights}: wanted {embeddings} in {', '.join(FLOATS)}, got none of them"
        )
    name = found.folder.resolve().name
    graph = language_model(config, name, dtype or stored[embeddings], quantization, stored)
    used = {weight.removesuffix(".integers") for weight in graph.weights}
    for weight in arrays:
        known = weight in graph.weights or weight.removesuffix(".weight") in used
        if weight.startswith(LAYERS) and not known and not weight.endswith(COMPUTED):
            raise GraphError(
                f"{found.weights}: wanted the weights of the model in {found.config}, got also "
                f"{weight}: see num_hidden_layers and the keys for biases there"
            )
    return graph
