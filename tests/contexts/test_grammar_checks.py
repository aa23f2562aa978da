import json
import time

import pytest
from grammar_steps import END
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.contexts import GrammarCompiler, GrammarLimits, grammar_tokenizer
from heddle.contexts.lark_rules import endless_rule
from heddle.runtime.errors import InputError

LARK_PIECES = [*"ab:|()[]{}?*+~!.,0\n", "start", "::", "->", "//", "~2", "{0,1}"]
LARK_PIECES += ['"x"', "/y/", "<z>", "%if", "%json"]

TREE = {"type": "object", "properties": {"next": {"$ref": "#"}}}
LIST = {"type": "array", "items": {"$ref": "#"}}
ENDLESS = [
    {"$ref": "#"},
    {"allOf": [{"$ref": "#"}]},
    {"oneOf": [{"$ref": "#"}]},
    {**TREE, "required": ["next"]},
    {"type": "object", "additionalProperties": {"$ref": "#"}, "required": ["next"]},
    {"type": "object", "additionalProperties": {"$ref": "#"}, "minProperties": 1},
    {**LIST, "minItems": 1},
    {"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1},
    {"anyOf": [{**LIST, "minItems": 1}, {**TREE, "required": ["next"]}]},
    {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    {"$defs": {"a/b": {"allOf": [{"$ref": "#/$defs/a~1b"}]}}, "$ref": "#/$defs/a~1b"},
    {"anyOf": [{"allOf": [{"$ref": "#"}]}], "type": "string"},
]
FINITE = [
    TREE,
    LIST,
    {**TREE, "required": ["other"]},
    {"anyOf": [{"$ref": "#/$defs/list"}, {"type": "null"}], "$defs": {"list": LIST}},
    {"type": ["array", "null"], "items": {"$ref": "#"}, "minItems": 1},
    {"type": "array", "prefixItems": [{"type": "null"}], "items": {"$ref": "#"}, "minItems": 1},
    # Whether `a` is finite shows only after `b` is.
    {
        "$defs": {
            "a": {"type": "array", "items": {"$ref": "#/$defs/b"}, "minItems": 1},
            "b": {
                "anyOf": [
                    {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1},
                    {"type": "null"},
                ]
            },
        },
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/b"}, "y": {"$ref": "#/$defs/a"}},
        "required": ["x", "y"],
    },
]


@pytest.fixture(autouse=True)
def within_the_limit_of_time():
    """In seconds of this process: how long it waits for a CPU is none of a grammar's doing."""
    begin = time.process_time()
    yield
    assert time.process_time() - begin < GrammarLimits().seconds


@pytest.mark.parametrize("schema", ENDLESS, ids=str)
def test_schemas_without_a_finite_value_are_refused(compiler, schema):
    with pytest.raises(InputError, match="json_schema: wanted a schema that finite values follow"):
        compiler.compile("json_schema", schema)


@pytest.mark.parametrize("schema", FINITE, ids=str)
def test_recursion_that_may_end_is_taken(compiler, schema):
    assert not compiler.compile("json_schema", schema).is_error()


@pytest.mark.parametrize(
    ("kind", "grammar"),
    [
        ("regex", "(a+)+"),
        ("lark", 'start: A "/(b)/" // a /comment/\nA: /(a+)+/'),
        ("lark", 'start: "x" y\ny: %json{"type": "string", "pattern": "^(a+)+$"}'),
        ("json_schema", {"type": "string", "pattern": "^(a+)+$"}),
        ("json_schema", {"properties": {"default": {"type": "string", "pattern": "(a+)+"}}}),
        ("json_schema", {"type": "object", "patternProperties": {"(a+)+": {"type": "null"}}}),
        ("json_schema", {"anyOf": [{"items": {"type": "string", "pattern": "(a+)+"}}]}),
    ],
)
def test_patterns_with_too_many_readings_are_refused_by_name(compiler, kind, grammar):
    with pytest.raises(InputError, match=rf"{kind}: wanted patterns .* got '\^?\(a\+\)\+\$?', wh"):
        compiler.compile(kind, grammar)


@pytest.mark.parametrize(
    ("kind", "grammar"),
    [
        ("lark", 'start: "(a+)+" // /(a+)+/'),
        ("lark", 'start: /%json/ "x" // %json {"pattern": "(a+)+"}'),
        ("lark", 'start: %json {"const": {"pattern": "(a+)+"}}'),
        ("json_schema", {"const": {"pattern": "(a+)+"}}),
        ("json_schema", {"type": "object", "properties": {"pattern": {"type": "null"}}}),
    ],
)
def test_what_only_looks_like_a_pattern_is_none(compiler, kind, grammar):
    assert not compiler.compile(kind, grammar).is_error()


def strings(count):
    return [{"type": "string", "pattern": f"a.{{{i},{i + 50}}}b"} for i in range(1, count + 1)]


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": strings(60)},
        {"allOf": [{"type": "object", "properties": {"a": each}} for each in strings(9)]},
        {"allOf": [{"type": "array", "items": each} for each in strings(9)]},
        {"allOf": [{"type": "array", "prefixItems": [each]} for each in strings(9)]},
        {"anyOf": [{"type": "null"}, {"oneOf": [{"allOf": strings(9)}]}]},
        {"$defs": {"a": {"allOf": strings(8)}}, "$ref": "#/$defs/a", "format": "email"},
        {"type": "object", "patternProperties": {"^a": {"allOf": strings(60)}}},
        {"allOf": [{"type": "object", "patternProperties": {"^a": each}} for each in strings(9)]},
    ],
    ids=lambda schema: str(schema)[:40],
)
def test_many_patterns_for_one_string_are_refused_at_once(compiler, schema):
    lark = "start: %json\n " + json.dumps(schema)
    for kind, grammar in (("json_schema", schema), ("lark", lark)):
        with pytest.raises(InputError, match=rf"^{kind}: wanted at most 8 patterns .* got (9|60)"):
            compiler.compile(kind, grammar)


