"""What a pipeline does."""

from __future__ import annotations

from enum import Enum


class PipelineTask(str, Enum):
    """The kinds of work that a pipeline is made for."""

    TEXT_GENERATION = "text_generation"
    EMBEDDINGS_GENERATION = "embeddings_generation"
    AUDIO_GENERATION = "audio_generation"
    SPEECH_TOKEN_GENERATION = "speech_token_generation"
    PIXEL_GENERATION = "pixel_generation"
