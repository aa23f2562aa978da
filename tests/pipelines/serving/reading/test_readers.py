"""What readers find in answers, however these are cut."""

import json
from itertools import pairwise

import pytest
from answers_read import (
    CUT,
    DEEPSEEK,
    FUNCTIONS,
    GLM,
    HARMONY,
    HERMES,
    LLAMA,
    MISTRAL,
    QWEN,
    QWEN3,
    THINKING,
    check_cuts,
    deepseek,
    joined,
    read,
    weave,
)
from hypothesis import given
from hypothesis import strategies as st

from heddle.pipelines.serving.reading.forms import ForcedReader, Style
from heddle.pipelines.serving.reading.pieces import Argued, Called, Said, Thought

ANSWERS = [
    (Style(), "", "<think>a</think> b", [Said("<think>a</think> b")]),
    (HERMES, "", "a <b> </tool_call> \n", [Said("a <b> </tool_call> \n")]),
    (
        HERMES,
        "",
        'Yes.\n<tool_call>\n{"name": "weave", "arguments": {"kind":  "</tool_call>\\"", "n":1}}\n'
        '</tool_call>\n<tool_call>{"name": "cut"}</tool_call>\n',
        [Said("Yes."), weave('{"kind":  "</tool_call>\\"", "n":1}'), CUT],
    ),
    (
        HERMES,
        "",
        'a <tool_call>{"name": "cut"}</tool_call> b <tool_call>{"name": "cut"}',
        [Said("a"), CUT, Said("b"), CUT],
    ),
    *(
        (HERMES, "", text, [Said(text)])
        for text in (
            'a\n<tool_call>{"name": "cut", "arguments": {"n"',
            'a <tool_call>{"name": "spin", "arguments": {}}</tool_call> b',
            'a <tool_call>{"name": "cut", "arguments": [1]}</tool_call> b',
            'a <tool_call>{"name": "cut"} so</tool_call> b',
            'a <tool_call>{"arguments": {}}</tool_call> b',
            'a <tool_call>{"name": "cut", "arguments": {"n": NaN}}</tool_call> b',
            'a <tool_call>{"name": {}}</tool_call> b',
            "a <tool_call> </tool_call> b",
            "<tool_call>" + "[" * 100_000,
        )
    ),
    (
        HERMES,
        "",
        '<tool_call>{"name": </tool_call> <tool_call>{"name": "cut"}</tool_call>',
        [Said('<tool_call>{"name": </tool_call>'), CUT],
    ),
    (
        QWEN3,
        "",
        "\n<think>\nHm. <tool_call> \n</think>\n\n"
        'So <think>.<tool_call>{"name": "cut"}</tool_call>',
        [Thought("Hm. <tool_call>"), Said("So <think>."), CUT],
    ),
    (
        HERMES,
        "",
        '<tool_call>{"name": "weave", "arguments": {"a": "\\ud83e\\ud809 {{}", "b": 1e999, "c": {}}'
        "}</tool_call>",
        [weave('{"a": "\\ud83e\\ud809 {{}", "b": 1e999, "c": {}}')],
    ),
    (QWEN3, "", "a <think>b</think>", [Said("a <think>b</think>")]),
    (QWEN3, "", "<think>a </thi \n", [Thought("a </thi \n")]),
    (QWEN3, "", "<thi", [Said("<thi")]),
    (QWEN3, "", "<think>\n\n</think>\n\nb ", [Said("b ")]),
    (QWEN3, "...<think>\n", "a\n</think>\n\nb", [Thought("a"), Said("b")]),
    (QWEN3, "...<think>\n", "<think>a</think>b", [Thought("a"), Said("b")]),
    (QWEN3, "...<think>\n\n</think>\n\n", "a", [Said("a")]),
    (
        LLAMA,
        "",
        ' {"name": "weave", "parameters": {"n": 1}}; {"name": "cut", "parameters": {}}',
        [weave('{"n": 1}'), CUT],
    ),
    (LLAMA, "", 'a {"name": "cut"}', [Said('a {"name": "cut"}')]),
    (LLAMA, "", '{"name": "Ann", "parameters": {}}', [Said('{"name": "Ann", "parameters": {}}')]),
    (LLAMA, "", 'a <|python_tag|>{"name": "cut"}', [Said("a"), CUT]),
    (LLAMA, "", '<|python_tag|>cut.call(query="x")', [Said('<|python_tag|>cut.call(query="x")')]),
    (
        MISTRAL,
        "",
        'a [TOOL_CALLS][{"name": "weave", "arguments": {"kind": "[TOOL_CALLS]"}}, {"name": "cut"}]',
        [Said("a"), weave('{"kind": "[TOOL_CALLS]"}'), CUT],
    ),
    (
        MISTRAL,
        "",
        '[TOOL_CALLS]weave[ARGS]{"n": 1}[TOOL_CALLS]cut[CALL_ID]a1B2c3D4e[ARGS]{}',
        [weave('{"n": 1}'), CUT],
    ),
    *(
        (MISTRAL, "", text, [Said(text)])
        for text in ("[TOOL_CALLS]cut" + " " * 100_000 + "x", "[TOOL_CALLS]cut [ARGS] [ARGS]{}")
    ),
    (MISTRAL, "", "[TOOL_CALLS]cut [ARGS] {}", [CUT]),
    (MISTRAL, "", "a [TOOL_CALLS] b", [Said("a [TOOL_CALLS] b")]),
    (MISTRAL, "", "[TOOL_CALLS][TOOL_CALLS]cut{}", [Said("[TOOL_CALLS]"), CUT]),
    (
        DEEPSEEK,
        "",
        deepseek(
            "a <|tool_calls_begin|><|tool_call_begin|>function<|tool_sep|>weave\n```json\n"
            '{"n": 1}\n```<|tool_call_end|>\n<|tool_call_begin|>cut<|tool_sep|>{}'
            "<|tool_call_end|><|tool_calls_end|>"
        ),
        [Said("a"), weave('{"n": 1}'), CUT],
    ),
    (
        DEEPSEEK,
        "",
        deepseek("<|tool_calls_begin|>cut<|tool_calls_end|>"),
        [Said(deepseek("<|tool_calls_begin|>cut<|tool_calls_end|>"))],
    ),
    (
        HARMONY,
        "",
        "<|channel|>analysis<|message|>Hm. <|end|><|start|>assistant<|channel|>analysis<|message|>"
        "So.<|end|><|start|>assistant<|channel|>commentary<|message|>Now:<|end|><|start|>assistant"
        "<|channel|>final<|message|>Yes <|a|>.<|return|>",
        [Thought("Hm. \nSo."), Said("Now:\nYes <|a|>.")],
    ),
    (
        HARMONY,
        "",
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.weave <|constrain|>json<|message|>{"n": 1}<|call|>',
        [Thought("a"), weave('{"n": 1}')],
    ),
    (
        HARMONY,
        "",
        ' to=functions.weave<|channel|>commentary json<|message|>{"n": 1}<|start|>assistant'
        "<|channel|>commentary to=functions.cut<|message|>{}",
        [weave('{"n": 1}'), CUT],
    ),
    (HARMONY, "", " to=functions.cut<|channel|>commentary<|message|> <|call|>", [CUT]),
    (
        HARMONY,
        "",
        "<|channel|>commentary to=python<|message|>1 + 1<|call|> <|start|>assistant<|chan",
        [Said("1 + 1")],
    ),
    (HARMONY, "", "today <b<|end|> c", [Said("today <b\n c")]),
    (HARMONY, "", "<|channel|>final", [Said("<|channel|>final")]),
    (
        Style("harmony", reasoning=False),
        "",
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b",
        [Said("a\nb")],
    ),
    (
        Style("hermes", called=False),
        "",
        '<tool_call>{"name": "cut"}</tool_call>',
        [Said('<tool_call>{"name": "cut"}</tool_call>')],
    ),
]


