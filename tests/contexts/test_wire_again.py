"""Whatever the constructors of contexts take decodes again, or is refused by the encoder."""

import numpy as np
import pytest

from heddle.contexts import (
    AudioGenerationRequest,
    ImageMetadata,
    PixelContext,
    SamplingParams,
    TextAndVisionContext,
    TextContext,
    TextGenerationRequest,
    TTSContext,
    msgpack_numpy_decoder,
    msgpack_numpy_encoder,
)
from heddle.contexts.wire_records import TextRecord
from heddle.runtime.errors import InputError

encode = msgpack_numpy_encoder()
TOKENS = {"max_length": 50, "tokens": np.arange(1, 5)}
IMAGES = [ImageMetadata(4, 6, np.zeros(3))]
VISION = {"max_length": 50, "tokens": np.array([1, 2, 3, 4, 9, 9, 5, 6]), "vision_token_ids": [9]}
AGAIN = {
    "a prompt that ends before its image": lambda: TextAndVisionContext(
        **VISION, images=IMAGES, _active_idx=3
    ),
    "no prompt": lambda: TextContext(**TOKENS, _prompt_len=0),
    "no prompt, and a minimum that fits": lambda: TextContext(
        max_length=4,
        tokens=np.arange(1, 5),
        _prompt_len=0,
        sampling_params=SamplingParams(min_new_tokens=4),
    ),
    "tuples of stops": lambda: TextContext(
        **TOKENS, sampling_params=SamplingParams(stop=("a", "b"), stop_token_ids=(7,))
    ),
    "a prompt of an array": lambda: TextContext(**TOKENS, prompt=np.arange(1, 5)),
    "flags that are numbers": lambda: TextContext(
        **TOKENS, log_probabilities=True, ignore_eos=1, log_probabilities_echo=np.bool_(True)
    ),
    "speech tokens in lists": lambda: TTSContext(
        **TOKENS, audio_prompt_tokens=[1, 2], buffer_speech_tokens=[], audio_buffer=[0.5]
    ),
    "no speech tokens": lambda: TTSContext(**TOKENS, audio_prompt_tokens=[], streaming=1),
    "pixels and arguments in lists": lambda: TextAndVisionContext(
        **{**VISION, "vision_token_ids": np.array([9])},
        images=[ImageMetadata(np.int64(4), 6, [1.0], np.int64(3))],
        extra_model_args={"sizes": [[1, 2]], "scale": 0.5},
    ),
    "loose pixels in lists": lambda: TextAndVisionContext(**VISION, pixel_values=[[1.0], [2.0]]),
    "a prompt of a tuple": lambda: TextContext(**TOKENS, prompt=(1, np.int64(2))),
}


@pytest.mark.parametrize("make", AGAIN.values(), ids=AGAIN)
def test_what_the_constructor_takes_decodes_again(plain, make):
    context = make()
    again = msgpack_numpy_decoder(TextContext)(encode(context))
    assert plain(again) == plain(context)
    assert again.sampling_params == context.sampling_params
    assert again.prompt == context.prompt


def test_arrays_of_an_image_request_may_be_lists(plain):
    context = PixelContext(
        tokens=np.arange(3),
        mask=np.array([1, 0, 1]),
        sigmas=[0.5, 0.25],
        guidance=3.5,
        extra_params={"sizes": [1, 2]},
    )
    assert context.mask.tolist() == [True, False, True]
    assert plain(msgpack_numpy_decoder(PixelContext)(encode(context))) == plain(context)


@pytest.mark.parametrize("kind", [TextGenerationRequest, AudioGenerationRequest])
def test_the_prompt_of_a_request_may_be_an_array(kind):
    request = kind("a", np.int64(0), "m", prompt=np.array([1, 2]))
    assert request.prompt == [1, 2]
    assert msgpack_numpy_decoder(kind)(encode(request)) == request


