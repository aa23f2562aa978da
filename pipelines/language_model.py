"""A checkpoint of a language model as a graph, with the dtypes that its weights are stored in."""

from __future__ import annotations

from heddle.graph import DType, Graph
from heddle.pipelines import weights
from heddle.pipelines.checkpoint import Checkpoint
from heddle.pipelines.models.llama import Quantization, language_model
from heddle.pipelines.models.llama_config import LlamaConfig
from heddle.runtime.errors import GraphError

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
        GraphError: It is a model that the graph does not compute, or weights are no floats.
        ArtifactError: A file is missing or damaged.
    """
    config = LlamaConfig.read(found.config)
    stored = {}
    for name, array in weights.read(found.weights).items():
        kind = weights.dtype_of(array)
        if kind in FLOATS:
            stored[name] = DType(kind)
    embeddings = "model.embed_tokens.weight"
    if embeddings not in stored:
        raise GraphError(
            f"{found.weights}: wanted {embeddings} in {', '.join(FLOATS)}, got none of them"
        )
    name = found.folder.resolve().name
    return language_model(config, name, dtype or stored[embeddings], quantization, stored)
