"""The sections of an artifact: gathered first, then written from the first byte to the last.

Data that is deferred is made when its turn comes, and forgotten behind it.
"""

from __future__ import annotations

import struct
from mmap import mmap
from typing import BinaryIO

from heddle.runtime import artifact_layout as layout
from heddle.runtime._core import Checksum
from heddle.runtime.artifact import Data, Deferred, size_of
from heddle.runtime.errors import CompileError

CHUNK = 1 << 20
"""Bytes that go into the checksum, then into the file, while a cache holds them."""

HEADER, ROW = 64, 32
"""Bytes of the header, and of each row of the table of sections behind it."""


Target = BinaryIO | mmap
"""What is written to: a file, or mapped memory."""


class Section:
    """The bytes of one section in order."""

    def __init__(self) -> None:
        self.size = 0
        self._parts: list[bytearray | Data] = []

    def append(self, data: bytes) -> None:
        """Adds a copy of `data`."""
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, bytearray):
            last = bytearray()
            self._parts.append(last)
        last += data
        self.size += len(data)

    def place(self, data: Data) -> int:
        """Adds `data` itself at the next multiple of 64, and returns its offset."""
        self.append(bytes(-self.size % layout.ALIGNMENT))
        offset = self.size
        self._parts.append(data)
        self.size += size_of(data)
        return offset

    def write(self, target: Target) -> int:
        """Writes the section and returns its checksum."""
        checksum = Checksum()
        for part in self._parts:
            _write(part, checksum, target)
        return checksum.value


def _write(part: bytearray | Data, checksum: Checksum, target: Target) -> None:
    """Writes one part; what was deferred is held in here alone."""
    data = memoryview(part.read() if isinstance(part, Deferred) else part)
    if isinstance(part, Deferred) and data.nbytes != part.nbytes:
        raise CompileError(f"deferred data: wanted {part.nbytes} bytes, got {data.nbytes}")
    if data.nbytes == 0:  # no cast takes a shape with zeros
        return
    data = data.cast("B")
    for start in range(0, len(data), CHUNK):
        chunk = data[start : start + CHUNK]
        checksum.update(chunk)
        target.write(chunk)


class Sections:
    """All sections of one artifact, by name."""

    def __init__(self) -> None:
        self.named = {name: Section() for name, _ in layout.SECTIONS}

    def __getitem__(self, name: str) -> Section:
        return self.named[name]

    def offsets(self) -> list[int]:
        """Where each section starts, and at last where the file ends."""
        end, found = HEADER + ROW * len(layout.SECTIONS), []
        for section in self.named.values():
            found.append(end + -end % layout.ALIGNMENT)
            end = found[-1] + section.size
        return [*found, end]

    def write(self, target: Target) -> None:
        """Writes the artifact: the sections, and then what comes before them."""
        end, table = HEADER + ROW * len(layout.SECTIONS), bytearray()
        *offsets, size = self.offsets()
        target.seek(end)
        for kind, ((name, record), offset) in enumerate(
            zip(layout.SECTIONS, offsets, strict=True), start=1
        ):
            section = self.named[name]
            target.write(bytes(offset - end))
            checksum = section.write(target)
            table += struct.pack("<IIQQQ", kind, record, offset, section.size, checksum)
            end = offset + section.size
        header = layout.MAGIC + struct.pack(
            "<IIQQ24x", layout.VERSION, len(layout.SECTIONS), size, _checksum(table)
        )
        target.seek(0)
        target.write(header + struct.pack("<Q", _checksum(header)) + table)


def _checksum(data: bytes | bytearray) -> int:
    checksum = Checksum()
    checksum.update(data)
    return checksum.value
