import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.contexts.patterns import is_ambiguous

EVIL = [
    "(a+)+",
    "^(a+)+$",
    "(a*)*",
    "(a|a)*",
    "(a|aa)+$",
    "(.*a){20}",
    "(x+x+)+y",
    "([a-zA-Z]+)*$",
    r"^(\w+\s?)*$",
    r"(\d+|[0-9a-f]+)*x",
    "((a{1,999}){1,999}){1,999}",
    "(a|aa|aaa){1,2000}b{1,5000}",
    "[a-z]{1,200}(b[a-z]{1,200}){1,200}",
    "(?:a|b|ab)*",
    r"([[]|\[)*",
    "([[:alpha:]]|a)*",
    "(?P<name>a+)+?",
    r"(\p{L}|\p{Lu})*",
    r"(\x{61}|a)*",
    r"(ä|[\u{e0}-\u{ff}])*",
    r"(b|(?i:a+)+)",
    "(" * 65 + "a" + ")" * 65,
    "[ab]?" * 5000,
]
HONEST = [
    "",
    "()*",
    "a+",
    "a{2}",
    "(a{1,3}){2}",
    "(a+|b+)c",
    "(a*b)*",
    "(ab?)+",
    "(a|b)*a(a|b){20}",
    "[a-z0-9]+(-[a-z0-9]+)*",
    r"^\d{4}-\d{2}-\d{2}$",
    r"^(\d{1,3}\.){3}\d{1,3}$",
    r'"([^"\\]|\\.)*"',
    "^.{1,5000}$",
    r"^[\w.+-]+@[\w-]+(\.[\w-]+)+$",
    r"(\p{L}+ )*\p{L}+",
    r"(\P{L}|\p{^Nd})",
    "(ä|ö)*",
    r"(\x{61}|\u{62}|\x63|\u0064)*",
    "([ab]{1,200},){1,200}",
    "([]a]+,)*",
    r"(\n|n)*",
    r"([^[,]+,)*",
    r"([+--]x|[&&]|[~~]y|[||])*",
    r"(\.|.\b)",
    "(" + "|".join(f"k{i:03d}" for i in range(300)) + ",)*",
    "".join(chr(0x4E00 + i) for i in range(2000)),
]


@pytest.mark.parametrize("pattern", EVIL, ids=lambda pattern: pattern[:20])
def test_many_readings_are_found(pattern):
    assert is_ambiguous(pattern)


@pytest.mark.parametrize("pattern", HONEST, ids=lambda pattern: pattern[:20])
def test_honest_patterns_are_left_alone(pattern):
    assert not is_ambiguous(pattern)


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet=r"ab.|()[]{}*+?^$\pPxu,019-:<>é", max_size=60))
def test_any_text_gets_an_answer_soon(pattern):
    begin = time.thread_time()
    assert isinstance(is_ambiguous(pattern), bool)
    assert time.thread_time() - begin < 1
