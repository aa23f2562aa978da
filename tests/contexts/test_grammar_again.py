"""Matchers that are made anew for a context, and ends that a grammar does not know."""

import numpy as np
import pytest
from grammar_steps import END, allowed, feed

from heddle.contexts import (
    GenerationStatus,
    TextContext,
    msgpack_numpy_decoder,
    msgpack_numpy_encoder,
)


def test_an_end_that_is_none_of_the_grammar_leaves_the_matcher(masks, compiler):
    context = TextContext(
        max_length=64,
        tokens=np.array([1]),
        eos_token_ids={END, 257},  # the tokenizer of the grammars knows the first alone
        json_schema='{"type": "boolean"}',
    )
    compiler.constrain(context)
    feed(context, b"true")
    for _ in range(2):
        with pytest.raises(AssertionError, match="the grammar rejects token 257"):
            context.update(257)
    assert not context.matcher.is_error()
    masks.fill([context])
    assert allowed(masks, 0) == [END]
    context.update(END)
    assert context.status is GenerationStatus.END_OF_SEQUENCE
    context.rollback(2)
    masks.fill([context])
    assert masks.allows(0, ord("e"))


def test_a_grammar_that_is_made_anew_goes_on_after_a_reset(compiler, masks, constrained):
    context = constrained()
    snapshot = context.snapshot()
    feed(context, b'{"a":')
    context.reset()
    context.update(ord("1"))
    again = msgpack_numpy_decoder(TextContext)(msgpack_numpy_encoder()(context))
    for one in (again, context):
        compiler.constrain(one)
        masks.fill([one])
        assert masks.allows(0, ord("}"))
        one.rollback(1)
        masks.fill([one])
        assert masks.allows(0, ord("-"))
        assert not masks.allows(0, ord("}"))
        one.rollback(5)
        one.update(ord("{"))
        masks.fill([one])
        assert masks.allows(0, ord('"'))
    context.restore(snapshot)
    compiler.constrain(context)
    masks.fill([context])
    assert masks.allows(0, ord("{"))


def test_a_grammar_that_is_made_anew_after_a_rollback_into_the_prompt(compiler, masks):
    context = TextContext(max_length=64, tokens=np.array([1, 2]), json_schema='{"type": "boolean"}')
    compiler.constrain(context)
    snapshot = context.snapshot()
    context.rollback(1)
    feed(context, b"t")
    compiler.constrain(context)
    masks.fill([context])
    assert masks.allows(0, ord("r"))
    context.restore(snapshot)
    feed(context, b"f")
    compiler.constrain(context)
    masks.fill([context])
    assert masks.allows(0, ord("a"))


def test_a_schema_without_a_matcher_is_no_free_text(compiler, masks, constrained):
    ready, context = (
        constrained(None),
        TextContext(max_length=9, tokens=np.array([1, 2]), json_schema="{}"),
    )
    wanted = (
        f"^GrammarMasks: wanted a matcher for the json_schema of request {context.request_id}, "
        "got none; GrammarCompiler.constrain gives it one$"
    )
    masks.fill([ready])
    for fill in (lambda: masks.fill([context]), lambda: masks.fill_drafts([context], [[]])):
        context.tokens.chunk(1)  # the matcher may still be compiled
        fill()
        context.update(5)
        with pytest.raises(ValueError, match=wanted):
            fill()
        context.tokens.rewind_processing(1)
    compiler.constrain(context)
    masks.fill([context])
    assert not masks.allows(0, ord("x"))
