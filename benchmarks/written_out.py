"""What the passes `recognize` and `cut` are worth, on graphs as people write them.

    python benchmarks/written_out.py [--save]

Each graph is compiled as it is and without both passes, and run in turns; `ratio` is how many times
as long it takes without them: the median over rounds.
"""

from __future__ import annotations

import argparse
import json
import math
from functools import partial
from typing import Any
from unittest import mock

import measure
import numpy as np

from heddle.graph import DType, Graph, TensorType, TensorValue, Weight, compile, ops
from heddle.graph.compiler import pipeline
from heddle.runtime import InferenceSession, Model

WIDTH, HEADS, INNER, VOCABULARY = 384, 12, 1536, 8192
"""Sizes of MiniLM; the vocabulary is a small one."""

SIZES = ((1, 16), (1, 128), (8, 128), (8, 512))
"""Batch and sequence."""

ROUNDS, CALLS = 15, 3
PASSES = ("recognize", "cut")


def heads(x: TensorValue) -> TensorValue:
    """`[batch, sequence, WIDTH]` with its heads as an axis."""
    batch, sequence, _ = x.shape
    return ops.reshape(x, (batch, sequence, HEADS, WIDTH // HEADS))


def attention(x: TensorValue, weight: TensorValue) -> TensorValue:
    """Scores, their softmax and the mean of values by it, each op by hand."""
    query, key, value = (ops.permute(heads(each), (0, 2, 1, 3)) for each in (x, x, x))
    scores = query @ ops.transpose(key, -1, -2) / math.sqrt(WIDTH // HEADS)
    shares = ops.exp(scores - ops.max(scores, axis=-1))
    mixed = ops.permute(shares / ops.sum(shares, axis=-1) @ value, (0, 2, 1, 3))
    return ops.reshape(mixed, x.shape) + weight


def one_weight(x: TensorValue, weight: TensorValue) -> TensorValue:
    """Queries, keys and values as the columns of one product."""
    parts = ops.chunk(x @ weight, 3, axis=-1)
    return ops.attention(*map(heads, parts), layout="bshd")


def gate_and_up(x: TensorValue, weight: TensorValue) -> TensorValue:
    """Both products of a gated unit as the columns of one."""
    gate, up = ops.chunk(x @ weight, 2, axis=-1)
    return ops.silu(gate) * up


def last_logits(x: TensorValue, weight: TensorValue) -> TensorValue:
    """What follows the last token, out of what follows each."""
    return (x * ops.rsqrt(ops.mean(x * x, axis=-1) + 1e-5) @ weight)[:, -1]


FORMS = {
    "attention by hand": (attention, (WIDTH,)),
    "q, k, v of one weight": (one_weight, (WIDTH, 3 * WIDTH)),
    "gate and up of one weight": (gate_and_up, (WIDTH, 2 * INNER)),
    "the last logits": (last_logits, (WIDTH, VOCABULARY)),
}


def load(name: str, without: tuple[str, ...]) -> Model:
    """The model of a form, compiled without some passes."""
    write, shape = FORMS[name]
    with Graph("written", [TensorType(DType.float32, ("batch", "sequence", WIDTH))]) as graph:
        weight = graph.add_weight(Weight("weight", DType.float32, shape))
        graph.output(write(graph.inputs[0].tensor, weight))
    left = tuple(each for each in pipeline.PASSES if each.__name__ not in without)
    with mock.patch.object(pipeline, "PASSES", left):
        artifact = compile(graph, "cpu:native")
    values = np.random.default_rng(0).standard_normal(shape, np.float32) / math.sqrt(WIDTH)
    return InferenceSession().load(artifact, {"weight": values})


def rows_of(name: str) -> list[dict[str, Any]]:
    """The figures of a form at all sizes."""
    models = {"without": load(name, PASSES), "as it is": load(name, ())}
    found = []
    for batch, sequence in SIZES:
        x = np.random.default_rng(1).standard_normal((batch, sequence, WIDTH), np.float32)
        results = [model.execute(x)[0].to_numpy() for model in models.values()]
        np.testing.assert_allclose(*results, rtol=1e-3, atol=1e-3)
        calls = {key: partial(model.execute, x) for key, model in models.items()}
        times = measure.interleaved(calls, ROUNDS, CALLS)
        row = {"graph": name, "batch": batch, "sequence": sequence}
        row |= {f"{key} (ms)": measure.median_ms(seconds) for key, seconds in times.items()}
        row["ratio"] = round(measure.ratio(times["without"], times["as it is"], CALLS), 2)
        print(json.dumps(row), flush=True)
        found.append(row)
    return found


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    rows = [row for name in FORMS for row in rows_of(name)]
    if options.save:
        print(measure.save("written_out", {"rows": rows}))


if __name__ == "__main__":
    main()
