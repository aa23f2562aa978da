"""What a token buffer shows: tokens, lengths and windows, all read from one array."""

from __future__ import annotations

import operator
from bisect import bisect_right
from operator import itemgetter
from typing import NamedTuple, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from heddle.contexts.numeric import is_masked
from heddle.contexts.ranges import Range

TokenArray = npt.NDArray[np.int64]
_INT64 = np.dtype(np.int64)

# Stands for a token that the device has not handed back yet.
FUTURE_TOKEN = -999


class TokenState(NamedTuple):
    """All of a `TokenBuffer` as plain values; `starts` holds (length, window start, offset)."""

    tokens: TokenArray
    prompt_length: int
    window: tuple[int, int]
    completion: tuple[int, int]
    offset: int
    starts: tuple[tuple[int, int, int], ...]


def token_count(array: TokenArray) -> int:
    """How many tokens `array` holds.

    Raises:
        ValueError: It is no array of tokens, or empty.
    """
    plain = type(array) is np.ndarray or (isinstance(array, np.ndarray) and not is_masked(array))
    if not plain or array.ndim != 1 or array.dtype != _INT64:
        found = f"{array.ndim} dimensions of {array.dtype}" if plain else type(array).__name__
        raise ValueError(f"TokenBuffer: wanted a one-dimensional int64 array, got {found}")
    if array.size == 0:
        raise ValueError("TokenBuffer: wanted at least one token, got an empty array")
    return len(array)


class TokenViews:
    """The reading half of `TokenBuffer`."""

    __slots__ = (
        "_array",
        "_completion",
        "_cuts",
        "_length",
        "_lowest",
        "_offset",
        "_prompt_length",
        "_starts",
        "_window",
    )

    _array: TokenArray
    _length: int
    _prompt_length: int
    _window: Range
    _completion: Range
    _offset: int
    # Length -> (window start, offset) before the token at that length came, where the window was
    # not just the last token: what `rollback` needs to restore it. By ascending length.
    _starts: dict[int, tuple[int, int]]
    _cuts: int
    # (number of the cut, length it left), without cuts that a later one went below: both ascend.
    _lowest: list[tuple[int, int]]

    def __len__(self) -> int:
        return self._length

    @property
    def all(self) -> TokenArray:
        """Prompt and generated tokens."""
        return self._array[: self._length]

    @property
    def prompt(self) -> TokenArray:
        """The prompt's tokens."""
        return self._array[: self._prompt_length]

    @property
    def generated(self) -> TokenArray:
        """The tokens after the prompt."""
        return self._array[self._prompt_length : self._length]

    @property
    def active(self) -> TokenArray:
        """The tokens to process next."""
        return self._array[self._window.start + self._offset : self._window.end]

    @property
    def prompt_length(self) -> int:
        """Number of prompt tokens."""
        return self._prompt_length

    @property
    def generated_length(self) -> int:
        """Number of generated tokens."""
        return self._length - self._prompt_length

    @property
    def processed_length(self) -> int:
        """Number of tokens before the window."""
        return self._window.start

    @property
    def active_length(self) -> int:
        """Number of tokens in the window, less the processing offset."""
        return self._window.end - self._window.start - self._offset

    @property
    def current_position(self) -> int:
        """`processed_length + active_length`."""
        return self._window.end - self._offset

    @property
    def processing_offset(self) -> int:
        """How many tokens at the start of the window are left out of `active`."""
        return self._offset

    @property
    def actively_chunked(self) -> bool:
        """Whether tokens wait behind the window."""
        return self._window.end != self._length

    @property
    def has_outstanding_generated_tokens(self) -> bool:
        """Whether tokens were generated that the user has not got yet."""
        return self._completion.start != self._completion.end

    @property
    def outstanding(self) -> Range:
        """The positions of the completion window, as a copy."""
        return Range(self._completion.start, self._completion.end)

    @property
    def cuts(self) -> int:
        """How often tokens were taken away at the end, so that others may come in their place.

        `restore` takes all of them away.
        """
        return self._cuts

    def kept_since(self, cuts: int) -> int:
        """How many tokens from the first on are there since `cuts` was this number."""
        after = bisect_right(self._lowest, cuts, key=itemgetter(0))
        return self._lowest[after][1] if after < len(self._lowest) else self._length

    @property
    def awaits_token(self) -> bool:
        """Whether the last token is a generated placeholder, `FUTURE_TOKEN`."""
        last = self._length - 1
        return self._array.item(last) == FUTURE_TOKEN and last >= self._prompt_length

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> TokenArray: ...
    def __getitem__(self, index: SupportsIndex | slice) -> int | TokenArray:
        """A token by position (negative: from the end), or a view of a slice of `all`."""
        if isinstance(index, slice):
            return self.all[index]
        if isinstance(index, (bool, np.bool_)) or not hasattr(index, "__index__"):
            raise TypeError(
                f"TokenBuffer: wanted an integer or a slice, got {type(index).__name__}"
            )
        position = operator.index(index)
        if not -self._length <= position < self._length:
            raise IndexError(
                f"TokenBuffer: wanted an index in [{-self._length}, {self._length}), got {position}"
            )
        return self._array.item(position % self._length)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[np.generic]:
        return np.array(self.all, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        window = self._window
        shown = np.array2string(self.all, threshold=16, edgeitems=8, max_line_width=1 << 20)
        return (
            f"TokenBuffer(length={self._length}, prompt={self._prompt_length}, "
            f"generated={self.generated_length}, "
            f"active=[{window.start + self._offset}, {window.end}), tokens={shown})"
        )
