"""The errors that Heddle raises: one class for each party at fault, raised by Python and C++ alike.

A message says where, what was wanted and what was found.
"""

from __future__ import annotations

from enum import Enum


class HeddleError(Exception):
    """The base of every error that Heddle raises on purpose."""


class GraphError(HeddleError, ValueError):
    """The user's graph is wrong: a rank, dtype, dim, device or weight, while it is being built."""


class CompileError(HeddleError):
    """A pass or a code generator failed; the message names the pass, the op and the user's line."""


class ArtifactReason(str, Enum):
    """Why an artifact or a weights file was refused, or not written."""

    NOT_FOUND = "not_found"
    NOT_AN_ARTIFACT = "not_an_artifact"
    VERSION = "version"
    TRUNCATED = "truncated"
    CHECKSUM = "checksum"
    MALFORMED = "malformed"
    WEIGHTS = "weights"
    NOT_WRITTEN = "not_written"


class ArtifactError(HeddleError):
    """An artifact or a weights file is missing, corrupt, of another format, or not written.

    Attributes:
        reason: The `ArtifactReason`.
    """

    def __init__(self, message: str, reason: str | ArtifactReason) -> None:
        super().__init__(message)
        self.reason = ArtifactReason(reason)


class DeviceError(HeddleError):
    """A device, a driver or an instruction set that is needed is not there, or a device failed."""


class InputError(HeddleError, ValueError):
    """What was passed to `execute` has the wrong count, shape, dtype, device or values."""
