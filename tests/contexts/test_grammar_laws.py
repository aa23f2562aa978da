"""What ends by itself under a grammar is in its language; drafts and rollback leave no trace."""

import json
import re

import numpy as np
import pytest
from grammar_steps import END
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.contexts import GenerationStatus, GrammarMasks

# Texts that stand in the middle of JSON as well as at its end.
STOPS = st.sampled_from(['"', "}", "]", "1", "e", "ue", "null", '"}', ":", "{"])


@pytest.fixture(scope="session")
def masks(compiler):
    return GrammarMasks(compiler.tokenizer, rows=4)


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
def test_what_ends_by_itself_is_in_its_language(schema, data, masks, constrained, vocabulary):
    def closing(token):
        order = [END, *b'"}]', vocabulary.index(b'"}')]
        return order.index(token) if token in order else len(order) + token

    ending = data.draw(st.sampled_from(["end of sequence", "stop", "length"]))
    limit = data.draw(st.integers(1, 6)) if ending == "length" else 300
    stops = data.draw(st.lists(STOPS, min_size=1, max_size=3)) if ending == "stop" else []
    runs = data.draw(st.lists(STOPS, max_size=2)) if ending == "stop" else []
    context = constrained(schema, 1 + limit, [list(run.encode()) for run in runs], stops)
    draw = data.draw(st.randoms(use_true_random=False))
    written = 0
    while not context.is_done:
        masks.fill([context])
        choices = [
            token
            for token in [t for t in range(END + 1) if masks.allows(0, t)]
            if token < 128 or token >= 256
        ]
        row = masks.bitmask[0].copy()
        draft = [draw.choice(choices), draw.choice(range(END + 1))]
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
        complete = context.matcher.is_accepting()
        stop = context.end_at_stop_string(vocabulary[token].decode())
        assert stop is None or (complete and stop in stops)
        if token == draft[0] and not context.is_done:
            masks.fill([context])
            assert np.array_equal(masks.bitmask[0], after)
    tokens = [token for token in context.generated_tokens.tolist() if token != END]
    if context.status is GenerationStatus.END_OF_SEQUENCE:
        assert follows(json.loads(b"".join(vocabulary[token] for token in tokens)), schema)
    else:
        assert ending == "length" or written >= 300
        assert len(context.generated_tokens) == limit
