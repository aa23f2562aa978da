"""A text-to-speech request: text on one side, speech tokens and audio on the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from heddle.contexts.numeric import as_array, is_masked, whole
from heddle.contexts.text import TextContext
from heddle.contexts.values import GenerationStatus

SpeechTokens = npt.NDArray[np.integer[Any]]


class TTSContext(TextContext):
    """A text context that also collects speech tokens, and says which are audio already.

    `status` is that of the text, `audio_generation_status` that of the request.

    Args:
        audio_prompt_tokens: Speech tokens of the voice to imitate, shape [tokens].
        buffer_speech_tokens: Speech tokens that the next block starts with.
        audio_buffer: Audio that the next block starts with.
        prev_samples_beyond_offset: Audio samples that were decoded ahead.
        streaming: Whether audio is handed out as it comes.
        decoded_index: Number of speech tokens that are audio already.
        audio_generation_status: Where the request stands.
        _decoded_index: Older name of `decoded_index`.
        _audio_generation_status: Older name of `audio_generation_status`.
        **options: Those of `TextContext`.

    Raises:
        ValueError: Indices or speech tokens that contradict one another, besides what
            `TextContext` refuses.
    """

    _STATE = (
        *TextContext._STATE,
        "audio_generation_status",
        "buffer_speech_tokens",
        "audio_buffer",
        "prev_samples_beyond_offset",
        "decoded_index",
        "_block_counter",
        "_speech_tokens",
        "_speech_token_end_idx",
    )

    def __init__(
        self,
        *,
        audio_prompt_tokens: SpeechTokens | Sequence[int] | None = None,
        buffer_speech_tokens: SpeechTokens | Sequence[int] | None = None,
        audio_buffer: npt.NDArray[np.floating[Any]] | None = None,
        prev_samples_beyond_offset: int = 0,
        streaming: bool = False,
        _speech_token_size: int = 128,
        _speech_token_end_idx: int = 0,
        _speech_tokens: SpeechTokens | None = None,
        decoded_index: int = 0,
        _block_counter: int = 0,
        _arrival_time: float | None = None,
        audio_generation_status: GenerationStatus = GenerationStatus.ACTIVE,
        _decoded_index: int = 0,
        _audio_generation_status: GenerationStatus | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if _speech_tokens is None:
            _speech_tokens = np.zeros(_speech_token_size, np.int32)
        if _speech_token_size < 1 or not 0 <= _speech_token_end_idx <= len(_speech_tokens):
            raise ValueError(
                f"TTSContext: wanted blocks of at least 1 speech token and 0 to "
                f"{len(_speech_tokens)} of them used, got blocks of {_speech_token_size} and "
                f"{_speech_token_end_idx} used"
            )
        self._check_speech_tokens(_speech_tokens)
        self.audio_prompt_tokens = self._given(audio_prompt_tokens)
        self.buffer_speech_tokens = (
            None if buffer_speech_tokens is None else self._given(buffer_speech_tokens)
        )
        self.audio_buffer = None if audio_buffer is None else as_array(audio_buffer)
        self.prev_samples_beyond_offset = whole(
            "prev_samples_beyond_offset", prev_samples_beyond_offset
        )
        self.streaming = bool(streaming)
        self.audio_generation_status = GenerationStatus(
            _audio_generation_status or audio_generation_status
        )
        self._speech_token_size = _speech_token_size
        self._speech_token_end_idx = _speech_token_end_idx
        # Whatever integers were given: those that come have 32 bits.
        self._speech_tokens = _speech_tokens.astype(np.int32, copy=False)
        self._block_counter = _block_counter
        self._arrival_time = time.monotonic() if _arrival_time is None else _arrival_time
        self.decoded_index = 0
        self.set_decoded_index(decoded_index or _decoded_index)

    @property
    def is_done(self) -> bool:
        """Whether the audio is complete, whatever the text side says."""
        return self.audio_generation_status.is_done

    @property
    def block_counter(self) -> int:
        """How many blocks of speech tokens have come."""
        return self._block_counter

    @property
    def speech_tokens(self) -> SpeechTokens:
        """All speech tokens so far, as a view."""
        return self._speech_tokens[: self._speech_token_end_idx]

    @property
    def speech_token_status(self) -> GenerationStatus:
        """The status of the speech tokens, which is that of the text side."""
        return self.status

    def update_speech_token_status(self, status: GenerationStatus) -> None:
        """Set `speech_token_status`."""
        self.update_status(status)

    def update_audio_generation_status(self, status: GenerationStatus) -> None:
        """Set `audio_generation_status`."""
        self.audio_generation_status = GenerationStatus(status)

    def update_speech_tokens(self, new_tokens: SpeechTokens) -> None:
        """Append a block of speech tokens, shape [tokens], integers.

        Raises:
            ValueError: `new_tokens` is not such an array, or does not fit 32 bits.
        """
        self._check_speech_tokens(new_tokens)
        end = self._speech_token_end_idx + len(new_tokens)
        if end >= len(self._speech_tokens) or not self._speech_tokens.flags.writeable:
            size = self._speech_token_size
            grown = np.zeros((end // size + 1) * size, np.int32)
            grown[: self._speech_token_end_idx] = self.speech_tokens
            self._speech_tokens = grown
        self._speech_tokens[self._speech_token_end_idx : end] = new_tokens
        self._speech_token_end_idx = end
        self._block_counter += 1

    @classmethod
    def _given(cls, tokens: SpeechTokens | Sequence[int] | None) -> SpeechTokens:
        """Speech tokens of an argument, which may be a list; None: there are none."""
        if tokens is None or len(tokens) == 0:
            return np.zeros(0, np.int32)
        array: SpeechTokens = as_array(tokens)
        cls._check_speech_tokens(array)
        return array

    @staticmethod
    def _check_speech_tokens(tokens: SpeechTokens) -> None:
        if not isinstance(tokens, np.ndarray) or is_masked(tokens):
            raise ValueError(
                "speech tokens: wanted a one-dimensional integer array, got "
                f"{type(tokens).__name__}"
            )
        if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
            raise ValueError(
                f"speech tokens: wanted a one-dimensional integer array, got {tokens.ndim} "
                f"dimensions of {tokens.dtype}"
            )
        if tokens.dtype.itemsize >= 4 and tokens.size and np.any(tokens != tokens.astype(np.int32)):
            raise ValueError(
                f"speech tokens: wanted integers of 32 bits, got {tokens.min()} to {tokens.max()}"
            )

    def has_undecoded_speech_tokens(self, exclude_last_n: int = 0) -> bool:
        """Whether speech tokens are no audio yet, the last `exclude_last_n` aside.

        Raises:
            ValueError: `exclude_last_n` is negative.
        """
        if exclude_last_n < 0:
            raise ValueError(
                f"has_undecoded_speech_tokens: wanted at least 0 to exclude, got {exclude_last_n}"
            )
        return self.decoded_index < self._speech_token_end_idx - exclude_last_n

    def next_speech_tokens(
        self, audio_chunk_size: int | None = None, buffer: int | None = None
    ) -> tuple[SpeechTokens, int]:
        """The next speech tokens to decode; `decoded_index` stays where it is.

        Args:
            audio_chunk_size: At most so many tokens that are no audio yet; None: all.
            buffer: Up to so many tokens before them, for continuity.

        Returns:
            The tokens as a view, and how many of them come from before `decoded_index`.

        Raises:
            ValueError: A number is negative.
        """
        for name, value in (("audio_chunk_size", audio_chunk_size), ("buffer", buffer)):
            if value is not None and value < 0:
                raise ValueError(f"next_speech_tokens: wanted {name} of at least 0, got {value}")
        before = min(buffer or 0, self.decoded_index)
        end = self._speech_token_end_idx
        if audio_chunk_size is not None:
            end = min(end, self.decoded_index + audio_chunk_size)
        return self._speech_tokens[self.decoded_index - before : end], before

    def set_decoded_index(self, idx: int) -> None:
        """Say that the first `idx` speech tokens are audio.

        Raises:
            ValueError: `idx` is negative, or more than there are.
        """
        idx = whole("set_decoded_index", idx)
        if not 0 <= idx <= self._speech_token_end_idx:
            raise ValueError(
                f"set_decoded_index: wanted 0 to {self._speech_token_end_idx}, got {idx}"
            )
        self.decoded_index = idx
