"""Text generation: requests in, text out, step by step, many at once.

Requests join and leave between steps (continuous batching, Yu et al., OSDI 2022): a step takes one
token of each sequence that decodes and fills up with chunks of prompts.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING

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
from heddle.pipelines.generation_step import StepModel
from heddle.pipelines.generation_tokenizer import StopStrings, TextStream, TextTokenizer
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from heddle.contexts import GrammarCompiler, GrammarMasks
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


@dataclass(eq=False)
class _Running:
    """A request that has not ended."""

    context: TextContext
    text: TextStream
    stops: StopStrings


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
        InputError: The model is no language model, or a number is more than it takes.
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
        self._waiting: deque[_Running] = deque()
        self._running: list[_Running] = []
        self._ended: list[TextDelta] = []

    def submit(self, request: TextGenerationRequest, regex: str | None = None) -> RequestID:
        """Queues a request; `step` works on it from then on.

        Args:
            request: Its `response_format` may name a JSON schema.
            regex: A regular expression that the whole output matches.

        Raises:
            InputError: The prompt is empty, has no room for a token after it, or has tokens that
                the model does not know; there is no chat template for messages; or the grammar is
                refused.
        """
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
                json_schema=_schema(request),
                sampling_params=params,
                model_name=request.model_name,
            )
        except ValueError as error:
            raise InputError(f"request {request.id}: {error}") from None
        self._constrain(context, regex)
        running = _Running(context, self.tokenizer.stream(), StopStrings(stops))
        if wanted:
            self._waiting.append(running)
        else:
            context.status = GenerationStatus.MAXIMUM_LENGTH
            self._ended.append(TextDelta(context.request_id, "", [], "length"))
        return context.request_id

    def cancel(self, request_id: str) -> None:
        """Ends a request before its time; its last delta comes with the next step."""
        for running in [*self._running, *self._waiting]:
            if running.context.request_id == request_id:
                running.context.status = GenerationStatus.CANCELLED
                self._leave(running)
                self._ended.append(TextDelta(running.context.request_id, "", [], "cancelled"))

    def prompt_length(self, request_id: str) -> int:
        """Tokens in the prompt of a request that has not ended; 0 for another one."""
        for running in [*self._running, *self._waiting]:
            if running.context.request_id == request_id:
                return running.context.tokens.prompt_length
        return 0

    @property
    def busy(self) -> bool:
        """Whether there is something left to do."""
        return bool(self._waiting or self._running or self._ended)

    def step(self) -> list[TextDelta]:
        """Runs the model once; what is new for each request that got a token or ended."""
        deltas, self._ended = self._ended, []
        chosen = self._schedule()
        if not chosen:
            return deltas
        refused = self._step.run([running.context for running in chosen], self._masks())
        for row, running in enumerate(chosen):
            if row in refused:
                self._leave(running)
                error = refused[row]
                deltas.append(TextDelta(running.context.request_id, "", [], "error", None, error))
            elif running.context.tokens.has_outstanding_generated_tokens:
                deltas.append(self._delta(running))
        return deltas

    def stream(
        self, request: TextGenerationRequest, regex: str | None = None
    ) -> Iterator[TextDelta]:
        """Submits a request and yields what is new until it ends; others go on meanwhile."""
        wanted = self.submit(request, regex)
        while True:
            for delta in self.step():
                if delta.request_id == wanted:
                    yield delta
                    if delta.finish_reason:
                        return

    def generate(
        self, prompts: Iterable[str | Sequence[int]], params: SamplingParams | None = None
    ) -> list[str]:
        """The text that follows each prompt, all side by side.

        Raises:
            InputError: As `submit`; or a request could not go on.
        """
        params = params or SamplingParams()
        ids = [
            self.submit(
                TextGenerationRequest(
                    id=RequestID(), index=i, model_name="", prompt=prompt, sampling_params=params
                )
            )
            for i, prompt in enumerate(prompts)
        ]
        texts = dict.fromkeys(ids, "")
        left = set(ids)
        while left:
            for delta in self.step():
                if delta.request_id not in texts:
                    continue
                if delta.error:
                    raise InputError(f"request {delta.request_id}: {delta.error}") from delta.error
                texts[delta.request_id] += delta.text
                if delta.finish_reason:
                    left.discard(delta.request_id)
        return list(texts.values())

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
            prompt = list(request.prompt or [])
        if not prompt:
            raise InputError(f"request {request.id}: wanted a prompt of at least one token")
        wrong = [token for token in prompt if not 0 <= token < self._step.vocab_size]
        if wrong:
            raise InputError(
                f"request {request.id}: wanted tokens below {self._step.vocab_size}, got {wrong[0]}"
            )
        return prompt

    @cached_property
    def _grammars(self) -> GrammarCompiler:
        """The compiler of grammars, made when the first one is asked for."""
        try:
            from llguidance import LLTokenizer

            from heddle.contexts import GrammarCompiler
        except ModuleNotFoundError:
            raise InputError(
                "grammar: wanted the package llguidance, which is not installed; "
                "pip install llguidance"
            ) from None
        ends = sorted(self.tokenizer.eos_token_ids)
        if not ends:
            raise InputError("grammar: wanted a tokenizer with an end of text, got none")
        return GrammarCompiler(
            LLTokenizer(str(self.tokenizer.file), n_vocab=self._step.vocab_size, eos_token=ends)
        )

    @cached_property
    def _grammar_masks(self) -> GrammarMasks:
        from heddle.contexts import GrammarMasks

        return GrammarMasks(self._grammars.tokenizer, self._step.rows)

    def _masks(self) -> GrammarMasks | None:
        return self._grammar_masks if "_grammars" in self.__dict__ else None

    def _constrain(self, context: TextContext, regex: str | None) -> None:
        if regex is not None and context.json_schema is not None:
            raise InputError(
                f"request {context.request_id}: wanted a response format or a regular expression, "
                "got both"
            )
        if regex is not None:
            context.set_matcher(self._grammars.compile("regex", regex))
        elif context.json_schema is not None:
            self._grammars.constrain(context)

    def _schedule(self) -> list[_Running]:
        """The requests of the next step, with their windows cut and their blocks reserved."""
        budget = self._step.tokens
        chosen: set[_Running] = set()
        decoding_first = sorted(self._running, key=lambda r: r.context.tokens.active_length > 1)
        for running in decoding_first:
            if budget and running in self._running:
                budget -= self._take(running, budget, chosen)
        while self._waiting and len(self._running) < self._step.rows and budget:
            running = self._waiting[0]
            self._step.blocks.reuse(running.context)
            size = self._fitting(running.context, budget)
            if not size:
                self._step.blocks.release(running.context)
                _start_over(running.context)
                break
            self._running.append(self._waiting.popleft())
            chosen.add(running)
            budget -= size
        return [running for running in self._running if running in chosen]

    def _take(self, running: _Running, budget: int, chosen: set[_Running]) -> int:
        """Adds `running` to the step; where blocks are short, the youngest others wait again."""
        while not (size := self._fitting(running.context, budget)):
            youngest = next(r for r in reversed(self._running) if r not in chosen)
            self._leave(youngest)
            _start_over(youngest.context)
            self._waiting.appendleft(youngest)
            if youngest is running:
                return 0
        chosen.add(running)
        return size

    def _fitting(self, context: TextContext, budget: int) -> int:
        """Cuts the window to `budget` tokens and reserves blocks; how many tokens, or 0."""
        tokens = context.tokens
        size = min(tokens.active_length, budget)
        if not self._step.blocks.reserve(context, tokens.processed_length + size):
            return 0
        if size < tokens.active_length:
            tokens.chunk(size)
        return size

    def _leave(self, running: _Running) -> None:
        if running in self._running:
            self._running.remove(running)
            self._step.blocks.release(running.context)
        else:
            self._waiting.remove(running)

    def _delta(self, running: _Running) -> TextDelta:
        context = running.context
        output = context.to_generation_output()
        visible = [t for t in output.tokens if t not in self.tokenizer.eos_token_ids]
        text = running.text.push(visible, final=context.is_done)
        stop = context.end_at_stop_string(text)
        if stop is not None:
            text = running.stops.cut(text, stop)
        else:
            text = running.stops.push(text, final=context.is_done)
        if context.is_done:
            self._leave(running)
        return TextDelta(
            context.request_id,
            text,
            output.tokens,
            REASONS.get(context.status),
            output.log_probabilities,
        )


def _start_over(context: TextContext) -> None:
    """Takes all that was processed back into the window."""
    context.tokens.rewind_processing(context.tokens.processed_length)


def _schema(request: TextGenerationRequest) -> str | None:
    """The JSON schema of a request's output; `json_object` is any JSON value."""
    form = request.response_format
    if form is None or form.type == "text":
        return None
    schema = form.json_schema if form.type == "json_schema" else {"type": "object"}
    return json.dumps(schema.get("schema", schema))
