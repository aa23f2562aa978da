"""Contexts in the states that the tests start from."""

import dataclasses
import json
import sys
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest

from heddle.contexts import (
    EOSTracker,
    GrammarCompiler,
    GrammarLimits,
    GrammarMasks,
    PixelContext,
    TextContext,
    TokenBuffer,
    grammar_tokenizer,
)
from heddle.contexts.matcher import TrackedMatcher

sys.path.insert(0, str(Path(__file__).parent))
from grammar_steps import END, VOCABULARY


class CountingMatcher:
    """A grammar over numbers: each token is larger than the one before it."""

    def __init__(self, consumed=()):
        self.consumed = list(consumed)

    def consume_token(self, token):
        if self.consumed and token <= self.consumed[-1]:
            return False
        self.consumed.append(token)
        return True

    def try_consume_tokens(self, tokens):
        return sum(1 for _ in takewhile(self.consume_token, tokens))

    def is_accepting(self):
        return True

    def is_stopped(self):
        return False

    def is_error(self):
        return False

    def rollback(self, count):
        if count > len(self.consumed):
            return False
        del self.consumed[len(self.consumed) - count :]
        return True

    def deep_copy(self):
        return CountingMatcher(self.consumed)


@pytest.fixture
def matcher():
    return CountingMatcher()


def _buffer(*tokens):
    return TokenBuffer(np.array(tokens, dtype=np.int64))


@pytest.fixture
def buffer():
    """A function: token ids -> TokenBuffer."""
    return _buffer


@pytest.fixture
def text():
    """A function: prompt, max_length, options -> TextContext; token 0 and the run 8, 9 end it."""

    def make(prompt=(1, 2, 3), max_length=100, **options):
        options.setdefault("eos_tracker", EOSTracker({0}, [[8, 9]]))
        return TextContext(max_length=max_length, tokens=_buffer(*prompt), **options)

    return make


def _plain(value):
    """`value` as nested plain data, for comparison."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tolist())
    if isinstance(value, TokenBuffer):
        return _plain(value.state())
    if isinstance(value, (TextContext, PixelContext)):
        return (type(value), _plain(vars(value)))
    if isinstance(value, EOSTracker):
        return (repr(value), value.tail)
    if isinstance(value, TrackedMatcher):
        return (value._start, value._consumed, value._past_stop, [*value.matcher.consumed])
    if dataclasses.is_dataclass(value):
        return (type(value), _plain(vars(value)))
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


@pytest.fixture
def plain():
    """A function: anything of heddle.contexts -> nested plain data that compares by value."""
    return _plain


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.fixture(scope="session")
def vocabulary():
    return VOCABULARY


@pytest.fixture(scope="session")
def compiler():
    """One that is patient, as a busy machine stretches its limit; tests look at CPU time."""
    made = GrammarCompiler(grammar_tokenizer(VOCABULARY, [END]), GrammarLimits(seconds=60))
    yield made
    made.close()


@pytest.fixture
def masks(compiler):
    return GrammarMasks(compiler.tokenizer, rows=16)


@pytest.fixture(scope="session")
def constrained(compiler):
    """A function: schema (None: free text), max_length, further ends -> TextContext under it."""

    def make(schema=SCHEMA, max_length=400, eos_sequences=(), eos_stop_strings=()):
        text = schema if schema is None or isinstance(schema, str) else json.dumps(schema)
        context = TextContext(
            max_length=max_length,
            tokens=np.array([1]),
            eos_tracker=EOSTracker({END}, eos_sequences, eos_stop_strings),
            json_schema=text,
        )
        compiler.constrain(context)
        return context

    return make