def test_patterns_of_different_strings_are_not_counted_together(compiler):
    properties = {f"p{i}": each for i, each in enumerate(strings(30))}
    compiler.compile("json_schema", {"type": "object", "properties": properties})
    compiler.compile("json_schema", {"anyOf": strings(30)})
    compiler.compile("json_schema", {"type": "array", "prefixItems": strings(30)})
    by_pattern = {f"^p{i}-": each for i, each in enumerate(strings(10))}
    compiler.compile("json_schema", {"type": "object", "patternProperties": by_pattern})


def chain(length, parts):
    schemas = {
        f"s{i}": {
            "type": "array",
            "prefixItems": [{"$ref": f"#/$defs/s{i + 1}"}] * parts,
            "minItems": parts,
        }
        for i in range(length)
    }
    return {"$defs": {**schemas, f"s{length}": {"type": "null"}}, "$ref": "#/$defs/s0"}


@pytest.mark.parametrize(("length", "parts"), [(400, 1), (20, 2)])
def test_references_that_grow_too_far_are_refused(compiler, length, parts):
    with pytest.raises(InputError, match="references that lead to a schema of moderate size"):
        compiler.compile("json_schema", chain(length, parts))


def test_honest_chains_of_references_are_taken(compiler):
    compiler.compile("json_schema", chain(8, 2))


def test_counts_that_are_taken_last_to_the_end(compiler):
    """Nested counts without ambiguity do not make the matcher fail on the way."""
    matcher = compiler.compile("regex", "([ab]{1,200},){1,200}")
    for byte in b"ab,bbbb," * 100:
        assert matcher.compute_logit_bias()[byte]
        assert matcher.consume_token(byte)
    assert matcher.is_accepting()


@pytest.mark.parametrize(
    ("kind", "grammar"),
    [
        ("regex", r"\(" * 65),
        ("regex", "[(]a" * 70),
        ("regex", r"[^](\](]" * 70),
        ("lark", "start: /" + r"\(" * 65 + '/ "' + "(" * 65 + '" // ' + "(" * 65),
        ("lark", "start: " + "/[(]/ " * 70),
        ("json_schema", {"type": "string", "pattern": r"\(" * 65}),
    ],
)
def test_brackets_that_are_text_are_not_nested(compiler, kind, grammar):
    assert not compiler.compile(kind, grammar).is_error()


@pytest.mark.parametrize(
    ("kind", "grammar"),
    [
        ("regex", '"' + "(" * 65 + "a" + ")" * 65),
        ("regex", "]" * 65 + "(" * 65 + "a" + ")" * 65),
        ("lark", "start: " + "(" * 65 + '"a"' + ")" * 65),
        ("json_schema", "[" * 65 + "]" * 65),
    ],
)
def test_brackets_that_are_nested_too_deep_are_refused(compiler, kind, grammar):
    with pytest.raises(InputError, match=f"^{kind}: wanted at most 64 nested levels, got 65$"):
        compiler.submit(kind, grammar)


def test_a_closed_compiler_says_so(vocabulary):
    compiler = GrammarCompiler(grammar_tokenizer(vocabulary, [END]))
    compiler.close()
    compiler.close()
    with pytest.raises(InputError) as error:
        compiler.compile("regex", "a")
    assert str(error.value) == "GrammarCompiler: wanted one that is open, got one that was closed"


