"""Text generation: requests in, text out, step by step, many at once.

Requests join and leave between steps (continuous batching, Yu et al., OSDI 2022): a step takes one
token of each sequence that decodes and fills up with chunks of prompts.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.contexts import (
    EOSTracker,
    GenerationStatus,
    LogProbabilities,
    RequestID,
    SamplingParams,
    TextContext,
    TextGenerationRequest,
)
from heddle.pipelines.generation_grammar import Grammars, schema_of
from heddle.pipelines.generation_schedule import Running, Schedule
from heddle.pipelines.generation_step import StepModel
from heddle.pipelines.generation_tokenizer import StopStrings, TextTokenizer
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from heddle.runtime import Model

REASONS = {
    GenerationStatus.END_OF_SEQUENCE: "stop",
    GenerationStatus.MAXIMUM_LENGTH: "length",
    GenerationStatus.CANCELLED: "cancelled",
}
"""Why a text ended, in the words of the field's interfaces."""


CACHE_TOKENS = 8192
"""Tokens for which a cache has room by default."""


@dataclass(frozen=True)
class TextDelta:
    """What is new of a request after a step.

    Attributes:
        request_id: Whose text.
        text: The new text; the end of a character or of a stop string that may follow is held back.
            Empty where `sampling_params.detokenize` is off.
        tokens: The new tokens.
        finish_reason: None while it goes on; `stop`, `length`, `cancelled` or `error`.
        log_probabilities: One entry for each token, where they were asked for.
        error: Why it could not go on.
    """

    request_id: RequestID
    text: str
    tokens: list[int]
    finish_reason: str | None = None
    log_probabilities: list[LogProbabilities | None] | None = None
    error: Exception | None = None


