"""A GGUF file, or several of one model: what they say of it, and tensors, mapped and not copied.

The format is "GGUF" of the ggml project (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md):
keys with values, then what the tensors are called and where they lie, then these. The package
`gguf` knows the types of tensors. Its own reader makes an array for each value and so takes minutes
for a large vocabulary.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.runtime.errors import ArtifactError, ArtifactReason, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUFFIX = ".gguf"

MAGIC = b"GGUF"

VERSIONS = (2, 3)
"""The first one has sizes of 32 bits, and no file that anybody offers."""

ALIGNMENT = 32
"""Bytes that the place of a tensor is a multiple of, where the file says no other number."""

SCALARS = dict(enumerate(("u1", "i1", "u2", "i2", "u4", "i4", "f4", "?")))
SCALARS |= {10: "u8", 11: "i8", 12: "f8"}
"""NumPy's names of the types of values, by their numbers in a file."""

TEXT, ARRAY = 8, 9
"""The numbers of the other types."""

MOST_DIMS = 4
"""Of a tensor."""

PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})")
"""The name of a file without its suffix that is one of several, which gguf-split makes."""

NUMBER, COUNT = "split.no", "split.count"
"""The keys of a file's number among these, from 0 on, and of how many there are."""

TENSORS = "split.tensors.count"
"""The key of how many tensors all of them have, which each file may say."""


def is_gguf(path: Path) -> bool:
    """Whether a path is one by its name; a folder is none."""
    return path.suffix == SUFFIX and not path.is_dir()


def name_of(path: Path) -> str:
    """What the model of a file, or of several, is called."""
    match = PART.fullmatch(path.stem)
    return match[1] if match else path.stem


