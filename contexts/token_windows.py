"""How the window over the tokens to process next moves, without a token coming or going."""

from __future__ import annotations

from heddle.contexts.numeric import whole
from heddle.contexts.token_views import TokenViews


class TokenWindows(TokenViews):
    """The moving half of `TokenBuffer`."""

    __slots__ = ()

    def apply_processing_offset(self, offset: int) -> None:
        """Leave out `offset` tokens at the start of the window; replaces the offset before.

        Raises:
            ValueError: The start would leave the window (the whole window may be left out).
        """
        offset = whole("apply_processing_offset", offset)
        if not 0 <= offset <= len(self._window):
            raise ValueError(
                f"apply_processing_offset: wanted 0 to {len(self._window)}, got {offset}"
            )
        self._offset = offset

    def rewind_processing(self, count: int) -> None:
        """Take `count` processed tokens back into the window.

        Raises:
            ValueError: `count` is negative, or more than were processed.
        """
        count = whole("rewind_processing", count)
        if not 0 <= count <= self._window.start:
            raise ValueError(f"rewind_processing: wanted 0 to {self._window.start}, got {count}")
        self._window.start -= count

    def skip_processing(self, count: int) -> None:
        """Count the first `count` tokens of the window as processed.

        Raises:
            ValueError: `count` is negative, or would leave nothing to process.
        """
        count = whole("skip_processing", count)
        if not 0 <= count < self.active_length:
            raise ValueError(f"skip_processing: wanted 0 to {self.active_length - 1}, got {count}")
        self._window.start += count

    def chunk(self, size: int) -> None:
        """Shorten the window to `size` tokens; the rest waits for `advance_chunk`.

        Raises:
            ValueError: `size` is not in [1, active_length).
        """
        size = whole("chunk", size)
        if not 0 < size < self.active_length:
            raise ValueError(f"chunk: wanted 1 to {self.active_length - 1}, got {size}")
        self._window.end = self._window.start + self._offset + size

    def advance_chunk(self) -> None:
        """Move the window on to the tokens that wait behind it.

        Raises:
            ValueError: Nothing waits.
        """
        if not self.actively_chunked:
            raise ValueError("advance_chunk: wanted a chunked window, got a whole one")
        self._window.start = self._window.end
        self._window.end = self._length
        self._offset = 0
