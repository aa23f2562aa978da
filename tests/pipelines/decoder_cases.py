"""What is recorded of decoders, and their graphs on one sequence."""

import json
from pathlib import Path

import numpy as np
from decoder_weights import weight

from heddle.graph.reference import evaluate
from heddle.pipelines.models.decoder.config import DecoderConfig
from heddle.pipelines.models.decoder.model import language_model

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "decoders.npz")

PROMPT = 23
"""Tokens of the recorded prompts."""


def config_of(name: str) -> dict:
    return json.loads(GOLDEN[f"{name}.config"].tobytes())


def drawn(values: dict) -> dict:
    """The float32 weights of a model."""
    graph = language_model(DecoderConfig.of(values))
    return {name: weight(name, tuple(map(int, w.shape))) for name, w in graph.weights.items()}


def arguments(config: DecoderConfig, tokens, start: int, places) -> list:
    """What a step takes, but for caches, of `tokens`, of which the first is number `start`."""
    count, samples = len(tokens), len(places)
    return [
        np.asarray(tokens),
        np.arange(start, start + count),
        np.array([0, count]),
        np.array([start + count]),
        np.array([[3, 1, 7, 2, 0, 5]], np.int32),
        np.asarray(places, np.int64),
        np.zeros((samples, 6), np.float32),
        np.zeros((samples, 2), np.int64),
        np.zeros((0, 2), np.int64),
        np.zeros(samples + 1, np.int64),
        np.full((samples, -(-config.vocab_size // 32)), -1, np.int32),
    ]


def check(decoder, name: str) -> None:
    """Whether a model finds what is recorded, whole, in chunks and token by token."""
    tokens, wanted = GOLDEN[f"{name}.tokens"], GOLDEN[f"{name}.logits"]
    count = len(tokens)
    chosen, whole = decoder.step(tokens, 0, range(count))
    atol = 6e-6 * np.abs(wanted).max()
    np.testing.assert_allclose(whole, wanted, atol=atol)
    assert GOLDEN[f"{name}.gap"] > 10 * np.abs(whole - wanted).max()
    np.testing.assert_array_equal(chosen[PROMPT - 1 : -1], tokens[PROMPT:])
    # The same in chunks, of which the first wants nothing, and then token by token.
    assert decoder.step(tokens[:9], 0, [])[1].shape == (0, whole.shape[1])
    _, chunk = decoder.step(tokens[9:PROMPT], 9, range(PROMPT - 9))
    np.testing.assert_allclose(chunk, whole[9:PROMPT], atol=atol)
    generated = [int(tokens[PROMPT - 1])]
    for position in range(PROMPT, count):
        (token,), row = decoder.step(tokens[position : position + 1], position, [0])
        np.testing.assert_allclose(row[0], whole[position], atol=atol)
        generated.append(int(token))
    np.testing.assert_array_equal(generated[1:-1], tokens[PROMPT + 1 :])


class Evaluated:
    """A model on one sequence."""

    def __init__(self, values: dict, graph=None, arrays=None) -> None:
        self.config = DecoderConfig.of(values)
        self.graph = graph or language_model(self.config)
        self.weights = arrays or drawn(values)
        self.caches = [
            np.zeros((8, 16, *heads), np.float32)
            for _ in self.config.layers
            for heads in self.config.caches.values()
        ]

    def step(self, tokens, start: int, places):
        """Next tokens and logits at `places` of `tokens`, of which the first is number `start`."""
        given = arguments(self.config, tokens, start, places)
        chosen, logits, *self.caches = evaluate(self.graph, given + self.caches, self.weights)
        return chosen, logits
