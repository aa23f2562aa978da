"""Options that several commands have."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click


class Finite(click.FloatRange):
    """A number of a range; neither infinity nor NaN, which every comparison lets through."""

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """The number, or a usage error."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"wanted a finite number, got {value}", param, ctx)
        return number


def quantize_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--quantize` and `--group`."""
    kinds = click.Choice(["int8", "int4"])
    sizes = click.IntRange(32)
    group = click.option(
        "--group", type=sizes, default=128, show_default=True, help="Weights with one scale."
    )
    kind = click.option("--quantize", type=kinds, help="Hold a language model's weights so.")
    return kind(group(command))
