import threading
import time

import numpy as np
import pytest
from grammar_steps import END, allowed, feed

from heddle.contexts import (
    GenerationStatus,
    GrammarCompiler,
    GrammarLimits,
    TextContext,
    jump_ahead_forced,
    msgpack_numpy_decoder,
    msgpack_numpy_encoder,
)
from heddle.runtime.errors import InputError


def text_of(tokens, vocabulary):
    return b"".join(vocabulary[token] for token in tokens)


def test_masks_allow_what_may_follow(masks, constrained, vocabulary):
    context, free = constrained(), constrained(None)
    masks.fill([free, context])
    assert allowed(masks, 0) == list(range(END + 1))
    assert [vocabulary[token] for token in allowed(masks, 1)] == [b"{", b'{"']
    feed(context, b'{"a":1')
    masks.fill([context, free])
    assert {vocabulary[token] for token in allowed(masks, 0)} >= {b"}", b"0", b"12"}
    assert not masks.allows(0, END)
    assert allowed(masks, 1) == list(range(END + 1))
    assert not masks.allows(0, -1)
    assert not masks.allows(0, 10**6)


def test_a_finished_value_allows_only_the_end(masks, constrained, vocabulary):
    context = constrained()
    feed(context, b'{"a":1}')
    masks.fill([context])
    assert allowed(masks, 0) == [END]
    context.update(END)
    assert context.status is GenerationStatus.END_OF_SEQUENCE
    context.rollback(2)
    masks.fill([context])
    assert masks.allows(0, ord("}"))
    feed(context, b"5}")
    assert text_of(context.generated_tokens, vocabulary) == b'{"a":15}'


def test_a_rejected_token_leaves_the_tokens_and_the_matcher(masks, constrained, vocabulary):
    context = constrained()
    masks.fill([context])
    before = allowed(masks, 0)
    for token in (ord("x"), END, -999):
        with pytest.raises(AssertionError, match=f"the grammar rejects token {token}"):
            context.update(token)
    assert len(context.tokens) == 1
    masks.fill([context])
    assert allowed(masks, 0) == before
    feed(context, b'{"a":1}')
    with pytest.raises(AssertionError, match="rejects token 125"):
        context.update(ord("}"))
    context.update(END)
    assert context.status is GenerationStatus.END_OF_SEQUENCE
    context.rollback(3)
    feed(context, b"5}")
    assert text_of(context.generated_tokens, vocabulary) == b'{"a":5}'


def test_a_failed_matcher_allows_only_an_end_refuses_it_and_disturbs_no_other(masks, constrained):
    good, bad, free = constrained(), constrained(), constrained(None)
    masks.fill([good])
    expected = masks.bitmask[0].copy()
    with pytest.raises(AssertionError):
        bad.update(10**9)  # no token of the vocabulary
    masks.fill([bad, good, free])
    assert np.array_equal(masks.bitmask[1], expected)
    assert allowed(masks, 0) == [END]
    assert (masks.bitmask[2] == -1).all()
    with pytest.raises(AssertionError, match=f"rejects token {END}"):
        bad.update(END)


def test_without_a_grammar_everything_is_allowed(masks, constrained):
    masks.fill([constrained(), constrained()])
    free = constrained(None)
    masks.fill([free])
    assert (masks.bitmask[0] == -1).all()
    assert masks.fill_drafts([free], [[3]]) == [1]
    assert (masks.bitmask[:2] == -1).all()


def test_masks_are_limited_to_their_rows(masks, constrained):
    context = constrained(None)
    with pytest.raises(ValueError, match="at most 16 rows, as it was made for, got 17"):
        masks.fill([context] * 17)
    with pytest.raises(ValueError, match="got 18"):
        masks.fill_drafts([context] * 2, [[1] * 8, [1] * 8])
    assert masks.bitmask.ctypes.data % 64 == 0


