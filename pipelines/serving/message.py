"""The message of a conversation that an answer becomes, as OpenAI's API writes it.

Reasoning has the name that DeepSeek's API gives it, which vLLM has, too: `reasoning_content`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heddle.pipelines.serving.reading.pieces import Argued, Called, Piece, Reader, Said, Thought


class Message:
    """What a choice of a conversation has said so far.

    Args:
        reader: What reads its text.
        make_id: Makes ids of calls.
        parallel: Whether there may be several calls; else those behind the first are dropped.
    """

    def __init__(self, reader: Reader, make_id: Callable[[], str], parallel: bool = True) -> None:
        self._reader = reader
        self._make_id = make_id
        self._parallel = parallel
        self._said: list[str] = []
        self._thought: list[str] = []
        self._calls: list[dict[str, Any]] = []

    def push(self, text: str, final: bool) -> list[dict[str, Any]]:
        """The deltas of more text."""
        pieces = self._reader.push(text, final)
        return [self._delta(piece) for piece in pieces if self._counts(piece)]

    def _counts(self, piece: Piece) -> bool:
        return self._parallel or not (self._calls and isinstance(piece, Called))

    def _delta(self, piece: Piece) -> dict[str, Any]:
        if isinstance(piece, Said):
            self._said.append(piece.text)
            return {"content": piece.text}
        if isinstance(piece, Thought):
            self._thought.append(piece.text)
            return {"reasoning_content": piece.text}
        if isinstance(piece, Called):
            function = {"name": piece.name, "arguments": piece.arguments}
            call = {"id": self._make_id(), "type": "function", "function": function}
            self._calls.append({**call, "function": {**function}})
            return {"tool_calls": [{"index": len(self._calls) - 1, **call}]}
        assert isinstance(piece, Argued)
        self._calls[-1]["function"]["arguments"] += piece.text
        more = {"index": len(self._calls) - 1, "function": {"arguments": piece.text}}
        return {"tool_calls": [more]}

    def reason(self, reason: str | None) -> str | None:
        """Why it ended."""
        return "tool_calls" if self._calls and reason == "stop" else reason

    def record(self) -> dict[str, Any]:
        """All of it."""
        more: dict[str, Any] = {}
        if self._thought:
            more["reasoning_content"] = "".join(self._thought)
        if self._calls:
            more["tool_calls"] = self._calls
        content = "".join(self._said) or (None if more else "")
        return {"role": "assistant", "content": content, "refusal": None, **more}
