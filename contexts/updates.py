"""How a context takes tokens, known ones, forced ones and ones that come later, and drops them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from heddle.contexts.numeric import whole
from heddle.contexts.ranges import drop_from
from heddle.contexts.values import GenerationStatus, LogProbabilities

if TYPE_CHECKING:
    from heddle.contexts.eos import EOSTracker
    from heddle.contexts.matcher import TrackedMatcher
    from heddle.contexts.sampling import SamplingParams
    from heddle.contexts.tokens import TokenBuffer

_ACTIVE = GenerationStatus.ACTIVE
_END_OF_SEQUENCE = GenerationStatus.END_OF_SEQUENCE
_MAXIMUM_LENGTH = GenerationStatus.MAXIMUM_LENGTH
_MADE_BY_TOKENS = (_END_OF_SEQUENCE, _MAXIMUM_LENGTH)


class TokenUpdates:
    """Base of `TextContext`: tokens, grammar, status and log probabilities move together."""

    max_length: int
    tokens: TokenBuffer
    status: GenerationStatus
    eos_tracker: EOSTracker
    ignore_eos: bool
    sampling_params: SamplingParams
    _matcher: TrackedMatcher | None
    _is_initial_prompt: bool
    # By ascending position.
    _log_probabilities_data: dict[int, LogProbabilities]
    # (length, status before) for each token that changed the status, or came after the end.
    _status_log: list[tuple[int, GenerationStatus]]
    _committed_idx: int
    # Of the prompt that the context was made with; `reset` leaves it.
    _prompt_length: int

    def update(
        self,
        new_token: int,
        log_probabilities: LogProbabilities | None = None,
        mark_previous_as_processed: bool = True,
    ) -> None:
        """Append a token and advance the grammar; while chunked, only move the chunk on.

        Args:
            new_token: The token id.
            log_probabilities: Kept under the position of the token.
            mark_previous_as_processed: False keeps the tokens before it in the window.

        Raises:
            AssertionError: The grammar rejects the token; the tokens are as before.
            ValueError: A future token waits to be realized, or the token is negative; nothing has
                changed then.
        """
        if self._matcher is not None and not self.tokens.actively_chunked:
            self._refuse_position()
            self._refuse_future_token()
            self.advance_fsm(new_token)
        self.advance_token_buffer(new_token, log_probabilities, mark_previous_as_processed)

    def jump_ahead(self, new_token: int) -> None:
        """As `update` of a token that the grammar forces: those before it stay in the window."""
        self.update(new_token, mark_previous_as_processed=False)

    def advance_token_buffer(
        self,
        new_token: int,
        log_probabilities: LogProbabilities | None = None,
        mark_previous_as_processed: bool = True,
    ) -> None:
        """Append a token without touching the grammar; while chunked, only move the chunk on.

        Args:
            new_token: The token id.
            log_probabilities: Kept under the position of the token.
            mark_previous_as_processed: False keeps the tokens before it in the window.

        Raises:
            ValueError: A future token waits to be realized, or the token is negative; nothing has
                changed then.
        """
        self._refuse_position()
        tokens = self.tokens
        if tokens.actively_chunked:
            tokens.advance_chunk()
            return
        if type(new_token) is not int:  # an array of no dimension counts, but has no hash
            new_token = whole("token", new_token)
        if tokens.awaits_token:
            self._refuse_future_token()
        tokens.advance_with_token(new_token, mark_previous_as_processed)
        if log_probabilities is not None:
            self._log_probabilities_data[len(tokens) - 1] = log_probabilities
        self._is_initial_prompt = False
        if self.status is not _ACTIVE:
            self._status_log.append((len(tokens), self.status))
        if not self.ignore_eos and self._ends_sequence(new_token):
            self._end(_END_OF_SEQUENCE)
        elif tokens.current_position >= self.max_length:
            self._end(_MAXIMUM_LENGTH)

    def advance_fsm(self, token: int) -> bool:
        """Advance the grammar alone.

        Returns:
            True when the matcher took the token, False without a matcher.

        Raises:
            AssertionError: The matcher rejects the token.
            TypeError: The token is no integer.
        """
        if self._matcher is None:
            return False
        token = whole("token", token)
        self._matcher.consume(token, token in self.eos_tracker._ids)
        return True

    def update_with_future_token(self) -> None:
        """Append `FUTURE_TOKEN` in place of a token that is not known yet.

        Neither the grammar nor the end of the sequence is looked at before it is realized.

        Raises:
            ValueError: A future token waits already.
        """
        self._refuse_position()
        tokens = self.tokens
        if tokens.actively_chunked:
            tokens.advance_chunk()
            return
        self._refuse_future_token()
        tokens.advance_with_future_token()
        self._is_initial_prompt = False
        if self.status is not _ACTIVE:
            self._status_log.append((len(tokens), self.status))
        if tokens.current_position >= self.max_length:
            self._end(_MAXIMUM_LENGTH)

    def realize_future_token(
        self, new_token: int, log_probabilities: LogProbabilities | None = None
    ) -> None:
        """Put the token that was generated in the place of the future token.

        Raises:
            AssertionError: The grammar rejects the token; the future token still waits.
            ValueError: No future token waits, or the token is negative; nothing has changed then.
        """
        tokens = self.tokens
        if not tokens.awaits_token:
            raise ValueError("realize_future_token: the last token is no future token")
        new_token = whole("token", new_token)
        self.advance_fsm(new_token)
        tokens.overwrite_last_token(new_token)
        if log_probabilities is not None:
            self._log_probabilities_data[len(tokens) - 1] = log_probabilities
        if not self.ignore_eos and self._ends_sequence(new_token):
            self._end(_END_OF_SEQUENCE)

    def end_at_stop_string(self, text: str) -> str | None:
        """End the sequence when a stop string is in the text so far, `text` included.

        Under a grammar a stop string ends the sequence where the output is complete; anywhere else,
        and before `min_new_tokens`, it is part of the output.

        Args:
            text: What the tokens since the last call say.

        Returns:
            The stop string that has ended the sequence, else None.
        """
        stop = self.eos_tracker.is_eos_from_string(text)
        early = self.tokens.generated_length < self.sampling_params.min_new_tokens
        while stop is not None and (early or not self._may_end()):
            stop = self.eos_tracker.is_eos_from_string("")
        if stop is not None:
            self._end(_END_OF_SEQUENCE)
        return stop

    def apply_processing_offset(self, offset: int) -> None:
        """Leave out `offset` tokens at the start of the window.

        Raises:
            ValueError: The window is shorter.
        """
        self.tokens.apply_processing_offset(offset)

    def rollback(self, idx: int) -> None:
        """Drop the last `idx` tokens; window, status and grammar are what they were before them.

        A status that no token made stays, such as that of a cancelled request.

        Raises:
            ValueError: No token would be left.
        """
        self.tokens.rollback(idx)
        if idx:
            self._forget_beyond(len(self.tokens))

    def _forget_beyond(self, length: int) -> None:
        """Take back what tokens that are there no more, those behind `length`, have done."""
        log = self._status_log
        if self.status is _END_OF_SEQUENCE and not log:
            self.status = _ACTIVE
        while log and log[-1][0] > length:
            before = log.pop()[1]
            if self.status in _MADE_BY_TOKENS:
                self.status = before
        drop_from(self._log_probabilities_data, length)
        self._committed_idx = min(self._committed_idx, length)
        self._prompt_length = min(self._prompt_length, length)
        if not self.tokens.generated_length:
            self._is_initial_prompt = True
        if self._matcher is not None:
            self._matcher.rollback_to(length)

    def outstanding_completion_tokens(self) -> list[tuple[int, LogProbabilities | None]]:
        """Hand out the tokens that the user has not got yet, with their log probabilities."""
        held = int(self.tokens.awaits_token)
        window = self.tokens.outstanding
        if len(window) <= held:
            return []
        tokens = self.tokens.consume_recently_generated_tokens(hold_back=held)
        kept = self._log_probabilities_data
        return [(t, kept.pop(at, None)) for at, t in enumerate(tokens.tolist(), window.start)]

    def _refuse_position(self) -> None:
        """Raises ValueError where no token may come: of text alone, it may come anywhere."""

    def _refuse_future_token(self) -> None:
        if self.tokens.awaits_token:
            raise ValueError("update: a future token waits, call realize_future_token first")

    def _ends_sequence(self, token: int) -> bool:
        tracker = self.eos_tracker
        ends = token in tracker._ids or (
            bool(tracker._sequences) and tracker.ends_with_sequence(self.tokens.generated)
        )
        return ends and self._may_end()

    def _may_end(self) -> bool:
        """Whether the grammar, if there is one, lets the sequence end here."""
        known = len(self.tokens) - self.tokens.awaits_token
        return self._matcher is None or self._matcher.may_end(known)

    def _end(self, status: GenerationStatus) -> None:
        if self.status is status:
            return
        length = len(self.tokens)
        if not self._status_log or self._status_log[-1][0] != length:
            self._status_log.append((length, self.status))
        self.status = status
