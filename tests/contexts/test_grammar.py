import json
import re
import threading
import time

import numpy as np
import pytest
from heddle.contexts import (
    GenerationStatus,
    GrammarCompiler,
    GrammarLimits,
    GrammarMasks,
    TextContext,
    grammar_tokenizer,
    jump_ahead_forced,
    msgpack_numpy_decoder,
    msgpack_numpy_encoder,
)
from heddle.runtime.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

# All bytes, a few longer tokens, and the end of sequence.
VOCABULARY = [bytes([i]) for i in range(256)] + [b'{"', b'":', b"true", b"12", b"[]", b'"}', b""]
END = len(VOCABULARY) - 1
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def compiler():
    made = GrammarCompiler(grammar_tokenizer(VOCABULARY, [END]))
    yield made
    made.close()


@pytest.fixture
def masks(compiler):
    return GrammarMasks(compiler.tokenizer, rows=16)


def constrained(compiler, schema=SCHEMA, max_length=400):
    text = None if schema is None else schema if isinstance(schema, str) else json.dumps(schema)
    context = TextContext(
        max_length=max_length, tokens=np.array([1]), eos_token_ids={END}, json_schema=text
    )
    compiler.constrain(context)
    return context


def allowed(masks, row):
    return [token for token in range(len(VOCABULARY)) if masks.allows(row, token)]


def text_of(tokens):
    return b"".join(VOCABULARY[token] for token in tokens)


def feed(context, text):
    for byte in text:
        context.update(byte)


def test_masks_allow_what_may_follow(compiler, masks):
    context, free = constrained(compiler), constrained(compiler, None)
    masks.fill([free, context])
    assert allowed(masks, 0) == list(range(len(VOCABULARY)))
    assert [VOCABULARY[token] for token in allowed(masks, 1)] == [b"{", b'{"']
    feed(context, b'{"a":1')
    masks.fill([context, free])
    assert {VOCABULARY[token] for token in allowed(masks, 0)} >= {b"}", b"0", b"12"}
    assert not masks.allows(0, END)
    assert allowed(masks, 1) == list(range(len(VOCABULARY)))
    assert not masks.allows(0, -1)
    assert not masks.allows(0, 10**6)


def test_a_finished_value_allows_only_the_end(compiler, masks):
    context = constrained(compiler)
    feed(context, b'{"a":1}')
    masks.fill([context])
    assert allowed(masks, 0) == [END]
    context.update(END)
    assert context.status is GenerationStatus.END_OF_SEQUENCE
    context.rollback(2)
    masks.fill([context])
    assert masks.allows(0, ord("}"))
    feed(context, b"5}")
    assert text_of(context.generated_tokens) == b'{"a":15}'


def test_a_rejected_token_leaves_the_tokens(compiler):
    context = constrained(compiler)
    with pytest.raises(AssertionError, match="the grammar rejects token 120"):
        context.update(ord("x"))
    with pytest.raises(AssertionError, match="rejects token -999"):
        context.update(-999)
    assert len(context.tokens) == 1


def test_a_failed_matcher_allows_only_an_end_refuses_it_and_disturbs_no_other(compiler, masks):
    good, bad, free = constrained(compiler), constrained(compiler), constrained(compiler, None)
    masks.fill([good])
    expected = masks.bitmask[0].copy()
    with pytest.raises(AssertionError):
        bad.update(ord("x"))
    masks.fill([bad, good, free])
    assert np.array_equal(masks.bitmask[1], expected)
    assert allowed(masks, 0) == [END]
    assert (masks.bitmask[2] == -1).all()
    with pytest.raises(AssertionError, match=f"rejects token {END}"):
        bad.update(END)


def test_without_a_grammar_everything_is_allowed(compiler, masks):
    masks.fill([constrained(compiler), constrained(compiler)])
    free = constrained(compiler, None)
    masks.fill([free])
    assert (masks.bitmask[0] == -1).all()
    assert masks.fill_drafts([free], [[3]]) == [1]
    assert (masks.bitmask[:2] == -1).all()


