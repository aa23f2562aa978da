"""Contexts as plain typed records, the form in which they travel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from heddle.contexts.eos import EOSTracker
from heddle.contexts.pixel import PixelContext
from heddle.contexts.sampling import SamplingParams
from heddle.contexts.speculative import SpecDecodingState
from heddle.contexts.text import TextContext
from heddle.contexts.text_and_vision import ImageMetadata, TextAndVisionContext
from heddle.contexts.tokens import TokenBuffer, TokenState
from heddle.contexts.tts import TTSContext
from heddle.contexts.values import GenerationStatus, LogProbabilities

_Array = npt.NDArray[Any]
# The fields of `SamplingParams`, in their order.
_Sampling = tuple[
    int,
    float,
    float,
    float,
    float,
    float,
    float,
    int | None,
    int,
    bool,
    list[str] | None,
    list[int] | None,
    bool,
    int,
]
_NAMES = [field.name for field in fields(SamplingParams)]
_STOP, _STOP_TOKEN_IDS = _NAMES.index("stop"), _NAMES.index("stop_token_ids")
_sampling = attrgetter(*_NAMES)


@lru_cache(64)
def _frozen(values: _Sampling) -> SamplingParams:
    return SamplingParams(*values)


def _sampling_params(values: _Sampling) -> SamplingParams:
    """The parameters, checked once for all requests that have the same, but for lists of stops."""
    shared = values[_STOP] is None and values[_STOP_TOKEN_IDS] is None
    return _frozen(values) if shared else SamplingParams(*values)


_Endings = tuple[tuple[int, ...], tuple[tuple[int, ...], ...], tuple[str, ...]]
# The endings of an `EOSTracker`, and its tail.
EOSValues = tuple[_Endings, str]


@lru_cache(64)
def _untouched(endings: _Endings) -> EOSTracker:
    """The tracker of these endings, checked once for all requests that have the same: copy it."""
    return EOSTracker(*endings)


def eos_values(tracker: EOSTracker) -> EOSValues:
    """An `EOSTracker` as plain values."""
    return (tuple(sorted(tracker._ids)), tracker._sequences, tracker._strings), tracker._tail


def eos_tracker(values: EOSValues) -> EOSTracker:
    """The tracker of these values."""
    endings, tail = values
    tracker = _untouched(endings).copy()
    tracker.tail = tail
    return tracker


class VisionRecord(msgspec.Struct, tag="vision"):
    """What a `TextAndVisionContext` has besides."""

    vision_token_ids: list[int]
    images: list[ImageMetadata]
    extra_model_args: dict[str, _Array]
    pixel_values: tuple[_Array, ...]

    @classmethod
    def of(cls, context: TextAndVisionContext) -> VisionRecord:
        """The record of what `context` has besides; those of `images` are not sent twice."""
        return cls(
            context.vision_token_ids,
            context.images,
            context.extra_model_args,
            context._loose_pixel_values,
        )


class SpeechRecord(msgspec.Struct, tag="speech"):
    """What a `TTSContext` has besides."""

    audio_prompt_tokens: _Array
    buffer_speech_tokens: _Array | None
    audio_buffer: _Array | None
    prev_samples_beyond_offset: int
    streaming: bool
    _speech_token_size: int
    _speech_token_end_idx: int
    _speech_tokens: _Array
    decoded_index: int
    _block_counter: int
    _arrival_time: float
    audio_generation_status: GenerationStatus


def _fields_of(record: type[msgspec.Struct], source: object) -> dict[str, Any]:
    return {name: getattr(source, name) for name in record.__struct_fields__}


class TextRecord(msgspec.Struct, array_like=True):
    """A text context of any kind; its matcher stays behind."""

    max_length: int
    tokens: TokenState
    first_prompt_length: int
    request_id: str
    eos: EOSValues
    log_probabilities: int
    log_probabilities_echo: bool
    ignore_eos: bool
    json_schema: str | None
    sampling_params: _Sampling
    model_name: str
    status: GenerationStatus
    status_log: list[tuple[int, GenerationStatus]]
    log_probabilities_data: dict[int, LogProbabilities]
    is_initial_prompt: bool
    spec_decoding_state: SpecDecodingState | None
    target_endpoint: str | None
    external_block_metadata: Any
    cached_prefix_length: int | None
    cache_seq_id: int | None
    committed_idx: int
    prompt: str | list[int] | None
    kind: VisionRecord | SpeechRecord | None

    @classmethod
    def of(cls, context: TextContext) -> TextRecord:
        """The record of `context`."""
        kind: VisionRecord | SpeechRecord | None = None
        if isinstance(context, TextAndVisionContext):
            kind = VisionRecord.of(context)
        elif isinstance(context, TTSContext):
            kind = SpeechRecord(**_fields_of(SpeechRecord, context))
        return cls(
            context.max_length,
            context.tokens.state(),
            context._prompt_length,
            context.request_id.value,
            eos_values(context.eos_tracker),
            context.log_probabilities,
            context.log_probabilities_echo,
            context.ignore_eos,
            context.json_schema,
            _sampling(context.sampling_params),
            context.model_name,
            context.status,
            context._status_log,
            context._log_probabilities_data,
            context._is_initial_prompt,
            context._spec_decoding_state,
            context.target_endpoint,
            context.external_block_metadata,
            context.cached_prefix_length,
            context._cache_seq_id,
            context._committed_idx,
            context._prompt,
            kind,
        )

    def build(self) -> TextContext:
        """The context of this record: made as from its first prompt, then brought up to date.

        Raises:
            ValueError: What the constructor refuses, or a state that contradicts itself.
        """
        if self.first_prompt_length < 0:
            raise ValueError(
                f"first_prompt_length: wanted 0 or more, got {self.first_prompt_length}"
            )
        tokens = TokenBuffer.of_state(self.tokens)
        # The constructor looks at the first prompt.
        tokens._prompt_length = min(self.first_prompt_length, len(tokens))
        make: Callable[..., TextContext] = TextContext
        if self.kind is not None:
            kind = TextAndVisionContext if isinstance(self.kind, VisionRecord) else TTSContext
            make = partial(kind, **_fields_of(type(self.kind), self.kind))
        endings, tail = self.eos
        context = make(
            max_length=self.max_length,
            tokens=tokens,
            request_id=self.request_id,
            eos_tracker=_untouched(endings),  # which copies it
            log_probabilities=self.log_probabilities,
            log_probabilities_echo=self.log_probabilities_echo,
            ignore_eos=self.ignore_eos,
            json_schema=self.json_schema,
            sampling_params=_sampling_params(self.sampling_params),
            model_name=self.model_name,
            status=self.status,
            _log_probabilities_data=self.log_probabilities_data,
            _is_initial_prompt=self.is_initial_prompt,
            _spec_decoding_state=self.spec_decoding_state,
            target_endpoint=self.target_endpoint,
            external_block_metadata=self.external_block_metadata,
            cached_prefix_length=self.cached_prefix_length,
            prompt=self.prompt,
        )
        tokens._prompt_length = self.tokens.prompt_length
        if not 0 <= self.committed_idx <= len(context.tokens):
            raise ValueError(
                f"committed_idx: wanted 0 to {len(context.tokens)}, got {self.committed_idx}"
            )
        context.eos_tracker.tail = tail
        context._prompt_length = self.first_prompt_length
        context._status_log = self.status_log
        context._cache_seq_id = self.cache_seq_id
        context._committed_idx = self.committed_idx
        return context


def check_items(items: object) -> None:
    """Refuses an array among the items of a `TextRecord` that msgspec would read as no items.

    It takes it for a mapping, in which it finds no key: so the defaults would be read.

    Raises:
        TypeError: There is one.
    """
    if not isinstance(items, list):
        return
    named = dict(zip(TextRecord.__struct_fields__, items, strict=False))
    if isinstance(named.get("spec_decoding_state"), np.ndarray):
        raise TypeError("spec_decoding_state: wanted its items by name, got an array")


class PixelRecord(msgspec.Struct):
    """A `PixelContext`."""

    tokens: TokenBuffer
    request_id: str
    model_name: str
    mask: npt.NDArray[np.bool_] | None
    tokens_2: TokenBuffer | None
    negative_tokens: TokenBuffer | None
    negative_tokens_2: TokenBuffer | None
    extra_params: dict[str, _Array]
    timesteps: _Array
    sigmas: _Array
    latents: _Array
    latent_image_ids: _Array
    height: int
    width: int
    num_inference_steps: int
    guidance_scale: float
    guidance: _Array | None
    true_cfg_scale: float
    num_warmup_steps: int
    num_images_per_prompt: int
    status: GenerationStatus

    @classmethod
    def of(cls, context: PixelContext) -> PixelRecord:
        """The record of `context`."""
        return cls(**_fields_of(cls, context))

    def build(self) -> PixelContext:
        """The context of this record."""
        return PixelContext(**_fields_of(PixelRecord, self))
