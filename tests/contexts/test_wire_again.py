"""Whatever the constructors of contexts take decodes again, or is refused by the encoder."""

import numpy as np
import pytest

from heddle.contexts import (
    ImageMetadata,
    SamplingParams,
    TextAndVisionContext,
    TextContext,
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
    "a prompt of a tuple": lambda: TextContext(**TOKENS, prompt=(1, np.int64(2))),
}


@pytest.mark.parametrize("make", AGAIN.values(), ids=AGAIN)
def test_what_the_constructor_takes_decodes_again(plain, make):
    context = make()
    again = msgpack_numpy_decoder(TextContext)(encode(context))
    assert plain(again) == plain(context)
    assert again.sampling_params == context.sampling_params
    assert again.prompt == context.prompt


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
