"""The messages of a conversation, as a chat template reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

READS_THINKING = re.compile(r"""\.thinking\b|\[["']thinking["']\]|["']thinking["']\s+in\b""")
"""What a template has that reads the reasoning of messages as `thinking`: gpt-oss' has."""

LOOKS_FOR_CONTENT = re.compile(r"""["']content["']\s+in\s+message\b""")
"""What a template has that takes a content of None for a text, and knows messages without one."""


class Arguments(dict[str, Any]):
    """Arguments of a call: an object that is its JSON where a template takes it for a text.

    Most templates write it by `tojson`; DeepSeek's put it behind a text.
    """

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)

    def __add__(self, text: str) -> str:
        return str(self) + text

    def __radd__(self, text: str) -> str:
        return text + str(self)


def rows(messages: Iterable[Any], template: str) -> list[dict[str, Any]]:
    """Each message by the names that `template` reads.

    A content of text parts is their text, and arguments of calls are `Arguments`. Reasoning is
    `reasoning_content`, unless the template reads `thinking`. Such a template takes one text beside
    calls, which it writes as reasoning: so what was said there comes behind what was thought.

    Args:
        messages: `{"role": ..., "content": ...}` each, or records with these attributes.
        template: The chat template.
    """
    renamed = "reasoning_content" not in template and READS_THINKING.search(template) is not None
    may_lack = LOOKS_FOR_CONTENT.search(template) is not None
    found = []
    for message in messages:
        row = _row(message)
        content = row["content"] = _joined(row.get("content"))
        if calls := row.get("tool_calls"):
            row["tool_calls"] = [_called(call) for call in calls]
        if renamed and (thought := row.pop("reasoning_content", None)):
            row["thinking"] = thought
            if row.get("tool_calls") and isinstance(content, str) and content:
                row["thinking"], row["content"] = f"{thought}\n{content}", None
        if may_lack and row["content"] is None:
            del row["content"]
        found.append(row)
    return found


def _row(message: Any) -> dict[str, Any]:
    if isinstance(message, dict):
        return dict(message)
    return {name: value for name, value in vars(message).items() if value is not None}


def _called(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), dict):
        return call
    return {**call, "function": {**function, "arguments": Arguments(function["arguments"])}}


def _joined(content: Any) -> Any:
    """A message's content; parts that are all text as one text, which every template takes."""
    if not isinstance(content, (list, tuple)):
        return content
    parts = [part if isinstance(part, dict) else vars(part) for part in content]
    texts = [part.get("text") for part in parts if part.get("type") == "text"]
    if len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        return content
    return "".join(map(str, texts))
