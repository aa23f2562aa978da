"""When a sequence ends: by a token, by a run of tokens, or by text."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt


class EOSTracker:
    """The endings of a sequence, which never change, and the tail of the text seen so far.

    Args:
        eos_token_ids: A token that ends the sequence by itself.
        eos_sequences: Runs of generated tokens that end it.
        eos_stop_strings: Texts that end it.

    Raises:
        ValueError: An empty sequence or an empty stop string, or no list of stop strings; a token
            that is negative or has more than 31 bits, as in no vocabulary.
    """

    __slots__ = ("_ids", "_longest_string", "_sequences", "_strings", "_tail")

    def __init__(
        self,
        eos_token_ids: Iterable[int] = (),
        eos_sequences: Iterable[Iterable[int]] = (),
        eos_stop_strings: Iterable[str] = (),
    ) -> None:
        self._ids = frozenset(map(operator.index, eos_token_ids))
        self._sequences = tuple([tuple(map(operator.index, run)) for run in eos_sequences])
        for token in chain(self._ids, *self._sequences):
            if not 0 <= token < 1 << 31:
                raise ValueError(f"EOSTracker: wanted tokens from 0 to 2**31 - 1, got {token}")
        if isinstance(eos_stop_strings, str):
            raise ValueError(f"EOSTracker: wanted a list of stop strings, got {eos_stop_strings!r}")
        self._strings = tuple(eos_stop_strings)
        if not all(self._sequences):
            raise ValueError("EOSTracker: wanted sequences of at least one token, got an empty one")
        for text in self._strings:
            if not isinstance(text, str) or not text:
                found = repr(text) if text else "an empty one"
                raise ValueError(f"EOSTracker: wanted stop strings with text, got {found}")
        self._longest_string = max(map(len, self._strings), default=0)
        self._tail = ""

    @property
    def eos_token_ids(self) -> set[int]:
        """The ending tokens, as a copy."""
        return set(self._ids)

    @property
    def eos_sequences(self) -> list[list[int]]:
        """The ending runs of tokens, as a copy."""
        return [list(sequence) for sequence in self._sequences]

    @property
    def eos_stop_strings(self) -> list[str]:
        """The ending texts, as a copy."""
        return list(self._strings)

    @property
    def tail(self) -> str:
        """The end of the text so far, where a stop string may have begun; what follows a hit."""
        return self._tail

    @tail.setter
    def tail(self, text: str) -> None:
        self._tail = text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EOSTracker):
            return NotImplemented
        return (self._ids, self._sequences, self._strings, self._tail) == (
            other._ids,
            other._sequences,
            other._strings,
            other._tail,
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"EOSTracker(eos_token_ids={sorted(self._ids)}, eos_sequences={self.eos_sequences}, "
            f"eos_stop_strings={self.eos_stop_strings})"
        )

    def copy(self) -> EOSTracker:
        """A tracker of the same endings, whose tail goes its own way."""
        twin = EOSTracker.__new__(EOSTracker)
        twin._ids = self._ids
        twin._sequences = self._sequences
        twin._strings = self._strings
        twin._longest_string = self._longest_string
        twin._tail = self._tail
        return twin

    def is_eos_from_tokens(self, generated: npt.NDArray[np.int64] | Sequence[int]) -> bool:
        """Whether the generated tokens, shape [tokens], end the sequence with their last one.

        Raises:
            ValueError: `generated` is empty.
        """
        if len(generated) == 0:
            raise ValueError("is_eos_from_tokens: wanted at least one generated token, got none")
        return generated[-1] in self._ids or self.ends_with_sequence(generated)

    def ends_with_sequence(self, generated: npt.NDArray[np.int64] | Sequence[int]) -> bool:
        """Whether one of the ending runs is the end of `generated`."""
        count = len(generated)
        return any(
            len(sequence) <= count and tuple(generated[count - len(sequence) :]) == sequence
            for sequence in self._sequences
        )

    def ending_tokens(self, generated: npt.NDArray[np.int64] | Sequence[int]) -> frozenset[int]:
        """The tokens that would end the sequence if one of them came after `generated`."""
        return self._ids | {
            sequence[-1]
            for sequence in self._sequences
            if len(sequence) - 1 <= len(generated)
            and tuple(generated[len(generated) - len(sequence) + 1 :]) == sequence[:-1]
        }

    def single_ending_tokens(self) -> frozenset[int]:
        """The tokens that end the sequence whatever came before them."""
        return self._ids | {sequence[0] for sequence in self._sequences if len(sequence) == 1}

    def first_eos_offset(
        self,
        prior: npt.NDArray[np.int64] | Sequence[int],
        new: npt.NDArray[np.int64] | Sequence[int],
    ) -> int | None:
        """Index in `new` of the first token that ends the sequence `prior + new`, else None."""
        longest = max(map(len, self._sequences), default=1)
        tokens = [*prior[max(0, len(prior) - longest + 1) :], *new]
        first = len(tokens) - len(new)
        for end in range(first + 1, len(tokens) + 1):
            if self.is_eos_from_tokens(tokens[max(0, end - longest) : end]):
                return end - 1 - first
        return None

    def is_eos_from_string(self, text: str) -> str | None:
        """The stop string that occurs first in the text so far with `text` added, else None.

        A stop string may begin in one call and end in a later one. After a hit the text so far is
        what follows the stop string (`tail`): a call with no text looks for the next one there.
        """
        text = self._tail + text
        found = [(text.find(stop), stop) for stop in self._strings if stop in text]
        if found:
            first, stop = min(found, key=lambda hit: hit[0])
            self._tail = text[first + len(stop) :]
            return stop
        self._tail = text[max(0, len(text) - self._longest_string + 1) :]
        return None

    def begun(self) -> int:
        """Characters at the end of the text so far in which a stop string may have begun."""
        most = min(len(self._tail), self._longest_string - 1)
        ends = ((size, self._tail[-size:]) for size in range(most, 0, -1))
        return next((n for n, end in ends if any(s.startswith(end) for s in self._strings)), 0)
