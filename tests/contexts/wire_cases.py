"""Contexts in many states, and messages made by hand."""

import numpy as np

from heddle.contexts import (
    EOSTracker,
    GenerationStatus,
    ImageMetadata,
    LogProbabilities,
    PixelContext,
    SamplingParams,
    TextAndVisionContext,
    TextContext,
    TokenBuffer,
    TTSContext,
)
from heddle.runtime._core import Checksum

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
