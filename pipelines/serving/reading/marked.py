"""Calls with markers between the name and the arguments, as Mistral and DeepSeek write them."""

from __future__ import annotations

import re

from heddle.pipelines.serving.reading.calls import Functions, json_calls, known_call
from heddle.pipelines.serving.reading.pieces import Called

MISTRAL = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]")
MISTRAL_CALL = re.compile(
    r"\s*(?P<name>[^\s\[\]{}]+)\s*(?:\[CALL_ID\]\s*\w+\s*)?(?:\[ARGS\]\s*)?(?P<arguments>\{.*)",
    re.DOTALL,
)


def _deepseek(words: str) -> str:
    """A marker of these words, between which and around which it has marks of its own."""
    marked = words.replace(" ", "\u2581")
    return f"<\uff5c{marked}\uff5c>"


DEEPSEEK_CALLS, DEEPSEEK_END = _deepseek("tool calls begin"), _deepseek("tool calls end")
BEGIN, SEPARATOR, END = map(_deepseek, ("tool call begin", "tool sep", "tool call end"))
DEEPSEEK = (DEEPSEEK_CALLS, DEEPSEEK_END, BEGIN, SEPARATOR, END)
DEEPSEEK_CALL = re.compile(
    rf"\s*{BEGIN}(?:function{SEPARATOR})?(?P<name>[\w.-]+)(?:{SEPARATOR}|\s*```json)"
    rf"(?P<arguments>.*?)(?:```\s*)?{END}\s*",
    re.DOTALL,
)


def mistral_calls(text: str, functions: Functions) -> list[Called]:
    """A list of objects; or, in newer models, a name, perhaps an id, and the arguments.

    Raises:
        ValueError: There is something else.
    """
    if match := MISTRAL_CALL.fullmatch(text):
        return [known_call(match["name"], match["arguments"], functions)]
    return json_calls(text, functions)


def deepseek_calls(text: str, functions: Functions) -> list[Called]:
    """Calls of a name and arguments; older models fence these, behind the word `function`.

    Raises:
        ValueError: There is something else.
    """
    found, at = [], 0
    while match := DEEPSEEK_CALL.match(text, at):
        found.append(known_call(match["name"], match["arguments"], functions))
        at = match.end()
    if not found or at < len(text):
        raise ValueError(f"wanted calls, got {text[at:]!r}")
    return found
