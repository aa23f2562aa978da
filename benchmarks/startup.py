"""From process start to the first embedding, and what `load` costs, in fresh processes.

    python benchmarks/startup.py [--runs 15] [--save]

Two ways to ship the model take turns: weights embedded in the artifact, and the artifact beside the
checkpoint's safetensors file. Times are medians over processes with warm file caches. `load`
verifies the whole artifact, maps the weights and runs the program's init (packing); its growth of
resident memory is that of VmRSS, so it counts pages of mapped files that were touched. `run` is the
growth from a process with NumPy and its random numbers alone to the peak (VmHWM) of one that has
loaded the model and embedded 32 rows of 128 tokens from all over the vocabulary.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import measure

from heddle.graph import compile
from heddle.pipelines import checkpoint, weights
from heddle.pipelines.models import bert

CHILD = """
import sys, time
from pathlib import Path
from heddle.pipelines.embedding import SentenceEmbedder
from heddle.pipelines.weights import load
from heddle.runtime import Artifact, InferenceSession

path, weights, tokenizer, began = sys.argv[1:]

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

session = InferenceSession()
imported, before = time.monotonic(), resident()
artifact = Artifact.load(path)
model = load(session, artifact, Path(weights) if weights else None)
loaded, after = time.monotonic(), resident()
embedder = SentenceEmbedder(model, tokenizer)
ready = time.monotonic()
embedder.embed(["A heddle guides the warp threads of a loom."])
done = time.monotonic()
print(imported - float(began), loaded - imported, ready - loaded, done - ready,
      done - float(began), (after - before) / 1024)
"""

MEMORY = """
import sys
from pathlib import Path
import numpy as np

def resident(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

rows, tokens, vocabulary = 32, 128, 30522
given = np.random.default_rng(0).integers(0, vocabulary, (rows, tokens), np.int32)
present = np.ones((rows, tokens), bool)
before = resident("VmRSS")
from heddle.runtime import Artifact, InferenceSession
from heddle.pipelines.weights import load

path, weights = sys.argv[1:]
model = load(InferenceSession(), Artifact.load(path), Path(weights) if weights else None)
model.execute(given, present)
print((resident("VmHWM") - before) / 1024)
"""

FIELDS = ("import_ms", "load_ms", "tokenizer_ms", "first_embedding_ms", "total_ms", "growth_mib")


def child(artifact: Path, weights: Path | None, tokenizer: Path) -> list[float]:
    arguments = [str(artifact), str(weights or ""), str(tokenizer)]
    command = [sys.executable, "-c", CHILD, *arguments, str(time.monotonic())]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    *seconds, growth = map(float, output.split())
    return [*(1e3 * value for value in seconds), growth]


def peak(artifact: Path, weights: Path | None) -> float:
    """MiB of a run over NumPy alone."""
    command = [sys.executable, "-c", MEMORY, str(artifact), str(weights or "")]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    found = checkpoint.minilm()
    graph = bert.sentence_embedder(bert.BertConfig.read(found.config), "minilm")
    with tempfile.TemporaryDirectory() as folder:
        embedded, beside = Path(folder, "embedded.heddle"), Path(folder, "beside.heddle")
        arrays = weights.select(found.weights, graph.weights)
        compile(graph, targets=["cpu"], weights=arrays, embed_weights=True).save(embedded)
        compile(graph, targets=["cpu"]).save(beside)
        ways = {"embedded": (embedded, None), "beside": (beside, found.weights)}
        samples: dict[str, list[list[float]]] = {way: [] for way in ways}
        for number in range(options.runs + 1):
            for way, files in ways.items():
                sample = child(*files, found.tokenizer)
                if number:  # the first run fills the file caches
                    samples[way].append(sample)
        rows: list[dict[str, Any]] = []
        for way, files in ways.items():
            columns = zip(*samples[way], strict=True)
            medians = [round(statistics.median(column), 1) for column in columns]
            row = {"weights": way, "artifact_mib": round(files[0].stat().st_size / 2**20, 1)}
            row |= dict(zip(FIELDS, medians, strict=True))
            rows.append(row | {"run_mib": round(peak(files[0], files[1]), 1)})
    for row in rows:
        print(json.dumps(row))
    if options.save:
        weights_mib = round(found.weights.stat().st_size / 2**20, 1)
        print(measure.save("startup", {"weights_mib": weights_mib, "rows": rows}))


if __name__ == "__main__":
    main()
