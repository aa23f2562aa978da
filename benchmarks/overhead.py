"""Host overhead of `execute`, and of handing a kernel's tasks to a second thread.

    python benchmarks/overhead.py [--rounds 15] [--save]

A call's is that of one small operation on four floats, which itself takes nanoseconds. Each figure
is the median over batches of calls; the loop around a call, some 15 ns, is in it.

A handover's is measured on a chain of equal norms, of which each waits for the one before it: what
a norm takes on two threads beyond half of what it takes on one. The second thread spins meanwhile.
In `asleep` it does not: that is what the first call after a pause takes longer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import timeit
from collections.abc import Callable
from functools import partial

import measure
import ml_dtypes
import numpy as np

from heddle.graph import DeviceRef, DType, Graph, TensorType, ops
from heddle.runtime import Buffer, InferenceSession, Model

BATCH = 10_000

STEPS, ROWS, COLUMNS = 100, 64, 384
"""Norms in a chain, each of some 2 us on one thread, and their sizes."""

ASLEEP_S = 0.002
"""A pause in which idle workers go to sleep."""


def load(dtype: DType) -> Model:
    """The model y = relu(x) for four floats."""
    kind = TensorType(dtype, (4,), DeviceRef.CPU())
    with Graph("relu", input_types=[kind]) as graph:
        graph.output(ops.relu(graph.inputs[0].tensor))
    return InferenceSession().load(graph)


def chain(threads: int) -> Callable[[], None]:
    """A call of the chain of norms."""
    kind = TensorType(DType.float32, (ROWS, COLUMNS), DeviceRef.CPU())
    with Graph("norms", input_types=[kind]) as graph:
        x = graph.inputs[0].tensor
        gamma, beta = (ops.constant(np.full(COLUMNS, n, np.float32)) for n in (1, 0))
        for _ in range(STEPS):
            x = ops.layer_norm(x, gamma, beta, epsilon=1e-5)
        graph.output(x)
    model = InferenceSession(threads=threads).load(graph)
    given = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), np.float32)
    out = (Buffer("float32", (ROWS, COLUMNS)),)
    return lambda: model.execute(given, out=out)


def after_pause_us(call: Callable[[], None]) -> float:
    """What a call takes after a pause."""
    time.sleep(ASLEEP_S)
    start = time.perf_counter()
    call()
    return 1e6 * (time.perf_counter() - start)


def measure_handover(rounds: int) -> dict[str, float]:
    """Microseconds: of a norm on one thread and on two, of handing over, and of waking up."""
    calls = {f"{threads} threads": chain(threads) for threads in (1, 2)}
    times = measure.interleaved(calls, rounds, 50)
    alone, both = (1e6 * statistics.median(seconds) for seconds in times.values())
    woken = statistics.median(after_pause_us(calls["2 threads"]) for _ in range(20 * rounds))
    return {
        "one_thread_us": round(alone / STEPS, 3),
        "two_threads_us": round(both / STEPS, 3),
        "handover_us": round((both - alone / 2) / STEPS, 3),
        "asleep_us": round(woken - both, 1),
    }


def main() -> None:
    """Measures and prints; `--save` also writes the results' files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    execute = load(DType.float32).execute
    array = np.arange(4, dtype=np.float32)
    buffer = Buffer.from_numpy(array)
    out = (Buffer("float32", (4,)),)
    of_16_bits, bits = load(DType.bfloat16).execute, array.astype(ml_dtypes.bfloat16)
    out_of_16_bits = (Buffer("bfloat16", (4,)),)
    calls = {
        ("NumPy array", "new Buffer"): lambda: execute(array),
        ("Buffer", "new Buffer"): lambda: execute(buffer),
        ("NumPy array", "out="): lambda: execute(array, out=out),
        ("Buffer", "out="): lambda: execute(buffer, out=out),
        ("NumPy array of bfloat16", "new Buffer"): lambda: of_16_bits(bits),
        ("NumPy array of bfloat16", "out="): lambda: of_16_bits(bits, out=out_of_16_bits),
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
    results = {
        "overhead": {"batch": BATCH, "rows": rows},
        "handover": {"steps": STEPS, "rows": [measure_handover(options.rounds)]},
    }
    print(json.dumps(results, indent=2))
    if options.save:
        for name, figures in results.items():
            print(measure.save(name, figures))


if __name__ == "__main__":
    main()
