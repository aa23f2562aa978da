"""Measures the request side, each number beside its bar; medians.

    python benchmarks/contexts.py [--save]

It prints a line for each number; nothing of it needs a compiler or a GPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable

import measure
import numpy as np

from heddle.contexts import (
    EOSTracker,
    GrammarCompiler,
    GrammarMasks,
    StepBatch,
    TextContext,
    TokenBuffer,
    grammar_tokenizer,
    msgpack_numpy_decoder,
    msgpack_numpy_encoder,
)

IMPORT = """
import sys, time
start = time.perf_counter()
{statement}
print(time.perf_counter() - start)
"""


def seconds(work: Callable[[], object], calls: int, rounds: int = 31) -> float:
    """The median time of one call over `rounds` rounds of `calls` calls."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times)


ROWS: list[dict[str, object]] = []


def report(what: str, value: float, unit: str, bar: float) -> None:
    verdict = "holds" if value <= bar else "MISSED"
    print(f"{what:<58} {value:>9.2f} {unit:<5} bar {bar:>7.2f}  {verdict}")
    ROWS.append({"what": what, "median": round(value, 2), "bar": bar, "unit": unit})


def context(length: int = 16) -> TextContext:
    tokens = TokenBuffer(np.arange(1, length + 1))
    return TextContext(max_length=1 << 40, tokens=tokens, eos_tracker=EOSTracker({0}))


def updates() -> None:
    times = []
    for _ in range(31):
        one = context()
        update = one.update
        start = time.perf_counter()
        for _ in range(2000):
            update(5)
        times.append((time.perf_counter() - start) / 2000)
    report("update() without grammar", statistics.median(times) * 1e6, "us", 1.5)


def batches() -> None:
    contexts = [context() for _ in range(256)]
    for one in contexts:
        one.update(5)
    batch = StepBatch(rows=256, tokens=256, max_length=4096)
    batch.write(contexts)
    report(
        "decode batch of 256 contexts into its buffers",
        seconds(lambda: batch.write(contexts), 50) * 1e6,
        "us",
        60,
    )


def messages() -> None:
    one = context(8192)
    encode, decode = msgpack_numpy_encoder(), msgpack_numpy_decoder(TextContext, copy=False)
    report(
        "encode + decode, 8k tokens, copy=False",
        seconds(lambda: decode(encode(one)), 100) * 1e6,
        "us",
        50,
    )


def imports() -> None:
    def median(statement: str) -> float:
        program = [sys.executable, "-c", IMPORT.format(statement=statement)]
        return statistics.median(float(subprocess.check_output(program)) for _ in range(11)) * 1e3

    report("import heddle.contexts", median("import heddle.contexts"), "ms", 80)
    named = median("from heddle.contexts import TextContext")
    print(f"with TextContext {named:.0f} ms, of which NumPy {median('import numpy'):.0f} ms")


def masks(vocabulary: int = 131072, rows: int = 64) -> None:
    random = np.random.default_rng(0)
    letters = np.frombuffer(b'abcdefghijklmnopqrstuvwxyz0123456789 {}[]",:.-', "S1")
    words = [bytes([i]) for i in range(256)]
    while len(words) < vocabulary - 1:
        words.append(b"".join(random.choice(letters, random.integers(2, 9))))
    compiler = GrammarCompiler(grammar_tokenizer([*words, b""], [vocabulary - 1]))
    schema = {"type": "object", "additionalProperties": {"type": "string"}}
    contexts = [context() for _ in range(rows)]
    for index, one in enumerate(contexts):
        one.set_matcher(compiler.compile("json_schema", schema))
        for byte in b'{"some key":"some text'[: 1 + index % 20]:
            one.update(byte)
    ours = GrammarMasks(compiler.tokenizer, rows)
    # The matchers stay where they are, so that llguidance has their masks at hand and the ratio is
    # at its worst. The same executor for both: two of them differ by up to a sixth, by where the
    # kernel puts their threads.
    executor = ours._executor
    work = [(one.matcher, row) for row, one in enumerate(contexts)]
    address, size = ours.bitmask.ctypes.data, ours.bitmask.strides[0]
    ways = {
        "ours": lambda: ours.fill(contexts),
        "alone": lambda: executor.unsafe_compute_mask_ptr(work, address, size, rows),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(1000):
        for name in sorted(ways, reverse=bool(turn % 2)):
            start = time.perf_counter()
            ways[name]()
            times[name].append(time.perf_counter() - start)
    compiler.close()
    alone, filled = (statistics.median(times[name]) for name in ("alone", "ours"))
    print(
        f"masks for {rows} rows, {vocabulary} tokens: {filled * 1e6:.0f} us, "
        f"LLExecutor alone {alone * 1e6:.0f} us"
    )
    report("masks for 64 rows at 128k over LLExecutor alone", filled / alone, "x", 1.05)


def memory() -> None:
    context()
    tracemalloc.start()
    contexts = [context() for _ in range(100)]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    tokens = sum(one.tokens.all.nbytes for one in contexts)
    report("memory of a context beside its tokens", (size - tokens) / 100, "bytes", 4096)


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} over the last minute")
    for part in (updates, batches, messages, imports, masks, memory):
        part()
    if options.save:
        print(measure.save("contexts", {"rows": ROWS}))


if __name__ == "__main__":
    main()
