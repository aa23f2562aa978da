"""A checkpoint of an encoder as a graph: an embedder of sentences, or a scorer of pairs."""

from __future__ import annotations

from collections.abc import Iterable

from heddle.graph import DType, Graph
from heddle.pipelines import weights
from heddle.pipelines.checkpoint import Checkpoint
from heddle.pipelines.models.config_values import Values
from heddle.pipelines.models.embedder import sentence_embedder
from heddle.pipelines.models.encoder.config import EncoderConfig
from heddle.pipelines.models.encoder.names import NAMES
from heddle.pipelines.models.scorer import ARCHITECTURE, ScorerConfig, pair_scorer
from heddle.pipelines.sentence_head import read_head
from heddle.pipelines.stored.product import FLOATS
from heddle.runtime.errors import GraphError

COMPUTED = ("rotary_emb.inv_freq",)
"""How weights of layers end that the configuration gives."""


def build(found: Checkpoint, name: str, dtype: DType | None = None) -> Graph:
    """The graph of the checkpoint `found`; its weights are those of `weights.select`.

    It is `pair_scorer` where the model's class is one for classification and no module pools, else
    `sentence_embedder` with what the folder says, by default the mean over tokens, of length 1.

    Args:
        found: The checkpoint.
        name: The graph's name.
        dtype: What the model computes in; None: float32.

    Raises:
        GraphError: It is a model that the graph does not compute, or weights are no floats, or of
            another model: the graph would leave some out.
        ArtifactError: A file is missing or damaged.
    """
    config = EncoderConfig.read(found.config)
    arrays = weights.read(found.weights)
    kinds = {weight: weights.dtype_of(array) for weight, array in arrays.items()}
    stored = {weight: DType(kind) for weight, kind in kinds.items() if kind in FLOATS}
    names = NAMES[config.model_type]
    prefix = weights.prefix(arrays, f"{names.words}.weight")
    computed = dtype or DType.float32
    head = read_head(found.folder)
    if head is None and _classifies(Values.read(found.config)):
        scorer = ScorerConfig.read(found.config)
        graph = pair_scorer(config, scorer, name, prefix, computed, stored)
    else:
        graph = sentence_embedder(config, name, prefix, dtype=computed, stored=stored, head=head)
    layers = prefix + names.layer.partition("{")[0]
    _check_all_used(found, [weight for weight in arrays if weight.startswith(layers)], graph)
    return graph


def _classifies(values: Values) -> bool:
    classes = values.get("architectures", default=[])
    if not isinstance(classes, list) or not all(isinstance(each, str) for each in classes):
        raise values.error("architectures", "a list of texts", classes)
    return any(each.endswith(ARCHITECTURE) for each in classes)


def _check_all_used(found: Checkpoint, names: Iterable[str], graph: Graph) -> None:
    for name in names:
        if name not in graph.weights and not name.endswith(COMPUTED):
            raise GraphError(
                f"{found.weights}: wanted the weights of the model in {found.config}, got also "
                f"{name}"
            )
