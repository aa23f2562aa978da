"""Text in, tokens out, and back: the tokenizer of a language model, its chat template, its ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cached_property, partial
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from heddle.contexts import SamplingParams
from heddle.pipelines.generation.messages import rows
from heddle.pipelines.generation.tokenizer_files import TokenizerFiles
from heddle.pipelines.gguf.file import is_gguf
from heddle.pipelines.gguf.tokenizer import read as read_gguf
from heddle.runtime.errors import InputError

UNFINISHED = "\ufffd"
"""What a decoder writes for bytes that are no whole character yet."""

UNFINISHED_TOKENS = 3
"""Tokens at the end of a text that may be the beginning of a character: it has four bytes at most
(RFC 3629), and each token one at least."""

MOST_UNFINISHED = 32
"""Tokens of no whole character behind each other that are decoded again and again, at most."""

ALWAYS = {"add_generation_prompt": True, "tools": None, "documents": None}
"""Names that chat templates find also where nobody says them, as those of transformers do."""


class TextTokenizer:
    """The tokenizer of a checkpoint.

    Args:
        path: Its folder, of which `TokenizerFiles.of_folder` reads the files; or a GGUF file, which
            is all of them.

    Attributes:
        place: The path.
        eos_token_ids: The tokens that end a text.
        template: The chat template; empty: there is none.
        tool_template: That for conversations with tools; empty: it is the same.

    Raises:
        InputError: As `TokenizerFiles.of_folder`.
        GraphError: The file's tokenizer is of a kind that is not read.
        ArtifactError: The file is damaged.
    """

    def __init__(self, path: Path) -> None:
        found = read_gguf(path) if is_gguf(path) else TokenizerFiles.of_folder(path)
        self.place = found.place
        self.eos_token_ids = found.ends
        self._tokenizer = found.tokenizer
        self.template, self.tool_template = found.template, found.tool_template
        self._sampling = found.sampling
        self._special = found.special
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._hidden = self.special_tokens()

    def sampling(self) -> dict[str, Any]:
        """How the model's files say that tokens are drawn, by names of `SamplingParams`.

        Raises:
            InputError: A value is out of range.
        """
        try:
            SamplingParams(**self._sampling)
        except ValueError as error:
            raise InputError(f"{self.place}: {error}") from None
        return dict(self._sampling)

    def to_json(self) -> str:
        """The tokenizer as a `tokenizer.json` has it."""
        text: str = self._tokenizer.to_str()
        return text

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The tokens of `text`, with those that the tokenizer puts around it.

        Raises:
            InputError: The text cannot be encoded as UTF-8.
        """
        if not text.isascii():
            check_text("prompt", text)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def token_text(self, token: int, first: bool = False) -> str:
        """What one token adds to a text, or begins it with: `first`; also a special one.

        Decoders drop the space at the beginning of a text.
        """
        before, text = ([], "") if first else self._before
        return self.decode([*before, token], hidden=()).removeprefix(text)

    @cached_property
    def _before(self) -> tuple[list[int], str]:
        """Tokens that another one can follow, and their text."""
        tokens = self._tokenizer.encode("a", add_special_tokens=False).ids
        return tokens, self.decode(tokens, hidden=())

    def decode(self, tokens: Iterable[int], hidden: Collection[int] | None = None) -> str:
        """The text of `tokens`, without the `hidden` ones; None: without special ones."""
        shown = list(tokens if hidden is None else (t for t in tokens if t not in hidden))
        text: str = self._tokenizer.decode(shown, skip_special_tokens=hidden is None)
        return text

    def special_tokens(self, but: Collection[str] = ()) -> frozenset[int]:
        """The special tokens, but for those with such texts."""
        rows = self._tokenizer.get_added_tokens_decoder().items()
        return frozenset(t for t, row in rows if row.special and row.content not in but)

    def chat(self, messages: Iterable[Any], /, **options: Any) -> str:
        """The prompt for a conversation, by the model's chat template.

        Args:
            messages: As `messages.rows` takes them.
            **options: Further names of the template, such as `tools`.

        Raises:
            InputError: There is no template, jinja2 is not installed, or the template refuses or
                fails.
        """
        template = self.template_for(options.get("tools"))
        if not template:
            raise InputError(f"{self.place}: wanted a chat template for messages, got none")
        try:
            from heddle.pipelines.generation.chat_template import render
        except ModuleNotFoundError:
            raise InputError(
                "chat template: wanted the package jinja2, which is not installed; "
                "pip install jinja2"
            ) from None
        given = {"messages": rows(messages, template)}
        return render(template, {**ALWAYS, **self._special, **options, **given})

    def template_for(self, tools: Sequence[Any] | None) -> str:
        """The chat template for a conversation with these tools; None: with none."""
        return self.template if tools is None else self.tool_template or self.template

    def stream(
        self, before: Sequence[int] = (), hidden: Collection[int] | None = None
    ) -> TextStream:
        """A new `TextStream` of what follows the tokens `before`."""
        return TextStream(self, before, self._hidden if hidden is None else hidden)


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
        hidden: Tokens that are no text.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        before: Sequence[int] = (),
        hidden: Collection[int] = (),
    ) -> None:
        self._decode = partial(tokenizer.decode, hidden=())
        self._hidden = hidden
        shown = (token for token in reversed(before) if token not in hidden)
        last = list(islice(shown, UNFINISHED_TOKENS + 1))[::-1]
        # The fewest that end a character: those in front may begin within one.
        ends = (last[at:] for at in reversed(range(len(last))))
        whole = (end for end in ends if not self._decode(end).endswith(UNFINISHED))
        self._tokens = next(whole, [])
        self._start = 0  # Where decoding starts,
        self._shown = len(self._text(len(self._tokens)))  # how many characters of that are shown,
        self._seen = self._whole = len(self._tokens)  # of which tokens; where one surely ended.

    def push(self, tokens: Iterable[int], final: bool = False) -> str:
        """What is new with `tokens`; with `final` also what is no whole character."""
        self._tokens += [token for token in tokens if token not in self._hidden]
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
        return self._decode(self._tokens[self._start : end])


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
