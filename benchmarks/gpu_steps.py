"""The step inputs of contexts on a GPU: what the device reads, beside what the host would read."""

from __future__ import annotations

import statistics
import time
from typing import Any

import cupy
import numpy as np

from heddle.contexts import SamplingParams, StepBatch, TextContext
from heddle.runtime import Accelerator

ROWS, STEPS, BLOCKS, LENGTH = 256, 200, 64, 4096


def check() -> dict[str, Any]:
    """Writes the same random steps for a GPU and for the host, and compares all arrays.

    A kernel that takes long stands between a step's copies and the reading of its inputs, and the
    next step is written meanwhile: a missing wait shows as a difference.
    """
    options = {"rows": ROWS, "tokens": ROWS * 8, "max_length": LENGTH, "blocks": BLOCKS}
    ours, theirs = StepBatch(**options, device=Accelerator()), StepBatch(**options)
    contexts = {batch: _contexts() for batch in (ours, theirs)}
    rng = np.random.default_rng(0)
    slow = cupy.random.standard_normal((2048, 2048), dtype=cupy.float32)
    wanted: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    writing: list[float] = []
    for _ in range(STEPS):
        rows = sorted(rng.choice(ROWS, rng.integers(1, ROWS), replace=False))
        tables = rng.integers(0, 1 << 20, (len(rows), BLOCKS), np.int32)
        chosen = {batch: [memory[row] for row in rows] for batch, memory in contexts.items()}
        for batch, several in chosen.items():
            start = time.perf_counter()
            for place in batch.write(several):
                batch.write_blocks(place, tables[place])
            batch.send()
            if batch is ours:
                writing.append(time.perf_counter() - start)
                with batch.stream:
                    slow = slow @ slow * np.float32(1e-3)
                    found.append({k: cupy.array(v, copy=True) for k, v in batch.inputs.items()})
            else:
                wanted.append({k: np.array(v) for k, v in batch.inputs.items()})
        tokens = rng.integers(0, 1 << 17, len(rows))
        with ours.stream:
            sampled = cupy.asarray(tokens)
        ours.commit(chosen[ours], sampled)
        theirs.commit(chosen[theirs], tokens)
    ours.stream.synchronize()
    different = [
        f"step {number}: {name}"
        for number, (a, b) in enumerate(zip(found, wanted, strict=True))
        for name in b
        if not np.array_equal(cupy.asnumpy(a[name]), b[name])
    ]
    same = [
        np.array_equal(a.tokens.all, b.tokens.all)
        for a, b in zip(contexts[ours], contexts[theirs], strict=True)
    ]
    print(f"steps: {STEPS}, different arrays: {len(different)}", flush=True)
    failed = [f"{len(different)} arrays differ: {', '.join(different[:20])}"] if different else []
    return {
        "name": f"{STEPS} steps",
        "failed": failed + ([] if all(same) else ["tokens of contexts differ"]),
        "write_and_send_us": round(1e6 * statistics.median(writing), 1),
        "cupy": cupy.__version__,
    }


def _contexts() -> list[TextContext]:
    rng = np.random.default_rng(1)
    return [
        TextContext(
            max_length=LENGTH,
            tokens=rng.integers(0, 1000, int(rng.integers(1, 8))),
            sampling_params=SamplingParams(temperature=float(row % 7) / 7),
        )
        for row in range(ROWS)
    ]
