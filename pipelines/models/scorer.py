"""Cross-encoders as graphs: a pair of texts as one sequence in, one number out.

What is behind the encoder is that of the `...ForSequenceClassification` of the model's family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from heddle.graph import DType, Graph, TensorValue, ops
from heddle.pipelines.models.activations import ACTIVATIONS
from heddle.pipelines.models.config_values import Values
from heddle.pipelines.models.embedder import text_inputs
from heddle.pipelines.models.encoder.config import EncoderConfig
from heddle.pipelines.models.encoder.layers import Layers
from heddle.pipelines.models.encoder.model import Encoder
from heddle.pipelines.models.pooling import pool

ARCHITECTURE = "ForSequenceClassification"
"""How the name of such a model's class ends."""

FINISHES: dict[str, Callable[[TensorValue], TensorValue]] = {
    "torch.nn.modules.activation.Sigmoid": ops.sigmoid,
    "torch.nn.modules.linear.Identity": lambda x: x,
}
"""What sentence-transformers lets a model say of its score's last step."""


@dataclass(frozen=True)
class ScorerConfig:
    """What follows the encoder.

    Attributes:
        dense: The name of the first product; `{}` is the prefix of the encoder's weights.
        out: The name of the last one.
        activation: What is between them.
        norm: The name of the norm behind the activation, or none.
        dense_bias: Whether the first product has a bias.
        pooling: The mode of `heddle.pipelines.models.pooling`.
        finish: A key of `FINISHES`.
    """

    dense: str
    out: str
    activation: str = "tanh"
    norm: str | None = None
    dense_bias: bool = True
    pooling: str = "cls"
    finish: str = "torch.nn.modules.activation.Sigmoid"

    @staticmethod
    def read(path: Path) -> ScorerConfig:
        """What the JSON file `path`, a model's `config.json`, says.

        Raises:
            GraphError: As `EncoderConfig.read`.
        """
        return _config(Values.read(path))

    @staticmethod
    def of(values: Mapping[str, object]) -> ScorerConfig:
        """As `read`, from the keys and values of a `config.json`."""
        return _config(Values(values))


def _config(values: Values) -> ScorerConfig:
    labels = values.object("id2label").all()
    count = len(labels) or values.count("num_labels", default=2)
    if count != 1:
        raise values.error("num_labels", "1, which is a pair's score", count)
    newer = values.object("sentence_transformers")
    finish = newer.choice(
        "activation_fn",
        among=FINISHES,
        default=values.choice(
            "sbert_ce_default_activation_function",
            among=FINISHES,
            default="torch.nn.modules.activation.Sigmoid",
        ),
    )
    kind = values.choice("model_type", among=_HEADS)
    dense, out, activation = _HEADS[kind]
    if kind != "modernbert":
        return ScorerConfig(dense, out, activation, finish=finish)
    return ScorerConfig(
        dense,
        out,
        values.choice("classifier_activation", among=ACTIVATIONS, default=activation),
        norm="head.norm",
        dense_bias=values.flag("classifier_bias", default=False),
        pooling=values.choice("classifier_pooling", among=("cls", "mean"), default="cls"),
        finish=finish,
    )


_POOLER = ("{}pooler.dense", "classifier", "tanh")
_CLASSIFIER = ("classifier.dense", "classifier.out_proj", "tanh")

_HEADS = {
    "bert": _POOLER,
    "nomic_bert": _POOLER,
    "roberta": _CLASSIFIER,
    "xlm-roberta": _CLASSIFIER,
    "mpnet": _CLASSIFIER,
    "distilbert": ("pre_classifier", "classifier", "relu"),
    "modernbert": ("head.dense", "classifier", "gelu"),
}
"""Of each family the names of both products, and the activation between them."""


def pair_scorer(
    config: EncoderConfig,
    scorer: ScorerConfig,
    name: str = "scorer",
    prefix: str = "",
    dtype: DType = DType.float32,
    stored: Mapping[str, DType] | None = None,
) -> Graph:
    """A graph from pairs of texts to scores: the higher, the better they go together.

    Inputs: those of `heddle.pipelines.models.embedder.text_inputs`; `token_types`, which are 1 in
    the second text, where the model has a table of more than one. Output: `scores` float32 [batch].
    Arguments are as of `sentence_embedder`; what follows the encoder computes in `dtype`, too.
    """
    inputs = text_inputs(config, config.type_vocab_size > 1)
    with Graph(name, input_types=list(inputs.values()), input_names=list(inputs)) as graph:
        tokens, mask, *rest = (value.tensor for value in graph.inputs)
        layers = Layers(graph, dtype, stored)
        hidden = ops.cast(Encoder(layers, config, prefix)(tokens, mask, *rest), DType.float32)
        vector = pool(hidden, mask, scorer.pooling)
        inner = layers.linear(
            scorer.dense.format(prefix), vector, config.hidden_size, scorer.dense_bias
        )
        inner = ACTIVATIONS[scorer.activation](inner)
        if scorer.norm:
            inner = layers.norm(scorer.norm, inner, config.layer_norm_eps, config.norm_bias)
        score = FINISHES[scorer.finish](layers.linear(scorer.out, inner, 1))
        graph.output(ops.reshape(score, (tokens.shape[0],)), names=["scores"])
    return graph