class TextGenerator:
    """Generates text with a loaded language model.

    Not safe to be used from several threads at once.

    Args:
        model: A model of `heddle.pipelines.models.llama.language_model`.
        tokenizer: The model's.
        rows: Most sequences of a step.
        tokens: Most tokens of a step; longer prompts are processed in chunks.
        cache_tokens: Tokens for which the cache has room; no sequence can be longer.

    Attributes:
        max_length: Most tokens of a sequence, prompt included.

    Raises:
        InputError: The model is no language model, a number is more than it takes, or the cache
            is more than there is memory.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: TextTokenizer,
        rows: int = 16,
        tokens: int = 512,
        cache_tokens: int = CACHE_TOKENS,
    ) -> None:
        self.tokenizer = tokenizer
        self._step = StepModel(model, rows, tokens, cache_tokens)
        self.max_length = self._step.longest
        self._schedule = Schedule(self._step.blocks, rows, tokens)
        self._grammars = Grammars(tokenizer, self._step.vocab_size, rows)
        self._new: list[TextDelta] = []

    def submit(self, request: TextGenerationRequest, regex: str | None = None) -> RequestID:
        """Queues a request; `step` works on it from then on.

        Args:
            request: Its `response_format` may name a JSON schema.
            regex: A regular expression that the whole output matches.

        Raises:
            InputError: Another request has its id; the prompt is empty, has no room for a token
                after it, or has tokens that the model does not know; there is no chat template for
                messages, or there are tools without messages; the grammar is refused; or it has
                images, or wants an echo.
        """
        if any(running.context.request_id == request.id for running in self._schedule):
            raise InputError(f"request {request.id}: wanted an id of its own, got that of another")
        _check(request)
        prompt = self._prompt(request)
        params = request.sampling_params
        room = self.max_length - len(prompt)
        if room < 1:
            raise InputError(
                f"request {request.id}: wanted a prompt of at most {self.max_length - 1} tokens, "
                f"got {len(prompt)}"
            )
        wanted = room if params.max_new_tokens is None else min(room, params.max_new_tokens)
        stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
        stops = [*stops, *(params.stop or [])]
        ends = self.tokenizer.eos_token_ids | set(params.stop_token_ids or [])
        try:
            context = TextContext(
                max_length=len(prompt) + wanted,
                tokens=np.array(prompt, np.int64),
                request_id=request.id,
                eos_tracker=EOSTracker(ends, eos_stop_strings=stops),
                log_probabilities=request.logprobs,
                ignore_eos=params.ignore_eos,
                json_schema=schema_of(request),
                sampling_params=params,
                model_name=request.model_name,
            )
        except ValueError as error:
            raise InputError(f"request {request.id}: {error}") from None
        self._grammars.constrain(context, regex)
        running = Running(context, self.tokenizer.stream(), StopStrings(stops))
        if wanted:
            self._schedule.add(running)
        else:
            context.status = GenerationStatus.MAXIMUM_LENGTH
            self._new.append(TextDelta(context.request_id, "", [], "length"))
        return context.request_id

    def cancel(self, request_id: str) -> None:
        """Ends a request before its time; its last delta comes with the next step."""
        for running in self._schedule:
            if running.context.request_id == request_id:
                running.context.status = GenerationStatus.CANCELLED
                self._schedule.leave(running)
                self._new.append(TextDelta(running.context.request_id, "", [], "cancelled"))

    def prompt_length(self, request_id: str) -> int:
        """Tokens in the prompt of a request that has not ended; 0 for another one."""
        for running in self._schedule:
            if running.context.request_id == request_id:
                return running.context.tokens.prompt_length
        return 0

    @property
    def busy(self) -> bool:
        """Whether there is something left to do."""
        return bool(self._schedule or self._new)

    def step(self) -> list[TextDelta]:
        """Runs the model once; what is new for each request that got a token or ended."""
        deltas, self._new = self._new, []
        chosen = self._schedule.next_step()
        if not chosen:
            return deltas
        refused = self._step.run([running.context for running in chosen], self._grammars.masks)
        for row, running in enumerate(chosen):
            if row in refused:
                self._schedule.leave(running)
                error = refused[row]
                deltas.append(TextDelta(running.context.request_id, "", [], "error", None, error))
            elif running.context.tokens.has_outstanding_generated_tokens:
                deltas.append(self._delta(running))
        return deltas

    def stream(
        self, request: TextGenerationRequest, regex: str | None = None
    ) -> Iterator[TextDelta]:
        """Submits a request and yields what is new until it ends.

        Other requests go on meanwhile; what is new of them comes with the next `step`. A stream
        that is closed before its end cancels its request.
        """
        wanted = self.submit(request, regex)
        try:
            while True:
                for delta in self._step_of({wanted}):
                    yield delta
                    if delta.finish_reason:
                        return
        finally:
            self._drop({wanted})

    def generate(
        self, prompts: Iterable[str | Sequence[int]], params: SamplingParams | None = None
    ) -> list[str]:
        """The text that follows each prompt, all side by side.

        Raises:
            InputError: As `submit`; or one of them could not go on. Either ends the others too.
        """
        if isinstance(prompts, str):
            raise InputError(f"generate: wanted a list of prompts, got the text {prompts!r}")
        params = params or SamplingParams()
        texts: dict[RequestID, str] = {}
        left: set[RequestID] = set()
        try:
            for index, prompt in enumerate(prompts):
                request = TextGenerationRequest(
                    RequestID(), index, "", prompt, sampling_params=params
                )
                texts[self.submit(request)] = ""
            left = set(texts)
            while left:
                for delta in self._step_of(left):
                    if delta.error:
                        raise InputError(
                            f"request {delta.request_id}: {delta.error}"
                        ) from delta.error
                    texts[delta.request_id] += delta.text
                    if delta.finish_reason:
                        left.discard(delta.request_id)
        finally:
            self._drop(set(texts))
        return list(texts.values())

    def _drop(self, requests: set[RequestID]) -> None:
        """Ends those of `requests` that have not ended, without a word."""
        for name in requests:
            self.cancel(name)
        self._new = [delta for delta in self._new if delta.request_id not in requests]

    def _step_of(self, wanted: set[RequestID]) -> list[TextDelta]:
        """A step, and what is new of the requests `wanted`; the rest is kept for the next."""
        deltas = self.step()
        self._new += [delta for delta in deltas if delta.request_id not in wanted]
        return [delta for delta in deltas if delta.request_id in wanted]

    def _prompt(self, request: TextGenerationRequest) -> list[int]:
        if request.messages is not None:
            options = request.chat_template_options or {}
            if request.tools:
                options = {"tools": [asdict(tool) for tool in request.tools], **options}
            text = self.tokenizer.chat(request.messages, **options)
            prompt = self.tokenizer.encode(text, add_special_tokens=False)
        elif isinstance(request.prompt, str):
            prompt = self.tokenizer.encode(request.prompt)
        else:
            prompt = self._tokens(request)
        if not prompt:
            raise InputError(f"request {request.id}: wanted a prompt of at least one token")
        wrong = [token for token in prompt if not 0 <= token < self._step.vocab_size]
        if wrong:
            raise InputError(
                f"request {request.id}: wanted tokens below {self._step.vocab_size}, got {wrong[0]}"
            )
        return prompt

    def _tokens(self, request: TextGenerationRequest) -> list[int]:
        prompt: Any = request.prompt
        try:
            return [operator.index(token) for token in prompt]
        except TypeError:
            raise InputError(
                f"request {request.id}: wanted a prompt of text or of integers, got "
                f"{request.prompt!r}"
            ) from None

    def _delta(self, running: Running) -> TextDelta:
        context = running.context
        output = context.to_generation_output()
        text = self._text(running, output.tokens)
        if context.is_done:
            self._schedule.leave(running)
        return TextDelta(
            context.request_id,
            text if context.sampling_params.detokenize else "",
            output.tokens,
            REASONS.get(context.status),
            output.log_probabilities,
        )

    def _text(self, running: Running, tokens: list[int]) -> str:
        """What can be shown with new tokens; a stop string in it ends the request."""
        context = running.context
        visible = [t for t in tokens if t not in self.tokenizer.eos_token_ids]
        text = running.text.push(visible, final=context.is_done)
        stop = context.end_at_stop_string(text)
        if stop is not None:
            return running.stops.cut(text, stop)
        return running.stops.push(text, final=context.is_done)


def _check(request: TextGenerationRequest) -> None:
    """Refuses what a text generator would have to ignore."""
    for name, given in (("images", request.images), ("echo", request.echo)):
        if given:
            raise InputError(f"request {request.id}: wanted no {name}, a text generator has none")
    if request.tools and request.messages is None:
        raise InputError(
            f"request {request.id}: wanted messages beside tools, which the chat template shows to "
            "the model, got a prompt"
        )