def test_a_shared_matcher_is_refused_by_name(masks, constrained):
    context, other = constrained(), constrained()
    twin = TextContext(max_length=9, tokens=np.array([1]), request_id="twin")
    twin.set_matcher(context.matcher)
    masks.fill([other, context])
    before = masks.bitmask[:2].copy()
    reason = f"the one of row 1, request {context.request_id}, again in row 2, request twin"
    with pytest.raises(ValueError, match=reason):
        masks.fill([other, context, twin])
    with pytest.raises(ValueError, match="wanted a matcher for each context"):
        masks.fill_drafts([context, context], [[], []])
    assert np.array_equal(masks.bitmask[:2], before)
    masks.fill([other, twin])


def test_drafts_are_checked_against_the_masks(masks, constrained):
    context, free = constrained(), constrained(None)
    drafts = [[*b'{"a":1}', END, 5], [7, 8]]
    assert masks.fill_drafts([context, free], drafts) == [8, 2]
    assert masks.fill_drafts([context], [list(b'{"b')]) == [2]
    assert masks.fill_drafts([context], [[5000]]) == [0]
    assert len(context.tokens) == 1
    feed(context, b'{"a":1}')


def test_forced_tokens_are_appended_until_the_end(constrained, vocabulary):
    context = constrained({"const": "abc"})
    forced = jump_ahead_forced(context)
    assert text_of(forced, vocabulary).startswith(b'"ab')
    assert context.to_generation_output().tokens == forced
    assert jump_ahead_forced(constrained(None)) == []
    short = constrained({"const": "abc"}, max_length=3)
    assert len(jump_ahead_forced(short)) == 2
    assert short.status is GenerationStatus.MAXIMUM_LENGTH


def test_a_stop_string_ends_a_complete_output_and_is_part_of_any_other(constrained):
    context = constrained({"const": {"a": {}}}, eos_stop_strings=["}", "never"])
    text = '{"a":{}'
    for character in text:
        context.update(ord(character))
        assert context.end_at_stop_string(character) is None
    assert context.status is GenerationStatus.ACTIVE
    context.update(ord("}"))
    assert context.end_at_stop_string("}") == "}"
    assert context.status is GenerationStatus.END_OF_SEQUENCE
    context.rollback(1)
    assert context.status is GenerationStatus.ACTIVE
    free = constrained(None, eos_stop_strings=["}"])
    free.update(7)
    assert free.end_at_stop_string("a}b") == "}"
    assert free.status is GenerationStatus.END_OF_SEQUENCE


def test_an_ending_run_of_tokens_inside_the_output_is_part_of_it(constrained):
    context = constrained({"type": "string", "maxLength": 9}, eos_sequences=[[ord('"')]])
    feed(context, b'"x')
    assert context.status is GenerationStatus.ACTIVE
    context.update_with_future_token()
    assert context.end_at_stop_string("x") is None
    context.realize_future_token(ord('"'))
    assert context.status is GenerationStatus.END_OF_SEQUENCE


def test_a_grammar_that_is_advanced_on_its_own_has_no_say_before_it_is(constrained):
    context = constrained(eos_sequences=[[ord("{")]])
    context.advance_token_buffer(ord("{"))
    assert context.status is GenerationStatus.END_OF_SEQUENCE
    context = constrained(eos_sequences=[[ord("{")]])
    context.advance_fsm(ord("{"))
    context.advance_token_buffer(ord("{"))
    assert context.status is GenerationStatus.ACTIVE


@pytest.mark.parametrize("schema", ["", " ", "{}"])
def test_an_empty_schema_is_any_json(masks, schema, constrained):
    context = constrained(schema)
    masks.fill([context])
    assert masks.allows(0, ord("["))
    assert not masks.allows(0, ord("x"))


def test_regex_and_lark(compiler):
    matcher = compiler.compile("regex", "(ab)+")
    assert matcher.consume_tokens(list(b"abab"))
    assert matcher.is_accepting()
    matcher = compiler.submit("lark", 'start: "x" y\ny: "z"').result(5)
    assert matcher.consume_tokens(list(b"xz"))


def nested(levels):
    schema = {"type": "integer"}
    for _ in range(levels):
        schema = {"oneOf": [schema, {"type": "string"}]}
    return schema


