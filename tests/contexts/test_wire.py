import pickle
import struct
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
import pytest

from heddle.contexts import (
    AudioGenerationRequest,
    AudioGenerationResponse,
    EmbeddingsResponse,
    EOSTracker,
    GenerationOutput,
    GenerationStatus,
    ImageMetadata,
    LogProbabilities,
    OutputImageContent,
    PixelContext,
    RequestID,
    SamplingParams,
    TextAndVisionContext,
    TextContext,
    TextGenerationOutput,
    TextGenerationRequest,
    TextGenerationResponse,
    TextResponse,
    TokenBuffer,
    TokenGeneratorRequestFunction,
    TokenGeneratorRequestMessage,
    TokenGeneratorRequestTool,
    TokenGeneratorResponseFormat,
    TTSContext,
    msgpack_numpy_decoder,
    msgpack_numpy_encoder,
)
from heddle.runtime._core import Checksum
from heddle.runtime.errors import InputError

encode = msgpack_numpy_encoder()
ENTRY = LogProbabilities([-1.0], [{3: -1.0, 4: -2.5}])
TOKENS = {"max_length": 50, "tokens": np.arange(1, 5)}


def framed(value, arrays=b""):
    """A message with a right checksum around any msgpack bytes, and around those of arrays."""
    begin = b"\x93\xc6" + (10 + len(arrays)).to_bytes(4, "big") + bytes(10)
    total = Checksum()
    total.update(message := begin + arrays + value + b"\xc4\x08")
    return message + total.value.to_bytes(8, "little")


def taken_apart(message):
    """What `framed` takes of a message."""
    value = 6 + int.from_bytes(message[2:6], "big")
    return message[value:-10], message[16:value]


def text_context():
    context = TextContext(
        **TOKENS,
        request_id="r",
        eos_tracker=EOSTracker({0}, [[8, 9]], ["stop"]),
        log_probabilities=2,
        json_schema="{}",
        sampling_params=SamplingParams(top_k=4, stop=["x"], seed=7),
        model_name="m",
        target_endpoint="ipc:///x",
        external_block_metadata={"blocks": [1, b"2"]},
        prompt="hi",
    )
    context.update(5, ENTRY)
    context.update(0)
    context.rollback(1)
    context.jump_ahead(6)
    context.eos_tracker.is_eos_from_string("a st")
    context.spec_decoding_state.propose([1, 2])
    context.assign_to_cache(3)
    context.set_token_indices(committed_idx=2)
    context.cached_prefix_length = 1
    context.update_status(GenerationStatus.CANCELLED)
    return context


def reset_context():
    context = TextContext(
        max_length=8, tokens=np.arange(1, 5), sampling_params=SamplingParams(min_new_tokens=4)
    )
    for token in (5, 6, 7):
        context.update(token)
    context.reset()
    context.tokens.chunk(3)
    return context


def cut_context():
    context = TextContext(**TOKENS)
    context.rollback(2)
    return context


def vision_context():
    return TextAndVisionContext(
        max_length=50,
        tokens=TokenBuffer(np.array([1, 98, 98, 2])),
        vision_token_ids=[98],
        images=[ImageMetadata(1, 3, np.ones((1, 2, 2), np.float16), 123)],
        extra_model_args={"grid": np.zeros((0, 3), np.int32)},
    )


def speech_context():
    context = TTSContext(**TOKENS, audio_prompt_tokens=np.arange(3), streaming=True)
    context.update_speech_tokens(np.arange(200))
    context.set_decoded_index(20)
    context.audio_buffer = np.zeros(3, np.float32)
    return context


def pixel_context():
    return PixelContext(
        tokens=TokenBuffer(np.array([1])),
        negative_tokens=TokenBuffer(np.array([2, 3])),
        mask=np.array([True, False]),
        latents=np.ones((1, 2, 2, 3), np.float32),
        extra_params={"cfg": np.array(3, np.float32)},
        guidance_scale=2.0,
    )


