"""Grammars that outputs follow: JSON schemas, regular expressions and Lark grammars.

Compiled by llguidance, whose matchers never raise: their error state is sticky, so it is looked at
after each step here.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, Literal

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from heddle.contexts.daemon_threads import ClosedError, DaemonThreads
from heddle.contexts.grammar_checks import check_grammar
from heddle.contexts.text import TextContext
from heddle.runtime.errors import InputError

GrammarKind = Literal["json_schema", "regex", "lark"]
JSONWhitespace = Literal["none", "bounded", "any"]

# What llguidance's JSON compiler is told; a model that likes white space stays in "any" for good.
_WHITESPACE: dict[str, dict[str, Any]] = {
    "none": {"whitespace_flexible": False},
    "bounded": {"whitespace_pattern": r" |\r?\n[ \t]{0,32}"},
    "any": {},
}

# What holds brackets that are none. Nothing needs an end, so that a text without one is not read
# again and again.
_NO_BRACKETS = {
    "json_schema": r'"(?:[^"\\]|\\.)*"?',
    "regex": r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*\]?",
    "lark": r'"(?:[^"\\\n]|\\.)*"?|(?://|#)[^\n]*|/(?:[^/\\\n]|\\.)+/?',
}
_BRACKETS = {
    kind: re.compile(rf"{others}|[\[{{(]|[\]}})]", re.DOTALL)
    for kind, others in _NO_BRACKETS.items()
}
_PICTURE = re.compile(r"\^+|\d+ \|.*")
_LONGEST = 400
_CLOSED = "GrammarCompiler: wanted one that is open, got one that was closed"


@dataclass(frozen=True)
class GrammarLimits:
    """What a grammar of a request may cost.

    Attributes:
        size: Most characters of its text.
        depth: Most brackets inside one another.
        seconds: Longest time to compile it, the first mask included.
    """

    size: int = 65536
    depth: int = 64
    seconds: float = 2.0


class _Vocabulary:
    """What llguidance asks of a tokenizer: the bytes of each token, and byte-wise tokenizing."""

    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], eos_token_id: int, special: Sequence[int]) -> None:
        self.tokens = list(tokens)
        self.eos_token_id = eos_token_id
        self.special_token_ids = list(special)
        self._ids = {token: index for index, token in enumerate(self.tokens)}

    def __call__(self, text: str) -> list[int]:
        data = text.encode()
        return [
            self._ids[data[i : i + 1]] for i in range(len(data)) if data[i : i + 1] in self._ids
        ]


def grammar_tokenizer(
    tokens: Sequence[bytes], eos_token_ids: Sequence[int], special_token_ids: Sequence[int] = ()
) -> LLTokenizer:
    """The tokenizer that all grammars of one model share; it takes a while to make.

    Args:
        tokens: The bytes of each token of the vocabulary, by id.
        eos_token_ids: The tokens that end a sequence, at least one.
        special_token_ids: Further tokens that are no text.

    Raises:
        InputError: A token is no bytes; `eos_token_ids` is empty, or names one that there is not.
    """
    for index, token in enumerate(tokens):
        if not isinstance(token, bytes):
            raise InputError(
                f"grammar_tokenizer: wanted the bytes of each token, got {token!r} of token {index}"
            )
    ends = list(eos_token_ids)
    if not ends or not all(0 <= end < len(tokens) for end in ends):
        raise InputError(
            f"grammar_tokenizer: wanted eos_token_ids below {len(tokens)}, at least one, got {ends}"
        )
    vocabulary = _Vocabulary(tokens, ends[0], [*ends, *special_token_ids])
    return LLTokenizer(TokenizerWrapper(vocabulary), n_vocab=len(tokens), eos_token=ends)


def _depth(kind: str, text: str) -> int:
    deepest = depth = 0
    for match in _BRACKETS[kind].finditer(text):
        if match[0] in "[{(":
            depth += 1
            deepest = max(deepest, depth)
        elif match[0] in "]})":
            depth = max(0, depth - 1)
    return deepest


def _one_line(error: str) -> str:
    """What llguidance says, without its picture of the place."""
    lines = [line.strip() for line in error.split("\n")]
    text = " ".join(line for line in lines if line and not _PICTURE.fullmatch(line))
    return textwrap.shorten(text, _LONGEST, placeholder=" ...")


def _text(kind: str, grammar: Any) -> str:
    try:
        text = grammar if isinstance(grammar, str) else json.dumps(grammar)
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{kind}: wanted a text in UTF-8, got {error.object[error.start]!r} at {error.start}"
        ) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{kind}: wanted a text or JSON, got {error}") from None
    return text


def _serialize(kind: str, text: str, schemas: list[Any], whitespace: str) -> str:
    if kind == "json_schema":
        schema = schemas[0]
        if schema is True:
            schema, text = {}, ""
        # A schema keeps options of its own; one that is no object is llguidance's to refuse.
        plain = isinstance(schema, dict) and "x-guidance" not in schema
        options: Any = _WHITESPACE[whitespace] if plain else None
        return LLMatcher.grammar_from_json_schema(text.strip() or "{}", options)
    if kind == "regex":
        return LLMatcher.grammar_from_regex(text)
    return LLMatcher.grammar_from_lark(text)


class GrammarCompiler:
    """Turns grammars into matchers, off the calling thread and within limits.

    Args:
        tokenizer: That of the model.
        limits: What a grammar may cost.
        threads: How many grammars are compiled at once.
        whitespace: What may stand between the parts of a JSON value: `none`; `bounded`, which is
            one space, or a line break and up to 32 blanks; or `any`, of which some models make so
            much that they come to no end. A schema with `x-guidance`, llguidance's own options,
            decides for itself.

    Raises:
        InputError: `whitespace` is none of these.
    """

    def __init__(
        self,
        tokenizer: LLTokenizer,
        limits: GrammarLimits | None = None,
        threads: int = 2,
        whitespace: JSONWhitespace = "bounded",
    ) -> None:
        if whitespace not in _WHITESPACE:
            raise InputError(
                f"GrammarCompiler: wanted whitespace 'none', 'bounded' or 'any', got {whitespace!r}"
            )
        self.tokenizer = tokenizer
        self.limits = limits or GrammarLimits()
        self._parser_limits = LLParserLimits(verbose_errors=False)
        self._whitespace = whitespace
        self._threads = DaemonThreads(threads, "heddle-grammar", self.limits.seconds)

    def close(self) -> None:
        """End the threads; grammars that wait are dropped, and no others are taken."""
        self._threads.close()

    def submit(self, kind: GrammarKind, grammar: str | dict[str, Any]) -> Future[LLMatcher]:
        """Start to compile; the result is a matcher at its start, or raises `InputError`.

        How long it waits for others before it is compiled counts to no limit.

        An empty JSON schema means any JSON value.

        Raises:
            InputError: The text is larger or deeper than the limits, or no text or JSON at all;
                another kind; or the compiler was closed.
        """
        if kind not in _BRACKETS:
            raise InputError(f"grammar: wanted 'json_schema', 'regex' or 'lark', got {kind!r}")
        text = _text(kind, grammar)
        limits = self.limits
        if len(text) > limits.size:
            raise InputError(f"{kind}: wanted at most {limits.size} characters, got {len(text)}")
        if (depth := _depth(kind, text)) > limits.depth:
            raise InputError(f"{kind}: wanted at most {limits.depth} nested levels, got {depth}")
        too_late = f"{kind}: wanted to be compiled within {limits.seconds} s, got no end"
        try:
            return self._threads.submit(InputError(too_late), self._compile, kind, text)
        except ClosedError:
            raise InputError(_CLOSED) from None

    def compile(self, kind: GrammarKind, grammar: str | dict[str, Any]) -> LLMatcher:
        """As `submit`, but wait for the result.

        Raises:
            InputError: The grammar is refused: the message says why.
        """
        try:
            return self.submit(kind, grammar).result()
        except CancelledError:
            raise InputError(_CLOSED) from None

    def _compile(self, kind: str, text: str) -> LLMatcher:
        schemas = check_grammar(kind, text)
        matcher = LLMatcher(
            self.tokenizer,
            _serialize(kind, text, schemas, self._whitespace),
            log_level=0,
            limits=self._parser_limits,
        )
        if not matcher.is_error():
            # The first mask does what was put off; a language without a text shows here.
            allowed = matcher.compute_logit_bias()
            ends = sum(allowed[end] > 0 for end in self.tokenizer.eos_tokens)
            if not matcher.is_error() and len(allowed) - allowed.count(0) == ends:
                raise InputError(f"{kind}: wanted a language with a text, got an empty one")
        if matcher.is_error():
            reason = _one_line(matcher.get_error()) or matcher.stop_reason()
            raise InputError(f"{kind}: wanted a grammar that llguidance takes, got: {reason}")
        return matcher

    def constrain(self, context: TextContext) -> None:
        """Give `context` a matcher of its `json_schema`, if it has one, up to date with its tokens.

        Raises:
            InputError: The schema is refused, or the tokens so far do not follow it.
        """
        if context.json_schema is None:
            return
        matcher = self.compile("json_schema", context.json_schema)
        known = context.tokens.all[context._prompt_length :].tolist()  # also before a `reset`
        if context.tokens.awaits_token:
            known.pop()
        if known and not matcher.consume_tokens(known):
            raise InputError(
                f"request {context.request_id}: wanted generated tokens that follow its "
                "json_schema, got others"
            )
        context.set_matcher(matcher, consumed=len(known))


def jump_ahead_forced(context: TextContext) -> list[int]:
    """Append the tokens that the grammar of `context` leaves no choice about; returns them.

    Stops where the sequence ends. Does nothing without a grammar, or while the prompt is chunked.

    Raises:
        ValueError: A future token waits to be realized.
    """
    matcher = context.matcher
    if not isinstance(matcher, LLMatcher) or context.tokens.actively_chunked:
        return []
    appended = []
    for token in matcher.compute_ff_tokens():
        if context.is_done:
            break
        context.jump_ahead(token)
        appended.append(token)
    return appended