@pytest.mark.parametrize(
    ("kind", "grammar", "message"),
    [
        ("regex", "a\ud800", "regex: wanted a text in UTF-8, got '\\ud800' at 1"),
        ("lark", "\ud800", "lark: wanted a text in UTF-8, got '\\ud800' at 0"),
        (
            "json_schema",
            {"const": {1}},
            "json_schema: wanted a text or JSON, got Object of type set is not JSON serializable",
        ),
    ],
)
def test_what_is_no_text_is_refused(compiler, kind, grammar, message):
    with pytest.raises(InputError) as error:
        compiler.compile(kind, grammar)
    assert str(error.value) == message


@pytest.mark.parametrize("ends", [[], [-1], [END + 1]])
def test_a_grammar_needs_an_end_of_the_vocabulary(vocabulary, ends):
    with pytest.raises(InputError) as error:
        grammar_tokenizer(vocabulary, ends)
    wanted = "grammar_tokenizer: wanted eos_token_ids below 263, at least one, got "
    assert str(error.value) == wanted + str(ends)


@pytest.mark.parametrize("code_point", ["110000", "ffffffffffff"])
@pytest.mark.parametrize("form", [r"\x{%s}", r"[\x{%s}]", r"(\u{%s}a)+"])
def test_a_code_point_that_there_is_not_is_refused(compiler, code_point, form):
    with pytest.raises(InputError, match="wanted a grammar that llguidance takes"):
        compiler.compile("regex", form % code_point)
    with pytest.raises(InputError, match="json_schema: wanted"):
        compiler.compile("json_schema", {"type": "string", "pattern": form % code_point})


def test_a_schema_nested_beyond_what_python_recurses_is_refused(compiler):
    schema = {}
    for _ in range(100_000):
        schema = {"items": schema}
    with pytest.raises(InputError, match="json_schema: wanted a text or JSON, got"):
        compiler.submit("json_schema", schema)
    text = '{"items":' * 100_000 + "{}" + "}" * 100_000
    generous = GrammarCompiler(compiler.tokenizer, GrammarLimits(10**7, 10**6, 60))
    with pytest.raises(InputError, match="json_schema: wanted JSON, got"):
        generous.compile("json_schema", text)
    generous.close()


@pytest.mark.parametrize(
    ("grammar", "rule"),
    [
        ("start: /a+/ start", "start"),
        ('start: "a" | /x+/ b\nb: /x+/ b', "b"),
        ('start: "a" b?\n!b: /x+/ b', "b"),
        ('start: (start)+ "x"', "start"),
        ('start: "z" a | "y"\na: "x" b // a\nb: a # b\n | "\\"" a', "a"),
        ('?start: "y" | a\na.2: (("x") a){1,3}\n | "start" a~2 -> end', "a"),
        ('start: "a" | x::0x1\nx::_: "a" x::incr(_) %if lt(_, 4)', "x"),
    ],
)
def test_lark_rules_without_a_finite_text_are_refused(compiler, grammar, rule):
    with pytest.raises(InputError, match=f"lark: wanted a grammar .* got rule '{rule}', which"):
        compiler.compile("lark", grammar)


@pytest.mark.parametrize(
    "grammar",
    [
        'start: "a" start\n  // start\n  | "b"',
        'start: "a" start?',
        'start: "a" [start]',
        'start: start~0..2 "a" start{,3}',
        'start: ("y" | start) "x"',
        'start: a\na: b\nb: c | "x"\nc: a',
        'start: "a"\nb: "x" b',
        'start[capture="x"]: "a" x\nx[stop=/a:b/]: /b+/',
        'start: "\\"" | "start" /start: start/',
        'start: %json {"type": "object", "x": {\n"start": 1}} | "y"',
        '%ignore /start: start/\nstart: "a"',
        'start: x "b"\n%import common.INT\nx: INT',
        'start: x::0x0\nx::_: "a" x::incr(_) %if lt(_, 4)\n | "b"',
        'start:\n\n| "a" -> start',
    ],
)
def test_lark_rules_that_may_end_are_left_alone(grammar):
    assert endless_rule(grammar) is None


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(LARK_PIECES), max_size=40))
def test_any_lark_text_gets_an_answer_soon(pieces):
    begin = time.thread_time()
    rule = endless_rule(" ".join(pieces))
    assert rule is None or rule in pieces
    assert time.thread_time() - begin < 1


@pytest.mark.parametrize("kind", ["json_schema", "lark"])
@pytest.mark.parametrize("text", ['"' + '\\"' * 30000, "/" + "\\/" * 30000, "<" * 60000])
def test_a_text_without_an_end_is_read_once(compiler, kind, text):
    with pytest.raises(InputError, match=f"{kind}: wanted"):
        compiler.compile(kind, text)
