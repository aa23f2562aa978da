"""A piece of a ragged row's tokens: which keys they see, and where queries and results are."""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit, host, rows, sizes
from heddle.kernels.cpu.amx import attention_parts
from heddle.kernels.cpu.flash.block import Block
from heddle.kernels.cpu.flash.ragged_block import piece
from heddle.kernels.cpu.flash.shares import with_sink, write_apart
from heddle.kernels.row_spans import group_of
from heddle.kernels.sizes import Size


class Piece:
    """Tokens from and to the row's end; the row is number and length.

    `head` is the first of the key heads that are worked on.
    """

    head: Any

    def __init__(
        self, frame: host.Frame, block: Block, row: tuple[Any, Any], tokens: tuple[Any, Any]
    ) -> None:
        self.frame, self.block = frame, block
        self.row, self.length = row
        self.token, stop = tokens
        self.position = self.length - (stop - self.token)
        self.count = sizes.least(stop - self.token, piece(frame.spec))
        self.group = group_of(frame.spec)
        self.queries = self.count * self.group

    def seen(self, token: Any) -> tuple[Any, Any]:
        """The keys that a token of the piece sees, from and to."""
        position = self.position + token
        return emit.as_index(self._hidden(position)), self._visible(position)

    def _visible(self, position: Any) -> Any:
        """How many keys, from the first on, are not behind a query that is at `position`."""
        if not self.frame.spec.attr("causal"):
            return self.length
        return sizes.greatest(sizes.least(position + 1, self.length), 0)

    def _hidden(self, position: Any) -> Size:
        """How many keys are before the window of a query that is at `position`."""
        window = self.frame.spec.attr("window")
        return sizes.greatest(position + 1 - window, 0) if window else 0

    def _query_start(self, head: Any, query: Any) -> Any:
        return self._result_row(head, query) * self.block.size

    def _result_row(self, head: Any, query: Any) -> Any:
        """The row, a head long, of a query: those of a token follow one another."""
        heads = self.frame.size(self.frame.spec.operands[0].shape[1])
        token = self.token + query // self.group
        return token * heads + (self.head + head) * self.group + query % self.group

    def _write(self, head: Any, base: Any) -> list[Any]:
        """Writes the results of a head, whose sums begin in row `base`.

        Returns, where numbers are split, whether one is infinite or a NaN.
        """
        block = self.block
        finish = rows.Finish(self.frame, block.lanes)

        def write(r: Any, *found: Any) -> list[Any]:
            def beside() -> tuple[Any, Any]:
                number = (self.head + head) * self.group + r % self.group
                return number, block.scalar(block.top, base + r)

            share = with_sink(self.frame, block.weight_at(base + r), beside)
            out_at = finish.row(self._result_row(head, r))
            if block.turned:
                place = (base + r) * block.across
                write_apart(block, block.total, place, share, out_at, block.lanes)
                return []
            for column, mask in host.vectors(0, block.columns, block.lanes):
                total = block.vector(block.total, (base + r) * block.across + column)
                out_at(column, mask, total * share)
            return attention_parts.no_numbers(block, base + r, share, *found)

        return attention_parts.any_no_number(block, self.queries, write)
