"""Calls whose arguments are elements of their own."""

import pytest
from answers_read import CUT, GLM, QWEN, check_cuts, weave

from heddle.pipelines.serving.reading.pieces import Called, Said

ANSWERS = [
    (
        QWEN,
        "<tool_call><function=odd><parameter=a>1</parameter></function></tool_call>",
        [Called("odd", '{"a": 1}')],
    ),
    (
        GLM,
        "<tool_call>weave\n<arg_key>kind</arg_key>\n<arg_value>1</arg_value>\n"
        "<arg_key>n</arg_key>\n<arg_value>2</arg_value>\n<arg_key>at</arg_key>\n"
        '<arg_value>a "b</arg_value>\n</tool_call>\n<tool_call>cut</tool_call>',
        [weave('{"kind": "1", "n": 2, "at": "a \\"b"}'), CUT],
    ),
    (
        GLM,
        "".join(
            f"<tool_call>{name}<arg_key> a </arg_key><arg_value>{value}</arg_value></tool_call>"
            for name, value in (("weave", "12"), ("weave", "null"), ("cut", "1" * 5000))
        ),
        [weave('{"a": 12}'), weave('{"a": null}'), Called("cut", f'{{"a": "{"1" * 5000}"}}')],
    ),
    *(
        (
            GLM,
            f"<tool_call>either<arg_key>{name}</arg_key><arg_value>{value}</arg_value></tool_call>",
            [Called("either", f'{{"{name}": {wanted}}}')],
        )
        for name, value, wanted in (
            *(("a", "12", '"12"'), ("a", "null", "null")),
            *(("b", "12", '"12"'), ("b", "null", "null")),
            *(("c", "12", "12"), ("c", "x", '"x"')),
        )
    ),
    *(
        (style, text, [Said(text)])
        for style, text in (
            (GLM, "<tool_call>cut<arg_key>" + " " * 100_000 + "</arg_value></tool_call>"),
            (QWEN, "<tool_call><function=cut>" + " " * 100_000 + "</tool_call>"),
        )
    ),
    (GLM, "<tool_call>cut <b></tool_call>", [Said("<tool_call>cut <b></tool_call>")]),
    (
        QWEN,
        "Yes.\n<tool_call>\n<function=weave>\n<parameter=kind>\n a\nb\n</parameter>\n"
        "<parameter=n>\n2\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=cut>\n</function>\n</tool_call>",
        [Said("Yes."), weave('{"kind": " a\\nb", "n": 2}'), CUT],
    ),
    (
        QWEN,
        "<tool_call><function=cut>a</function></tool_call>",
        [Said("<tool_call><function=cut>a</function></tool_call>")],
    ),
]


@pytest.mark.parametrize(("style", "text", "wanted"), ANSWERS)
def test_calls_of_elements(style, text, wanted):
    """Values are JSON where the schema wants no text; long white space takes no time."""
    check_cuts(style, "", text, wanted)
