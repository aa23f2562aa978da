"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def quantize_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--quantize` and `--group`."""
    kinds = click.Choice(["int8", "int4"])
    sizes = click.IntRange(32)
    group = click.option(
        "--group", type=sizes, default=128, show_default=True, help="Weights with one scale."
    )
    kind = click.option("--quantize", type=kinds, help="Hold a language model's weights so.")
    return kind(group(command))
