"""What `heddle compile` is told of the sizes in an ONNX file: `--dim` and `--shape`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import click

from heddle.pipelines.cli.options import number_of


@dataclass(frozen=True)
class Sizes:
    """Names of sizes with what they mean, and inputs with their dims (`heddle.pipelines.onnx`)."""

    dims: dict[str, Any] = field(default_factory=dict)
    shapes: dict[str, list[int | str]] = field(default_factory=dict)

    @property
    def option(self) -> str:
        """The first option that was given."""
        return "--dim" if self.dims else "--shape"


def read_sizes(dims: tuple[str, ...], shapes: tuple[str, ...]) -> Sizes | None:
    """The values of `--dim NAME=...` and `--shape INPUT=...`; None where there are none.

    Raises:
        click.UsageError: One has another form, or a name twice.
    """
    read = Sizes()
    for item in dims:
        _put(read.dims, "--dim", item, _meaning)
    for item in shapes:
        _put(read.shapes, "--shape", item, _shape)
    return read if dims or shapes else None


def _put(found: dict[str, Any], option: str, item: str, read: Any) -> None:
    name, equals, text = item.partition("=")
    value = read(text.strip()) if name and equals else None
    if value is None:
        forms = {"--dim": "NAME=SIZE, NAME=LEAST:MOST or NAME=OTHER", "--shape": "INPUT=SIZE,SIZE"}
        raise click.UsageError(f"{option}: wanted {forms[option]}, got {item!r}")
    if name in found:
        raise click.UsageError(f"{option} {name}: wanted it once, got {item!r}, too")
    found[name] = value


def _meaning(text: str) -> int | str | tuple[int, int] | None:
    """A size, a range of sizes, or the name of another."""
    if ":" not in text:
        return _size(text)
    least, most = map(number_of, text.split(":", 1))
    return None if least is None or most is None else (least, most)


def _shape(text: str) -> list[int | str] | None:
    sizes = [_size(part.strip()) for part in text.split(",")] if text else []
    return None if None in sizes else [size for size in sizes if size is not None]


def _size(text: str) -> int | str | None:
    return text if text.isidentifier() else number_of(text)
