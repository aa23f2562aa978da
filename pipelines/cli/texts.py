"""Texts that a command is given, and the files that say how its model reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from heddle.pipelines.checkpoint import Checkpoint, minilm
from heddle.pipelines.cli.console import stdin
from heddle.pipelines.sentence_settings import UNSAID, Prompts, Reading, read_dimensions
from heddle.runtime.errors import InputError


@dataclass(frozen=True)
class TextFiles:
    """A tokenizer and, where it was given as such or is the packaged one, the model's folder."""

    tokenizer: Path
    folder: Path | None

    @staticmethod
    def find(given: Path | None, name: str) -> TextFiles:
        """What was given, or the files of the packaged model with the artifact's name.

        Raises:
            InputError: Nothing was given, and there is no such model.
            ArtifactError: The folder has no tokenizer, or the package is not installed.
        """
        if given is None:
            if name != "minilm":
                raise InputError(
                    f"artifact {name!r}: wanted --tokenizer; only minilm has a packaged one"
                )
            return TextFiles.of(minilm())
        return TextFiles.of(Checkpoint(given)) if given.is_dir() else TextFiles(given, None)

    @staticmethod
    def of(checkpoint: Checkpoint) -> TextFiles:
        """Those of a checkpoint."""
        return TextFiles(checkpoint.tokenizer, checkpoint.folder)

    @property
    def reading(self) -> Reading:
        """How the tokenizer is to read texts."""
        return UNSAID if self.folder is None else Reading.read(self.folder)

    @property
    def dimensions(self) -> Sequence[int] | None:
        """What embeddings may be cut to; None: nothing is said."""
        return None if self.folder is None else read_dimensions(self.folder)

    def prompt(self, name: str | None) -> str:
        """The folder's prompt of this name, by default the one that it says.

        Raises:
            InputError: There is none of this name, or there is no folder.
        """
        if self.folder is not None:
            return Prompts.read(self.folder).choose(name)
        if name is not None:
            raise InputError(
                f"--prompt {name}: wanted the model's folder as --tokenizer, got {self.tokenizer}"
            )
        return ""


def check_given(what: str, texts: Sequence[str]) -> None:
    """Raises a UsageError where a text on the command line is empty; `what` is what each is."""
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise click.UsageError(f"{what} {number}: wanted a text, got {text!r}")


def given_or_lines(what: str, texts: Sequence[str]) -> list[str]:
    """The texts of the command line, or without any the lines of stdin that are not empty.

    Raises:
        InputError: There is none of either; `what` is what they are called.
    """
    found = list(texts) or [line for line in map(str.strip, stdin()) if line]
    if not found:
        raise InputError(f"wanted {what} as arguments or lines of stdin, got none")
    return found
