"""An answer of a text generator as a response: whole, or as a stream of server-sent events."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from heddle.pipelines.generation.delta import TextDelta
from heddle.pipelines.serving.answer import Answer
from heddle.pipelines.serving.errors import ApiError, failure
from heddle.pipelines.serving.records import TextAsked
from heddle.pipelines.serving.shapes import Shape, Text

DONE = b"data: [DONE]\n\n"

ENCODER = msgspec.json.Encoder()


@dataclass
class Usage:
    """Tokens of an answer.

    Attributes:
        choices: Answers to each prompt, whose tokens count once.
    """

    choices: int
    prompts: dict[int, int] = field(default_factory=dict)
    generated: int = 0

    def add(self, index: int, delta: TextDelta) -> None:
        """Counts those of a delta."""
        self.prompts[index // self.choices] = delta.prompt_tokens
        self.generated += len(delta.tokens)

    def record(self) -> dict[str, int]:
        """As the wire has it."""
        prompt = sum(self.prompts.values())
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self.generated,
            "total_tokens": prompt + self.generated,
        }


@dataclass
class Response:
    """What an answer becomes.

    Attributes:
        id: The answer's.
        model: The model's name.
        shape: How the endpoint writes choices.
        count: How many choices there are, of all prompts.
        choices: Of them to each prompt.
    """

    id: str
    model: str
    shape: Shape
    count: int
    choices: int
    created: int = field(default_factory=lambda: int(time.time()))

    @staticmethod
    def of(asked: TextAsked, name: str, shape: Shape, count: int) -> Response:
        """The response to a request, with the id `name`."""
        return Response(name, asked.model, shape, count, asked.choices)

    async def whole(self, answer: Answer) -> dict[str, Any]:
        """All of it, once it has ended.

        Raises:
            ApiError: A choice could not go on, or the model was lost.
        """
        texts = [Text() for _ in range(self.count)]
        usage = Usage(self.choices)
        try:
            async for new in answer:
                for index, delta in new:
                    if delta.error:
                        raise _failed(delta.error)
                    texts[index].add(delta)
                    usage.add(index, delta)
        finally:
            answer.close()
        choices = [self.shape.whole(index, text) for index, text in enumerate(texts)]
        return {**self._head(self.shape.kind, choices), "usage": usage.record()}

    async def stream(self, answer: Answer, with_usage: bool) -> AsyncIterator[bytes]:
        """Piece by piece, each step's together; an error is the last event.

        Args:
            answer: What is new.
            with_usage: Whether the last piece says how many tokens there were.
        """
        usage = Usage(self.choices)
        end = b'],"usage":null}\n\n' if with_usage else b"]}\n\n"
        try:
            for index in range(self.count):
                if opening := self.shape.opening(index):
                    yield self._events(opening, end)
            async for new in answer:
                pieces = []
                for index, delta in new:
                    if delta.error:
                        raise _failed(delta.error)
                    pieces += self.shape.pieces(index, delta)
                    usage.add(index, delta)
                if pieces:
                    yield self._events(pieces, end)
            if with_usage:
                yield _event({**self._head(self.shape.piece_kind, []), "usage": usage.record()})
            yield DONE
        except Exception as error:
            yield _event(failure(error).body())
        finally:
            answer.close()

    def _head(self, kind: str, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def _events(self, pieces: Sequence[dict[str, Any]], end: bytes) -> bytes:
        return b"".join(self._begin + in_json(piece) + end for piece in pieces)

    @cached_property
    def _begin(self) -> bytes:
        """What each event of a stream begins with, up to its choice."""
        return b"data: " + in_json(self._head(self.shape.piece_kind, [])).removesuffix(b"]}")


def in_json(value: Any) -> bytes:
    """In UTF-8; in ASCII where there are lone surrogates, as in names that clients made up."""
    try:
        return ENCODER.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _event(value: Any) -> bytes:
    return b"data: " + in_json(value) + b"\n\n"


def _failed(error: Exception) -> ApiError:
    return ApiError(500, f"the text could not go on: {error}", code="generation_failed")