CONTEXTS = [text_context, reset_context, cut_context, vision_context, speech_context, pixel_context]


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("make", CONTEXTS)
def test_contexts_come_back_as_they_were(make, copy, plain):
    context = make()
    decode = msgpack_numpy_decoder(type(context), copy=copy)
    again = decode(encode(context))
    assert plain(again) == plain(context)
    if isinstance(context, TextContext):
        assert again.tokens.all.flags.writeable is copy
        again.update_status(GenerationStatus.ACTIVE)
        while again.tokens.actively_chunked:
            again.update(0)
        again.update(7)
        again.tokens.overwrite_last_token(8)
        assert again.last_generated_token == 8


def test_a_text_context_decoder_takes_every_kind():
    decode = msgpack_numpy_decoder(TextContext)
    assert isinstance(decode(encode(speech_context())), TTSContext)
    with pytest.raises(InputError, match="wanted a TTSContext, got a TextAndVisionContext"):
        msgpack_numpy_decoder(TTSContext)(encode(vision_context()))


VALUES = [
    TextGenerationRequest(
        "r",
        0,
        "m",
        messages=[
            TokenGeneratorRequestMessage("user", [{"type": "image"}, {"type": "text", "text": "x"}])
        ],
        images=[b"\x00\xff"],
        tools=[TokenGeneratorRequestTool("function", TokenGeneratorRequestFunction("f"))],
        response_format=TokenGeneratorResponseFormat("json_schema", {"type": "object"}),
        stop=["a"],
        sampling_params=SamplingParams(temperature=0.5),
    ),
    TextGenerationRequest("r", 1, "m", prompt=[1, 2]),
    AudioGenerationRequest("r", 0, "m", "x", [1], _assistant_message_override="y"),
    TextGenerationOutput(RequestID("r"), [1, 2], GenerationStatus.ACTIVE, [ENTRY, None]),
    GenerationOutput(RequestID("r"), GenerationStatus.CANCELLED, [OutputImageContent("eA", "png")]),
    TextGenerationResponse([TextResponse(1, ENTRY), TextResponse("x")], GenerationStatus.ACTIVE),
    AudioGenerationResponse(GenerationStatus.ACTIVE, np.ones(3, np.float32)),
    EmbeddingsResponse(np.ones((2, 3))),
    EOSTracker({1}, [[2]], ["x"]),
    TokenBuffer(np.array([1, 2])),
    SamplingParams(stop_token_ids=[1]),
    RequestID("r"),
    {"a": [1, None, 2.5, b"x", True]},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_come_back_as_they_were(value, plain):
    again = msgpack_numpy_decoder(type(value))(encode(value))
    assert type(again) is type(value)
    assert plain(again) == plain(value)


def test_views_of_a_message_are_aligned():
    values = [np.ones(3, np.int8), np.arange(5), np.ones((1, 3), np.complex128), np.float32(2)]
    for size in range(4):
        sent = {"x" * size: [*map(np.asarray, values)]}
        ((again,),) = [msgpack_numpy_decoder(Any, copy=False)(encode(sent)).values()]
        for array, value in zip(again, values, strict=True):
            assert array.flags.aligned
            np.testing.assert_array_equal(array, value, strict=True)


def test_threads_share_a_decoder():
    decode = msgpack_numpy_decoder(Any, copy=False)
    messages = [encode([np.full(size, size)] * 3) for size in range(1, 9)]
    with ThreadPoolExecutor(8) as pool:
        for size, again in enumerate(pool.map(decode, messages * 200)):
            wanted = size % 8 + 1
            assert [array.tolist() for array in again] == [[wanted] * wanted] * 3


def test_a_decoder_lets_go_of_its_message():
    message = bytearray(encode(np.arange(3)))
    decode = msgpack_numpy_decoder(np.ndarray, copy=True)
    decode(message)
    message.clear()  # raises BufferError while there is a view


def test_functions_can_be_pickled():
    again = pickle.loads(pickle.dumps(msgpack_numpy_decoder(np.ndarray, copy=False)))
    message = pickle.loads(pickle.dumps(encode))(np.arange(3))
    assert again(message).flags.writeable is False


@pytest.mark.parametrize(
    "value",
    [object(), np.array([object()]), np.array(["x"]), {1, object()}, np.longdouble(3)],
)
def test_what_cannot_travel_is_refused(value):
    with pytest.raises(TypeError, match="wanted"):
        encode(value)


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