def test_the_voice_of_a_request_may_be_an_array():
    request = AudioGenerationRequest("a", 0, "m", "x", audio_prompt_tokens=np.array([1, 2]))
    assert msgpack_numpy_decoder(AudioGenerationRequest)(encode(request)) == request


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: TextContext(**TOKENS, log_probabilities="x"),
            TypeError,
            "log_probabilities: wanted an integer, got 'x'",
        ),
        (
            lambda: TextContext(**TOKENS, log_probabilities=-1),
            ValueError,
            "log_probabilities: wanted an integer of at least 0, got -1",
        ),
        (
            lambda: TextContext(**TOKENS, cached_prefix_length=1.5),
            TypeError,
            "cached_prefix_length: wanted an integer, got 1.5",
        ),
        (
            lambda: TextContext(**TOKENS, model_name=None),
            TypeError,
            "model_name: wanted a text, got None",
        ),
        (
            lambda: TTSContext(**TOKENS, audio_prompt_tokens=[1.5]),
            ValueError,
            "speech tokens: wanted a one-dimensional integer array, got 1 dimensions of float64",
        ),
        (
            lambda: ImageMetadata(0, 1, [1.0], "hash"),
            TypeError,
            "ImageMetadata.image_hash: wanted an integer, got 'hash'",
        ),
        (
            lambda: TextGenerationRequest(5, 0, "m", "x"),
            ValueError,
            "TextGenerationRequest: wanted id and model name as texts, got 5 and 'm'",
        ),
        (
            lambda: TextGenerationRequest("a", 1.5, "m", "x"),
            ValueError,
            "TextGenerationRequest: wanted an index of at least 0, got 1.5",
        ),
    ],
)
def test_what_no_decoder_takes_is_refused_at_once(make, error, message):
    with pytest.raises(error) as refused:
        make()
    assert str(refused.value) == message


@pytest.mark.parametrize("dropped", [False, True])
def test_a_context_whose_arrays_are_views_goes_on_after_a_reset(text, dropped):
    context = text()
    context.update_with_future_token()
    again = msgpack_numpy_decoder(TextContext, copy=False)(encode(context))
    if dropped:
        again.tokens.reset_as_new_prompt(delete_last_generated_token=True)
    else:
        again.reset()
    again.update(7)
    assert again.tokens.all.tolist() == [1, 2, 3, 7]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(top_k=-1, top_p=0.5, min_p=0.25, temperature=0.0, seed=-7, detokenize=False),
        SamplingParams(2, 0.5, 0.1, 3, -1, 2, 0.5, 9, 1, True, ["a", "b"], [7], False, 5),
        SamplingParams(stop=[], stop_token_ids=[]),
    ],
)
def test_sampling_parameters_of_a_context(params):
    """Requests that have the same share them, but for lists, which are each one's own."""
    context = TextContext(max_length=99, tokens=np.array([1]), sampling_params=params)
    decode, message = msgpack_numpy_decoder(TextContext), encode(context)
    first, second = (decode(message).sampling_params for _ in range(2))
    assert first == second == params
    assert (first is second) == (params.stop is None)


def test_what_no_message_holds_is_a_type_error():
    images = [ImageMetadata(4, 6, np.zeros(3), image_hash=1 << 64)]
    with pytest.raises(TypeError, match="wanted integers of 64 bits"):
        encode(TextAndVisionContext(**VISION, images=images))
    nested = []
    for _ in range(20_000):
        nested = [nested]
    with pytest.raises(TypeError, match=r"nothing nested too deep, got: maximum recursion"):
        encode(nested)
    with pytest.raises(TypeError, match="texts in UTF-8"):
        encode(TextContext(**TOKENS, model_name="\ud800"))


@pytest.mark.parametrize("name", TextRecord.__struct_fields__)
def test_an_array_in_the_place_of_anything_else_is_refused(text, name):
    """Also of what has a default for each of its items."""
    record = TextRecord.of(text())
    setattr(record, name, np.arange(3))
    message = msgpack_numpy_encoder()(record)
    decode = msgpack_numpy_decoder(TextContext)
    if name == "external_block_metadata":  # anything
        assert decode(message).external_block_metadata.tolist() == [0, 1, 2]
        return
    with pytest.raises(InputError, match=r"^message: wanted TextContext, got another value: "):
        decode(message)
