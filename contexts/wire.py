"""Contexts, requests and outputs as msgpack messages, and back.

A message is a msgpack array of three: the bytes of all arrays, as one binary string; the value, in
which extension values stand for its arrays, see `wire_arrays`, and records for contexts, see
`wire_records`; and a checksum. What begins the message fills `ALIGNMENT` bytes, so that arrays are
aligned wherever the message is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from heddle.contexts.eos import EOSTracker
from heddle.contexts.pixel import PixelContext
from heddle.contexts.text import TextContext
from heddle.contexts.tokens import TokenBuffer, TokenState
from heddle.contexts.values import RequestID
from heddle.contexts.wire_arrays import (
    ALIGNMENT,
    IncomingArrays,
    OutgoingArrays,
    check_array,
    is_array,
)
from heddle.contexts.wire_records import (
    EOSValues,
    PixelRecord,
    TextRecord,
    check_items,
    eos_tracker,
    eos_values,
)
from heddle.runtime._core import Checksum
from heddle.runtime.errors import InputError

# An array of three begins with a binary string: its length, then zeros up to the first array.
_BEGIN = b"\x93\xc6"
_NAMED = len(_BEGIN) + 4  # bytes before those that the length counts
_FRAME = struct.Struct(f">2sI{ALIGNMENT - _NAMED}x")
# A binary string of eight bytes ends it.
_CHECKSUM = b"\xc4\x08"
_SUM_SIZE = 8
_END = len(_CHECKSUM) + _SUM_SIZE


def _checksum(*parts: bytes | memoryview) -> bytes:
    total = Checksum()
    for part in parts:
        total.update(part)
    return total.value.to_bytes(_SUM_SIZE, "little")


def _take_apart(message: memoryview) -> tuple[memoryview, memoryview] | None:
    """The bytes of the arrays, and the value; None: the message is not as it was sent."""
    end = len(message) - _END
    if end < _FRAME.size:
        return None
    begin, named = _FRAME.unpack_from(message)
    value = _NAMED + named
    if begin != _BEGIN or not _FRAME.size <= value <= end:
        return None
    if message[-_SUM_SIZE:] != _checksum(message[:-_SUM_SIZE]):
        return None
    return message[_FRAME.size : value], message[value:end]


def _to_wire(value: object) -> Any:
    if isinstance(value, RequestID):
        return value.value
    if isinstance(value, TextContext):
        return TextRecord.of(value)
    if isinstance(value, PixelContext):
        return PixelRecord.of(value)
    if isinstance(value, TokenBuffer):
        return value.state()
    if isinstance(value, EOSTracker):
        return eos_values(value)
    if isinstance(value, np.generic) and not isinstance(value.item(), np.generic):
        return value.item()
    raise TypeError(f"wanted contexts, requests, outputs, arrays or plain data, got {type(value)}")


def _from_wire(type_: Any, value: Any) -> Any:
    if is_array(type_):
        return check_array(type_, value)
    if type_ is RequestID:
        return RequestID(_convert(value, str))
    if type_ is TokenBuffer:
        return TokenBuffer.of_state(_convert(value, TokenState))
    if type_ is EOSTracker:
        return eos_tracker(_convert(value, EOSValues))
    if (record := _record_of(type_)) is not None:
        if record is TextRecord:
            check_items(value)
        return _build(_convert(value, record), type_)
    raise TypeError(f"wanted a type of heddle.contexts, an array or plain data, got {type_}")


def _convert(value: Any, type_: Any) -> Any:
    return msgspec.convert(value, type_, dec_hook=_from_wire)


def _record_of(type_: Any) -> type[TextRecord | PixelRecord] | None:
    """The record as which contexts of `type_` travel; None: they are none."""
    if not isinstance(type_, type):
        return None
    if issubclass(type_, TextContext):
        return TextRecord
    return PixelRecord if issubclass(type_, PixelContext) else None


def _build(record: TextRecord | PixelRecord, type_: type) -> TextContext | PixelContext:
    context = record.build()
    if not isinstance(context, type_):
        raise TypeError(f"wanted a {type_.__name__}, got a {type(context).__name__}")
    return context


class _Encode:
    """Turns a value into a message."""

    def __call__(self, value: Any) -> bytes:
        arrays = OutgoingArrays()

        def to_wire(value: object) -> Any:
            return arrays.pack(value) if isinstance(value, np.ndarray) else _to_wire(value)

        try:
            rest = msgspec.msgpack.encode(value, enc_hook=to_wire) + _CHECKSUM
            begin = _FRAME.pack(_BEGIN, _FRAME.size - _NAMED + arrays.size)
        except (OverflowError, UnicodeEncodeError, RecursionError, struct.error) as error:
            raise TypeError(
                "wanted integers of 64 bits, texts in UTF-8, less than 4 GiB of arrays and nothing "
                f"nested too deep, got: {error}"
            ) from None
        parts = (begin, *arrays.parts, rest)
        return b"".join((*parts, _checksum(*parts)))

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return msgpack_numpy_encoder, ()


class _Decode:
    """Turns a message back into a value of one type."""

    def __init__(self, type_: Any, copy: bool) -> None:
        self._type = type_
        self._copy = copy
        self._arrays = IncomingArrays(copy)
        # What contexts travel as is read without a step between: a list of its items.
        self._record = _record_of(type_)
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
            self._record or type_, dec_hook=_from_wire, ext_hook=self._arrays.unpack
        )

    def __call__(self, message: bytes | bytearray | memoryview) -> Any:
        parts = _take_apart(memoryview(message))
        if parts is None:
            raise InputError(
                f"message: wanted a whole, unchanged message, got {len(message)} bytes without the "
                "frame or the checksum of one"
            )
        arrays, value = parts
        self._arrays.begin(arrays)
        try:
            decoded = self._decoder.decode(value)
            return decoded if self._record is None else _build(decoded, self._type)
        # AttributeError: msgspec takes any extension value for a mapping, and asks for its keys.
        except (
            msgspec.MsgspecError,
            ValueError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            wanted = self._type.__name__ if isinstance(self._type, type) else self._type
            raise InputError(f"message: wanted {wanted}, got another value: {error}") from error
        finally:
            self._arrays.end()

    def __reduce__(self) -> tuple[Any, tuple[Any, bool]]:
        return msgpack_numpy_decoder, (self._type, self._copy)


def msgpack_numpy_encoder() -> Callable[[Any], bytes]:
    """A function that encodes contexts, requests, outputs, arrays and plain data.

    It raises TypeError for anything else, also an integer of more than 64 bits, or what is nested
    too deep. The matcher of a context stays behind: the receiver makes its own from `json_schema`.
    """
    return _Encode()


def msgpack_numpy_decoder(type_: Any, copy: bool = True) -> Callable[[bytes], Any]:
    """A function that decodes messages of `msgpack_numpy_encoder`.

    It raises `InputError` for a message that is damaged or holds anything but a valid `type_`.

    Args:
        type_: What the messages hold. `TextContext` takes every kind of text context.
        copy: Whether arrays are copied out; else they are read-only views of the message.
    """
    return _Decode(type_, copy)
