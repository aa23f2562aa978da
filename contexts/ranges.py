"""A range of positions in a token buffer."""

from __future__ import annotations

from typing import Any


def drop_from(kept: dict[int, Any], position: int) -> None:
    """Drop what is kept for `position` and all behind it; `kept` is by ascending position."""
    while kept and next(reversed(kept)) >= position:
        kept.popitem()


class Range:
    """A half-open range of positions, `start <= position < end`, that moves forward or back."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        if not 0 <= start <= end:
            raise ValueError(f"Range: wanted 0 <= start <= end, got start {start}, end {end}")
        self.start = start
        self.end = end

    def __len__(self) -> int:
        return self.end - self.start

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Range):
            return NotImplemented
        return (self.start, self.end) == (other.start, other.end)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Range({self.start}, {self.end})"

    def bump_start(self, amount: int) -> None:
        """Move the start by `amount`.

        Raises:
            ValueError: It would pass the end or go below 0.
        """
        self.start = Range(self.start + amount, self.end).start

    def bump_end(self, amount: int) -> None:
        """Move the end by `amount`.

        Raises:
            ValueError: It would fall behind the start.
        """
        self.end = Range(self.start, self.end + amount).end

    def advance(self) -> None:
        """Empty the range: the start moves up to the end."""
        self.start = self.end
