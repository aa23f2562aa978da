"""Drawing tokens from rows of 128,256 logits, beside reading the rows.

    python benchmarks/sampling.py [--threads 2] [--save]

Logits are normal with a standard deviation of 2: flat, so that top-p keeps tens of thousands.
`reads` is the time over that of a kernel that only reads as many bytes, in the same turns. Calls go
round several sets of rows, twice what the last cache holds, so that each comes from memory.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import measure
import numpy as np

from heddle.graph import DeviceRef, DType, Graph, TensorType, compile, ops
from heddle.graph.targets import native_level
from heddle.pipelines.bench import probes
from heddle.runtime import InferenceSession, Model

VOCABULARY = 128_256
ALL_ROWS = 64 * measure.sets(64 * VOCABULARY * 4)
"""Of all sets together; a set has up to 64."""

ROUNDS = 7

SETTINGS = {
    "greedy": (0, 1, 0, 0),
    "temperature 1": (1, 1, 0, 0),
    "min-p 0.05": (1, 1, 0.05, 0),
    "top-k 50": (0.7, 1, 0, 50),
    "top-k 50, top-p 0.9": (0.7, 0.9, 0, 50),
    "top-k 1000, top-p 0.9": (1, 0.9, 0, 1000),
    "top-p 0.9": (1, 0.9, 0, 0),
}
"""Temperature, top_p, min_p and top_k."""

Call = Callable[[], object]


def sampler(session: InferenceSession, rows: int) -> Model:
    kinds = [(DType.float32, VOCABULARY), (DType.float32, 6), (DType.int64, 2)]
    types = [TensorType(dtype, (rows, size), DeviceRef.CPU()) for dtype, size in kinds]
    types.append(TensorType(DType.int64, (rows,), DeviceRef.CPU()))
    with Graph("sample", input_types=types) as graph:
        graph.output(ops.sample_tokens(*graph.inputs))
    return session.load(compile(graph, targets=["cpu"]))


def candidates(session: InferenceSession, rows: int, threads: int) -> dict[str, Call]:
    """A call for each setting, and the reading of the rows."""
    rng = np.random.default_rng(0)
    every = 2 * rng.standard_normal((ALL_ROWS, VOCABULARY), np.float32)
    sets = np.split(every, ALL_ROWS // rows)
    model, calls = sampler(session, rows), {}
    steps, seeds = np.zeros(rows, np.int64), rng.integers(0, 2**63, rows)
    for name, (temperature, top_p, min_p, top_k) in SETTINGS.items():
        sampling = np.tile(np.float32([temperature, top_p, min_p, 0, 0, 1]), (rows, 1))
        integers = np.stack([np.full(rows, top_k), seeds], axis=1)
        drawing = [partial(model.execute, logits, sampling, integers, steps) for logits in sets]
        calls[name] = measure.Turns(drawing)
    step = 16 * probes.CHAINS
    words = rows * VOCABULARY // threads // step * step
    read = session.load(probes.artifact("read", native_level(), threads, words, 1, 16 * threads))
    flat = [logits.reshape(-1)[: threads * words].view(np.int32) for logits in sets]
    return {"read": measure.Turns([partial(read.execute, words) for words in flat]), **calls}


def measured(session: InferenceSession, rows: int, threads: int) -> list[dict[str, Any]]:
    times = measure.interleaved(candidates(session, rows, threads), ROUNDS, ALL_ROWS // rows)
    medians = {name: measure.median_ms(seconds) for name, seconds in times.items()}
    read = medians.pop("read")
    return [
        {"rows": rows, "drawn by": name, "median_ms": median, "reads": round(median / read, 2)}
        for name, median in medians.items()
    ]


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    session = InferenceSession(threads=options.threads)
    table = []
    for rows in (1, 8, 64):
        table += measured(session, rows, options.threads)
        for row in table[-len(SETTINGS) :]:
            print(json.dumps(row), flush=True)
    if options.save:
        print(measure.save("sampling", {"threads": options.threads, "rows": table}))


if __name__ == "__main__":
    main()
