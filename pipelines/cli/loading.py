"""The MODEL of `heddle generate` and `serve`: a checkpoint that is compiled, or an artifact."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from heddle.pipelines.cli.console import progress
from heddle.pipelines.cli.options import check_weights, group_is_given
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from heddle.graph import Graph
    from heddle.runtime import Model


def is_checkpoint(path: Path) -> bool:
    """Whether a model is to be compiled: a folder, or a GGUF file."""
    from heddle.pipelines.gguf.file import is_gguf

    return path.is_dir() or is_gguf(path)


def options_of_checkpoints(
    dtype: str | None, quantize: str | None, activations: str, context: int | None
) -> dict[str, bool]:
    """The options that say how a model is compiled, and whether each is given."""
    return {
        "--dtype": dtype is not None,
        "--quantize": quantize is not None,
        "--group": group_is_given(),
        "--activations": activations != "float",
        "--context": context is not None,
    }


def refuse_for_artifacts(given: Mapping[str, bool]) -> None:
    """Raises a UsageError for the first of these options that is given: nothing is compiled."""
    for option, is_there in given.items():
        if is_there:
            raise click.UsageError(
                f"{option}: wanted a folder or a GGUF file as MODEL, got another file"
            )


def compiled(graph: Graph, weights: Path | None, threads: int | None) -> Model:
    """A graph that is compiled for this CPU, with the weights in a checkpoint's file."""
    from heddle.graph import compile
    from heddle.pipelines.weights import load
    from heddle.runtime import InferenceSession

    with progress("compiling") as report:
        artifact = compile(graph, "cpu:native", progress=report)
    return load(InferenceSession(threads=threads), artifact, weights)


def from_artifact(path: Path, weights: Path | None, threads: int | None) -> Model:
    """The artifact at `path`, with the weights in the file `weights` or its own."""
    from heddle.pipelines.weights import load
    from heddle.runtime import Artifact, InferenceSession

    artifact = Artifact.load(path)
    check_weights(path, artifact, weights)
    return load(InferenceSession(threads=threads), artifact, weights)


def tokenizer_folder(given: Path) -> Path:
    """The folder with `tokenizer.json` and what says how a text ends; as it is, or by that file.

    A GGUF file says all of it.
    """
    if is_checkpoint(given):
        return given
    if given.name != "tokenizer.json":
        raise InputError(f"--tokenizer: wanted a folder with tokenizer.json, got the file {given}")
    return given.parent
