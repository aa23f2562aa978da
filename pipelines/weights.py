"""Weights of a checkpoint as NumPy arrays that are mapped from its safetensors file, not copied.

Format: https://huggingface.co/docs/safetensors (u64 header size, JSON header, data).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heddle.runtime.errors import ArtifactError, ArtifactReason

if TYPE_CHECKING:
    from heddle.runtime import Artifact

DTYPES = {
    "BOOL": "?",
    "I8": "i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "U8": "u1",
    "U16": "<u2",
    "U32": "<u4",
    "U64": "<u8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}


def read(path: Path) -> dict[str, NDArray[Any]]:
    """Every tensor in the safetensors file `path`, read-only views of the mapping.

    Raises:
        ArtifactError: The file is missing, truncated, or no safetensors file; or it has a dtype
            that NumPy lacks.
    """
    try:
        data = np.memmap(path, np.uint8, "r")
    except FileNotFoundError:
        raise ArtifactError(f"{path}: no such weights file", ArtifactReason.NOT_FOUND) from None
    except ValueError:
        raise _bad(path, "the file is empty") from None
    size = int.from_bytes(data[:8].tobytes(), "little")
    if len(data) < 8 or size > len(data) - 8:
        raise _bad(path, f"wanted a header of {size} bytes, got {len(data) - 8}")
    try:
        header = json.loads(data[8 : 8 + size].tobytes())
        rows = {name: row for name, row in header.items() if name != "__metadata__"}
        return {name: _view(path, name, row, data[8 + size :]) for name, row in rows.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _bad(path, f"the header is malformed: {error}") from None


def _view(path: Path, name: str, row: dict[str, Any], data: NDArray[np.uint8]) -> NDArray[Any]:
    code, shape, (begin, end) = row["dtype"], row["shape"], row["data_offsets"]
    if code not in DTYPES:
        raise _bad(path, f"{name}: wanted a dtype of {', '.join(DTYPES)}, got {code}")
    dtype = np.dtype(DTYPES[code])
    wanted = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not 0 <= begin <= end <= len(data) or end - begin != wanted:
        raise _bad(
            path,
            f"{name}: wanted {wanted} bytes within the {len(data)} of data, got {begin} to {end}",
        )
    view: NDArray[Any] = data[begin:end].view(dtype).reshape(shape)
    return view


def prefix(names: Iterable[str]) -> str:
    """What stands before the encoder's own names: `""`, or a model class's `"bert."`."""
    marker = "embeddings.word_embeddings.weight"
    found = [name.removesuffix(marker) for name in names if name.endswith(marker)]
    if len(found) != 1:
        raise ArtifactError(
            f"weights: wanted one tensor named ...{marker}, got {len(found)}",
            ArtifactReason.WEIGHTS,
        )
    return found[0]


def select(path: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Those of `names` that the file `path` has, as `read` gives them.

    A checkpoint holds more than its encoder asks for, such as a pooler, and both the compiler and
    the runtime refuse weights that they do not know.
    """
    return {name: array for name, array in read(path).items() if name in names}


def of_artifact(path: Path, artifact: Artifact) -> dict[str, NDArray[Any]]:
    """The weights of `artifact` that the file `path` has."""
    return select(path, [row["name"] for row in artifact.weights])


def _bad(path: Path, what: str) -> ArtifactError:
    return ArtifactError(f"{path}: {what}", ArtifactReason.WEIGHTS)
