"""Files that are written in one step: nobody sees a part of one."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from heddle.runtime._core import path_text
from heddle.runtime.errors import ArtifactError, ArtifactReason

REMEDIES = {
    errno.ENOENT: " (make its folder first)",
    errno.ENOTDIR: " (make its folder first)",
    errno.EISDIR: " (give the name of a file)",
    errno.EACCES: " (save it where you may write)",
    errno.EPERM: " (save it where you may write)",
    errno.EROFS: " (save it where you may write)",
    errno.ENOSPC: " (make room, or save it elsewhere)",
    errno.EDQUOT: " (make room, or save it elsewhere)",
}
"""What to do where the system does not let us write."""


def save(path: str | os.PathLike[str], data: bytes | memoryview) -> None:
    """Writes `data` to the file `path`; see `replacing`."""
    with replacing(path) as place:
        place.write_bytes(data)


def save_artifact(path: str | os.PathLike[str], data: bytes | memoryview) -> None:
    """As `save`, with the errors of `of_artifact`."""
    with of_artifact(path):
        save(path, data)


@contextmanager
def of_artifact(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns errors of the system into ArtifactError: they are about the artifact at `path`."""
    try:
        yield
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0, "")
        raise ArtifactError(
            f"{os.fsdecode(path)}: cannot be written: {error.strerror}{remedy}",
            ArtifactReason.NOT_WRITTEN,
        ) from error


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Where to write what shall be at `path`: a file beside it, which takes its place at the end.

    Where that fails, or the caller does, the file goes and `path` stays as it was. A link stays a
    link, and a stream is written to itself: it cannot be replaced.

    Raises:
        InputError: The path has a NUL.
        OSError: With `path` as its file name, which the caller knows.
    """
    place = target = Path(path_text(path))
    try:
        if not is_stream(path):
            target = _resolved(target)
            place = target.with_name(f".{os.urandom(8).hex()}")  # nobody else's, and short
        yield place
        if place != target:
            os.replace(place, target)
    except BaseException as error:
        if place != target:
            with suppress(OSError):
                place.unlink()
        if isinstance(error, OSError):
            error.filename = path
        raise


def _resolved(path: Path) -> Path:
    """Where links lead; before Python 3.13 those in a ring have an error of their own."""
    try:
        return path.resolve()
    except RuntimeError:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None


def is_stream(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is there but no regular file: a device, or a pipe, which takes no seek."""
    target = Path(path_text(path))
    return target.exists() and not target.is_file()