def test_masks_are_limited_to_their_rows(masks, compiler):
    context = constrained(compiler, None)
    with pytest.raises(ValueError, match="at most 16 rows, as it was made for, got 17"):
        masks.fill([context] * 17)
    with pytest.raises(ValueError, match="got 18"):
        masks.fill_drafts([context] * 2, [[1] * 8, [1] * 8])
    assert masks.bitmask.ctypes.data % 64 == 0


def test_drafts_are_checked_against_the_masks(compiler, masks):
    context, free = constrained(compiler), constrained(compiler, None)
    drafts = [[*b'{"a":1}', END, 5], [7, 8]]
    assert masks.fill_drafts([context, free], drafts) == [8, 2]
    assert masks.fill_drafts([context], [list(b'{"b')]) == [2]
    assert masks.fill_drafts([context], [[5000]]) == [0]
    assert len(context.tokens) == 1
    feed(context, b'{"a":1}')


def test_forced_tokens_are_appended_until_the_end(compiler):
    context = constrained(compiler, {"const": "abc"})
    forced = jump_ahead_forced(context)
    assert text_of(forced).startswith(b'"ab')
    assert context.to_generation_output().tokens == forced
    assert jump_ahead_forced(constrained(compiler, None)) == []
    short = constrained(compiler, {"const": "abc"}, max_length=3)
    assert len(jump_ahead_forced(short)) == 2
    assert short.status is GenerationStatus.MAXIMUM_LENGTH


@pytest.mark.parametrize("schema", ["", " ", "{}"])
def test_an_empty_schema_is_any_json(compiler, masks, schema):
    context = constrained(compiler, schema)
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
        ("regex", "", "wanted a language with a text, got an empty one"),
        ("regex", "(" * 65 + "a" + ")" * 65, "at most 64 nested levels, got 65"),
        ("regex", "a" * 65537, "at most 65536 characters"),
        ("lark", "start: nope", "unknown name"),
        ("lark", "start: start", "lark: wanted a"),
        ("other", "", "wanted 'json_schema', 'regex' or 'lark', got 'other'"),
    ],
)
def test_bad_grammars_are_refused_with_a_reason(compiler, kind, grammar, reason):
    begin = time.perf_counter()
    with pytest.raises(InputError, match=reason):
        compiler.compile(kind, grammar)
    assert time.perf_counter() - begin < compiler.limits.seconds


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^((a{1,999}){1,999}){1,999}$", "^(a|aa|aaa){1,2000}b{1,5000}$"]
)
def test_evil_patterns_stay_within_the_limits(compiler, masks, pattern):
    begin = time.perf_counter()
    try:
        context = constrained(compiler, {"type": "string", "pattern": pattern})
        for byte in b'"' + b"a" * 40:
            masks.fill([context])
            context.update(byte)
    except (InputError, AssertionError):
        pass
    assert time.perf_counter() - begin < 2


def test_slow_grammars_are_given_up(compiler, monkeypatch):
    hurried = GrammarCompiler(compiler.tokenizer, GrammarLimits(seconds=1e-7))
    with pytest.raises(InputError, match=r"wanted to be compiled within 1e-07 s, got 0\.0 s"):
        hurried.submit("regex", "a{1,100}").result(5)
    go_on = threading.Event()
    monkeypatch.setattr(hurried, "_compile", lambda kind, text: go_on.wait(5))
    with pytest.raises(InputError, match="within 1e-07 s, got no end"):
        hurried.compile("regex", "a")
    go_on.set()
    hurried.close()


def test_a_context_from_the_wire_goes_on_where_it_was(compiler, masks):
    context = constrained(compiler)
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
    assert VOCABULARY[allowed(masks, 0)[0]] == b"{"
    other = TextContext(max_length=9, tokens=np.array([1]), json_schema="{}")
    other.update(ord("x"))
    with pytest.raises(InputError, match="wanted generated tokens that follow"):
        compiler.constrain(other)


def test_a_future_token_changes_no_mask_before_it_is_known(compiler, masks):
    context = constrained(compiler)
    context.update_with_future_token()
    masks.fill([context])
    assert [VOCABULARY[token] for token in allowed(masks, 0)] == [b"{", b'{"']


