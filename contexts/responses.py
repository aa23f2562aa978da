"""The answers of the older interface: text, audio and embeddings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from heddle.contexts.values import GenerationStatus, LogProbabilities


@dataclass(frozen=True)
class TextResponse:
    """One new token, or its text, with its log probabilities if there are any."""

    next_token: int | str
    log_probabilities: LogProbabilities | None = None


@dataclass
class TextGenerationResponse:
    """The tokens of a step, and where the request stands after it."""

    tokens: list[TextResponse]
    final_status: GenerationStatus

    @property
    def is_done(self) -> bool:
        """Whether nothing follows."""
        return self.final_status.is_done

    def append_token(self, token: TextResponse) -> None:
        """Add a token."""
        self.tokens.append(token)

    def update_status(self, status: GenerationStatus) -> None:
        """Set the status."""
        self.final_status = GenerationStatus(status)


@dataclass(eq=False)
class AudioGenerationResponse:
    """A piece of audio, and where the request stands after it."""

    final_status: GenerationStatus
    audio: npt.NDArray[Any] | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing follows."""
        return self.final_status.is_done

    @property
    def has_audio_data(self) -> bool:
        """Whether there is audio."""
        return self.audio is not None

    @property
    def audio_data(self) -> npt.NDArray[Any]:
        """The audio.

        Raises:
            ValueError: There is none.
        """
        if self.audio is None:
            raise ValueError("AudioGenerationResponse.audio_data: wanted audio, got none")
        return self.audio


@dataclass(eq=False)
class AudioGeneratorOutput:
    """A piece of audio with what is known about it."""

    audio_data: npt.NDArray[Any]
    metadata: dict[str, Any] = field(default_factory=dict)
    is_done: bool = False


@dataclass(eq=False)
class EmbeddingsResponse:
    """The embeddings of an input.

    Raises:
        ValueError: They are no array of floats.
    """

    embeddings: npt.NDArray[Any]

    def __post_init__(self) -> None:
        if not np.issubdtype(self.embeddings.dtype, np.floating):
            raise ValueError(f"EmbeddingsResponse: wanted floats, got {self.embeddings.dtype}")
