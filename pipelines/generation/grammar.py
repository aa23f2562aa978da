"""The grammars of a generator's requests; llguidance is loaded when the first one is asked for."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING, Any

from heddle.contexts import TextContext, TextGenerationRequest
from heddle.pipelines.generation.tokenizer import TextTokenizer
from heddle.runtime.errors import InputError

if TYPE_CHECKING:
    from heddle.contexts import GrammarCompiler, GrammarMasks
    from heddle.contexts.grammar import JSONWhitespace


class Grammars:
    """Makes matchers for contexts, and the masks of a step.

    Args:
        tokenizer: The model's.
        ends: The tokens that end a text.
        vocab_size: How many tokens the model chooses from.
        rows: Most places of a step, for each of which there is a mask.
        whitespace: What may stand between the parts of a JSON value, as `GrammarCompiler` says.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        ends: Collection[int],
        vocab_size: int,
        rows: int,
        whitespace: JSONWhitespace,
    ) -> None:
        self._tokenizer = tokenizer
        self._ends = sorted(ends)
        self._vocab_size = vocab_size
        self._rows = rows
        self._whitespace = whitespace
        self._making = threading.Lock()

    def constrain(self, context: TextContext, regex: str | None) -> None:
        """Gives `context` a matcher of its JSON schema or of `regex`, if there is one.

        Raises:
            InputError: Both are given, the grammar is refused, llguidance is not installed, or the
                tokenizer does not say what ends a text.
        """
        if regex is not None and context.json_schema is not None:
            raise InputError(
                f"request {context.request_id}: wanted a response format or a regular expression, "
                "got both"
            )
        if regex is None and context.json_schema is None:
            return
        with self._making:
            compiler = self._compiler
        if regex is None:
            compiler.constrain(context)
        else:
            context.set_matcher(compiler.compile("regex", regex))

    @property
    def masks(self) -> GrammarMasks | None:
        """The memory of masks; None where no request has had a grammar yet."""
        return self._masks if "_compiler" in self.__dict__ else None

    @cached_property
    def _compiler(self) -> GrammarCompiler:
        try:
            from llguidance import LLTokenizer

            from heddle.contexts import GrammarCompiler
        except ModuleNotFoundError:
            raise InputError(
                "grammar: wanted the package llguidance, which is not installed; "
                "pip install llguidance"
            ) from None
        if not self._ends:
            raise InputError("grammar: wanted a tokenizer with an end of text, got none")
        tokenizer = LLTokenizer(
            self._tokenizer.to_json(), n_vocab=self._vocab_size, eos_token=self._ends
        )
        return GrammarCompiler(tokenizer, whitespace=self._whitespace)

    @cached_property
    def _masks(self) -> GrammarMasks:
        from heddle.contexts import GrammarMasks

        return GrammarMasks(self._compiler.tokenizer, self._rows)


def schema_of(request: TextGenerationRequest) -> str | None:
    """The JSON schema of a request's output, as text; `json_object` is any object.

    Raises:
        InputError: It is no JSON.
    """
    form = request.response_format
    if form is None or form.type == "text":
        return None
    schema: Any = form.json_schema if form.type == "json_schema" else {"type": "object"}
    if isinstance(schema, dict):
        schema = schema.get("schema", schema)
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"json_schema: wanted JSON, got {error}") from None
