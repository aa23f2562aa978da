import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from wire_cases import CONTEXTS, ENTRY, speech_context, vision_context

from heddle.contexts import (
    AudioGenerationRequest,
    AudioGenerationResponse,
    EmbeddingsResponse,
    EOSTracker,
    GenerationOutput,
    GenerationStatus,
    OutputImageContent,
    RequestID,
    SamplingParams,
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
from heddle.runtime.errors import InputError

encode = msgpack_numpy_encoder()


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
