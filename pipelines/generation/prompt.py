"""What a request says: the tokens of its prompt or of its messages, and the context of both."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from heddle.contexts import EOSTracker, SamplingParams, TextContext, TextGenerationRequest
from heddle.pipelines.generation.grammar import schema_of
from heddle.pipelines.generation.tokenizer import TextTokenizer
from heddle.runtime.errors import InputError


class Prompts:
    """Reads requests for a model.

    Args:
        tokenizer: The model's.
        vocab_size: How many tokens the model knows.
        ends: The tokens that end a text.
        longest: Most tokens of a sequence, prompt included.
    """

    def __init__(
        self, tokenizer: TextTokenizer, vocab_size: int, ends: frozenset[int], longest: int
    ) -> None:
        self._tokenizer = tokenizer
        self._known = vocab_size
        self._ends = ends
        self._longest = longest

    def tokens(self, request: TextGenerationRequest) -> list[int]:
        """The tokens of a request's prompt or messages.

        Raises:
            InputError: It is empty, has tokens that the model does not know, or is no prompt; there
                is no chat template for messages, or there are tools without them; or the request
                asks for what a text generator would have to ignore.
        """
        _check(request)
        if request.messages is not None:
            options = request.chat_template_options or {}
            if request.tools:
                options = {"tools": [asdict(tool) for tool in request.tools], **options}
            text = self._tokenizer.chat(request.messages, **options)
            prompt = self._tokenizer.encode(text, add_special_tokens=False)
        elif isinstance(request.prompt, str):
            prompt = self._tokenizer.encode(request.prompt)
        else:
            prompt = _integers(request)
        if not prompt:
            raise InputError(f"request {request.id}: wanted a prompt of at least one token")
        self.check_tokens(request, prompt)
        return prompt

    def check_tokens(self, request: TextGenerationRequest, tokens: Iterable[int]) -> None:
        """Raises InputError for a token that the model does not know."""
        for token in tokens:
            if not 0 <= token < self._known:
                raise InputError(
                    f"request {request.id}: wanted tokens below {self._known}, got {token}"
                )

    def context(
        self, request: TextGenerationRequest, prompt: list[int], constrained: bool = False
    ) -> TextContext:
        """The context of a request whose prompt has these tokens.

        A text that follows a grammar ends where that does, also with `ignore_eos`.

        Args:
            request: The request.
            prompt: The tokens.
            constrained: Whether the text follows a grammar that the request does not name.

        Raises:
            InputError: There is no room for a token after them, or for `min_new_tokens`; tokens of
                `stop_token_ids` are not known, or `logprobs` is more than all that are.
        """
        params = request.sampling_params
        new = self._new_tokens(request, len(prompt))
        if request.logprobs > self._known:
            raise InputError(
                f"request {request.id}: wanted logprobs of at most {self._known}, the tokens that "
                f"the model knows, got {request.logprobs}"
            )
        self.check_tokens(request, params.stop_token_ids or [])
        stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
        schema = schema_of(request)
        endless = params.ignore_eos and schema is None and not constrained
        ends = frozenset() if endless else self._ends
        ends |= set(params.stop_token_ids or [])
        try:
            return TextContext(
                max_length=len(prompt) + new,
                tokens=np.array(prompt, np.int64),
                request_id=request.id,
                eos_tracker=EOSTracker(ends, eos_stop_strings=[*stops, *(params.stop or [])]),
                log_probabilities=request.logprobs,
                json_schema=schema,
                sampling_params=params,
                model_name=request.model_name,
            )
        except ValueError as error:
            raise InputError(f"request {request.id}: {error}") from None

    def _new_tokens(self, request: TextGenerationRequest, prompt: int) -> int:
        """Most tokens that come after a prompt of `prompt` tokens."""
        room = self._longest - prompt
        if room < 1:
            raise InputError(
                f"request {request.id}: wanted a prompt of at most {self._longest - 1} tokens, got "
                f"{prompt}"
            )
        params = request.sampling_params
        most = room if params.max_new_tokens is None else min(room, params.max_new_tokens)
        if params.min_new_tokens > most:
            why = "as max_new_tokens says" if most < room else "for which there is room"
            raise InputError(
                f"request {request.id}: wanted min_new_tokens of at most {most}, {why}, got "
                f"{params.min_new_tokens}"
            )
        return most


def _integers(request: TextGenerationRequest) -> list[int]:
    prompt: Any = request.prompt
    listed = isinstance(prompt, Sequence) and not isinstance(prompt, (bytes, bytearray))
    try:
        if listed and not any(isinstance(token, bool) for token in prompt):
            return [operator.index(token) for token in prompt]
    except TypeError:
        pass
    raise InputError(
        f"request {request.id}: wanted a prompt of text or of integers, got {prompt!r}"
    )


def _check(request: TextGenerationRequest) -> None:
    """Refuses what is no request, or what a text generator would have to ignore."""
    if not isinstance(request.sampling_params, SamplingParams):
        raise InputError(
            f"request {request.id}: wanted SamplingParams, got {request.sampling_params!r}"
        )
    for name, given in (("images", request.images), ("echo", request.echo)):
        if given:
            raise InputError(f"request {request.id}: wanted no {name}, a text generator has none")
    if request.tools and request.messages is None:
        raise InputError(
            f"request {request.id}: wanted messages beside tools, which the chat template shows to "
            "the model, got a prompt"
        )
