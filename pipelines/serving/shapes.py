"""How an endpoint writes what a generator gives: as pieces of a stream, or whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from heddle.contexts import LogProbabilities
from heddle.pipelines.generation.delta import TextDelta
from heddle.pipelines.generation.tokenizer import UNFINISHED, TextTokenizer
from heddle.pipelines.serving.message import Message


@dataclass
class Text:
    """What a choice has said so far."""

    text: str = ""
    finish_reason: str | None = None
    tokens: list[int] = field(default_factory=list)
    log_probabilities: list[LogProbabilities | None] = field(default_factory=list)

    def add(self, delta: TextDelta) -> None:
        """Appends what is new."""
        self.text += delta.text
        self.finish_reason = delta.finish_reason
        if delta.log_probabilities:
            self.tokens += delta.tokens
            self.log_probabilities += delta.log_probabilities


LEAST = -9999.0
"""What OpenAI's API says for the log probability of what cannot be: JSON has no infinity."""

Told = list[tuple[str, float]]
"""A token and its log probability, and behind it the likeliest ones with theirs."""


class Shape(ABC):
    """The choices of one answer.

    Args:
        tokenizer: The model's.
        likely: Tokens whose log probabilities are told beside the chosen one; None: of none.

    Attributes:
        kind: The `object` of a whole answer.
        piece_kind: That of a piece of a stream.
    """

    kind: str
    piece_kind: str

    def __init__(self, tokenizer: TextTokenizer, likely: int | None) -> None:
        self._tokenizer = tokenizer
        self._likely = likely

    @abstractmethod
    def opening(self, index: int) -> list[dict[str, Any]]:
        """What a choice has in a stream before its text."""

    @abstractmethod
    def pieces(self, index: int, delta: TextDelta) -> list[dict[str, Any]]:
        """What a delta adds to a choice in a stream."""

    @abstractmethod
    def whole(self, index: int, text: Text) -> dict[str, Any]:
        """A choice that has ended."""

    def told(self, new: TextDelta | Text, first: bool = False) -> list[Told]:
        """What is to be told of each token of the text; one that ends it is none of it.

        `first`: nothing stands before them.
        """
        found: list[Told] = []
        entries = zip(new.tokens, new.log_probabilities or (), strict=False)
        for token, entry in entries:
            if entry is not None and token not in self._tokenizer.eos_token_ids:
                (value,), (top,) = entry.token_log_probabilities, entry.top_log_probabilities
                rows = [(token, value), *list(top.items())[: self._likely]]
                begins = first and not found
                found.append(
                    [(self._tokenizer.token_text(t, begins), max(v, LEAST)) for t, v in rows]
                )
        return found


class CompletionShape(Shape):
    """The choices of `/v1/completions`."""

    kind = piece_kind = "text_completion"

    def __init__(self, tokenizer: TextTokenizer, likely: int | None) -> None:
        super().__init__(tokenizer, likely)
        self._offsets: dict[int, int] = {}

    def opening(self, index: int) -> list[dict[str, Any]]:
        """Nothing."""
        return []

    def pieces(self, index: int, delta: TextDelta) -> list[dict[str, Any]]:
        """Its text, unless there is nothing to say yet."""
        entries = self.told(delta)
        if not (delta.text or entries or delta.finish_reason):
            return []
        return [self._choice(index, delta.text, delta.finish_reason, entries)]

    def whole(self, index: int, text: Text) -> dict[str, Any]:
        """Its text."""
        return self._choice(index, text.text, text.finish_reason, self.told(text))

    def _choice(
        self, index: int, text: str, reason: str | None, entries: list[Told]
    ) -> dict[str, Any]:
        logprobs = None if self._likely is None else self._columns(index, entries)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}

    def _columns(self, index: int, entries: list[Told]) -> dict[str, Any]:
        """Offsets count the characters of the tokens' own texts."""
        start = self._offsets.get(index, 0)
        texts = [text for (text, _), *_ in entries]
        ends = list(accumulate(map(len, texts), initial=start))
        self._offsets[index] = ends[-1]
        return {
            "tokens": texts,
            "token_logprobs": [value for (_, value), *_ in entries],
            "top_logprobs": [dict(best[::-1]) for _, *best in entries],  # the likeliest stays
            "text_offset": ends[:-1],
        }


class ChatShape(Shape):
    """The choices of `/v1/chat/completions`.

    Args:
        tokenizer: The model's.
        likely: As for `Shape`.
        make_message: Makes what a choice says.
    """

    kind, piece_kind = "chat.completion", "chat.completion.chunk"

    def __init__(
        self,
        tokenizer: TextTokenizer,
        likely: int | None,
        make_message: Callable[[], Message],
    ) -> None:
        super().__init__(tokenizer, likely)
        self._messages: defaultdict[int, Message] = defaultdict(make_message)

    def opening(self, index: int) -> list[dict[str, Any]]:
        """Who speaks."""
        return [self._piece(index, {"role": "assistant", "content": ""})]

    def pieces(self, index: int, delta: TextDelta) -> list[dict[str, Any]]:
        """What its text says; the end comes by itself."""
        entries = self.told(delta, first=index not in self._messages)
        message = self._messages[index]
        news = message.push(delta.text, final=bool(delta.finish_reason))
        found = []
        for what in news or ([{}] if entries else []):
            found.append(self._piece(index, what, entries))
            entries = []
        if delta.finish_reason:
            reason = message.reason(delta.finish_reason)
            found.append(self._piece(index, {}, reason=reason))
        return found

    def whole(self, index: int, text: Text) -> dict[str, Any]:
        """The message, and why it ended."""
        message = self._messages[index]
        message.push(text.text, final=True)
        return {
            "index": index,
            "message": message.record(),
            "logprobs": self._logprobs(self.told(text, first=True)),
            "finish_reason": message.reason(text.finish_reason),
        }

    def _piece(
        self,
        index: int,
        delta: dict[str, Any],
        entries: Sequence[Told] = (),
        reason: str | None = None,
    ) -> dict[str, Any]:
        logprobs = self._logprobs(entries) if entries else None
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def _logprobs(self, entries: Sequence[Told]) -> dict[str, Any] | None:
        if self._likely is None:
            return None
        rows = [
            {**_token(text, value), "top_logprobs": [_token(*row) for row in best]}
            for (text, value), *best in entries
        ]
        return {"content": rows, "refusal": None}


def _token(text: str, value: float) -> dict[str, Any]:
    """A token; its bytes are not known where it is no whole character."""
    data = None if UNFINISHED in text else list(text.encode())
    return {"token": text, "logprob": value, "bytes": data}
