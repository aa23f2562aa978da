"""The grammar matcher of a context, with a count of what it has consumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol

if TYPE_CHECKING:
    from heddle.contexts.text import TextContext


class Matcher(Protocol):
    """What a context asks of a grammar matcher; `llguidance.LLMatcher` is one."""

    def try_consume_tokens(self, tokens: list[int], /) -> int:
        """Take tokens up to the first that the grammar does not allow; how many there were."""

    def consume_token(self, token: int, /) -> bool:
        """Take one token; False when the grammar does not allow it: the matcher has failed then."""

    def is_accepting(self) -> bool:
        """Whether the tokens so far are all of a text of the grammar."""

    def is_stopped(self) -> bool:
        """Whether nothing but an end of sequence may follow."""

    def is_error(self) -> bool:
        """Whether the matcher has failed, for good."""

    def rollback(self, count: int, /) -> bool:
        """Take back the last `count` tokens; False when it cannot."""

    def deep_copy(self) -> Matcher:
        """An independent matcher in the same state."""


class TrackedMatcher:
    """A matcher that can be put back to where it was at an earlier length of the sequence.

    Args:
        matcher: The matcher.
        length: Number of tokens in the sequence now.
        consumed: How many of the last of them the matcher has consumed.

    Attributes:
        changes: How often any context got another one, or lost its own: who remembers those of
            many contexts looks at one number, not at all of them.
    """

    changes: ClassVar[int] = 0

    __slots__ = ("_consumed", "_past_stop", "_start", "matcher")

    def __init__(self, matcher: Matcher, length: int, consumed: int = 0) -> None:
        self.matcher = matcher
        self._start = length - consumed
        self._consumed = consumed
        # llguidance takes an end of sequence after its stop without counting it for `rollback`.
        self._past_stop = 0

    def consume(self, token: int, ends_sequence: bool) -> None:
        """Advance by one token.

        Raises:
            AssertionError: The matcher rejects the token, and is where it was.
        """
        past_stop = ends_sequence and self.matcher.is_stopped()
        try:
            if past_stop:
                # A failed matcher counts as stopped, and would take an end of sequence; one that
                # rejects a token here fails, so a copy tries it first.
                accepted = (
                    not self.matcher.is_error()
                    and self.matcher.deep_copy().consume_token(token)
                    and self.matcher.consume_token(token)
                )
            else:
                accepted = self.matcher.try_consume_tokens([token]) == 1
        except OverflowError:  # not a token id at all, for example negative
            accepted = False
        if not accepted:
            raise AssertionError(
                f"advance_fsm: the grammar rejects token {token}; "
                "wanted a token that the mask of this step allows"
            )
        self._consumed += 1
        self._past_stop += past_stop

    def may_end(self, length: int) -> bool:
        """Whether the first `length` tokens of the sequence are all of a text of the grammar.

        True also while the matcher has not got all of them yet: it is advanced on its own then.
        """
        return self._start + self._consumed < length or self.matcher.is_accepting()

    def rollback_to(self, length: int) -> None:
        """Take back what came after the first `length` tokens of the sequence.

        Raises:
            AssertionError: The matcher cannot.
        """
        self._start = min(self._start, length)
        dropped = self._consumed - (length - self._start)
        if dropped <= 0:
            return
        uncounted = min(dropped, self._past_stop)
        counted = dropped - uncounted
        if counted and not self.matcher.rollback(counted):
            raise AssertionError(f"rollback: the matcher cannot take back {counted} tokens")
        self._consumed -= dropped
        self._past_stop -= uncounted

    def copy(self) -> TrackedMatcher:
        """An independent tracked matcher in the same state."""
        twin = TrackedMatcher(self.matcher.deep_copy(), self._start)
        twin._consumed = self._consumed
        twin._past_stop = self._past_stop
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> TrackedMatcher:
        return self.copy()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "matcher: wanted a context without one to pickle, got one with; msgpack_numpy_encoder "
            "leaves it behind, and GrammarCompiler.constrain gives the receiver its own"
        )


def require_matcher(where: str, context: TextContext) -> None:
    """Refuse a context with a schema and no matcher: its output would be free text.

    While its prompt is chunked, a matcher may still be compiled: no token comes of that step.

    Raises:
        ValueError: It is such a one; `where` is who asks.
    """
    held = context._matcher is not None or context.json_schema is None
    if not held and not context.tokens.actively_chunked:
        raise ValueError(
            f"{where}: wanted a matcher for the json_schema of request {context.request_id}, got "
            "none; GrammarCompiler.constrain gives it one"
        )
