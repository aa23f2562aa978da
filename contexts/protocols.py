"""What pipelines expect of contexts, tokenizers and generators: checked at run time by name."""

# ruff: noqa: D102

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from heddle.contexts.responses import AudioGenerationResponse, TextResponse

if TYPE_CHECKING:
    from heddle.contexts.matcher import Matcher
    from heddle.contexts.sampling import SamplingParams
    from heddle.contexts.token_views import TokenArray
    from heddle.contexts.tokens import TokenBuffer
    from heddle.contexts.values import GenerationStatus, LogProbabilities

Context = TypeVar("Context")
Request_contra = TypeVar("Request_contra", contravariant=True)
Encoded = TypeVar("Encoded")


class _ByName(type(Protocol)):  # type: ignore[misc]
    """Makes `isinstance` look members up without running properties, which may raise."""

    def __instancecheck__(cls, instance: object) -> bool:
        if not cls._is_protocol:  # a class that implements one
            return type.__instancecheck__(cls, instance)
        names = {
            name
            for base in cls.__mro__
            if isinstance(base, _ByName)
            for name in (*base.__dict__, *inspect.get_annotations(base))
            if not name.startswith("_")
        }
        missing = object()
        return all(inspect.getattr_static(instance, name, missing) is not missing for name in names)


@runtime_checkable
class PipelineTokenizer(Protocol[Context, Encoded, Request_contra], metaclass=_ByName):
    """Turns requests into contexts, and text into tokens and back."""

    @property
    def eos(self) -> int:
        """The token that ends a sequence."""

    @property
    def expects_content_wrapping(self) -> bool:
        """Whether text parts of messages carry `content` instead of `text`."""

    async def new_context(self, request: Request_contra) -> Context:
        """The context of a new request."""

    async def encode(self, prompt: str, add_special_tokens: bool) -> Encoded:
        """The tokens of `prompt`.

        Raises:
            ValueError: They are more than the model takes.
        """

    async def decode(self, context: Context, encoded: Encoded, **kwargs: Any) -> str:
        """The text of `encoded`."""


@runtime_checkable
class TokenGenerator(Protocol[Context], metaclass=_ByName):
    """Generates text tokens."""

    def next_token(
        self, batch: dict[str, Context], num_steps: int
    ) -> list[dict[str, TextResponse]]:
        """The responses of `num_steps` steps, by request id."""

    def release(self, context: Context) -> None:
        """Let go of what belongs to a finished context."""


@runtime_checkable
class AudioGenerator(Protocol[Context], metaclass=_ByName):
    """Generates audio."""

    @property
    def decoder_sample_rate(self) -> int:
        """Samples per second."""

    def next_chunk(
        self, batch: dict[str, Context], num_tokens: int
    ) -> dict[str, AudioGenerationResponse]:
        """The next audio of each request, from `num_tokens` more speech tokens."""

    def release(self, context: Context) -> None:
        """Let go of what belongs to a finished context."""


@runtime_checkable
class EmbeddingsGenerator(Protocol[Context], metaclass=_ByName):
    """Computes embeddings."""

    def encode(self, batch: dict[str, Context]) -> dict[str, Any]:
        """The embeddings of each request."""


@runtime_checkable
class InputContext(Protocol, metaclass=_ByName):
    """The older interface of a text context; `TextContext` has the meaning of each name."""

    tokens: TokenBuffer
    max_length: int
    json_schema: str | None
    log_probabilities: int
    log_probabilities_echo: bool
    sampling_params: SamplingParams
    status: GenerationStatus

    @property
    def active_idx(self) -> int: ...
    @property
    def active_length(self) -> int: ...
    @property
    def all_tokens(self) -> TokenArray: ...
    @property
    def cache_seq_id(self) -> int: ...
    @property
    def committed_idx(self) -> int: ...
    @property
    def current_length(self) -> int: ...
    @property
    def end_idx(self) -> int: ...
    @property
    def eos_token_ids(self) -> set[int]: ...
    @property
    def generated_tokens(self) -> TokenArray: ...
    @property
    def is_assigned_to_cache(self) -> bool: ...
    @property
    def is_ce(self) -> bool: ...
    @property
    def is_done(self) -> bool: ...
    @property
    def is_initial_prompt(self) -> bool: ...
    @property
    def matcher(self) -> Matcher | None: ...
    @property
    def min_tokens(self) -> int: ...
    @property
    def next_tokens(self) -> TokenArray: ...
    @property
    def prompt_tokens(self) -> TokenArray: ...
    @property
    def start_idx(self) -> int: ...

    def assign_to_cache(self, cache_seq_id: int) -> None: ...
    def bump_token_indices(
        self, start_idx: int = 0, active_idx: int = 0, end_idx: int = 0, committed_idx: int = 0
    ) -> None: ...
    def compute_num_available_steps(self, max_seq_len: int) -> int: ...
    def get_min_token_logit_mask(self, num_steps: int) -> list[Any]: ...
    def jump_ahead(self, new_token: int) -> None: ...
    def outstanding_completion_tokens(self) -> list[tuple[int, LogProbabilities | None]]: ...
    def reset(self) -> None: ...
    def rollback(self, idx: int) -> None: ...
    def set_draft_offset(self, idx: int) -> None: ...
    def set_matcher(self, matcher: Matcher) -> None: ...
    def set_token_indices(
        self,
        start_idx: int | None = None,
        active_idx: int | None = None,
        end_idx: int | None = None,
        committed_idx: int | None = None,
    ) -> None: ...
    def unassign_from_cache(self) -> None: ...
    def update(self, new_token: int, log_probabilities: LogProbabilities | None = None) -> None: ...
    def update_status(self, status: GenerationStatus) -> None: ...
