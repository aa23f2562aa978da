"""Tiny checkpoints with random weights, as Hugging Face would write them: BERT, and a decoder."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from heddle.graph import compile
from heddle.pipelines import weights
from heddle.pipelines.bench import limits, runner
from heddle.pipelines.checkpoint import Checkpoint
from heddle.pipelines.generation.generator import TextGenerator
from heddle.pipelines.generation.tokenizer import TextTokenizer
from heddle.pipelines.language_model import build as language_model_of
from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.pipelines.models.decoder.model import language_model
from heddle.pipelines.models.embedder import sentence_embedder
from heddle.pipelines.models.encoder.config import EncoderConfig
from heddle.pipelines.sentence_model import build
from heddle.runtime import InferenceSession, Model

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))
from bench_commands import LIMITS, timed
from decoder_weights import weight

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
    save_tokenizer(folder)
    return folder


def save_tokenizer(folder: Path) -> None:
    """Writes a tokenizer of `WORDS`; the second of two texts has tokens of type 1."""
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="session")
def reranker(tmp_path_factory, tiny_weights) -> Path:
    """The folder of a cross-encoder that is the tiny checkpoint with a classifier."""
    folder = tmp_path_factory.mktemp("reranker")
    more = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
    (folder / "config.json").write_text(json.dumps(CONFIG | more))
    arrays = {f"bert.{name}": array for name, array in tiny_weights.items()}
    arrays |= {f"classifier.{n}": weight(n, s) for n, s in (("weight", (1, 32)), ("bias", (1,)))}
    save_file(arrays, folder / "model.safetensors")
    save_tokenizer(folder)
    return folder


@pytest.fixture(scope="session")
def reranker_artifact(reranker) -> Path:
    """The same, compiled with its weights."""
    found = Checkpoint(reranker)
    graph = build(found, "reranker")
    arrays = weights.select(found.weights, graph.weights)
    path = reranker / "reranker.heddle"
    compile(graph, targets=["cpu:native"], weights=arrays, embed_weights=True).save(path)
    return path


def compiled(folder: Path, name: str, **options) -> Path:
    """An artifact of the checkpoint in `folder`, for this machine."""
    graph = sentence_embedder(EncoderConfig.read(folder / "config.json"), "tiny")
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


DECODER = {
    "model_type": "llama",
    "vocab_size": 260,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "eos_token_id": [257],
}

CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ bos_token }}"


@pytest.fixture(scope="session")
def decoder(tmp_path_factory) -> Path:
    """The folder of a decoder whose tokens are bytes, with its weights in two files."""
    folder = tmp_path_factory.mktemp("decoder")
    (folder / "config.json").write_text(json.dumps(DECODER))
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<s>", "</s>")])
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": CHAT}
    (folder / "tokenizer_config.json").write_text(json.dumps(special))
    graph = language_model(DecoderConfig.of(DECODER))
    arrays = {name: weight(name, tuple(map(int, w.shape))) for name, w in graph.weights.items()}
    files = {name: f"model-{'2' if 'layers.1' in name else '1'}.safetensors" for name in arrays}
    for file in set(files.values()):
        save_file({n: a for n, a in arrays.items() if files[n] == file}, folder / file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    return folder


@pytest.fixture(scope="session")
def decoder_model(decoder) -> Model:
    """The same, compiled and loaded in float32."""
    found = Checkpoint(decoder)
    graph = language_model_of(found)
    arrays = weights.select(found.weights, graph.weights)
    return InferenceSession(threads=2).load(compile(graph, "cpu:native"), arrays)


@pytest.fixture
def make_generator(decoder, decoder_model):
    """Makes a text generator of the decoder, with such options."""

    def make(**options) -> TextGenerator:
        return TextGenerator(decoder_model, TextTokenizer(decoder), **options)

    return make


@pytest.fixture
def cases(monkeypatch):
    """The cases that reach the runner; `answers` makes their rows."""
    seen = []

    def run(case):
        seen.append(case)
        return run.answers(case)

    run.answers = lambda case: [timed(case)]
    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(limits, "of", lambda threads, again=False: {**LIMITS, "threads": threads})
    return type("Cases", (), {"seen": seen, "run": run})
