"""From what clients send to the requests of a text generator."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heddle.contexts import RequestID, SamplingParams, TextGenerationRequest
from heddle.pipelines.serving.errors import ApiError, refused
from heddle.pipelines.serving.reading.forms import ForcedReader, Style
from heddle.pipelines.serving.reading.pieces import Plain, Reader
from heddle.pipelines.serving.records import (
    ChatAsked,
    CompletionAsked,
    Message,
    TextAsked,
    Tool,
    ToolChoice,
)

COMPLETION_TOKENS = 16
"""Most tokens of a completion that does not say it, as in OpenAI's API; a chat has no limit."""

SAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "ignore_eos",
    "stop_token_ids",
)
"""Names that mean the same in `SamplingParams`."""

SEED_BITS = 63
"""Of a seed that nobody chose, within 64 bits with a sign."""


@dataclass(frozen=True)
class Call:
    """That the answer is the call of a tool, by a grammar.

    Attributes:
        function: Whose arguments the text is; None: the text names the function, too.
        schema: Of the text.
    """

    function: str | None
    schema: dict[str, Any]


def completion_requests(
    answer_id: str, asked: CompletionAsked, sampling: Mapping[str, Any]
) -> list[TextGenerationRequest]:
    """The requests of all choices: those of the first prompt come first.

    `sampling` is how tokens are drawn where it is not said, by names of `SamplingParams`.
    """
    logprobs = 0 if asked.logprobs is None else max(1, asked.logprobs)
    parts = [{"prompt": prompt, "logprobs": logprobs} for prompt in asked.prompts]
    most = asked.max_tokens or COMPLETION_TOKENS
    return _requests(answer_id, asked, sampling, most, parts)


def chat_requests(
    answer_id: str, asked: ChatAsked, call: Call | None, sampling: Mapping[str, Any]
) -> list[TextGenerationRequest]:
    """The requests of all choices; `call` is what `forced_call` found, `sampling` as above."""
    if asked.top_logprobs and not asked.logprobs:
        raise ApiError(400, "top_logprobs: wanted logprobs beside it, got none", "top_logprobs")
    effort = {"reasoning_effort": asked.reasoning_effort} if asked.reasoning_effort else {}
    part: dict[str, Any] = {
        **conversation(asked.messages, asked.shown_tools),
        "logprobs": max(1, asked.top_logprobs or 0) if asked.logprobs else 0,
        "chat_template_options": {**effort, **(asked.chat_template_kwargs or {})},
    }
    if call:
        part["response_format"] = {"type": "json_schema", "json_schema": {"schema": call.schema}}
    most = asked.max_completion_tokens or asked.max_tokens
    return _requests(answer_id, asked, sampling, most, [part])


def check_effort(asked: ChatAsked, template: str) -> None:
    """Refuses an effort of reasoning that the chat template does not tell the model.

    Raises:
        ApiError: There is one.
    """
    if asked.reasoning_effort and "reasoning_effort" not in template:
        raise ApiError(
            400,
            "reasoning_effort: wanted none, this model's chat template does not have it",
            "reasoning_effort",
            "unsupported_parameter",
        )


def conversation(messages: Iterable[Message], tools: Iterable[Tool]) -> dict[str, Any]:
    """Messages and tools as a request has them."""
    part: dict[str, Any] = {"messages": [_message(message) for message in messages]}
    if shown := [_tool(tool) for tool in tools]:
        part["tools"] = shown
    return part


def forced_call(asked: ChatAsked) -> Call | None:
    """The call that the answer has to be; None where the model chooses.

    Raises:
        ApiError: There is no such tool, or another form is asked for, too.
    """
    choice = asked.tool_choice
    if choice is None or choice in ("none", "auto"):
        return None
    tools = [tool.function for tool in asked.tools or []]
    if isinstance(choice, ToolChoice):
        wanted = choice.function.name
        tools = [function for function in tools if function.name == wanted]
        if not tools:
            raise ApiError(
                400, f"tool_choice: wanted a function of tools, got {wanted!r}", "tool_choice"
            )
    if not tools:
        raise ApiError(400, "tool_choice: wanted tools beside it, got none", "tool_choice")
    if is_constrained(asked, None):
        raise ApiError(
            400, "tool_choice: wanted no other form of the answer, got one", "tool_choice"
        )
    schemas = [function.parameters or {"type": "object"} for function in tools]
    if len(tools) == 1:
        return Call(tools[0].name, schemas[0])
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"const": function.name},
                "arguments": {"$id": f"tool:{number}", **schema},  # whose references are its own
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for number, (function, schema) in enumerate(zip(tools, schemas, strict=True))
    ]
    return Call(None, {"anyOf": calls})