@dataclass(frozen=True)
class Tensor:
    """A tensor of a file.

    Attributes:
        name: What the file calls it.
        kind: The name of its type: `"F32"`, `"Q8_0"`, ...
        shape: Its sizes; the last is that of a row.
        rows: uint8 [..., bytes of a row].
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    rows: NDArray[np.uint8]


@dataclass(frozen=True)
class GgufFile:
    """What a file holds, and the other files of its model.

    Attributes:
        path: The file, the first one of several.
        values: What it says, by key: numbers, texts, or lists of these.
        tensors: The tensors of all by name.
        mappings: What these are views of.
    """

    path: Path
    values: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    mappings: tuple[mmap.mmap, ...]

    @staticmethod
    def read(path: Path) -> GgufFile:
        """The file `path`, and where it is the first one of several, those beside it.

        Raises:
            ArtifactError: One is missing, damaged, of another version, or not the first one.
            InputError: The package `gguf` is not installed.
        """
        first = _read(path)
        count = first.value(COUNT, int, 1)
        if count < 2:
            return first
        match = PART.fullmatch(path.stem)
        if match is None or int(match[2]) != 1 or int(match[3]) != count:
            raise first.bad(f"wanted the first of {count} files, called ...-00001-of-{count:05d}")
        names = (f"{match[1]}-{n:05d}-of-{count:05d}{path.suffix}" for n in range(2, count + 1))
        parts = [first, *(_read(path.with_name(name)) for name in names)]
        tensors: dict[str, Tensor] = {}
        for number, part in enumerate(parts):
            said = [part.values.get(key) for key in (NUMBER, COUNT)]
            if said != [number, count]:
                raise part.bad(
                    f"wanted {NUMBER} {number} and {COUNT} {count}, got {said[0]} and {said[1]}"
                )
            twice = tensors.keys() & part.tensors.keys()
            if twice:
                raise part.bad(f"{min(twice)}: wanted it in one of {count} files, got it again")
            tensors |= part.tensors
        for part in parts:
            said = part.values.get(TENSORS, len(tensors))
            if said != len(tensors):
                raise part.bad(f"{TENSORS}: wanted {len(tensors)}, as all files have, got {said}")
        mappings = tuple(mapping for part in parts for mapping in part.mappings)
        return GgufFile(path, first.values, tensors, mappings)

    def forget_pages(self) -> None:
        """Gives the memory back that reading tensors took; they are read again when touched."""
        for mapping in self.mappings:
            mapping.madvise(mmap.MADV_DONTNEED)

    def value(self, key: str, kind: type[Any], default: Any = None) -> Any:
        """The value of `key`, of this kind; `default` where there is none, unless that is None.

        Raises:
            ArtifactError: It is of another kind, or there is none.
        """
        found = self.values.get(key, default)
        whole = kind is float and type(found) is int
        if type(found) is not kind and not whole:
            got = "none" if found is None else f"{found!r:.80}"
            raise self.bad(f"{key}: wanted {KINDS[kind]}, got {got}")
        return found

    def listed(self, key: str, kind: type[Any], count: int | None = None) -> list[Any]:
        """The list of `key`, of values of this kind, of so many if it is said.

        Raises:
            ArtifactError: It is something else, of another length, or there is none.
        """
        found: list[Any] = self.value(key, list)
        other = next((each for each in found if type(each) is not kind), None)
        if other is not None:
            raise self.bad(f"{key}: wanted {KINDS[kind]} each, got {other!r:.80}")
        if count is not None and len(found) != count:
            raise self.bad(f"{key}: wanted {count}, got {len(found)}")
        return found

    def bad(self, what: str) -> ArtifactError:
        """What is wrong with the file."""
        return _bad(self.path, what)


KINDS = {str: "a text", int: "an integer", float: "a number", bool: "true or false", list: "a list"}
"""What kinds of values are called."""


def _read(path: Path) -> GgufFile:
    """One file."""
    try:
        with path.open("rb") as opened:
            mapping = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ArtifactError(f"{path}: no such file", ArtifactReason.NOT_FOUND) from None
    except ValueError:
        raise _bad(path, "wanted a GGUF file, got an empty one") from None
    found = _Reader(path, np.frombuffer(mapping, np.uint8))
    tensors = found.header()
    values: dict[str, Any] = {}
    for _ in range(found.pairs):
        name = found.text()
        if name in values:
            raise _bad(path, f"{name}: wanted it once, got it again")
        values[name] = found.value(name)
    return GgufFile(path, values, found.tensors(tensors, values), (mapping,))


class _Reader:
    """Reads what a file holds, from its beginning on."""

    def __init__(self, path: Path, data: NDArray[np.uint8]) -> None:
        self.path, self.data, self.view = path, data, data.data
        self.at = self.pairs = 0

    def header(self) -> int:
        """The number of tensors; that of keys and values is in `pairs`."""
        if bytes(self.take(4)) != MAGIC:
            raise _bad(self.path, "wanted a GGUF file, got another one")
        version = self.integer("<I")
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "big"), "little")
            order = ", in big-endian order" if swapped in VERSIONS else ""
            raise _bad(
                self.path, f"wanted version {VERSIONS[0]} or {VERSIONS[1]}, got {version}{order}"
            )
        tensors = self.integer("<Q")
        self.pairs = self.integer("<Q")
        return tensors

    def take(self, count: int) -> memoryview:
        """The next bytes."""
        start, self.at = self.at, self.at + count
        if self.at > len(self.data):
            message = f"wanted {count} bytes at {start}, got the end of the file"
            raise ArtifactError(f"{self.path}: {message}", ArtifactReason.TRUNCATED)
        return self.view[start : self.at]

    def integer(self, form: str) -> int:
        """The next integer, as `struct` writes its form."""
        found: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return found

    def text(self) -> str:
        """The next text."""
        start, size = self.at, self.integer("<Q")
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError:
            raise _bad(self.path, f"wanted a text in UTF-8 at {start}, got other bytes") from None

    def value(self, name: str) -> Any:
        """The next value, of the key `name`."""
        kind = self.integer("<I")
        if kind != ARRAY:
            (found,) = self.several(name, kind, 1)
            return found
        kind = self.integer("<I")
        return self.several(name, kind, self.integer("<Q"))

    def several(self, name: str, kind: int, count: int) -> list[Any]:
        """The next values of a type."""
        if kind == TEXT:
            return [self.text() for _ in range(count)]
        if kind not in SCALARS:
            raise _bad(self.path, f"{name}: wanted numbers or texts, got values of type {kind}")
        dtype = np.dtype(SCALARS[kind]).newbyteorder("<")
        found: list[Any] = np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()
        return found

    def tensors(self, count: int, values: Mapping[str, Any]) -> dict[str, Tensor]:
        """The tensors of a file with these values, which has come to their names."""
        try:
            from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
        except ModuleNotFoundError:
            raise InputError(
                f"{self.path}: wanted the package gguf, which is not installed; pip install gguf"
            ) from None
        rows = []
        for _ in range(count):
            name, dims = self.text(), self.integer("<I")
            if not 1 <= dims <= MOST_DIMS:
                raise _bad(self.path, f"{name}: wanted 1 to {MOST_DIMS} dims, got {dims}")
            shape = tuple(self.integer("<Q") for _ in range(dims))[::-1]
            rows.append((name, shape, self.integer("<I"), self.integer("<Q")))
        align = values.get("general.alignment", ALIGNMENT)
        if not isinstance(align, int) or align < 1:
            raise _bad(self.path, f"general.alignment: wanted at least 1, got {align!r}")
        start = -(-self.at // align) * align
        found: dict[str, Tensor] = {}
        for name, shape, number, offset in rows:
            if number not in list(GGMLQuantizationType):
                raise _bad(self.path, f"{name}: wanted a known type of tensors, got {number}")
            kind = GGMLQuantizationType(number)
            block, size = GGML_QUANT_SIZES[kind]
            if name in found:
                raise _bad(self.path, f"{name}: wanted one tensor of this name, got two")
            if shape[-1] % block or not math.prod(shape):
                raise _bad(
                    self.path, f"{name}: wanted rows of whole {block} in {kind.name}, got {shape}"
                )
            self.at = start + offset
            sizes = (*shape[:-1], shape[-1] // block * size)
            self.take(math.prod(sizes))
            rows_of = self.data[start + offset : self.at].reshape(sizes)
            found[name] = Tensor(name, kind.name, shape, rows_of)
        return found


def _bad(path: Path, what: str) -> ArtifactError:
    return ArtifactError(f"{path}: {what}", ArtifactReason.WEIGHTS)
