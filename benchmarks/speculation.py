"""Speculative decoding: tokens a second by how many drafts a step has and how many are right.

    python benchmarks/speculation.py [--held int4] [--layers 4] [--threads 2]

Layers of Llama 3.2 1B with random weights and a vocabulary of 32768. A text is decoded alone, from
the contexts' tokens to their next ones, by `StepModel.run`. Drafts are what it is known to say: as
it is, with a wrong token in the middle, or in front. What is printed are tokens a second as ratios
to those without drafts, medians of texts that took turns.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial

import measure
import numpy as np
from decode import CONFIG, HELD
from gpu_decode import weight_of

from heddle.contexts import TextContext
from heddle.graph import DType, compile
from heddle.pipelines.generation.step import StepModel
from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.pipelines.models.decoder.model import language_model
from heddle.runtime import InferenceSession

VOCABULARY, CACHE, PROMPT, LENGTH, ROUNDS = 32768, 8192, 128, 64, 5

DRAFTS = (1, 2, 4, 8)

RIGHT: dict[str, Callable[[int], int]] = {
    "all": lambda count: count,
    "half": lambda count: count // 2,
    "none": lambda count: 0,
}
"""How many tokens of so many are right, from the first one on."""


def step_model(held: str, layers: int, threads: int) -> StepModel:
    """A model with room for a text and its drafts."""
    config = {**CONFIG, "num_hidden_layers": layers, "vocab_size": VOCABULARY}
    graph = language_model(DecoderConfig.of(config), "llama", DType.bfloat16, HELD[held])
    values = np.random.default_rng(0).standard_normal(1 << 22).astype(np.float32) * 0.02
    pool = (values.view(np.uint32) >> 16).astype(np.uint16)
    arrays = {
        name: weight_of(name, weight.dtype.name, tuple(map(int, weight.shape)), pool)
        for name, weight in graph.weights.items()
    }
    model = InferenceSession(threads=threads).load(compile(graph, "cpu"), arrays)
    return StepModel(model, 1, 2 * PROMPT, CACHE, max(DRAFTS))


def decode(step: StepModel, truth: list[int], count: int, right: int) -> list[int]:
    """The tokens of a text, whose steps have `count` drafts of which `right` are right."""
    prompt = np.random.default_rng(1).integers(0, VOCABULARY, PROMPT)
    context = TextContext(max_length=PROMPT + LENGTH, tokens=prompt)
    while not context.is_done:
        at = context.tokens.generated_length
        draft = truth[at : min(at + count, LENGTH - 1)]
        draft[right:] = [(token + 1) % VOCABULARY for token in draft[right:]]
        step.blocks.reserve(context, len(context.tokens) + len(draft))
        for token, entry in step.run([context], None, [draft]).following[0]:
            context.update(token, entry)
    step.blocks.release(context)
    tokens: list[int] = context.tokens.generated.tolist()
    assert tokens[: len(truth)] == truth[: len(tokens)], "drafts changed the text"
    return tokens


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--held", choices=list(HELD), default="int4")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    step = step_model(options.held, options.layers, options.threads)
    truth = decode(step, [], 0, 0)
    ways: dict[str, Callable[[], object]] = {"plain": partial(decode, step, truth, 0, 0)}
    for count in DRAFTS:
        for name, right in RIGHT.items():
            if count > 1 or name != "half":
                ways[f"{count} {name}"] = partial(decode, step, truth, count, right(count))
    times = measure.interleaved(ways, ROUNDS, 1)
    medians = {name: measure.median_ms(seconds) for name, seconds in times.items()}
    plain = medians.pop("plain")
    print(json.dumps({"tokens/s": round(1e3 * LENGTH / plain, 1), **measure.MACHINE}))
    print(json.dumps({name: round(plain / median, 2) for name, median in medians.items()}))


if __name__ == "__main__":
    main()
