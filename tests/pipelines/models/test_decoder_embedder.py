"""Embeddings by decoders, beside the hidden states that their recorded logits are made of."""

import json

import numpy as np
import pytest
from decoder_cases import GOLDEN, config_of, drawn
from safetensors.numpy import save_file

from heddle.graph import DType, compile
from heddle.pipelines import weights
from heddle.pipelines.checkpoint import Checkpoint
from heddle.pipelines.language_model import build
from heddle.pipelines.models.products import AS_STORED, Quantization
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError

LENGTHS = (9, 30, 1, 23)


def folder_of(folder, name, mode="lasttoken", prefix="", normalized=False):
    """A decoder's checkpoint with the files of sentence-transformers beside it."""
    values = config_of(name)
    arrays = {key.replace("model.", prefix, 1): array for key, array in drawn(values).items()}
    save_file(arrays, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(values))
    kinds = ("Transformer", "Pooling", "Normalize")[: 3 if normalized else 2]
    rows = [
        {"type": f"sentence_transformers.models.{kind}", "path": "" if kind == kinds[0] else kind}
        for kind in kinds
    ]
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "Pooling").mkdir()
    (folder / "Pooling/config.json").write_text(json.dumps({"pooling_mode": mode}))
    return Checkpoint(folder)


def embedded(found, dtype=DType.float32, quantization=AS_STORED) -> np.ndarray:
    """Of the first so many recorded tokens each; what fills up their rows is token 7."""
    graph = build(found, dtype, quantization)
    arrays = weights.select(found.weights, graph.weights)
    model = InferenceSession(threads=2).load(compile(graph, "cpu:native"), arrays)
    tokens = GOLDEN[f"{json.loads(found.config.read_text())['model_type']}.tokens"]
    mask = np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]
    rows = np.where(mask, tokens[: max(LENGTHS)], 7).astype(np.int32)
    (vectors,) = model.execute(rows, mask)
    return vectors.to_numpy()


def logits(vectors: np.ndarray, name: str) -> np.ndarray:
    """What tied embeddings make of hidden states."""
    return vectors @ drawn(config_of(name))["model.embed_tokens.weight"].T


@pytest.mark.parametrize(("name", "prefix"), [("qwen3", ""), ("qwen3", "model."), ("gemma", "x.")])
def test_the_last_token_of_each_text(tmp_path, name, prefix):
    wanted = np.stack([GOLDEN[f"{name}.logits"][length - 1] for length in LENGTHS])
    found = embedded(folder_of(tmp_path, name, prefix=prefix))
    atol = 1e-5 * np.abs(wanted).max()
    np.testing.assert_allclose(logits(found, name), wanted, atol=atol)


def test_the_mean_of_length_1(tmp_path):
    found = embedded(folder_of(tmp_path, "qwen3", mode="mean", normalized=True))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    one, means = logits(found, "qwen3"), GOLDEN["qwen3.logits"]
    for row, length in zip(one, LENGTHS, strict=True):
        mean = means[:length].mean(axis=0)
        np.testing.assert_allclose(row / row.max(), mean / mean.max(), atol=1e-4)


def test_weights_in_8_bits(tmp_path):
    found = folder_of(tmp_path, "qwen3", normalized=True)
    plain, small = embedded(found), embedded(found, quantization=Quantization(8, 32))
    cosines = (plain * small).sum(axis=1)
    assert 0.995 < cosines.min() < cosines.max() < 1 - 1e-7


def test_weights_of_another_model(tmp_path):
    found = folder_of(tmp_path, "qwen3")
    arrays = dict(weights.read(found.weights))
    save_file(arrays | {"layers.7.mlp.up_proj.weight": np.ones(3)}, found.weights)
    with pytest.raises(GraphError, match=r"got also layers\.7\.mlp\.up_proj\.weight"):
        build(found)
    save_file({"norm.weight": np.ones(3)}, found.weights)
    with pytest.raises(GraphError, match=r"wanted model\.embed_tokens\.weight in float32, "):
        build(found)
