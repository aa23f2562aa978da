"""Host overhead of `execute`: one small operation on four floats, which itself takes nanoseconds.

    python benchmarks/overhead.py [--rounds 15] [--save]

Each figure is the median over batches of calls; the loop around a call, some 15 ns, is in it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import timeit
from functools import partial

import measure
import numpy as np

from heddle.graph import DeviceRef, DType, Graph, TensorType, ops
from heddle.runtime import Buffer, InferenceSession, Model

BATCH = 10_000


def load() -> Model:
    """The model y = relu(x) for four floats."""
    kind = TensorType(DType.float32, (4,), DeviceRef.CPU())
    with Graph("relu", input_types=[kind]) as graph:
        graph.output(ops.relu(graph.inputs[0].tensor))
    return InferenceSession().load(graph)


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    execute = load().execute
    array = np.arange(4, dtype=np.float32)
    buffer = Buffer.from_numpy(array)
    out = (Buffer("float32", (4,)),)
    calls = {
        ("NumPy array", "new Buffer"): lambda: execute(array),
        ("Buffer", "new Buffer"): lambda: execute(buffer),
        ("NumPy array", "out="): lambda: execute(array, out=out),
        ("Buffer", "out="): lambda: execute(buffer, out=out),
    }
    timers = {key: timeit.Timer(call) for key, call in calls.items()}
    batches = {key: partial(timer.timeit, BATCH) for key, timer in timers.items()}
    times = measure.interleaved(batches, options.rounds, 1)
    rows = [
        {
            "input": given,
            "output": taken,
            "call_us": round(1e6 * statistics.median(times[given, taken]) / BATCH, 3),
        }
        for given, taken in calls
    ]
    figures = {"batch": BATCH, "rows": rows}
    print(json.dumps(figures, indent=2))
    if options.save:
        print(measure.save("overhead", figures))


if __name__ == "__main__":
    main()
