"""`heddle compile`: a model or a Python function to one artifact."""

from __future__ import annotations

import time
from pathlib import Path

import click


@click.command("compile", short_help="Compile a model to one artifact.")
@click.argument("source")
@click.option(
    "-t",
    "--target",
    "targets",
    multiple=True,
    default=("cpu",),
    show_default=True,
    help="cpu, cuda, or one architecture (cpu:x86-64-v4, cuda:sm_90a); may be repeated.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The artifact; by default the graph's name with .heddle, here.",
)
@click.option(
    "--weights",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A safetensors file with the graph's weights; a model's folder has its own.",
)
@click.option("--embed-weights", is_flag=True, help="Put the weights into the artifact.")
@click.option("--stop-after", metavar="PASS", help="Print the module after this pass and stop.")
@click.option(
    "--dump",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the module after each pass into this folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def compile_command(
    source: str,
    targets: tuple[str, ...],
    output: Path | None,
    weights: Path | None,
    embed_weights: bool,
    stop_after: str | None,
    dump: Path | None,
    as_json: bool,
) -> None:
    r"""Compile SOURCE to one artifact that needs no compiler to run.

    SOURCE is minilm (all-MiniLM-L6-v2, if its package is installed), a folder with config.json,
    model.safetensors and tokenizer.json of a BERT encoder, or FILE.py:FUNCTION, a function without
    arguments that returns a Graph.

    \b
    Examples:
      heddle compile minilm --embed-weights
      heddle compile minilm -t cpu -t cuda:sm_90a -o minilm.heddle
      heddle compile model.py:build --weights model.safetensors
      heddle compile model.py:build --stop-after fuse
    """
    from heddle.graph import compile
    from heddle.pipelines.cli.console import progress
    from heddle.pipelines.cli.source import load

    start = time.perf_counter()
    found = load(source)
    weights = weights or found.weights
    with progress("compiling") as report:
        artifact = compile(
            found.graph,
            targets=targets,
            weights=weights,
            embed_weights=embed_weights,
            stop_after=stop_after,
            dump=dump,
            progress=report,
        )
