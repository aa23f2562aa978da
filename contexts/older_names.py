"""The names that older versions of the interface have, as views over the same state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heddle.contexts.updates import TokenUpdates
from heddle.contexts.values import GenerationStatus

if TYPE_CHECKING:
    from heddle.contexts.token_views import TokenArray


class OlderNames(TokenUpdates):
    """Base of `TextContext`: indices, cache slots and single tokens."""

    _prompt: str | list[int] | None
    _cache_seq_id: int | None

    @property
    def prompt(self) -> str | list[int]:
        """The prompt as it was given, else its tokens."""
        tokens: list[Any] = self.tokens.prompt.tolist()
        return tokens if self._prompt is None else self._prompt

    @property
    def eos_token_ids(self) -> set[int]:
        """The tokens that end the sequence."""
        return self.eos_tracker.eos_token_ids

    @property
    def eos_sequences(self) -> list[list[int]]:
        """The runs of tokens that end the sequence."""
        return self.eos_tracker.eos_sequences

    @property
    def all_tokens(self) -> TokenArray:
        """Prompt and generated tokens."""
        return self.tokens.all

    @property
    def next_tokens(self) -> TokenArray:
        """The tokens to process next."""
        return self.tokens.active

    @property
    def prompt_tokens(self) -> TokenArray:
        """The prompt's tokens."""
        return self.tokens.prompt

    @property
    def generated_tokens(self) -> TokenArray:
        """The tokens after the prompt."""
        return self.tokens.generated

    @property
    def last_generated_token(self) -> int:
        """The newest generated token.

        Raises:
            ValueError: There is none.
        """
        if not self.tokens.generated_length:
            raise ValueError("last_generated_token: wanted a generated token, got none")
        return self.tokens[-1]

    @property
    def current_length(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    @property
    def active_length(self) -> int:
        """Number of tokens to process next."""
        return self.tokens.active_length

    @property
    def start_idx(self) -> int:
        """Where the window starts."""
        return self.tokens.processed_length

    @property
    def active_idx(self) -> int:
        """Where the window ends, less the processing offset."""
        return self.tokens.current_position

    @property
    def end_idx(self) -> int:
        """Number of tokens."""
        return len(self.tokens)

    @property
    def committed_idx(self) -> int:
        """Number of tokens that are committed to a cache."""
        return self._committed_idx

    @property
    def needs_ce(self) -> bool:
        """Whether prompt tokens are still to be processed."""
        return self.tokens.processed_length < self.tokens.prompt_length

    @property
    def is_ce(self) -> bool:
        """Whether more than one token is to be processed next."""
        return self.tokens.active_length > 1

    def set_token_indices(
        self,
        start_idx: int | None = None,
        active_idx: int | None = None,
        end_idx: int | None = None,
        committed_idx: int | None = None,
    ) -> None:
        """Set the indices that are given, all or none; tokens behind the end go as by `rollback`.

        Raises:
            ValueError: Not 0 <= start < active <= end, or committed not in [0, end].
        """
        end = self.end_idx if end_idx is None else end_idx
        committed = self._committed_idx if committed_idx is None else committed_idx
        if not 0 <= committed <= end:
            raise ValueError(
                f"token indices: wanted committed in [0, end], got {committed} with end {end}"
            )
        length = len(self.tokens)
        self.tokens.set_indices(
            self.start_idx if start_idx is None else start_idx,
            self.active_idx if active_idx is None else active_idx,
            end,
        )
        self._committed_idx = committed
        if end < length:
            self._forget_beyond(end)

    def bump_token_indices(
        self, start_idx: int = 0, active_idx: int = 0, end_idx: int = 0, committed_idx: int = 0
    ) -> None:
        """Move the indices by what is given, all or none.

        Raises:
            ValueError: Not 0 <= start < active <= end, or committed not in [0, end], after it.
        """
        self.set_token_indices(
            self.start_idx + start_idx,
            self.active_idx + active_idx,
            self.end_idx + end_idx,
            self._committed_idx + committed_idx,
        )

    def set_draft_offset(self, idx: int) -> None:
        """Leave out `idx` tokens at the start of the window."""
        self.apply_processing_offset(idx)

    def update_status(self, status: GenerationStatus) -> None:
        """Set the status."""
        self.status = GenerationStatus(status)

    def assign_to_cache(self, cache_seq_id: int) -> None:
        """Give this context a cache slot.

        Raises:
            RuntimeError: It has one.
        """
        if self._cache_seq_id is not None:
            raise RuntimeError(
                f"assign_to_cache: wanted a context without a slot, got one in slot "
                f"{self._cache_seq_id}"
            )
        self._cache_seq_id = cache_seq_id

    def unassign_from_cache(self) -> None:
        """Give the cache slot up; does nothing without one."""
        self._cache_seq_id = None

    @property
    def is_assigned_to_cache(self) -> bool:
        """Whether this context has a cache slot."""
        return self._cache_seq_id is not None

    @property
    def cache_seq_id(self) -> int:
        """The cache slot.

        Raises:
            ValueError: There is none.
        """
        if self._cache_seq_id is None:
            raise ValueError("cache_seq_id: wanted a context with a cache slot, got one without")
        return self._cache_seq_id
