"""Whether a finite value follows a schema: against looking at all small values."""

import json
from itertools import chain, combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.contexts.schema_parts import References
from heddle.contexts.schema_values import FiniteValues
from heddle.runtime.errors import InputError

SELF = {"$ref": "#"}
BY_NAME = {"type": "object", "properties": {"a": SELF}}
BY_PATTERN = {"type": "object", "patternProperties": {"^a$": SELF}}
ENDLESS = [
    {**BY_PATTERN, "required": ["a"], "additionalProperties": False},
    {**BY_PATTERN, "required": ["a"]},
    {**BY_PATTERN, "minProperties": 1, "additionalProperties": False},
    {"allOf": [{"type": "object", "required": ["a"]}, BY_NAME]},
    {**BY_NAME, "anyOf": [{"required": ["a"]}, {"required": ["a", "b"]}]},
    {"$id": "http://x/y"}
    | {"type": "object", "properties": {"a": {"$ref": "http://x/y"}}, "required": ["a"]},
    {"$defs": {"d": {"$anchor": "n", "allOf": [{"$ref": "#n"}]}}, "$ref": "#n"},
    {"type": "array", "minItems": 9, "allOf": [{"prefixItems": [True]}, {"items": SELF}]},
    {**BY_NAME, "minProperties": 1, "additionalProperties": False},
]
FINITE = [
    {**BY_PATTERN, "required": ["b"], "additionalProperties": {"type": "null"}},
    {**BY_PATTERN, "minProperties": 3},
    {"type": "object", "patternProperties": {"^[ab]$": SELF}, "required": ["a"]},
    {**BY_NAME, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"allOf": [{"type": ["object", "string"], "required": ["a"]}, {"properties": {"a": SELF}}]},
    {**BY_NAME, "minProperties": 2, "properties": {"a": SELF, "b": {}, "c": {}}},
    # The references of a schema with an address of its own are relative to that.
    {
        "$defs": {"d": {"$id": "http://x/z", "$ref": "#/$defs/e", "$defs": {"e": {"const": 1}}}},
        "$ref": "http://x/z",
    },
    {"$ref": "http://elsewhere/"},
    {"$defs": {"d": {"$anchor": "n", "type": "null"}}, "$ref": "#n"},
    {"$id": "urn:x", "anyOf": [{"$ref": "#/$defs/d"}], "$defs": {"d": {"type": "null"}}},
    # Too many ways to look at all of them.
    {"allOf": [{"anyOf": [{"required": [f"{i}{j}"]} for j in "abc"]} for i in range(20)]}
    | {"type": "object", "additionalProperties": {"anyOf": [SELF, {"type": "null"}]}},
]


def exist(schema):
    return FiniteValues(schema, References(schema)).exist()


@pytest.mark.parametrize("schema", ENDLESS, ids=str)
def test_what_no_finite_value_follows_is_refused(compiler, schema):
    lark = 'start: "x" y\ny: %json ' + json.dumps(schema)
    for kind, grammar in (("json_schema", schema), ("lark", lark)):
        with pytest.raises(InputError, match=f"^{kind}: wanted a schema that finite values follow"):
            compiler.compile(kind, grammar)


@pytest.mark.parametrize("schema", FINITE, ids=lambda schema: str(schema)[:60])
def test_what_a_finite_value_follows_is_not(schema):
    assert exist(schema)


# Schemas over what an object has at `a` and `b`, and an array in its first places.
REFERENCES = st.sampled_from([SELF, {"$ref": "#/$defs/d"}])


def _larger(inner):
    one, some = st.one_of(inner, REFERENCES), st.lists(st.one_of(inner, REFERENCES), max_size=2)
    optional = {
        "type": st.sampled_from(["object", "array", "null", ["array", "object"]]),
        "properties": st.dictionaries(st.sampled_from("ab"), one, max_size=2),
        "patternProperties": st.dictionaries(st.sampled_from(["^a$", "^a", "b"]), one, max_size=2),
        "additionalProperties": one,
        "required": st.lists(st.sampled_from("ab"), max_size=2, unique=True),
        "minProperties": st.integers(0, 2),
        "prefixItems": some,
        "items": one,
        "minItems": st.integers(0, 2),
        "allOf": some,
        "anyOf": st.lists(one, min_size=1, max_size=2),
    }
    return st.fixed_dictionaries({}, optional=optional)


SCHEMAS = st.recursive(
    st.sampled_from([True, False, {}, {"type": "null"}, {"type": "object"}, {"type": "array"}]),
    _larger,
    max_leaves=8,
)


def larger(values):
    """`null`, and all objects of `a` and `b` and arrays of up to two of `values`."""
    yield None
    for count in range(3):
        for names in combinations("ab", count):
            yield from (
                dict(zip(names, each, strict=True)) for each in product(values, repeat=count)
            )
        yield from map(list, product(values, repeat=count))


SMALL = list(larger(list(larger([None]))))


def follows(root, schema, value, above=()):
    """Whether `value` follows; none does where the schema leads back to itself with it."""
    if not isinstance(schema, dict) or id(schema) in above:
        return schema is True

    def same(other):
        return follows(root, other, value, (*above, id(schema)))

    parts = list(map(same, schema.get("allOf", [])))
    if reference := schema.get("$ref"):
        parts.append(same(root if reference == "#" else root["$defs"]["d"]))
    parts += [any(map(same, schema["anyOf"]))] if "anyOf" in schema else []
    kind = {dict: "object", list: "array", type(None): "null"}[type(value)]
    parts.append(kind in schema.get("type", kind))
    if kind == "object":
        parts += (name in value for name in schema.get("required", []))
        parts.append(len(value) >= schema.get("minProperties", 0))
        for name, item in value.items():
            found = {"^a$": "a", "^a": "a", "b": "b"}
            of_name = [schema["properties"][name]] if name in schema.get("properties", {}) else []
            of_name += [
                each
                for pattern, each in schema.get("patternProperties", {}).items()
                if found[pattern] == name
            ]
            of_name = of_name or [schema.get("additionalProperties", True)]
            parts += (follows(root, each, item) for each in of_name)
    if kind == "array":
        parts.append(len(value) >= schema.get("minItems", 0))
        first = schema.get("prefixItems", [])
        rest = [schema.get("items", True)] * len(value)
        pairs = zip(value, chain(first, rest), strict=False)
        parts += (follows(root, each, item) for item, each in pairs)
    return all(parts)


@settings(max_examples=400, deadline=None)
@given(SCHEMAS, SCHEMAS)
def test_the_answer_is_that_of_all_small_values(schema, other):
    root = {"allOf": [schema], "$defs": {"d": other}}
    small = any(follows(root, root, value) for value in SMALL)
    assert small <= exist(root)
    names = json.dumps(root).count('"minProperties"') + json.dumps(root).count('"^a"')
    if not names:  # else there are names beside `a` and `b`
        assert small == exist(root)
