"""Text in, tokens out, and back: the tokenizer of a language model, its chat template, its ends."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from heddle.runtime.errors import InputError

UNFINISHED = "\ufffd"
"""What a decoder writes for bytes that are no whole character yet."""

UNFINISHED_TOKENS = 3
"""Tokens at the end of a text that may be the beginning of a character: it has four bytes at most
(RFC 3629), and each token one at least."""

MOST_UNFINISHED = 32
"""Tokens of no whole character behind each other that are decoded again and again, at most."""


class TextTokenizer:
    """The tokenizer of a checkpoint: `tokenizer.json`, and what the files beside it say.

    Args:
        folder: Where they are: `tokenizer_config.json` for the chat template,
            `generation_config.json` or `config.json` for the tokens that end a text.

    Attributes:
        file: The path of `tokenizer.json`.
        eos_token_ids: The tokens that end a text.

    Raises:
        InputError: There is no tokenizer, a file is no JSON object, or an end of text no token.
    """

    def __init__(self, folder: Path) -> None:
        self.file = folder / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_file(str(self.file))
        except Exception as error:  # the library raises nothing more specific
            raise InputError(f"{self.file}: wanted a tokenizer.json: {error}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._config = _object(folder / "tokenizer_config.json")
        files = (_object(folder / name) for name in ("generation_config.json", "config.json"))
        said = (content.get("eos_token_id") for content in files)
        ends = next((end for end in said if end is not None), None)
        if ends is None and (token := _text_of(self._config.get("eos_token"))):
            ends = self._tokenizer.token_to_id(token)
        listed = ends if isinstance(ends, list) else [ends]
        known = [token for token in listed if token is not None]
        for token in known:
            if not isinstance(token, int) or token < 0:
                raise InputError(
                    f"{folder}: wanted eos_token_id as an integer or a list of them, got {ends!r}"
                )
        self.eos_token_ids = frozenset(known)
        template = folder / "chat_template.jinja"
        named = self._config.get("chat_template")
        self._template = template.read_text() if template.is_file() else _template(named)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The tokens of `text`, with those that the tokenizer puts around it.

        Raises:
            InputError: The text cannot be encoded as UTF-8.
        """
        if not text.isascii():
            check_text("prompt", text)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of `tokens`, without special ones."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text

    def chat(self, messages: Iterable[Any], /, **options: Any) -> str:
        """The prompt for a conversation, by the model's chat template.

        Templates find what they are written for: the names and filters of transformers
        ("Chat templates", Hugging Face), `tojson` that changes no character among them.

        Args:
            messages: `{"role": ..., "content": ...}` each, or objects with these attributes; a
                content of text parts is their text.
            **options: Further names of the template, such as `tools`.

        Raises:
            InputError: There is no template, jinja2 is not installed, or the template refuses or
                fails.
        """
        if not self._template:
            raise InputError(f"{self.file.parent}: wanted a chat template for messages, got none")
        try:
            from jinja2 import TemplateError
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ModuleNotFoundError:
            raise InputError(
                "chat template: wanted the package jinja2, which is not installed; "
                "pip install jinja2"
            ) from None

        def refuse(message: str) -> None:
            raise TemplateError(message)

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": refuse, "strftime_now": _now}
        tokens = {name: _text_of(self._config.get(name)) or "" for name in SPECIAL}
        rows = [
            dict(row) if isinstance(row, dict) else {"role": row.role, "content": row.content}
            for row in messages
        ]
        for row in rows:
            row["content"] = _joined(row.get("content"))
        names = {"add_generation_prompt": True, **tokens, **options, "messages": rows}
        try:
            text: str = environment.from_string(self._template).render(names)
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise InputError(f"chat template: {error}") from None
        return text

    def stream(self, before: Sequence[int] = ()) -> TextStream:
        """A new `TextStream` of what follows the tokens `before`."""
        return TextStream(self, before)


SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")
"""Names of special tokens that chat templates use."""


