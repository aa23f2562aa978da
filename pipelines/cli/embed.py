"""`heddle embed`: sentences through a sentence embedder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heddle.pipelines.cli.console import listed, packages_of_generate, print_json, stdin, table
from heddle.pipelines.cli.options import Location, check_weights
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHOWN = 6
"""Numbers of a vector, and columns of similarities, that a person is shown."""


@click.command(
    short_help="Embed sentences and compare them.",
    epilog=listed(
        "Examples:",
        'heddle embed minilm.heddle "A cat sleeps." "The kitten dozes."',
        "heddle embed minilm.heddle --vectors --json < sentences.txt",
    ),
)
@click.argument("artifact", type=Location())
@click.argument("sentences", nargs=-1)
@click.option("--vectors", is_flag=True, help="Print the embeddings instead of the similarities.")
@click.option(
    "--tokenizer",
    type=Location(exists=True),
    help="tokenizer.json, or a folder with it; for an artifact called minilm the packaged one.",
)
@click.option("--weights", type=Location(), help="Where they are not embedded.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def embed(
    artifact: Path,
    sentences: tuple[str, ...],
    vectors: bool,
    tokenizer: Path | None,
    weights: Path | None,
    as_json: bool,
) -> None:
    """Embed SENTENCES, or the lines of stdin, and print the cosine of each pair.

    ARTIFACT is a sentence embedder, such as `heddle compile minilm --embed-weights` makes.
    """
    from heddle.pipelines.weights import load
    from heddle.runtime import Artifact, InferenceSession

    for number, text in enumerate(sentences, 1):
        if not text.strip():
            raise click.UsageError(f"sentence {number}: wanted a text, got {text!r}")
    loaded = Artifact.load(artifact)
    check_weights(artifact, loaded, weights)
    file = tokenizer_file(tokenizer, loaded.name)
    texts = list(sentences) or [line for line in map(str.strip, stdin()) if line]
    if not texts:
        raise InputError("wanted sentences as arguments or lines of stdin, got none")
    with packages_of_generate():
        from heddle.pipelines.embedding import SentenceEmbedder

    model = load(InferenceSession(), loaded, weights)
    found = SentenceEmbedder(model, file).embed(texts)
    name, values = ("embeddings", found) if vectors else ("similarity", found @ found.T)
    if as_json:
        print_json({"sentences": texts, name: values.tolist()})
    elif vectors:
        for row in values:
            click.echo(" ".join(f"{value:.6g}" for value in row))
    else:
        show_similarity(texts, values)


def tokenizer_file(given: Path | None, name: str) -> Path:
    """The tokenizer that was given, or that of the packaged model with the artifact's name."""
    from heddle.pipelines import checkpoint

    if given is None:
        if name != "minilm":
            raise InputError(
                f"artifact {name!r}: wanted --tokenizer; only minilm has a packaged one"
            )
        return checkpoint.minilm().tokenizer
    return checkpoint.Checkpoint(given).tokenizer if given.is_dir() else given


def show_similarity(texts: list[str], matrix: NDArray[np.float32]) -> None:
    """The matrix as a table; beyond `SHOWN` sentences each one with its nearest."""
    rows: list[tuple[str, ...]] = []
    if len(texts) <= SHOWN:
        for number, (text, row) in enumerate(zip(texts, matrix, strict=True), 1):
            rows.append((str(number), text, *(f"{value:.3f}" for value in row)))
        columns: Any = (f"{number}>" for number in range(1, len(texts) + 1))
        table("Cosine similarity", (">", "sentence", *columns), rows)
        return
    for number, text in enumerate(texts):
        others = matrix[number].copy()
        others[number] = -2
        nearest = int(others.argmax())
        rows.append((text, f"{others[nearest]:.3f}", texts[nearest]))
    table("Nearest neighbours", ("sentence", "cosine>", "nearest"), rows)
