"""Request state: what a request has, wants and has got, from prompt to last token.

Names load the module that holds them when they are first asked for, so that importing this package
costs nothing that is not used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "batch": ("StepBatch",),
    "cache_blocks": ("CacheBlocks",),
    "eos": ("EOSTracker",),
    "grammar": ("GrammarCompiler", "GrammarLimits", "grammar_tokenizer", "jump_ahead_forced"),
    "grammar_masks": ("GrammarMasks",),
    "matcher": ("Matcher",),
    "messages": (
        "TokenGeneratorRequestFunction",
        "TokenGeneratorRequestMessage",
        "TokenGeneratorRequestTool",
        "TokenGeneratorResponseFormat",
    ),
    "outputs": ("GenerationOutput", "OutputImageContent", "TextGenerationOutput"),
    "protocols": (
        "AudioGenerator",
        "EmbeddingsGenerator",
        "InputContext",
        "PipelineTokenizer",
        "TokenGenerator",
    ),
    "ranges": ("Range",),
    "requests": ("AudioGenerationRequest", "TextGenerationRequest", "TokenGeneratorRequest"),
    "reservation": ("reserve_token_space_for_batch",),
    "responses": (
        "AudioGenerationResponse",
        "AudioGeneratorOutput",
        "EmbeddingsResponse",
        "TextGenerationResponse",
        "TextResponse",
    ),
    "sampling": ("SamplingParams",),
    "speculative": ("SpecDecodingState",),
    "pixel": ("PixelContext",),
    "tasks": ("PipelineTask",),
    "text": ("TextContext",),
    "text_and_vision": ("ImageMetadata", "TextAndVisionContext"),
    "tokens": ("FUTURE_TOKEN", "TokenBuffer"),
    "tts": ("TTSContext",),
    "validators": (
        "InputError",
        "validate_aspect_ratio_args",
        "validate_image_grid_thw_args",
        "validate_image_shape_5d",
        "validate_initial_prompt_has_image",
        "validate_only_one_image",
        "validate_requires_vision_context",
        "validate_vision_position_ids",
    ),
    "values": ("GenerationStatus", "LogProbabilities", "RequestID", "TextGenerationStatus"),
    "wire": ("msgpack_numpy_decoder", "msgpack_numpy_encoder"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