def schemas():
    scalar = st.sampled_from(
        [
            {"type": "integer"},
            {"type": "boolean"},
            {"type": "null"},
            {"type": "string", "maxLength": 3},
            {"type": "integer", "minimum": 3, "maximum": 40},
            {"enum": ["a", 1, None]},
            {"const": {"x": [True]}},
            {"type": "string", "pattern": "^[a-c]{1,3}$"},
        ]
    )
    keys = st.sampled_from(["a", "b", "cd"])

    def grow(inner):
        objects = st.dictionaries(keys, inner, max_size=3).map(
            lambda properties: {
                "type": "object",
                "properties": properties,
                "required": sorted(properties)[:2],
                "additionalProperties": False,
            }
        )
        arrays = inner.map(lambda items: {"type": "array", "items": items, "maxItems": 2})
        unions = st.lists(inner, min_size=1, max_size=2).map(lambda options: {"anyOf": options})
        return objects | arrays | unions

    return st.recursive(scalar, grow, max_leaves=4)


def follows(value, schema):
    """Whether `value` is an instance of `schema`, for the keywords used here."""
    if "anyOf" in schema:
        return any(follows(value, option) for option in schema["anyOf"])
    if "const" in schema:
        return value == schema["const"]
    if "enum" in schema:
        return value in schema["enum"]
    kind = schema["type"]
    if kind == "object":
        properties = schema["properties"]
        return (
            isinstance(value, dict)
            and set(schema["required"]) <= set(value) <= set(properties)
            and all(follows(item, properties[key]) for key, item in value.items())
        )
    if kind == "array":
        return isinstance(value, list) and all(follows(item, schema["items"]) for item in value)
    if kind == "string":
        pattern = schema.get("pattern", "")
        return isinstance(value, str) and len(value) <= 3 and bool(re.search(pattern, value))
    if kind == "integer":
        low, high = schema.get("minimum", -(10**99)), schema.get("maximum", 10**99)
        return type(value) is int and low <= value <= high
    return (value is None) if kind == "null" else isinstance(value, bool)


@settings(max_examples=200, deadline=None)
@given(schema=schemas(), data=st.data())
def test_what_ends_by_itself_is_in_its_language(schema, data):
    compiler, masks = SHARED
    ending = data.draw(st.sampled_from(["end of sequence", "stop", "length"]))
    limit = data.draw(st.integers(1, 6)) if ending == "length" else 300
    context = constrained(compiler, schema, max_length=1 + limit)
    draw = data.draw(st.randoms(use_true_random=False))
    written = 0
    while not context.is_done:
        if ending == "stop" and context.matcher.is_stopped():
            context.update_status(GenerationStatus.END_OF_SEQUENCE)
            break
        masks.fill([context])
        choices = [token for token in allowed(masks, 0) if token < 128 or token >= 256]
        row = masks.bitmask[0].copy()
        draft = [draw.choice(choices), draw.choice(range(len(VOCABULARY)))]
        accepted = masks.fill_drafts([context], [draft])
        assert accepted[0] >= 1
        assert np.array_equal(masks.bitmask[0], row)
        after = masks.bitmask[1].copy()
        # Prefer what closes, so that most texts end.
        written += 1
        token = draft[0] if written < 12 else min(choices, key=closing)
        before = context.status
        context.update(token)
        context.rollback(1)
        masks.fill([context])
        assert np.array_equal(masks.bitmask[0], row)
        assert context.status is before
        context.update(token)
        if token == draft[0] and not context.is_done:
            masks.fill([context])
            assert np.array_equal(masks.bitmask[0], after)
    tokens = [token for token in context.generated_tokens.tolist() if token != END]
    if context.status is GenerationStatus.END_OF_SEQUENCE:
        assert follows(json.loads(text_of(tokens)), schema)
    else:
        assert ending == "length" or written >= 300
        assert len(context.generated_tokens) == limit


def closing(token):
    order = [END, *b'"}]', VOCABULARY.index(b'"}')]
    return order.index(token) if token in order else len(order) + token


COMPILER = GrammarCompiler(grammar_tokenizer(VOCABULARY, [END]))
SHARED = COMPILER, GrammarMasks(COMPILER.tokenizer, rows=4)
