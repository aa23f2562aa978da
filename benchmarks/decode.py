"""A language model of 1B shape: tokens a second of decoding and of prompts, beside the bounds.

    python benchmarks/decode.py [--held int8] [--peer llama.cpp] [--threads 2] [--save]

Held in int8 or int4, it is measured as well with activations in int8, which is what the peer does.

The shape is that of Llama 3.2 1B with its whole vocabulary; weights are random. A decoding step is
`StepModel.run` with one context, or eight: from the contexts' tokens to their next ones, the cache
of a few hundred tokens in between. A prompt is one step of 512 tokens. Four ways to hold weights:
bfloat16, int8 and int4 in groups of 32, and 4 bits with minimums, too, as Heddle holds what
llama.cpp calls Q4_K; the others it calls BF16, Q8_0 and Q4_0. The bound of
a decoding step is the time in which a kernel that only reads reads as many bytes as the step's
weights and cache have, measured in turns with it. The peer (`pip install llama-cpp-python gguf`)
gets a GGUF file of the same sizes, and its steps end before a token is chosen.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import measure
import numpy as np
import skinny
from gpu_decode import weight_of

from heddle.contexts import TextContext
from heddle.graph import DType, Graph, compile
from heddle.pipelines.generation.step import StepModel
from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.pipelines.models.decoder.model import language_model
from heddle.pipelines.models.products import Quantization
from heddle.runtime import InferenceSession

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
}

HELD = {
    "bfloat16": None,
    "int8": Quantization(8, 32),
    "int4": Quantization(4, 32),
    "q4_k": Quantization(4, 32, minimums=True, scales=DType.float16),
}

INTEGERS = "heddle with int8"
"""The candidate whose activations are integers."""

PROMPT, BATCH, LENGTH, CACHE = 512, 8, 128, 8192
"""Tokens of a prompt step, contexts of a batch, tokens before the first decoding step, cache."""

ROUNDS = {"decode": (11, 3), f"decode of {BATCH}": (7, 3), "prompt": (3, 1)}
"""For each phase rounds, and calls in a turn."""

Call = Callable[[], object]


def step_bytes(graph: Graph) -> int:
    """Bytes of the weights that a decoding step reads: all but embeddings that only give rows."""
    tied = "lm_head" not in " ".join(graph.weights)
    quantized = any(name.endswith(".integers") for name in graph.weights)
    return sum(
        math.prod(map(int, weight.shape)) * weight.dtype.size
        for name, weight in graph.weights.items()
        if name != "model.embed_tokens.weight" or (tied and not quantized)
    )


def heddle_calls(
    held: Quantization | None, session: InferenceSession
) -> tuple[dict[str, Call], int]:
    """A call for each phase, and the bytes of weights that a decoding step reads."""
    graph = language_model(DecoderConfig.of(CONFIG), "llama", DType.bfloat16, held)
    values = np.random.default_rng(0).standard_normal(1 << 22).astype(np.float32) * 0.02
    pool = (values.view(np.uint32) >> 16).astype(np.uint16)
    arrays = {
        name: weight_of(name, weight.dtype.name, tuple(map(int, weight.shape)), pool)
        for name, weight in graph.weights.items()
    }
    model = session.load(compile(graph, "cpu"), arrays)
    step = StepModel(model, BATCH, PROMPT * 2, CACHE)
    seeds = count()

    def begun(length: int) -> TextContext:
        """A context that has a prompt of its own to process."""
        tokens = np.random.default_rng(next(seeds)).integers(0, CONFIG["vocab_size"], length)
        context = TextContext(max_length=CACHE, tokens=tokens)
        assert step.blocks.reserve(context, length)
        return context

    def run(contexts: list[TextContext]) -> None:
        for context in contexts:
            assert step.blocks.reserve(context, len(context.tokens))
        assert not step.run(contexts).refused

    def prompt() -> None:
        context = begun(PROMPT)
        run([context])
        step.blocks.release(context)

    def decoding(rows: int) -> Call:
        contexts = [begun(LENGTH) for _ in range(rows)]
        for context in contexts:
            run([context])
        return lambda: run(contexts)

    calls = {"decode": decoding(1), f"decode of {BATCH}": decoding(BATCH), "prompt": prompt}
    return calls, step_bytes(graph)


def cache_bytes(length: int) -> int:
    """Bytes of keys and values of `length` tokens."""
    heads, size = CONFIG["num_key_value_heads"], CONFIG["head_dim"]
    return int(2 * 2 * CONFIG["num_hidden_layers"] * heads * size * length)


def phase_row(held: str, phase: str, medians: dict[str, float], read: float, nbytes: int) -> Any:
    """The figures of a phase from milliseconds, GB/s and the bytes of a step's weights."""
    rows = BATCH if phase.startswith("decode of") else 1
    tokens = PROMPT if phase == "prompt" else rows
    row: dict[str, Any] = {"weights": held, "phase": phase, "median_ms": medians}
    row["tokens/s"] = round(1e3 * tokens / medians["heddle"], 1)
    row["read GB/s"] = round(read, 1)
    if phase != "prompt":
        bound = (nbytes + rows * cache_bytes(LENGTH)) / read / 1e6
        row["of read bandwidth"] = round(bound / medians["heddle"], 3)
    if "llama.cpp" in medians:
        row["ratio"] = round(medians["llama.cpp"] / medians["heddle"], 3)
        if INTEGERS in medians:
            row["ratio with int8"] = round(medians["llama.cpp"] / medians[INTEGERS], 3)
    return row


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", choices=["llama.cpp"])
    parser.add_argument("--held", choices=list(HELD), default="bfloat16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    session = InferenceSession(threads=options.threads)
    held = HELD[options.held]
    calls, nbytes = heddle_calls(held, session)
    found: dict[str, dict[str, Call]] = {"heddle": calls}
    if held:
        found[INTEGERS], _ = heddle_calls(replace(held, activations="int8"), session)
    rows, rates = [], []
    with tempfile.TemporaryDirectory() as folder:
        if options.peer:
            import llama_cpp_peer

            path = Path(folder) / "model.gguf"
            llama_cpp_peer.write(path, CONFIG, options.held)
            found["llama.cpp"] = llama_cpp_peer.calls(path, CONFIG, options.threads, calls)
        reading = skinny.reading(session)
        for phase, (rounds, turn) in ROUNDS.items():
            candidates = {name: each[phase] for name, each in found.items()}
            times = measure.interleaved({**candidates, "read": reading}, rounds, turn)
            medians = {name: measure.median_ms(seconds) for name, seconds in times.items()}
            rates.append(skinny.READ / medians.pop("read") / 1e6)
            rows.append(phase_row(options.held, phase, medians, rates[-1], nbytes))
            print(json.dumps(rows[-1]), flush=True)
    if options.save:
        figures = {"threads": options.threads, "rows": rows}
        if options.peer:
            figures["llama-cpp-python"] = version("llama-cpp-python")
        print(measure.save(f"decode_{options.held}", figures))


if __name__ == "__main__":
    main()
