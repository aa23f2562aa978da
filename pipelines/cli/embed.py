"""`heddle embed`: sentences through a sentence embedder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heddle.pipelines.cli.console import listed, packages_of_generate, print_json, table
from heddle.pipelines.cli.options import Location, check_weights, weights_option

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
        'heddle embed e5.heddle --tokenizer path/to/e5 --prompt query "Who feeds the cat?"',
    ),
)
@click.argument("artifact", type=Location())
@click.argument("sentences", nargs=-1)
@click.option("--vectors", is_flag=True, help="Print the embeddings instead of the similarities.")
@click.option(
    "--prompt",
    metavar="NAME",
    help="Put the folder's prompt of this name before each sentence.",
)
@click.option(
    "--tokenizer",
    type=Location(exists=True),
    help="The model's folder, or its tokenizer.json; for minilm by default the packaged one.",
)
@weights_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def embed(
    artifact: Path,
    sentences: tuple[str, ...],
    vectors: bool,
    prompt: str | None,
    tokenizer: Path | None,
    weights: Path | None,
    as_json: bool,
) -> None:
    """Embed SENTENCES, or the lines of stdin, and print the cosine of each pair.

    ARTIFACT is a sentence embedder, such as `heddle compile minilm --embed-weights` makes. Of the
    model's folder count its prompts and how much of a text is looked at, too.
    """
    from heddle.pipelines.cli.texts import TextFiles, check_given, given_or_lines
    from heddle.pipelines.weights import load
    from heddle.runtime import Artifact, InferenceSession

    check_given("sentence", sentences)
    loaded = Artifact.load(artifact)
    check_weights(artifact, loaded, weights)
    files = TextFiles.find(tokenizer, loaded.name)
    before = files.prompt(prompt)
    texts = given_or_lines("sentences", sentences)
    with packages_of_generate():
        from heddle.pipelines.embedding import SentenceEmbedder

    model = load(InferenceSession(), loaded, weights)
    embedder = SentenceEmbedder(model, files.tokenizer, files.reading, before)
    found = embedder.embed(texts)
    name, values = ("embeddings", found) if vectors else ("similarity", cosines(found))
    if as_json:
        print_json({"sentences": texts, name: values.tolist()})
    elif vectors:
        for row in values:
            click.echo(" ".join(f"{value:.6g}" for value in row))
    else:
        show_similarity(texts, values)


def cosines(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The cosine of each pair of rows; 0 for what has no direction."""
    from heddle.pipelines.embedding import normalized

    directions = normalized(vectors)
    found: NDArray[np.float32] = directions @ directions.T
    return found


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
