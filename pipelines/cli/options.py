"""Options that several commands have."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heddle.runtime.config import MOST_THREADS
from heddle.runtime.errors import GraphError, InputError

if TYPE_CHECKING:
    from heddle.pipelines.models.products import Asked
    from heddle.runtime import Artifact

SPECULATE = click.IntRange(0)
"""Draft tokens of a text that a step checks."""

SHOWN = 3
"""Names of a long list that a person is shown."""

THREADS = click.IntRange(1, MOST_THREADS)

MOST_DIGITS = 40
"""Of a number: Python reads 4300, and a float holds 308; the largest size has 19."""


def number_of(text: str) -> int | None:
    """The number that these digits write; None where there is something else, or too many."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def check_weights(path: Path, artifact: Artifact, given: Path | None) -> None:
    """Refuses to load `artifact`, read from `path`, without `--weights` where it holds not all.

    Raises:
        InputError: The message names the first ones that are missing.
    """
    missing = [row["name"] for row in artifact.weights if not row["embedded"]]
    if missing and given is None:
        raise InputError(
            f"{path}: wanted --weights, a file with {names_of(missing)}, got none; or compile it "
            "with --embed-weights"
        )


def names_of(weights: Sequence[str]) -> str:
    """How many weights these are, and the first of their names."""
    more = len(weights) - SHOWN
    names = ", ".join(weights[:SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"the weight {names}" if len(weights) == 1 else f"{len(weights)} weights: {names}"


@contextmanager
def usage_errors(*kinds: type[Exception]) -> Iterator[None]:
    """What is refused inside is the command line's own fault, whatever the files hold.

    Args:
        kinds: Errors beside those of inputs and of graphs.
    """
    refused: tuple[type[Exception], ...] = (InputError, GraphError, *kinds)
    try:
        yield
    except refused as error:
        raise click.UsageError(str(error)) from error


class Location(click.Path):
    """A path. One that is missing, or no file or folder as it should be, is no usage error."""

    def __init__(self, **rules: bool) -> None:
        super().__init__(path_type=Path, **rules)

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        """The path, or what the system would say of it."""
        path = Path(value)
        wrong = 0
        if not path.exists():
            wrong = errno.ENOENT if self.exists else 0
        elif not self.file_okay and not path.is_dir():
            wrong = errno.ENOTDIR
        elif not self.dir_okay and path.is_dir():
            wrong = errno.EISDIR
        if wrong:
            raise OSError(wrong, os.strerror(wrong), str(path))
        return path


class Finite(click.FloatRange):
    """A number of a range; neither infinity nor NaN, which every comparison lets through."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """The number, or a usage error."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"wanted a finite number, got {value}", param, ctx)
        return number


def quantize_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--quantize`, `--group` and `--activations`."""
    kinds = click.Choice(["int8", "int4", "float"])
    sizes = click.IntRange(32)
    group = click.option(
        "--group", type=sizes, default=128, show_default=True, help="Weights with one scale."
    )
    kind = click.option("--quantize", type=kinds, help="Hold a language model's weights so.")
    activations = click.option(
        "--activations",
        type=click.Choice(["float", "int8"]),
        default="float",
        show_default=True,
        help="What weights in integers are multiplied by.",
    )
    return kind(group(activations(command)))


weights_option = click.option(
    "--weights",
    type=Location(dir_okay=False),
    help="The file of weights that are not embedded: safetensors, the index of several, or GGUF.",
)

context_option = click.option(
    "--context",
    type=click.IntRange(1),
    help="Tokens of a language model's longest text; by default as many as it takes.",
)

generation_config_option = click.option(
    "--generation-config",
    type=click.Choice(["auto", "off"]),
    default="auto",
    show_default=True,
    help="Whether the model's files say how tokens are drawn where nobody else does.",
)


def quantization(quantize: str | None, group: int, activations: str) -> Asked:
    """What these options say together.

    Raises:
        click.UsageError: It is said how, but weights are not to be quantized.
    """
    from heddle.pipelines.models.products import AsStored, Quantization

    if quantize and quantize != "float":
        return Quantization.parse(quantize, group, activations)
    if group_is_given():
        raise click.UsageError(f"--group {group}: wanted --quantize int8 or int4 beside it")
    if not quantize:
        return AsStored(activations)
    if activations != "float":
        raise click.UsageError(f"--activations {activations}: wanted no --quantize float beside it")
    return "float"


def group_is_given() -> bool:
    """Whether `--group` is on the command line, and no default."""
    source = click.get_current_context().get_parameter_source("group")
    return source is click.core.ParameterSource.COMMANDLINE
