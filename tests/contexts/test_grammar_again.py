"""Matchers that are made anew for a context, and ends that a grammar does not know."""

import copy
import json
import pickle

import numpy as np
import pytest
from grammar_steps import END, allowed, feed

from heddle.contexts import (
    GenerationStatus,
    GrammarCompiler,
    TextContext,
    grammar_tokenizer,
    msgpack_numpy_decoder,
    msgpack_numpy_encoder,
)
from heddle.runtime.errors import InputError


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


def test_masks_see_what_became_of_a_batch_that_they_know(masks, constrained):
    context, other = constrained(), constrained()
    snapshot = context.snapshot()
    batch = [context, other]
    masks.fill(batch)
    first = allowed(masks, 0)
    feed(context, b'{"a":')
    context.restore(snapshot)  # another matcher, at the start
    masks.fill(batch)
    assert allowed(masks, 0) == first
    feed(other, b'{"a":1')
    batch[0] = other
    batch.pop()
    masks.fill(batch)
    assert masks.allows(0, ord("}"))
    batch.append(constrained(None))
    masks.fill(batch)
    masks.fill_drafts([context], [[ord("{")]])
    masks.fill(batch)
    assert masks.allows(0, ord("}"))
    assert allowed(masks, 1) == list(range(END + 1))
    masks.bitmask[0] = 0
    masks.fill([])
    assert not masks.bitmask[0].any()


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


class Number(int):
    """One that counts how often it is compared, as those of NumPy are by a range."""

    compared = 0

    def __eq__(self, other):
        Number.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_drafts_of_any_integers_are_looked_at_once(masks, constrained):
    free, context = constrained(None), constrained()
    for kind in (int, np.int64, np.int32, Number):
        draft = [kind(token) for token in b'{"a":x']
        assert masks.fill_drafts([free, context], [draft, draft]) == [6, 5]
        assert masks.fill_drafts([context], [[kind(-1)]]) == [0]
        assert masks.fill_drafts([context], [[kind(10**6)]]) == [0]
    assert masks.allows(0, Number(ord("{")))
    assert Number.compared < 10


def test_there_are_drafts_for_each_context(masks, constrained):
    wanted = "^GrammarMasks: wanted a list of draft tokens for each of 1 contexts, got 2 lists$"
    with pytest.raises(ValueError, match=wanted):
        masks.fill_drafts([constrained()], [[97], [98]])


def test_a_copy_of_a_context_has_a_matcher_of_its_own(masks, constrained):
    context = constrained()
    feed(context, b'{"a":')
    other = copy.deepcopy(context)
    feed(other, b"12")
    masks.fill([context, other])
    assert not masks.allows(0, ord("}"))
    assert masks.allows(1, ord("}"))
    other.rollback(7)
    masks.fill([other])
    assert masks.allows(0, ord("{"))


def test_a_context_with_a_matcher_is_not_pickled(constrained):
    assert pickle.loads(pickle.dumps(constrained(None))).matcher is None
    wanted = (
        "^matcher: wanted a context without one to pickle, got one with; msgpack_numpy_encoder "
        "leaves it behind, and GrammarCompiler.constrain gives the receiver its own$"
    )
    with pytest.raises(TypeError, match=wanted):
        pickle.dumps(constrained())


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


VALUE = {"k": [1, {"a": 2}]}
SPACES = {
    "none": (json.dumps(VALUE, separators=(",", ":")),),
    "bounded": (json.dumps(VALUE), json.dumps(VALUE, indent=4), '{\r\n\t"k":[1,{"a":2}\n]\n}'),
    "any": ('{  "k":[1,{"a":2}]}', '{\n\n"k":[1,{"a":2}]}', '{"k":[1,{"a":2}]' + "\n" * 99 + "}"),
}


@pytest.mark.parametrize("whitespace", SPACES)
def test_the_white_space_of_json(compiler, whitespace):
    """Each kind takes what the ones before it take, and nothing of those behind it."""
    made = GrammarCompiler(compiler.tokenizer, compiler.limits, whitespace=whitespace)
    allowed = list(SPACES)[: list(SPACES).index(whitespace) + 1]
    for schema in ({"type": "object"}, {"const": VALUE}, "true", ""):
        for kind, texts in SPACES.items():
            for text in texts:
                taken = made.compile("json_schema", schema).try_consume_tokens(list(text.encode()))
                assert (taken == len(text)) == (kind in allowed), (schema, text)
    made.close()


def test_a_model_that_likes_white_space_best_comes_to_an_end(compiler, masks):
    """Greedy, blanks and line breaks first: what the default bounds would else never end."""
    context = TextContext(
        max_length=400, tokens=np.array([1]), eos_token_ids={END}, json_schema='{"const": {"k": 1}}'
    )
    compiler.constrain(context)
    while not context.is_done:
        masks.fill([context])
        liked = [token for token in map(ord, "\n\t ") if masks.allows(0, token)]
        context.update((liked or allowed(masks, 0))[0])
    assert context.status is GenerationStatus.END_OF_SEQUENCE
    assert json.loads(bytes(context.generated_tokens[:-1].tolist())) == {"k": 1}


def test_a_schema_may_say_itself_what_white_space_it_takes(compiler):
    for options, text in (({}, "{  }"), ({"whitespace_flexible": False}, "{}")):
        matcher = compiler.compile("json_schema", {"type": "object", "x-guidance": options})
        assert matcher.try_consume_tokens(list(text.encode())) == len(text)
        assert matcher.is_accepting()
    matcher = compiler.compile("json_schema", {"const": [1], "x-guidance": options})
    assert matcher.try_consume_tokens(list(b"[ ")) == 1


def test_tokens_are_bytes():
    wanted = "^grammar_tokenizer: wanted the bytes of each token, got 'b' of token 1$"
    with pytest.raises(InputError, match=wanted):
        grammar_tokenizer([b"a", "b", b""], [2])


def test_another_kind_of_white_space_is_refused(compiler):
    wanted = "^GrammarCompiler: wanted whitespace 'none', 'bounded' or 'any', got 'some'$"
    with pytest.raises(InputError, match=wanted):
        GrammarCompiler(compiler.tokenizer, whitespace="some")