@pytest.mark.parametrize(
    ("kind", "grammar", "reason"),
    [
        ("json_schema", nested(30), "wanted a grammar that llguidance takes"),
        ("json_schema", nested(200), "at most 64 nested levels, got 401"),
        ("json_schema", {"enum": ["x" * 70000]}, "at most 65536 characters, got 70014"),
        ("json_schema", {"$ref": "#"}, "json_schema: wanted a"),
        ("json_schema", {"not": {}}, "Unimplemented keys"),
        ("json_schema", "false", "schema is false"),
        ("json_schema", "{", "json_schema: wanted"),
        ("json_schema", {"type": "integer", "minimum": 5, "maximum": 3}, "Unsatisfiable"),
        ("json_schema", {"type": "string", "pattern": "^(?!a)b$"}, "regex parse error"),
        (
            "regex",
            "[",
            r'got: at 1\(8\): invalid regex "\[" \(in regex\): regex parse error: \[ error: '
            r"unclosed character class$",
        ),
        ("regex", "", "wanted a language with a text, got an empty one"),
        ("regex", "(" * 65 + "a" + ")" * 65, "at most 64 nested levels, got 65"),
        ("regex", "a" * 65537, "at most 65536 characters"),
        ("lark", "start: nope", "unknown name"),
        ("lark", "start: start", "lark: wanted a"),
        ("other", "", "wanted 'json_schema', 'regex' or 'lark', got 'other'"),
    ],
)
def test_bad_grammars_are_refused_with_a_reason(compiler, kind, grammar, reason):
    begin = time.process_time()
    with pytest.raises(InputError, match=reason):
        compiler.compile(kind, grammar)
    assert time.process_time() - begin < GrammarLimits().seconds


def test_slow_grammars_are_given_up(compiler, monkeypatch):
    hurried = GrammarCompiler(compiler.tokenizer, GrammarLimits(seconds=1e-7))
    go_on = threading.Event()
    monkeypatch.setattr(hurried, "_compile", lambda kind, text: go_on.wait(30))
    begin = time.monotonic()
    wanted = "^regex: wanted to be compiled within 1e-07 s, got no end$"
    with pytest.raises(InputError, match=wanted):
        hurried.compile("regex", "a")
    work = [hurried.submit("regex", "a") for _ in range(9)]  # on two threads
    for each in work:
        with pytest.raises(InputError, match=wanted):
            each.result(10)
    assert time.monotonic() - begin < 10
    go_on.set()
    hurried.close()


def test_a_grammar_without_an_end_holds_no_other_up(compiler, monkeypatch):
    patient = GrammarCompiler(compiler.tokenizer, GrammarLimits(seconds=0.5), threads=1)
    go_on = threading.Event()
    compile_now = patient._compile
    monkeypatch.setattr(
        patient,
        "_compile",
        lambda kind, text: go_on.wait(5) if text == "stuck" else compile_now(kind, text),
    )
    with pytest.raises(InputError, match=r"within 0\.5 s, got no end"):
        patient.compile("regex", "stuck")
    assert patient.compile("regex", "a").consume_token(ord("a"))
    go_on.set()
    patient.close()


def test_a_context_from_the_wire_goes_on_where_it_was(compiler, masks, constrained, vocabulary):
    context = constrained()
    feed(context, b'{"a":')
    context.update_with_future_token()
    again = msgpack_numpy_decoder(TextContext)(msgpack_numpy_encoder()(context))
    assert again.matcher is None
    compiler.constrain(again)
    again.realize_future_token(ord("7"))
    masks.fill([again])
    assert masks.allows(0, ord("}"))
    again.rollback(6)
    masks.fill([again])
    assert vocabulary[allowed(masks, 0)[0]] == b"{"
    other = TextContext(max_length=9, tokens=np.array([1]), json_schema="{}")
    other.update(ord("x"))
    with pytest.raises(InputError, match="wanted generated tokens that follow"):
        compiler.constrain(other)


def test_a_future_token_changes_no_mask_before_it_is_known(masks, constrained, vocabulary):
    context = constrained()
    context.update_with_future_token()
    masks.fill([context])
    assert [vocabulary[token] for token in allowed(masks, 0)] == [b"{", b'{"']
