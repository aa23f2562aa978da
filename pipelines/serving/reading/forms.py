"""How a model writes calls and reasoning: by the markers in its chat template."""

from __future__ import annotations

import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass

from heddle.contexts import RequestID
from heddle.pipelines.serving.reading import harmony, marked
from heddle.pipelines.serving.reading.calls import CallForm, CallReader, Functions, json_calls
from heddle.pipelines.serving.reading.elements import glm_calls, qwen_calls
from heddle.pipelines.serving.reading.harmony import HarmonyReader
from heddle.pipelines.serving.reading.pieces import Argued, Called, Piece, Plain, Reader, Said
from heddle.pipelines.serving.reading.thinking import ThinkingReader

CALL_FORMS: Mapping[str, CallForm] = {
    "glm": CallForm("<tool_call>", "</tool_call>", glm_calls, quoted=False),
    "qwen-coder": CallForm("<tool_call>", "</tool_call>", qwen_calls, quoted=False),
    "hermes": CallForm("<tool_call>", "</tool_call>", json_calls),
    "llama": CallForm("<|python_tag|>", "", json_calls, bare="{"),
    "mistral": CallForm(marked.MISTRAL[0], "", marked.mistral_calls, marks=marked.MISTRAL),
    "deepseek": CallForm(
        marked.DEEPSEEK_CALLS, marked.DEEPSEEK_END, marked.deepseek_calls, marks=marked.DEEPSEEK
    ),
}
"""How calls are written, by the name of the family."""

HARMONY = "harmony"
"""The form whose calls are messages of their own."""

TEXT = "text"
"""Says that calls are text."""

SIGNS: Mapping[str, tuple[str, ...]] = {
    HARMONY: ("<|channel|>", "<|message|>"),
    "mistral": ("[TOOL_CALLS]",),
    "deepseek": (marked.DEEPSEEK_CALLS,),
    "qwen-coder": ("<tool_call>", "<function="),
    "glm": ("<tool_call>", "<arg_key>"),
    "hermes": ("<tool_call>",),
    "llama": ('"parameters": ', "ipython"),
}
"""What a chat template has all of where a model writes calls so; the first one that fits."""

THOUGHTS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
"""What reasoning begins and ends with."""


@dataclass(frozen=True)
class Style:
    """How a model writes.

    Attributes:
        calls: The name of its form of calls; None: they are text.
        thoughts: What its reasoning begins and ends with; None: it is text.
        reasoning: Whether reasoning is kept apart from the text.
        called: Whether calls are, too.
    """

    calls: str | None = None
    thoughts: tuple[str, str] | None = None
    reasoning: bool = True
    called: bool = True

    @staticmethod
    def of(template: str, calls: str | None = None, reasoning: bool = True) -> Style:
        """That of a chat template.

        Args:
            template: The template; of several, all of them behind each other.
            calls: The name of the form of calls, one of `SIGNS`, or `TEXT`; None: as the template
                shows.
            reasoning: Whether reasoning is kept apart.
        """
        shown = next((n for n, signs in SIGNS.items() if all(s in template for s in signs)), None)
        form = shown if calls in (None, TEXT) else calls
        known = (marks for marks in THOUGHTS if marks[1] in template)
        thoughts = next(known, None) if reasoning else None
        return Style(form, thoughts, reasoning, calls != TEXT)

    @property
    def markers(self) -> frozenset[str]:
        """Texts that may be special tokens, and that a reader wants all the same."""
        found = set(self.thoughts or ())
        if self.calls == HARMONY:
            found |= set(harmony.MARKERS)
        elif self.calls and self.called:
            form = CALL_FORMS[self.calls]
            found |= {form.begin, form.end, *form.marks} - {""}
        return frozenset(found)

    def reader(self, functions: Functions, prompt_end: str) -> Reader:
        """What reads one answer.

        Args:
            functions: Those that may be called.
            prompt_end: The end of the prompt, which may have begun the reasoning.
        """
        if not self.called:
            functions = {}
        if self.calls == HARMONY:
            return HarmonyReader(functions, self.reasoning)
        rest: Reader = Plain()
        if self.calls and functions:
            rest = CallReader(CALL_FORMS[self.calls], functions)
        if self.thoughts is None:
            return rest
        begin, end = self.thoughts
        return ThinkingReader(begin, end, prompt_end.rstrip().endswith(begin), rest)

    def call_id(self) -> str:
        """An id of a call; templates of Mistral want nine letters or digits."""
        if self.calls == "mistral":
            return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))
        return f"call_{RequestID()}"


class ForcedReader:
    """Reads an answer that a grammar makes a call.

    Args:
        function: Whose arguments it is; None: it is an object with the name, too.
        functions: Those that may be called.
    """

    def __init__(self, function: str | None, functions: Functions) -> None:
        self._function = function
        self._functions = functions
        self._held = ""
        self._begun = False

    def push(self, text: str, final: bool = False) -> list[Piece]:
        """As `Reader`; one that is cut off before it says the function is text."""
        if self._function is not None:
            begun, self._begun = self._begun, True
            more: list[Piece] = [Argued(text)] if text else []
            return more if begun else [Called(self._function, ""), *more]
        self._held += text
        if not final:
            return []
        try:
            return [*json_calls(self._held, self._functions)]
        except (ValueError, RecursionError):
            return [Said(self._held)]
