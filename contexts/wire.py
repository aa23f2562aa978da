"""Contexts, requests and outputs as msgpack messages, and back.

A message is a msgpack array of two: the value, and a checksum of the bytes before it. Arrays travel
as extension values, see `wire_arrays`; contexts as the records of `wire_records`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from heddle.contexts.eos import EOSTracker
from heddle.contexts.pixel import PixelContext
from heddle.contexts.text import TextContext
from heddle.contexts.tokens import TokenBuffer, TokenState
from heddle.contexts.values import RequestID
from heddle.contexts.wire_arrays import ARRAY_CODE, check_array, is_array, pack_array, unpack_array
from heddle.contexts.wire_records import EOSRecord, PixelRecord, TextRecord, check_items
from heddle.runtime.errors import InputError

# An array of two begins a message; a binary string of eight bytes, the checksum, ends it.
_BEGIN = b"\x92"
_CHECKSUM = b"\xc4\x08"
_NO_SUM = bytes(8)
_WORD = np.dtype("<u8")
_END = len(_CHECKSUM) + len(_NO_SUM)


def checksum(message: bytes | bytearray | memoryview) -> bytes:
    """Eight bytes: the length plus the sum of all 64-bit words, the last one filled with zeros.

    No change within one word goes unnoticed. Several times faster than a CRC, which would cost half
    of the time that a message of 64 KiB takes.
    """
    whole = len(message) // 8 * 8
    words = np.frombuffer(message, _WORD, whole // 8)
    rest = int.from_bytes(message[whole:], "little")
    return ((int(np.add.reduce(words)) + rest + len(message)) % (1 << 64)).to_bytes(8, "little")


def _to_wire(value: object) -> Any:
    if isinstance(value, np.ndarray):
        return pack_array(value)
    if isinstance(value, RequestID):
        return value.value
    if isinstance(value, TextContext):
        return TextRecord.of(value)
    if isinstance(value, PixelContext):
        return PixelRecord.of(value)
    if isinstance(value, TokenBuffer):
        return value.state()
    if isinstance(value, EOSTracker):
        return EOSRecord.of(value)
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
        return _convert(value, EOSRecord).build()
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

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_to_wire)

    def __call__(self, value: Any) -> bytes:
        try:
            message = self._encoder.encode((value, _NO_SUM))
        except (OverflowError, UnicodeEncodeError) as error:
            raise TypeError(
                f"wanted integers of 64 bits and texts in UTF-8, got: {error}"
            ) from None
        summed = memoryview(message)[: -len(_NO_SUM)]
        return b"".join((summed, checksum(summed)))

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return msgpack_numpy_encoder, ()


class _Decode:
    """Turns a message back into a value of one type."""

    def __init__(self, type_: Any, copy: bool) -> None:
        self._type = type_
        self._copy = copy
        # What contexts travel as is read without a step between: a list of its items.
        self._record = _record_of(type_)
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
            self._record or type_, dec_hook=_from_wire, ext_hook=self._unpack_extension
        )

    def _unpack_extension(self, code: int, data: memoryview) -> Any:
        if code != ARRAY_CODE:
            raise ValueError(f"wanted extension {ARRAY_CODE}, an array, got {code}")
        return unpack_array(data, self._copy)

    def __call__(self, message: bytes | bytearray | memoryview) -> Any:
        view = memoryview(message)
        framed = (
            len(view) > len(_BEGIN) + _END
            and view[: len(_BEGIN)] == _BEGIN
            and bytes(view[-_END:]) == _CHECKSUM + checksum(view[: -len(_NO_SUM)])
        )
        if not framed:
            raise InputError(
                f"message: wanted a whole, unchanged message, got {len(view)} bytes without the "
                "frame or the checksum of one"
            )
        try:
            value = self._decoder.decode(view[len(_BEGIN) : -_END])
            return value if self._record is None else _build(value, self._type)
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

    def __reduce__(self) -> tuple[Any, tuple[Any, bool]]:
        return msgpack_numpy_decoder, (self._type, self._copy)


def msgpack_numpy_encoder() -> Callable[[Any], bytes]:
    """A function that encodes contexts, requests, outputs, arrays and plain data.

    It raises TypeError for anything else, also an integer of more than 64 bits. The matcher of a
    context stays behind: the receiver makes its own from `json_schema`.
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
