"""Weights of a checkpoint as arrays that are mapped from its files, not copied.

The runtime reads safetensors files (https://huggingface.co/docs/safetensors), of which a checkpoint
may have several and an index, JSON whose `weight_map` says which file holds which weight. Or they
are all in a GGUF file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from heddle.pipelines.gguf.file import GgufFile, is_gguf
from heddle.pipelines.json_files import read_object
from heddle.pipelines.stored.parts import Method
from heddle.pipelines.stored.selection import Stored, method_in
from heddle.runtime import Buffer, narrow_floats
from heddle.runtime._core import Safetensors
from heddle.runtime.errors import ArtifactError, ArtifactReason, GraphError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from heddle.graph import Weight
    from heddle.runtime import Artifact, InferenceSession, Model

Array: TypeAlias = "NDArray[Any] | Buffer"
"""NumPy has no bfloat16 and no float8: such a weight is a Buffer."""

INDEX = ".safetensors.index.json"
"""How the name of an index ends."""


def read(path: Path) -> dict[str, Array]:
    """Every tensor in the safetensors file `path`, or in those of an index, views of the mapping.

    Raises:
        ArtifactError: A file is missing, truncated, or no safetensors file; or it has a dtype
            that Heddle lacks.
    """
    return _open(path)[0]


def _open(path: Path) -> tuple[dict[str, Array], list[Safetensors]]:
    """The tensors, and the files that they are views of."""
    files = _index(path)
    found: dict[str, Array] = {}
    opened = []
    for file in sorted({path.with_name(file) for file in files.values()} or {path}):
        opened.append(Safetensors(file))
        for name, buffer in opened[-1].tensors().items():
            if files.get(name, file.name) != file.name:
                continue  # the index says that another file's counts
            bits_alone = buffer.dtype in narrow_floats.DTYPES
            found[name] = buffer if bits_alone else buffer.to_numpy()
    missing = sorted(files.keys() - found.keys())
    if missing:
        raise _bad(path, f"wanted the weight {missing[0]!r} in {files[missing[0]]}, got none")
    return found, opened


def _index(path: Path) -> dict[str, str]:
    """The file of each weight where `path` is an index, else nothing."""
    if not path.name.endswith(INDEX):
        return {}
    if not path.is_file():
        raise ArtifactError(f"{path}: no such index", ArtifactReason.NOT_FOUND)
    values = read_object(path, lambda text: ArtifactError(text, ArtifactReason.WEIGHTS))
    files = values.get("weight_map")
    if not isinstance(files, dict):
        raise _bad(path, f"weight_map: wanted a JSON object, got {files!r}")
    for file in files.values():
        if not isinstance(file, str) or not file or Path(file).name != file:
            raise _bad(path, f"wanted files of the index's folder, got {file!r}")
    return files


def dtype_of(array: Array) -> str:
    """The name of an array's dtype."""
    return array.dtype if isinstance(array, Buffer) else array.dtype.name


def prefix(names: Iterable[str], marker: str) -> str:
    """What stands before the name `marker`, which one weight has: `""`, or a class's `"bert."`."""
    found = [name.removesuffix(marker) for name in names if name.endswith(marker)]
    if len(found) != 1:
        raise ArtifactError(
            f"weights: wanted one tensor named ...{marker}, got {len(found)}",
            ArtifactReason.WEIGHTS,
        )
    return found[0]


def stored(path: Path) -> Stored:
    """What a checkpoint stores in the file or index `path`.

    Raises:
        GraphError: It is quantized in a way, or a GGUF file of a model, that Heddle does not read.
        ArtifactError: As `read`; or something is missing, or has another dtype or shape.
    """
    return _stored(path)[0]


def _stored(path: Path) -> tuple[Stored, Sequence[Safetensors | GgufFile]]:
    """The same, and the files that it is a view of."""
    if is_gguf(path):
        from heddle.pipelines.gguf.weights import stored as stored_gguf  # imports all decoders

        file = GgufFile.read(path)
        return stored_gguf(file), [file]
    arrays, files = _open(path)
    return Stored(path, arrays, _method(path)), files


def _method(path: Path) -> Method | None:
    """How the weights in `path` are stored, by the `config.json` beside it; None: in floats."""
    config = path.with_name("config.json")
    values = read_object(config) if config.is_file() else {}
    try:
        return method_in(values)
    except GraphError as error:
        raise GraphError(f"{config}: {error}") from None


def select(path: Path, weights: Mapping[str, Weight]) -> dict[str, Array]:
    """Those of a graph's `weights` that the file `path` has, as `Stored.select` makes them.

    A checkpoint holds more than its encoder asks for, such as a pooler, and both the compiler and
    the runtime refuse weights that they do not know.
    """
    wanted = {name: (w.dtype.name, tuple(map(int, w.shape))) for name, w in weights.items()}
    return stored(path).select(wanted)


def of_artifact(path: Path, artifact: Artifact) -> dict[str, Array]:
    """The weights of `artifact` that the file `path` has, as `select`."""
    return _fit(stored(path), artifact)


def load(session: InferenceSession, artifact: Artifact, path: Path | None) -> Model:
    """`artifact`, loaded with its weights in the file `path`, or with those that it holds itself.

    Loading packs most weights elsewhere. The pages of the file that it read for that are given
    back; weights that are used where they lie come in again when they are touched.

    Raises:
        ArtifactError: As `read`; or a weight is missing, or has another dtype or shape.
    """
    if path is None:
        return session.load(artifact)
    kept, files = _stored(path)
    found = _fit(kept, artifact)
    _check(path, found, artifact)
    model = session.load(artifact, weights=found)
    for file in files:
        file.forget_pages()
    return model


def _fit(stored: Stored, artifact: Artifact) -> dict[str, Array]:
    wanted = {row["name"]: (row["dtype"], tuple(row["shape"])) for row in artifact.weights}
    return stored.select(wanted)


def _check(path: Path, found: Mapping[str, Array], artifact: Artifact) -> None:
    """What loading would refuse, said of the file that the weights are from."""
    for row in artifact.weights:
        name, wanted = row["name"], f"{row['dtype']}{row['shape']}"
        array = found.get(name)
        if array is not None and (got := f"{dtype_of(array)}{list(array.shape)}") != wanted:
            raise _bad(path, f"{name}: wanted {wanted}, got {got}")
        if array is None and not row["embedded"]:
            raise _bad(path, f"wanted the weight {name!r} of the model, got none")


def _bad(path: Path, what: str) -> ArtifactError:
    return ArtifactError(f"{path}: {what}", ArtifactReason.WEIGHTS)
