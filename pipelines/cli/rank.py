"""`heddle rank`: texts by how well they go with a query, through a cross-encoder."""

from __future__ import annotations

from pathlib import Path

import click

from heddle.pipelines.cli.console import listed, packages_of_generate, print_json, table
from heddle.pipelines.cli.options import Location, check_weights, weights_option


@click.command(
    short_help="Rank texts by a query.",
    epilog=listed(
        "Examples:",
        'heddle rank reranker.heddle "Who feeds the cat?" "Ann does." "It rains." --tokenizer DIR',
        'heddle rank reranker.heddle "Who feeds the cat?" --tokenizer DIR --json < texts.txt',
    ),
)
@click.argument("artifact", type=Location())
@click.argument("query")
@click.argument("texts", nargs=-1)
@click.option(
    "--tokenizer",
    type=Location(exists=True),
    required=True,
    help="The model's folder, or its tokenizer.json.",
)
@weights_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def rank(
    artifact: Path,
    query: str,
    texts: tuple[str, ...],
    tokenizer: Path,
    weights: Path | None,
    as_json: bool,
) -> None:
    """Score TEXTS, or the lines of stdin, beside QUERY, and print them, the best one first.

    ARTIFACT is a cross-encoder, such as `heddle compile` makes of the folder of a reranker.
    """
    from heddle.pipelines.cli.texts import TextFiles, check_given, given_or_lines
    from heddle.pipelines.weights import load
    from heddle.runtime import Artifact, InferenceSession

    check_given("query", [query])
    check_given("text", texts)
    loaded = Artifact.load(artifact)
    check_weights(artifact, loaded, weights)
    files = TextFiles.find(tokenizer, loaded.name)
    asked = given_or_lines("texts", texts)
    with packages_of_generate():
        from heddle.pipelines.ranking import PairScorer

    model = load(InferenceSession(), loaded, weights)
    scorer = PairScorer(model, files.tokenizer, files.reading)
    scores = scorer.score(query, asked).tolist()
    order = sorted(range(len(asked)), key=lambda number: -scores[number])
    if as_json:
        rows = [{"number": n, "score": scores[n], "text": asked[n]} for n in order]
        print_json({"query": query, "ranking": rows})
    else:
        table(query, ("score>", "text"), [(f"{scores[n]:.4f}", asked[n]) for n in order])