class TextStream:
    """The text of a growing list of tokens, piece by piece.

    What a token adds can depend on the one before it, and a character can take several tokens: so
    two short ends of the list are decoded each time, and what one has more is new.

    Tokens that end in bytes of no whole character are held back: at most `UNFINISHED_TOKENS`, so
    that bytes which never become one are shown, too. U+FFFD itself looks like such bytes, so what
    has been shown is counted in characters, and decoding starts where one begins.

    Args:
        tokenizer: What decodes.
        before: Tokens that the text follows: decoders drop the space at the beginning of a text.
    """

    def __init__(self, tokenizer: TextTokenizer, before: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._tokens = list(before[-UNFINISHED_TOKENS - 1 :])
        self._start = 0  # Where decoding starts,
        if self._text(len(self._tokens)).endswith(UNFINISHED):
            self._tokens = []
        self._shown = len(self._text(len(self._tokens)))  # how many characters of that are shown,
        self._seen = self._whole = len(self._tokens)  # of which tokens; where one surely ended.

    def push(self, tokens: Iterable[int], final: bool = False) -> str:
        """What is new with `tokens`; with `final` also what is no whole character."""
        self._tokens += tokens
        end = len(self._tokens)
        last = end if final else max(self._seen, end - UNFINISHED_TOKENS)
        ends = range(end, last, -1)
        cut = next((at for at in ends if not self._text(at).endswith(UNFINISHED)), last)
        if cut == self._seen:
            return ""
        text, self._seen = self._text(cut), cut
        if text.endswith(UNFINISHED) and not final:
            # A byte may be written as a character of its own until the next ones join it.
            text = _common_prefix([self._text(at) for at in range(cut, end + 1)])
        new, self._shown = text[self._shown :], max(self._shown, len(text))
        if not text.endswith(UNFINISHED):
            self._start_at(self._whole)
            self._whole = cut
        elif cut - self._start > MOST_UNFINISHED:
            self._whole = self._last_beginning(cut)
            self._start_at(self._whole)
        return new

    def _start_at(self, start: int) -> None:
        """Decodes from there on, what is shown staying so; a beginning may lose its space."""
        hidden = len(self._text(self._seen)) - self._shown
        self._start = start
        self._shown = len(self._text(self._seen)) - hidden

    def _last_beginning(self, end: int) -> int:
        """The last token in front of `end` with which a character begins."""
        sizes = [len(self._text(at)) for at in range(self._start, end + 1)]
        begins = [at for at in range(1, len(sizes) - 1) if sizes[at] < sizes[at + 1]]
        return self._start + (begins[-1] if begins else 0)

    def _text(self, end: int) -> str:
        return self._tokenizer.decode(self._tokens[self._start : end])


def _common_prefix(texts: Sequence[str]) -> str:
    alike = takewhile(lambda marks: len(set(marks)) == 1, zip(*texts, strict=False))
    return texts[0][: sum(1 for _ in alike)]


class HeldText:
    """A text whose end is held back: a stop string may have begun there."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str, kept: int) -> str:
        """The text held back and `text`, but for their last `kept` characters."""
        text = self._held + text
        shown = len(text) - kept
        self._held = text[shown:]
        return text[:shown]


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """The filter `tojson` of chat templates: no escapes for HTML, keys as they are."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _now(form: str) -> str:
    """`strftime_now` of chat templates: the time here."""
    return datetime.now().strftime(form)


def _joined(content: Any) -> Any:
    """A message's content; parts that are all text as one text, which every template takes."""
    if not isinstance(content, (list, tuple)):
        return content
    parts = [part if isinstance(part, dict) else vars(part) for part in content]
    texts = [part.get("text") for part in parts if part.get("type") == "text"]
    if len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        return content
    return "".join(map(str, texts))


def check_text(name: str, text: str) -> None:
    """Refuses what is no Unicode text: lone surrogates, which stand for bytes that are no UTF-8.

    Raises:
        InputError: There are some.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name}: wanted a text in UTF-8, got {text[error.start]!r} at {error.start}"
        ) from None


def _object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        values = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path}: wanted JSON, got {error}") from None
    if not isinstance(values, dict):
        raise InputError(f"{path}: wanted a JSON object, got {type(values).__name__}")
    return values


def _text_of(token: Any) -> str | None:
    """A special token, written as its text or as an object with `content`."""
    return token.get("content") if isinstance(token, dict) else token


def _template(named: Any) -> str:
    """The chat template: a text, or the one called `default` of several."""
    if isinstance(named, list):
        by_name = {row["name"]: row["template"] for row in named}
        return str(by_name.get("default", ""))
    return str(named or "")
