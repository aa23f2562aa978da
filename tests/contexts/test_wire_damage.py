"""Messages that are damaged, and ones that lie."""

import struct
import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
from wire_cases import framed, taken_apart, text_context

from heddle.contexts import (
    LogProbabilities,
    SamplingParams,
    TextContext,
    TextGenerationRequest,
    TokenBuffer,
    msgpack_numpy_decoder,
    msgpack_numpy_encoder,
)
from heddle.runtime.errors import InputError

encode = msgpack_numpy_encoder()


def test_every_truncation_and_every_changed_byte_is_found():
    message = encode(TextContext(max_length=9, tokens=np.array([1, 2]), request_id="r"))
    decode = msgpack_numpy_decoder(TextContext)
    decode(message)
    for end in range(len(message)):
        with pytest.raises(InputError, match="wanted a whole, unchanged message"):
            decode(message[:end])
    for at in range(len(message)):
        for flip in range(1, 256):
            damaged = bytearray(message)
            damaged[at] ^= flip
            with pytest.raises(InputError):
                decode(damaged)
    with pytest.raises(InputError):
        decode(message + b"\x00")


def test_damage_under_a_right_checksum_is_a_typed_error_without_large_allocations():
    message = encode(TextContext(max_length=9, tokens=np.array([1, 2]), request_id="r"))
    value, arrays = taken_apart(message)
    decode = msgpack_numpy_decoder(TextContext)
    broken = [framed(value[:end], arrays) for end in range(len(value))]
    broken += [framed(value, arrays[:end]) for end in range(len(arrays))]
    for at in range(len(value)):
        for changed in (0x00, 0x7F, 0x80, 0xC1, 0xC6, 0xC9, 0xDB, 0xDD, 0xDF, 0xFF):
            broken.append(framed(value[:at] + bytes([changed]) + value[at + 1 :], arrays))
    refused = 0
    tracemalloc.start()
    for damaged in broken:
        try:
            decode(damaged)
        except InputError:
            refused += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused > len(broken) / 2
    assert peak < 100_000


@pytest.mark.parametrize(
    "start", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"]
)
def test_a_claimed_size_allocates_nothing(start):
    decode = msgpack_numpy_decoder(Any)
    tracemalloc.start()
    with pytest.raises(InputError):
        decode(framed(start))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000


def array(name, start, *shape):
    return 1, struct.pack(f"<4sQ{len(shape)}Q", name, start, *shape)


@pytest.mark.parametrize(
    ("extension", "reason"),
    [
        ((1, b"<i8"), "wanted its dtype, place and shape, got 3 bytes"),
        ((1, b"<i8\0" + bytes(9)), "wanted its dtype, place and shape, got 13 bytes"),
        (array(b"<i8", 0, *[1] * 65), "wanted its dtype, place and shape, got 532 bytes"),
        (array(b"|O8", 0, 1), "a known dtype, got b'|O8'"),
        (array(b"<i8", 0, 2**61), f"bytes 0 to {2**64}"),
        (array(b"<i8", 0, 3), r"wanted \[3\] of int64 within bytes 0 to 16, got bytes 0 to 24"),
        (array(b"<i8", 16, 1), "within bytes 0 to 16, got bytes 16 to 24"),
        (array(b"<i8", 0, 0, 2**63), "got another value"),
        ((2, b""), "wanted extension 1, an array, got 2"),
    ],
)
def test_arrays_that_lie(extension, reason):
    message = framed(msgspec.msgpack.encode(msgspec.msgpack.Ext(*extension)), bytes(16))
    with pytest.raises(InputError, match=reason):
        msgpack_numpy_decoder(np.ndarray)(message)


def test_no_two_arrays_share_bytes():
    twice = [msgspec.msgpack.Ext(*array(b"<i8", 0, 2))] * 2
    with pytest.raises(InputError, match="within bytes 16 to 16, got bytes 0 to 16"):
        msgpack_numpy_decoder(Any)(framed(msgspec.msgpack.encode(twice), bytes(16)))


def test_decoding_validates_like_construction():
    for type_, value, reason in (
        (SamplingParams, {"top_p": 3}, "SamplingParams.top_p"),
        (TextGenerationRequest, {"id": "r", "index": 0, "model_name": "m"}, "got neither"),
        (TokenBuffer, [np.zeros(0, np.int64), 0, (0, 0), (0, 0), 0, ()], "at least one token"),
        (TokenBuffer, [np.zeros(2, np.int32), 0, (0, 0), (0, 0), 0, ()], "array of int64"),
        (TokenBuffer, [np.zeros(2, np.int64), 3, (0, 2), (2, 2), 0, ()], "leave the 2 tokens"),
        (np.ndarray, [1], "wanted an array, got list"),
        (object, 1, "wanted a type of heddle.contexts"),
        (LogProbabilities, {"token_log_probabilities": [1.0], "top_log_probabilities": []}, "one"),
    ):
        with pytest.raises(InputError, match=reason):
            msgpack_numpy_decoder(type_)(encode(value))


def test_an_invalid_context_is_refused():
    value, arrays = taken_apart(encode(text_context()))
    record = msgspec.msgpack.decode(value, ext_hook=msgspec.msgpack.Ext)
    for index, value, reason in (
        (0, 1, "max_length 1"),
        (2, -1, "first_prompt_length: wanted 0 or more, got -1"),
        (16, "http://x", "target_endpoint"),
        (20, 99, "committed_idx: wanted 0 to 6, got 99"),
    ):
        changed = [*record]
        changed[index] = value
        with pytest.raises(InputError, match=reason):
            msgpack_numpy_decoder(TextContext)(framed(msgspec.msgpack.encode(changed), arrays))


@pytest.mark.parametrize("index", [4, 13, 22])
def test_an_array_in_the_place_of_a_mapping_is_refused(index):
    value, arrays = taken_apart(encode(text_context()))
    record = msgspec.msgpack.decode(value, ext_hook=msgspec.msgpack.Ext)
    record[index] = msgspec.msgpack.Ext(*array(b"<i8", len(arrays), 3))
    with pytest.raises(InputError, match="wanted TextContext, got another value"):
        msgpack_numpy_decoder(TextContext)(
            framed(msgspec.msgpack.encode(record), arrays + bytes(24))
        )
