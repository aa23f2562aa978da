"""One model, all the way: compile MiniLM to one file, load it in a fresh process, embed sentences.

python examples/demo.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

REFERENCE = Path(__file__).parents[1] / "tests" / "golden" / "minilm.npz"
ARTIFACT = Path("minilm.heddle")
TARGETS = ("cpu", "cuda:sm_90a")

SENTENCES = (
    "A cat sleeps on the warm stones of the yard.",
    "The kitten is dozing in the sunny courtyard.",
    "Interest rates rose again, and the markets fell.",
    "Shares dropped after the central bank's decision.",
    "Whisk two eggs with sugar until the foam is stiff.",
)


def compile_model() -> float:
    """Compiles MiniLM with its weights to `ARTIFACT`; the seconds that it took."""
    from heddle.graph import compile
    from heddle.pipelines import checkpoint, weights
    from heddle.pipelines.cli.console import progress
    from heddle.pipelines.models.embedder import sentence_embedder
    from heddle.pipelines.models.encoder.config import EncoderConfig

    found = checkpoint.minilm()
    start = time.perf_counter()
    graph = sentence_embedder(EncoderConfig.read(found.config), "minilm")
    with progress("compiling") as report:
        compile(
            graph,
            targets=TARGETS,
            weights=weights.select(found.weights, graph.weights),
            embed_weights=True,
            output=ARTIFACT,
            progress=report,
        )
    return time.perf_counter() - start


def embed(started: float) -> None:
    """What a user's process does; prints times and results as JSON.

    `started` is what `time.monotonic` said just before this process was started.
    """
    from heddle.pipelines import checkpoint
    from heddle.pipelines.embedding import SentenceEmbedder, pad
    from heddle.runtime import InferenceSession

    imported = time.monotonic()
    model = InferenceSession().load(ARTIFACT)
    loaded = time.monotonic()
    embedder = SentenceEmbedder(model, checkpoint.minilm().tokenizer)
    embedder.embed(SENTENCES[:1])
    first = time.monotonic()
    vectors = embedder.embed(SENTENCES)

    reference = np.load(REFERENCE)
    rows = np.split(reference["tokens"], reference["token_offsets"][1:-1])
    difference = np.abs(embedder.embed_tokens(rows) - reference["embeddings"]).max()

    inputs = pad([rows[-1]])  # the last sentence has 128 tokens
    times = []
    for _ in range(50):
        began = time.perf_counter()
        model.execute(*inputs)
        times.append(time.perf_counter() - began)
    seconds = {
        "load, with every byte verified": loaded - imported,
        "first result, from the start of the process": first - started,
        "steady state, 1 sentence of 128 tokens": float(np.median(times)),
    }
    result = {"similarity": vectors @ vectors.T, "difference": difference, "seconds": seconds}
    print(json.dumps(result, default=lambda value: value.tolist()))


def similarity_table(matrix: list[list[float]]) -> Table:
    """The similarities, warmer where they are higher."""
    table = Table(title="Cosine similarity")
    table.add_column("sentence")
    for number in range(len(SENTENCES)):
        table.add_column(str(number + 1), justify="right")
    for number, (sentence, row) in enumerate(zip(SENTENCES, matrix, strict=True)):
        cells = [f"[{'bold green' if value > 0.4 else 'dim'}]{value:.2f}[/]" for value in row]
        table.add_row(f"{number + 1}  {sentence}", *cells)
    return table


def main() -> None:
    """Compiles here, runs in a fresh process, prints both."""
    console = Console()
    console.print(f"Compiling all-MiniLM-L6-v2 for {', '.join(TARGETS)} ...")
    compile_seconds = compile_model()
    size = ARTIFACT.stat().st_size / 2**20
    console.print(f"Wrote {ARTIFACT}: {size:.1f} MiB, the weights among them.\n")
    child = subprocess.run(
        [sys.executable, __file__, "--embed", str(time.monotonic())],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    result = json.loads(child.stdout)
    console.print(similarity_table(result["similarity"]))
    difference = result["difference"]
    console.print(
        f"Largest difference to the recorded reference (64 sentences): {difference:.1e}\n"
    )
    times = Table("step", "milliseconds", title="Times")
    for step, seconds in {"compile, for all targets": compile_seconds, **result["seconds"]}.items():
        times.add_row(step, f"{1e3 * seconds:.1f}")
    console.print(times)
    if not difference < 1e-4:
        sys.exit("the embeddings differ from the reference by more than 1e-4")


if __name__ == "__main__":
    embed(float(sys.argv[2])) if sys.argv[1:2] == ["--embed"] else main()
