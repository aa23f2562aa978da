"""What clients send: the requests of OpenAI's API, and the names that others have added to it.

A name that nobody knows is refused, as OpenAI does: a text that was made without what its reader
asked for looks like any other. Names that change no text are taken and left alone.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from heddle.pipelines.serving.errors import ApiError

MOST_CHOICES = 128
"""Answers to one prompt, as in OpenAI's API."""

MOST_LIKELY = 20
"""Tokens beside the chosen one whose log probabilities are told, as in OpenAI's API."""


MOST_TEXTS = 2048
"""Texts of a request that is answered in one piece, as in OpenAI's API."""


def forms(wanted: str) -> WrapValidator:
    """Says what is wanted where a value has none of several forms."""
    message: Any = wanted  # pydantic asks for a literal, as it fills in what braces name

    def check(value: Any, among: ValidatorFunctionWrapHandler) -> Any:
        try:
            return among(value)
        except ValidationError:
            raise PydanticCustomError("forms", message) from None

    return WrapValidator(check)


Stop = Annotated[str, Field(min_length=1)]
Tokens = list[Annotated[int, Field(ge=0, lt=1 << 31)]]
Texts = Annotated[
    str | Tokens | list[str] | list[Tokens], forms("a text, tokens, a list of texts or of tokens")
]


class Part(BaseModel):
    """A record whose further names are left alone: another server may have written them."""

    model_config = ConfigDict(strict=True, extra="ignore")


class Asked(BaseModel):
    """A body. `LEFT_ALONE` are names that change nothing here.

    `REFUSED` are names of OpenAI's API that this server does not have, each with what it may say
    all the same, since that is what happens without it.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    LEFT_ALONE: ClassVar[frozenset[str]] = frozenset({"user"})
    REFUSED: ClassVar[dict[str, tuple[Any, ...]]] = {}

    model: str

    @model_validator(mode="before")
    @classmethod
    def _known(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        for name, neutral in cls.REFUSED.items():
            if values.get(name) is not None and values[name] not in neutral:
                message = f"{name}: wanted none, this server does not have it"
                raise ApiError(400, message, name, "unsupported_parameter")
        dropped = cls.LEFT_ALONE | cls.REFUSED.keys()
        return {name: value for name, value in values.items() if name not in dropped}


class StreamOptions(Part):
    """What a stream has beside the text."""

    include_usage: bool | None = None


class TextAsked(Asked):
    """What a request for text says of it, whichever way its prompt comes."""

    LEFT_ALONE = Asked.LEFT_ALONE | {
        "metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
    }
    REFUSED: ClassVar[dict[str, tuple[Any, ...]]] = {"logit_bias": ({},)}

    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: Annotated[Stop | list[Stop] | None, forms("a text that is not empty, or a list")] = None
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    response_format: dict[str, Any] | None = None
    # Not OpenAI's: names that vLLM has given to what its clients send.
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    stop_token_ids: Tokens | None = None
    ignore_eos: bool | None = None
    guided_regex: str | None = None

    @property
    def choices(self) -> int:
        """Answers to each prompt."""
        return self.n or 1

    @property
    def usage_in_stream(self) -> bool:
        """Whether a stream ends by how many tokens there were."""
        return bool(self.stream_options and self.stream_options.include_usage)


class CompletionAsked(TextAsked):
    """The body of `POST /v1/completions`."""

    REFUSED = TextAsked.REFUSED | {"echo": (False,), "suffix": ("",), "best_of": (1,)}

    prompt: Texts
    logprobs: Annotated[int, Field(ge=0, le=MOST_LIKELY)] | None = None

    @property
    def prompts(self) -> list[Any]:
        """Each prompt, a text or its tokens."""
        given: Any = self.prompt
        several = isinstance(given, list) and bool(given) and not isinstance(given[0], int)
        return given if several else [given]


class FunctionCall(Part):
    """A call of a function, whose arguments are JSON as text."""

    name: str
    arguments: str = "{}"


class ToolCall(Part):
    """What an assistant called."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Part):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        str | list[dict[str, Any]] | None, forms("content as a text or a list of parts")
    ] = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class Function(Part):
    """A function that the model may call."""

    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(Part):
    """A tool that the model may use."""

    type: Literal["function"]
    function: Function


class FunctionName(Part):
    """Which function is meant."""

    name: str


class ToolChoice(Part):
    """The one function that is to be called."""

    type: Literal["function"]
    function: FunctionName


class ChatAsked(TextAsked):
    """The body of `POST /v1/chat/completions`."""

    REFUSED = TextAsked.REFUSED | {
        "audio": (),
        "function_call": (),
        "functions": (),
        "modalities": (["text"],),
        "verbosity": (),
        "web_search_options": (),
    }
    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_LIKELY)] | None = None
    tools: list[Tool] | None = None
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | ToolChoice | None,
        forms("'none', 'auto', 'required' or a function"),
    ] = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None

    @property
    def shown_tools(self) -> list[Tool]:
        """The tools that the model is told of."""
        return (self.tools or []) if self.tool_choice != "none" else []


class TokenizeAsked(Asked):
    """The body of `POST /tokenize`, which vLLM has."""

    prompt: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    tools: list[Tool] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    return_token_strs: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeAsked(Asked):
    """The body of `POST /detokenize`, which vLLM has."""

    tokens: Tokens


class EmbeddingsAsked(Asked):
    """The body of `POST /v1/embeddings`."""

    input: Texts
    dimensions: Annotated[int, Field(ge=1)] | None = None
    encoding_format: Literal["float", "base64"] | None = None


class Document(Part):
    """A text that is to be ranked."""

    text: str


class RankingAsked(Asked):
    """The body of `POST /v1/rerank`, which Cohere's and Jina's API have."""

    REFUSED: ClassVar[dict[str, tuple[Any, ...]]] = {"max_chunks_per_doc": (), "rank_fields": ()}

    query: str
    documents: Annotated[
        list[Annotated[str | Document, forms("a text, or an object with a text")]],
        Field(max_length=MOST_TEXTS),
    ]
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: bool | None = None
