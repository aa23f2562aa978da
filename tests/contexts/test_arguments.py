"""Arguments of another kind are refused where they are given."""

import pytest


@pytest.mark.parametrize("found", [None, 5])
def test_what_is_no_matcher_is_refused(text, found):
    wanted = f"^set_matcher: wanted a matcher, as GrammarCompiler.compile makes one, got {found}$"
    with pytest.raises(TypeError, match=wanted):
        text().set_matcher(found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"_matcher": 5}, "set_matcher: wanted a matcher, as .* got 5"),
        (
            {"sampling_params": {}},
            r"TextContext\.sampling_params: wanted None or SamplingParams, got \{\}",
        ),
    ],
)
def test_what_is_of_another_kind_is_refused(text, options, message):
    with pytest.raises(TypeError, match=f"^{message}$"):
        text(**options)
