"""`POST /tokenize` and `/detokenize`: a text generator's tokens, in the wire format of vLLM."""

from __future__ import annotations

from typing import Any

from heddle.contexts import RequestID, TextGenerationRequest
from heddle.pipelines.generation.generator import TextGenerator
from heddle.pipelines.serving import translation
from heddle.pipelines.serving.errors import ApiError, refused
from heddle.pipelines.serving.records import DetokenizeAsked, TokenizeAsked

OF_PROMPTS = ("add_special_tokens",)
"""Names that say something of a prompt: a chat template writes special tokens itself."""

OF_MESSAGES = ("tools", "add_generation_prompt", "chat_template_kwargs")
"""Names that say something of messages."""


def tokenize(generator: TextGenerator, asked: TokenizeAsked) -> dict[str, Any]:
    """The tokens of a prompt, or of messages by the chat template.

    Raises:
        ApiError: There is neither or both, a name that says something of the other one, or they
            are refused.
    """
    if (asked.prompt is None) == (asked.messages is None):
        raise ApiError(400, "prompt: wanted it or messages, got both or none", "prompt")
    wanted, got, names = (
        ("a prompt", "messages", OF_PROMPTS)
        if asked.prompt is None
        else ("messages", "a prompt", OF_MESSAGES)
    )
    for name in names:
        if getattr(asked, name):
            raise ApiError(400, f"{name}: wanted {wanted} beside it, got {got}", name)
    try:
        tokens = _tokens(generator, asked)
    except ValueError as error:
        raise refused(error) from None
    texts = [generator.tokenizer.token_text(token, not at) for at, token in enumerate(tokens)]
    return {
        "count": len(tokens),
        "max_model_len": generator.max_length,
        "tokens": tokens,
        "token_strs": texts if asked.return_token_strs else None,
    }


def detokenize(generator: TextGenerator, asked: DetokenizeAsked) -> dict[str, Any]:
    """The text of tokens, special ones included."""
    return {"prompt": generator.tokenizer.decode(asked.tokens, hidden=())}


def _tokens(generator: TextGenerator, asked: TokenizeAsked) -> list[int]:
    if asked.prompt is not None:
        special = asked.add_special_tokens is not False
        return generator.tokenizer.encode(asked.prompt, add_special_tokens=special)
    begun = asked.add_generation_prompt is not False
    options = {"add_generation_prompt": begun, **(asked.chat_template_kwargs or {})}
    request = TextGenerationRequest(
        RequestID(),
        0,
        asked.model,
        chat_template_options=options,
        **translation.conversation(asked.messages or [], asked.tools or []),
    )
    return generator.prompt(request)
