"""The tokens of one sequence, and how the windows over them move."""

from __future__ import annotations

import operator

import numpy as np

from heddle.contexts.numeric import token_error, whole
from heddle.contexts.ranges import Range, drop_from
from heddle.contexts.token_views import (
    FUTURE_TOKEN,
    TokenArray,
    TokenState,
    token_count,
)
from heddle.contexts.token_windows import TokenWindows

__all__ = ["FUTURE_TOKEN", "TokenArray", "TokenBuffer", "TokenState"]


class TokenBuffer(TokenWindows):
    """One growing array of tokens, and the windows that say what is done with them.

    `all` is `prompt` followed by `generated`. `active` is the window to process next, less the
    processing offset at its start. The completion window holds what was generated and not yet
    handed to the user. All of them are views of the array.

    Args:
        array: Token ids, shape [tokens], int64, not empty. Used without a copy; a read-only
            array is copied before the first write.

    Raises:
        ValueError: `array` is not such an array.
    """

    __slots__ = ()

    def __init__(self, array: TokenArray) -> None:
        length = token_count(array)
        self._array = array
        self._length = length
        self._prompt_length = length
        self._window = Range(0, length)
        self._completion = Range(length, length)
        self._offset = 0
        self._starts = {}
        self._cuts = 0
        self._lowest = []

    @classmethod
    def of(cls, tokens: TokenBuffer | TokenArray) -> TokenBuffer:
        """`tokens` itself, or a buffer over the array; errors as of one."""
        return tokens if isinstance(tokens, TokenBuffer) else cls(tokens)

    @classmethod
    def of_state(cls, state: TokenState) -> TokenBuffer:
        """The buffer that `state` says; errors as of `restore`."""
        buffer = cls.__new__(cls)
        buffer._cuts = 0
        buffer._lowest = []
        buffer.restore(state)
        return buffer

    def advance_with_token(self, token: int, mark_previous_as_processed: bool = True) -> None:
        """Append a generated token.

        Args:
            token: The token id.
            mark_previous_as_processed: True: the window becomes the new token. False: the window
                grows by it (jump-ahead).

        Raises:
            TypeError: The token is no integer.
            ValueError: The window is chunked, or the token is negative or has more than 64 bits.
        """
        length = self._length
        window = self._window
        if window.end != length:
            raise ValueError("advance_with_token: the window is chunked, call advance_chunk first")
        array = self._array
        if length == len(array):
            array = self._grow(length + 1)
        try:
            array[length] = number = operator.index(token)
        except (TypeError, OverflowError):
            raise token_error(token) from None
        if number < 0:
            raise token_error(token)
        if window.start != length - 1 or self._offset:
            self._starts[length] = (window.start, self._offset)
            self._offset = 0
        if mark_previous_as_processed:
            window.start = length
        self._length = window.end = self._completion.end = length + 1

    def advance_with_future_token(self) -> None:
        """Append `FUTURE_TOKEN`, which a later `overwrite_last_token` replaces.

        Raises as `advance_with_token`, of a chunked window.
        """
        self.advance_with_token(0)
        self._array[self._length - 1] = FUTURE_TOKEN

    def overwrite_last_token(self, token: int) -> None:
        """Replace the last token.

        Raises:
            TypeError: The token is no integer.
            ValueError: The token is negative or has more than 64 bits.
        """
        number = whole("token", token)
        if not 0 <= number < 1 << 63:
            raise token_error(token)
        if not self._array.flags.writeable:
            self._array = self._array.copy()
        self._array[self._length - 1] = number

    def consume_recently_generated_tokens(self, hold_back: int = 0) -> TokenArray:
        """Hand out the tokens of the completion window, and empty it.

        Args:
            hold_back: So many tokens at the end stay for the next call.

        Raises:
            ValueError: There is nothing to hand out.
        """
        completion = self._completion
        end = completion.end - hold_back
        if completion.start >= end:
            raise ValueError("consume_recently_generated_tokens: no token is outstanding")
        tokens = self._array[completion.start : end]
        completion.start = end
        return tokens

    def reset_as_new_prompt(self, delete_last_generated_token: bool = False) -> None:
        """Make all tokens the prompt, to be processed from the start.

        Raises:
            ValueError: The last generated token is to be deleted, and there is none.
        """
        if delete_last_generated_token:
            if self._length == self._prompt_length:
                raise ValueError("reset_as_new_prompt: no generated token to delete")
            self._set_length(self._length - 1)
        length = self._length
        self._prompt_length = length
        self._window = Range(0, length)
        self._completion = Range(length, length)
        self._offset = 0
        self._starts.clear()

    def rollback(self, count: int) -> None:
        """Drop the last `count` tokens and put the window back to what it was before them.

        Tokens of the prompt came all at once: what is left of them stays to be processed.

        Raises:
            ValueError: `count` is negative, or no token would be left.
        """
        count = whole("rollback", count)
        if not 0 <= count < self._length:
            raise ValueError(f"rollback: wanted 0 to {self._length - 1} tokens, got {count}")
        if count == 0:
            return
        length = self._length - count
        known = max(length, self._prompt_length)
        start, offset = self._window.start, self._offset
        if known < self._length:
            start, offset = self._starts.get(known, (known - 1, 0))
        first = min(start, self._window.start, length - 1)
        if first < start:
            offset = 0
        elif length < known:
            offset = min(offset, length - 1 - first)
        self._set_length(length)
        self._window = Range(first, length)
        self._offset = offset

    def set_indices(self, start: int, active: int, end: int) -> None:
        """Set `processed_length`, `current_position` and the length; the offset stays.

        Raises:
            ValueError: Not 0 <= `start` < `active` <= `end`; nothing has changed then.
        """
        start, active, end = (whole("token indices", index) for index in (start, active, end))
        if not 0 <= start < active <= end - self._offset:
            raise ValueError(
                f"token indices: wanted 0 <= start < active <= end, got start {start}, "
                f"active {active}, end {end} (processing offset {self._offset})"
            )
        self._set_length(end)
        self._window = Range(start, active + self._offset)

    def _set_length(self, length: int) -> None:
        """Cut or extend the valid tokens; what is remembered about tokens past them goes."""
        if length > len(self._array):
            self._grow(length)
        elif not self._array.flags.writeable:
            self._array = self._array.copy()
        if length < self._length:
            self._count_cut(length)
        self._length = length
        self._prompt_length = min(self._prompt_length, length)
        completion = self._completion
        self._completion = Range(min(completion.start, length), min(completion.end, length))
        drop_from(self._starts, length)

    def _count_cut(self, length: int) -> None:
        self._cuts += 1
        while self._lowest and self._lowest[-1][1] >= length:
            self._lowest.pop()
        self._lowest.append((self._cuts, length))

    def ensure_capacity(self, wanted: int) -> None:
        """Make room for `wanted` tokens before the array has to grow."""
        if wanted > len(self._array):
            self._grow(wanted)

    def _grow(self, wanted: int) -> TokenArray:
        capacity = len(self._array)
        while capacity < wanted:
            capacity *= 2
        grown = np.zeros(capacity, dtype=np.int64)
        grown[: self._length] = self.all
        self._array = grown
        return grown

    def state(self) -> TokenState:
        """Everything that this buffer is, its tokens as a view."""
        window, completion = self._window, self._completion
        return TokenState(
            self.all,
            self._prompt_length,
            (window.start, window.end),
            (completion.start, completion.end),
            self._offset,
            tuple([(at, *before) for at, before in self._starts.items()]) if self._starts else (),
        )

    def restore(self, state: TokenState) -> None:
        """Become what `state` says; its token array is used without a copy.

        Raises:
            ValueError: The state contradicts itself.
        """
        array, prompt_length, window, completion, offset, starts = state
        length = token_count(array)
        first, last = Range(*window), Range(*completion)
        inside = (
            0 <= prompt_length <= length
            and first.end <= length
            and last.end <= length
            and 0 <= offset <= first.end - first.start
        )
        for at, start, left_out in starts:
            inside &= 0 <= start < at < length and 0 <= left_out <= at - start
        if not inside:
            raise ValueError(
                f"TokenState: lengths or windows leave the {length} tokens: {state[1:]}"
            )
        self._array, self._length, self._prompt_length = array, length, prompt_length
        self._window, self._completion, self._offset = first, last, offset
        self._count_cut(0)
        self._starts = {at: (start, left_out) for at, start, left_out in sorted(starts)}
