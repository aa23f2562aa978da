"""Several prompts through one language model, step by step: who joins, who ends, what it costs.

python examples/generate.py [MODEL_FOLDER] [PROMPT ...]

Without a folder it makes a model of its own: random weights, bytes as tokens. That is as fast to
look at as it is silly to read.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from heddle.contexts import SamplingParams, TextGenerationRequest
from heddle.graph import compile
from heddle.pipelines import language_model, weights
from heddle.pipelines.checkpoint import Checkpoint
from heddle.pipelines.generation.generator import TextGenerator
from heddle.pipelines.generation.tokenizer import TextTokenizer
from heddle.pipelines.models.decoder import model as decoder
from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.runtime import HeddleError, InferenceSession

PROMPTS = ("Once upon a time", "The warp and the weft", "To weave is to")

CONFIG = {
    "model_type": "llama",
    "vocab_size": 258,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 256,
}


def make_model(folder: Path) -> None:
    """Writes a checkpoint as Hugging Face would: configuration, tokenizer, weights."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("</s>", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    rng = np.random.default_rng(0)
    header: dict[str, object] = {}
    parts: list[bytes] = []
    at = 0
    for name, weight in decoder.language_model(DecoderConfig.of(CONFIG)).weights.items():
        shape = tuple(map(int, weight.shape))
        parts.append((rng.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32).tobytes())
        offsets = [at, at := at + len(parts[-1])]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": offsets}
    text = json.dumps(header).encode()
    start = len(text).to_bytes(8, "little")
    (folder / "model.safetensors").write_bytes(b"".join([start, text, *parts]))


def load(folder: Path) -> TextGenerator:
    """The checkpoint in `folder`, compiled for this CPU."""
    found = Checkpoint(folder)
    graph = language_model.build(found)
    model = weights.load(InferenceSession(), compile(graph, "cpu:native"), found.weights)
    return TextGenerator(model, TextTokenizer(folder))


def main(folder: Path, prompts: tuple[str, ...]) -> None:
    """Submits a prompt every third step, runs until all have ended, prints what happened."""
    generator = load(folder)
    params = SamplingParams(max_new_tokens=32, temperature=0.8, top_k=40, seed=1)
    waiting = [
        TextGenerationRequest(
            id=prompt, index=i, model_name="", prompt=prompt, sampling_params=params
        )
        for i, prompt in enumerate(prompts)
    ]
    table = Table("request", "joined", "ended", "why", "text", title="Requests and their steps")
    texts: dict[str, str] = {}
    joined: dict[str, int] = {}
    step = tokens = 0
    start = time.perf_counter()
    while waiting or generator.busy:
        if waiting and step % 3 == 0:
            joined[generator.submit(waiting.pop(0))] = step
        for delta in generator.step():
            tokens += len(delta.tokens)
            texts[delta.request_id] = texts.get(delta.request_id, "") + delta.text
            if delta.finish_reason:
                text = repr(texts[delta.request_id])
                first = str(joined[delta.request_id])
                table.add_row(delta.request_id, first, str(step), delta.finish_reason, text)
        step += 1
    seconds = time.perf_counter() - start
    console = Console()
    console.print(table)
    console.print(f"{tokens} tokens in {step} steps and {1e3 * seconds:.0f} ms")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        if not sys.argv[1:]:
            make_model(Path(made))
        try:
            main(Path(*sys.argv[1:2] or [made]), tuple(sys.argv[2:]) or PROMPTS)
        except HeddleError as error:
            sys.exit(f"error: {error}")
