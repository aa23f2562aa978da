"""The encoders and cross-encoders that `encoders.npz` has references of."""

import json
from pathlib import Path

import numpy as np
from encoder_weights import weight

from heddle.graph import DType, Graph, compile, ops
from heddle.pipelines.models.embedder import text_inputs
from heddle.pipelines.models.encoder.config import EncoderConfig
from heddle.pipelines.models.encoder.layers import Layers
from heddle.pipelines.models.encoder.model import Encoder
from heddle.runtime import InferenceSession

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "encoders.npz")

ENCODERS = sorted(name.rpartition(".")[0] for name in GOLDEN.files if name.endswith(".hidden"))
SCORERS = sorted(name.rpartition(".")[0] for name in GOLDEN.files if name.endswith(".logits"))


def config_of(name: str) -> dict:
    """The `config.json` of a model."""
    return json.loads(GOLDEN[f"{name}.config"].tobytes())


def inputs_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and mask."""
    tokens = GOLDEN[f"{name}.tokens"]
    return tokens, np.arange(tokens.shape[1]) < GOLDEN[f"{name}.lengths"][:, None]


def drawn(graph: Graph) -> dict[str, np.ndarray]:
    """The float32 weights of a graph, by the names that it asks for."""
    return {name: weight(name, tuple(map(int, w.shape))) for name, w in graph.weights.items()}


def encoder_graph(values: dict, dtype=DType.float32, prefix="", stored=None) -> Graph:
    """A graph from tokens to hidden states, float32."""
    config = EncoderConfig.of(values)
    inputs = text_inputs(config, types=False)
    with Graph("encoder", list(inputs.values()), input_names=list(inputs)) as graph:
        encoder = Encoder(Layers(graph, dtype, stored), config, prefix)
        hidden = encoder(*(value.tensor for value in graph.inputs))
        graph.output(ops.cast(hidden, DType.float32))
    return graph


def run(graph: Graph, arrays: dict, *inputs) -> np.ndarray:
    """The one output of a graph that is compiled for this machine."""
    model = InferenceSession(threads=2).load(compile(graph, "cpu:native"), arrays)
    (found,) = model.execute(*inputs)
    return found.to_numpy()
