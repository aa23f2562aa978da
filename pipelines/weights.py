"""Weights of a checkpoint as arrays that are mapped from its safetensors files, not copied.

Format: https://huggingface.co/docs/safetensors (u64 header size, JSON header, data). A checkpoint
of several files has an index, JSON whose `weight_map` says which file holds which weight.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from mmap import ACCESS_READ, MADV_DONTNEED, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from heddle.pipelines import quantization
from heddle.runtime import Buffer
from heddle.runtime.errors import ArtifactError, ArtifactReason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from heddle.graph import Weight
    from heddle.runtime import Artifact, InferenceSession, Model

Array: TypeAlias = "NDArray[Any] | Buffer"
"""NumPy has no bfloat16 and no float8: such a weight is a Buffer."""

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
    "BF16": "<u2",
    "F8_E4M3": "u1",
    "F8_E5M2": "u1",
    "F32": "<f4",
    "F64": "<f8",
}

BITS = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
"""Those of which NumPy has the bits alone."""

INDEX = ".safetensors.index.json"
"""How the name of an index ends."""


def read(path: Path) -> dict[str, Array]:
    """Every tensor in the safetensors file `path`, or in those of an index, views of the mapping.

    Raises:
        ArtifactError: A file is missing, truncated, or no safetensors file; or it has a dtype
            that Heddle lacks.
    """
    return _open(path)[0]


def _open(path: Path) -> tuple[dict[str, Array], list[mmap]]:
    """The tensors, and the mappings that they are views of."""
    files = _index(path)
    found: dict[str, Array] = {}
    mappings = []
    for file in sorted({path.with_name(file) for file in files.values()} or {path}):
        mappings.append(_map(file))
        found |= _parse(file, np.frombuffer(mappings[-1], np.uint8))
    missing = sorted(files.keys() - found.keys())
    if missing:
        raise _bad(path, f"wanted the weight {missing[0]!r} in {files[missing[0]]}, got none")
    return found, mappings


def _index(path: Path) -> dict[str, str]:
    """The file of each weight where `path` is an index, else nothing."""
    if not path.name.endswith(INDEX):
        return {}
    try:
        files = dict(json.loads(path.read_text())["weight_map"])
    except FileNotFoundError:
        raise ArtifactError(f"{path}: no such index", ArtifactReason.NOT_FOUND) from None
    except (ValueError, KeyError, TypeError) as error:
        raise _bad(path, f"wanted an index with a weight_map: {error!r}") from None
    for file in files.values():
        if Path(file).name != file:
            raise _bad(path, f"wanted files of the index's folder, got {file!r}")
    return files


def _map(path: Path) -> mmap:
    try:
        with path.open("rb") as file:
            return mmap(file.fileno(), 0, access=ACCESS_READ)
    except FileNotFoundError:
        raise ArtifactError(f"{path}: no such weights file", ArtifactReason.NOT_FOUND) from None
    except ValueError:
        raise _bad(path, "the file is empty") from None


def _parse(path: Path, data: NDArray[np.uint8]) -> dict[str, Array]:
    size = int.from_bytes(data[:8].tobytes(), "little")
    if len(data) < 8 or size > len(data) - 8:
        raise _bad(path, "wanted a safetensors file, got another or the start of one")
    try:
        header = json.loads(data[8 : 8 + size].tobytes())
        rows = {name: row for name, row in header.items() if name != "__metadata__"}
        return {name: _view(path, name, row, data[8 + size :]) for name, row in rows.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _bad(path, f"the header is malformed: {error}") from None


def _view(path: Path, name: str, row: dict[str, Any], data: NDArray[np.uint8]) -> Array:
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
    return Buffer.from_numpy(view, dtype=BITS[code]) if code in BITS else view


def dtype_of(array: Array) -> str:
    """The name of an array's dtype."""
    return array.dtype if isinstance(array, Buffer) else array.dtype.name


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


def select(path: Path, weights: Mapping[str, Weight]) -> dict[str, Array]:
    """Those of a graph's `weights` that the file `path` has, as `read` gives them, or quantized.

    A checkpoint holds more than its encoder asks for, such as a pooler, and both the compiler and
    the runtime refuse weights that they do not know.
    """
    return quantization.fit(
        read(path),
        {name: (w.dtype.name, tuple(map(int, w.shape))) for name, w in weights.items()},
    )


def of_artifact(path: Path, artifact: Artifact) -> dict[str, Array]:
    """The weights of `artifact` that the file `path` has, as `select`."""
    return _fit(read(path), artifact)


def load(session: InferenceSession, artifact: Artifact, path: Path | None) -> Model:
    """`artifact`, loaded with its weights in the file `path`, or with those that it holds itself.

    Loading packs most weights elsewhere. The pages of the file that it read for that are given
    back; weights that are used where they lie come in again when they are touched.

    Raises:
        ArtifactError: As `read`; or a weight is missing, or has another dtype or shape.
    """
    if path is None:
        return session.load(artifact)
    arrays, mappings = _open(path)
    model = session.load(artifact, weights=_fit(arrays, artifact))
    for mapping in mappings:
        mapping.madvise(MADV_DONTNEED)
    return model


def _fit(arrays: Mapping[str, Array], artifact: Artifact) -> dict[str, Array]:
    rows = artifact.weights
    return quantization.fit(
        arrays, {row["name"]: (row["dtype"], tuple(row["shape"])) for row in rows}
    )


def _bad(path: Path, what: str) -> ArtifactError:
    return ArtifactError(f"{path}: {what}", ArtifactReason.WEIGHTS)