@pytest.mark.parametrize(("style", "prompt", "text", "wanted"), ANSWERS)
def test_what_is_found_is_the_same_however_a_text_is_cut(style, prompt, text, wanted):
    check_cuts(style, prompt, text, wanted)


MARKS = (
    *("<tool_call>", "</tool_call>", "<think>", "</think>", "[TOOL_CALLS]", "[ARGS]", "weave"),
    *('{"name": "cut"}', '{"name": "weave", "arguments": {"n": 1}}', '{"', '"', "\\", "{}", "}"),
    *("<|channel|>", "<|message|>", "<|end|>", "<|start|>", "analysis", "final", "<|python_tag|>"),
    *("<function=cut>", "</function>", "<arg_key>n</arg_key>", "to=functions.cut", " ", "\n", "<"),
    *map(
        deepseek, ("<|tool_calls_begin|>", "<|tool_call_begin|>cut<|tool_sep|>{}<|tool_call_end|>")
    ),
    deepseek("<|tool_calls_end|>"),
)


@given(
    st.sampled_from([HERMES, QWEN3, LLAMA, MISTRAL, GLM, QWEN, DEEPSEEK, HARMONY]),
    st.sampled_from(["", "<think>\n"]),
    st.lists(st.sampled_from(MARKS), max_size=12).map("".join),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_any_cutting_gives_the_same(style, prompt, text, cuts):
    def make():
        return style.reader(FUNCTIONS, prompt)

    ends = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    parts = [text[a:b] for a, b in pairwise(ends)]
    wanted = joined(make().push(text, final=True))
    assert read(make, parts) == wanted
    assert read(make, text) == wanted
    for piece in wanted:
        if isinstance(piece, Called):
            assert isinstance(json.loads(piece.arguments), dict)


def test_text_is_not_held_back():
    reader = QWEN3.reader(FUNCTIONS, "")
    assert reader.push("<think>Hm") == [Thought("Hm")]
    assert reader.push(" so </") == [Thought(" so")]
    assert reader.push("b>") == [Thought(" </b>")]
    assert reader.push("</think>") == []
    assert reader.push("Yes") == [Said("Yes")]
    assert reader.push(" <tool_") == []
    assert reader.push("b") == [Said(" <tool_b")]


@pytest.mark.parametrize(
    ("template", "style"),
    [
        ("", Style()),
        ("<|im_start|>", Style()),
        ("a <tool_call> {{ x }} </think>", QWEN3),
        ("<tool_call><function=example>", QWEN),
        ("<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>", GLM),
        ("ipython {{- '\"parameters\": ' }}", LLAMA),
        ("[TOOL_CALLS] [THINK] [/THINK]", Style("mistral", ("[THINK]", "[/THINK]"))),
        (deepseek("<|tool_calls_begin|>"), DEEPSEEK),
        ("<|channel|>analysis<|message|>", HARMONY),
    ],
)
def test_a_template_shows_how_its_model_writes(template, style):
    assert Style.of(template) == style
    assert Style.of(template, "llama").calls == "llama"
    assert not Style.of(template, "text").called
    assert Style.of(template, reasoning=False).thoughts is None


def test_markers_are_what_readers_look_for():
    assert QWEN3.markers == {"<tool_call>", "</tool_call>", *THINKING}
    assert {"<|channel|>", "<|call|>", "<|constrain|>"} < HARMONY.markers
    assert {deepseek("<|tool_sep|>"), deepseek("<|tool_calls_end|>")} < DEEPSEEK.markers
    assert MISTRAL.markers == {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}
    assert Style("hermes", called=False).markers == Style().markers == set()


def test_ids_of_calls():
    assert HERMES.call_id().startswith("call_")
    assert len(MISTRAL.call_id()) == 9
    assert MISTRAL.call_id().isalnum()


def test_a_forced_call():
    reader = ForcedReader("weave", FUNCTIONS)
    assert reader.push('{"n') == [Called("weave", ""), Argued('{"n')]
    assert reader.push("") == []
    assert reader.push('": 1}', final=True) == [Argued('": 1}')]
    reader = ForcedReader(None, FUNCTIONS)
    assert reader.push('{"name": "weave", "arg') == []
    assert reader.push('uments": {"n":1}}', final=True) == [Called("weave", '{"n":1}')]
    for cut in ('{"na', '{"name": "weave", "arguments": {"at": ' + "[" * 100_000):
        assert ForcedReader(None, FUNCTIONS).push(cut, final=True) == [Said(cut)]