def make_reader(asked: ChatAsked, call: Call | None, style: Style, prompt_end: str) -> Reader:
    """What reads an answer; where a grammar gives its form, that is all there is to it.

    Args:
        asked: What was asked for.
        call: What `forced_call` found.
        style: How the model writes.
        prompt_end: The end of the prompt.
    """
    shown = [tool.function for tool in asked.shown_tools]
    functions = {function.name: function.parameters or {} for function in shown}
    if call:
        return ForcedReader(call.function, functions)
    return Plain() if is_constrained(asked, call) else style.reader(functions, prompt_end)


def is_constrained(asked: ChatAsked, call: Call | None) -> bool:
    """Whether a grammar gives the answer its form."""
    form = (asked.response_format or {}).get("type", "text")
    return call is not None or form != "text" or asked.guided_regex is not None


def _requests(
    answer_id: str,
    asked: TextAsked,
    sampling: Mapping[str, Any],
    most: int | None,
    parts: Sequence[dict[str, Any]],
) -> list[TextGenerationRequest]:
    def seed(choice: int) -> int:
        return secrets.randbits(SEED_BITS) if asked.seed is None else asked.seed + choice

    count = len(parts) * asked.choices
    try:
        return [
            TextGenerationRequest(
                id=RequestID(answer_id if count == 1 else f"{answer_id}-{number}"),
                index=number,
                model_name=asked.model,
                sampling_params=_sampling(asked, sampling, most, seed(number % asked.choices)),
                **{"response_format": asked.response_format, **parts[number // asked.choices]},
            )
            for number in range(count)
        ]
    except ValueError as error:
        raise refused(error) from None


def _sampling(
    asked: TextAsked, sampling: Mapping[str, Any], most: int | None, seed: int
) -> SamplingParams:
    """OpenAI's defaults draw from all tokens; those of `SamplingParams` take the likeliest."""
    given = {name: value for name in SAME if (value := getattr(asked, name)) is not None}
    return SamplingParams(
        **{"top_k": -1, **sampling, **given},
        max_new_tokens=most,
        min_new_tokens=asked.min_tokens or 0,
        stop=[asked.stop] if isinstance(asked.stop, str) else asked.stop,
        seed=seed,
    )


def _message(message: Message) -> dict[str, Any]:
    """As the chat template wants it: it knows no developer, and arguments as objects.

    An assistant that has thought, and come no further, has said nothing.
    """
    content = message.content
    if content is None and message.reasoning_content is not None and not message.tool_calls:
        content = ""
    for part in content if isinstance(content, list) else []:
        if part.get("type") != "text":
            raise ApiError(
                400,
                f"messages: wanted parts of type 'text', got {part.get('type')!r}; a text "
                "generator sees no images and hears nothing",
                "messages",
                "unsupported_parameter",
            )
    calls = [
        {"id": call.id, "type": call.type, "function": _called(call.function)}
        for call in message.tool_calls or []
    ]
    return {
        "role": "system" if message.role == "developer" else message.role,
        "content": content,
        "tool_calls": calls or None,
        "tool_call_id": message.tool_call_id,
        "reasoning_content": message.reasoning_content,
    }


def _called(function: Any) -> dict[str, Any]:
    try:
        return {"name": function.name, "arguments": json.loads(function.arguments.strip() or "{}")}
    except (ValueError, RecursionError) as error:
        raise ApiError(
            400, f"messages: wanted arguments of {function.name!r} as JSON: {error}", "messages"
        ) from None


def _tool(tool: Tool) -> dict[str, Any]:
    function = tool.function
    return {
        "type": tool.type,
        "function": {
            "name": function.name,
            "description": function.description or "",
            "parameters": function.parameters or {},
        },
    }
