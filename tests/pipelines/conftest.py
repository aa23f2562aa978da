"""A tiny BERT checkpoint with random weights, as Hugging Face would write it."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from heddle.graph import compile
from heddle.pipelines.models.bert import BertConfig, sentence_embedder

CONFIG = {
    "model_type": "bert",
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 24,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
}

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "warp", "weft", "shed", "loom", "thread", "reed")


def shapes(config: dict) -> dict[str, tuple[int, ...]]:
    """The tensors of a checkpoint, written down independently of the model's code."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    rows = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], width),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], width),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], width),
        "embeddings.LayerNorm.weight": (width,),
        "embeddings.LayerNorm.bias": (width,),
        "pooler.dense.weight": (width, width),
        "pooler.dense.bias": (width,),
    }
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}"
        for name, outputs, inputs in (
            ("attention.self.query", width, width),
            ("attention.self.key", width, width),
            ("attention.self.value", width, width),
            ("attention.output.dense", width, width),
            ("intermediate.dense", inner, width),
            ("output.dense", width, inner),
        ):
            rows[f"{at}.{name}.weight"] = (outputs, inputs)
            rows[f"{at}.{name}.bias"] = (outputs,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            rows[f"{at}.{name}.weight"] = rows[f"{at}.{name}.bias"] = (width,)
    return rows


@pytest.fixture(scope="session")
def tiny_weights() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(5)
    return {
        name: (generator.standard_normal(shape) * 0.3 + name.endswith("Norm.weight")).astype("f4")
        for name, shape in shapes(CONFIG).items()
    }


@pytest.fixture(scope="session")
def tiny(tmp_path_factory, tiny_weights) -> Path:
    """The checkpoint's folder."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file(tiny_weights, folder / "model.safetensors")
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def compiled(folder: Path, name: str, **options) -> Path:
    """An artifact of the checkpoint in `folder`, for this machine."""
    graph = sentence_embedder(BertConfig.read(folder / "config.json"), "tiny")
    path = folder / name
    compile(graph, targets=["cpu:native"], **options).save(path)
    return path


@pytest.fixture(scope="session")
def tiny_artifact(tiny, tiny_weights) -> Path:
    """The checkpoint, compiled with its weights embedded."""
    arrays = {name: a for name, a in tiny_weights.items() if not name.startswith("pooler.")}
    return compiled(tiny, "tiny.heddle", weights=arrays, embed_weights=True)


@pytest.fixture(scope="session")
def bare_artifact(tiny) -> Path:
    """The same, compiled without ever seeing the weights."""
    return compiled(tiny, "bare.heddle")
