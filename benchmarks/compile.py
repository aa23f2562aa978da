"""Compile times of MiniLM for all targets: empty cache, then a full one, in fresh processes.

    python benchmarks/compile.py [--runs 3] [--save]

The artifacts of all runs are compared byte by byte. Times are medians; `process` is the whole
process with its imports, `compile` the call alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import measure

TARGETS = ("cpu", "cuda:sm_80", "cuda:sm_90a")

CHILD = """
import sys, time
from heddle.graph import compile
from heddle.pipelines import checkpoint
from heddle.pipelines.models.embedder import sentence_embedder
from heddle.pipelines.models.encoder.config import EncoderConfig

config = EncoderConfig.read(checkpoint.minilm().config)
start = time.perf_counter()
artifact = compile(sentence_embedder(config, "minilm"), targets=sys.argv[2:])
print(time.perf_counter() - start)
artifact.save(sys.argv[1])
"""


def run(path: Path, cache: Path) -> tuple[float, float, bytes]:
    command = [sys.executable, "-c", CHILD, str(path), *TARGETS]
    environment = {**os.environ, "HEDDLE_CACHE": str(cache)}
    start = time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    whole = time.perf_counter() - start
    return float(done.stdout), whole, path.read_bytes()


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    samples: dict[str, list[tuple[float, float]]] = {"cold": [], "warm": []}
    artifacts = set()
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            for cache in samples:
                inside, whole, data = run(Path(folder, "m.heddle"), Path(folder, "cache"))
                samples[cache].append((inside, whole))
                artifacts.add(data)
    rows: list[dict[str, Any]] = []
    for cache, pairs in samples.items():
        inside, whole = (round(statistics.median(column), 2) for column in zip(*pairs, strict=True))
        rows.append({"cache": cache, "compile_s": inside, "process_s": whole})
    figures = {"targets": list(TARGETS), "identical": len(artifacts) == 1, "rows": rows}
    print(json.dumps(figures, indent=2))
    if options.save:
        print(measure.save("compile", figures))


if __name__ == "__main__":
    main()
