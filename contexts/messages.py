"""The parts of a text request: messages, tools and the format of the response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast, get_args

Role = Literal["system", "user", "assistant", "tool"]

_IMAGE_PARTS = ("image", "image_url")


_Record = TypeVar("_Record", bound="_Items")


class _Items:
    """A record that can be made from the JSON of a request, and read like it: `record["name"]`."""

    @classmethod
    def of(cls: type[_Record], value: _Record | Mapping[str, Any]) -> _Record:
        """`value` if it is a record already, else the record with its items.

        Raises:
            ValueError: Items that the record does not have, or too few of them.
        """
        if isinstance(value, cls):
            return value
        try:
            return cls(**cast("Mapping[str, Any]", value))
        except TypeError as error:
            raise ValueError(
                f"{cls.__name__}: wanted its fields as items, got {value}: {error}"
            ) from error

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None


@dataclass(frozen=True)
class TokenGeneratorRequestFunction(_Items):
    """A function that the model may call.

    Attributes:
        name: Its name.
        description: What it does.
        parameters: JSON schema of its parameters.

    Raises:
        ValueError: The name is empty.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("tool function: wanted a name, got an empty one")


@dataclass(frozen=True)
class TokenGeneratorRequestTool(_Items):
    """A tool that the model may use.

    Attributes:
        type: Its kind, `function`.
        function: The function.

    Raises:
        ValueError: Another kind.
    """

    type: str
    function: TokenGeneratorRequestFunction

    def __post_init__(self) -> None:
        function = TokenGeneratorRequestFunction.of(self.function)
        object.__setattr__(self, "function", function)
        if self.type != "function":
            raise ValueError(f"tool: wanted type 'function', got {self.type!r}")


@dataclass(frozen=True)
class TokenGeneratorResponseFormat(_Items):
    """What the output looks like.

    Attributes:
        type: `text`, `json_object` or `json_schema`.
        json_schema: The schema for `json_schema`, as it is or as the item `schema`. None, as some
            clients send it, is none: an empty dict.

    Raises:
        ValueError: Another type, or a schema that is no dict or, where there is to be one, is not
            there.
    """

    type: str
    json_schema: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.type not in ("text", "json_object", "json_schema"):
            raise ValueError(
                "response format: wanted type 'text', 'json_object' or 'json_schema', "
                f"got {self.type!r}"
            )
        if self.json_schema is None:
            object.__setattr__(self, "json_schema", {})
        if not isinstance(self.json_schema, dict):
            raise ValueError(
                "response format: wanted json_schema as a dict, as json.loads makes one of a "
                f"text, got {self.json_schema!r}"
            )
        if self.type == "json_schema" and not self.json_schema:
            raise ValueError(
                "response format: wanted json_schema with the schema, got none; type "
                "'json_object' stands for any object"
            )


@dataclass(frozen=True)
class TokenGeneratorRequestMessage(_Items):
    """One turn of a conversation.

    Attributes:
        role: Who speaks.
        content: Text, or parts of several kinds: text (`text` or `content`), `image`, `image_url`;
            or None beside tool calls.
        tool_calls: What an assistant called, as the chat template wants it.
        tool_call_id: The call that a message of role `tool` answers.
        reasoning_content: What an assistant thought before, which some templates show.

    Raises:
        ValueError: An unknown role or kind of part, a part without its content, or a content of
            another form; None without tool calls is one.
    """

    role: Role
    content: str | list[dict[str, Any]] | None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise ValueError(f"message: wanted role {get_args(Role)}, got {self.role!r}")
        if isinstance(self.content, str) or (self.content is None and self.tool_calls):
            return
        if not isinstance(self.content, (list, tuple)):
            raise ValueError(
                f"message: wanted content as a text or a list of parts, got {self.content!r}"
            )
        for part in self.content:
            if not isinstance(part, Mapping):
                raise ValueError(f"message: wanted parts as dicts with a 'type', got {part!r}")
            kind = part.get("type")
            if kind not in ("text", *_IMAGE_PARTS):
                raise ValueError(
                    f"message: wanted parts of type 'text', 'image' or 'image_url', got {kind!r}"
                )
            if kind == "text" and not isinstance(part.get("text", part.get("content")), str):
                raise ValueError(
                    f"message: wanted a text part with 'text' or 'content', got {sorted(part)}"
                )
            if kind == "image_url" and "image_url" not in part:
                raise ValueError(
                    f"message: wanted an image_url part with 'image_url', got {sorted(part)}"
                )

    @property
    def image_count(self) -> int:
        """Number of images among the parts."""
        if self.content is None or isinstance(self.content, str):
            return 0
        return sum(part["type"] in _IMAGE_PARTS for part in self.content)
