"""What ends a text: stop strings, tokens, and when they do not."""

import pytest
from asked import DRAWN, request, run


def test_stop_strings_and_ends(make_generator):
    ((text, tokens, reason),) = run(make_generator(), [request(params=DRAWN)])
    assert (len(tokens), reason) == (24, "length")
    stop = text[5:8]
    for where in ({"stop": stop}, {"stop": [stop, "never there"]}):
        ((cut, fewer, reason),) = run(make_generator(), [request(params=DRAWN, **where)])
        assert (cut, reason) == (text[: text.index(stop)], "stop")
        assert len(fewer) < 24
    ((cut, fewer, reason),) = run(
        make_generator(), [request(params={**DRAWN, "stop_token_ids": [tokens[7]]})]
    )
    assert (fewer[-1], reason) == (tokens[7], "stop")
    assert len(fewer) <= 8
    assert run(make_generator(), [request(params={"max_new_tokens": 0})]) == [["", [], "length"]]


def test_a_stop_string_ends_no_text_before_its_least_number_of_tokens(make_generator):
    ((text, tokens, _),) = run(make_generator(), [request(params=DRAWN)])
    stop = text[2:5]
    for least, whole in ((0, False), (len(tokens), True)):
        params = {**DRAWN, "min_new_tokens": least, "stop": [stop]}
        ((shown, _, reason),) = run(make_generator(), [request(params=params)])
        assert (stop in shown, reason) == ((True, "length") if whole else (False, "stop"))


@pytest.mark.parametrize("stop", [["\n"], ["\n", "END"], ["\n", "\na"]])
def test_text_before_a_stop_string_is_shown(make_generator, stop):
    """Also behind one that was part of the output, as the grammar wanted more: once it ends it."""
    asked = request(stop=stop)
    (delta,) = [d for d in make_generator().stream(asked, r"a\n\n") if d.finish_reason]
    assert delta.finish_reason == "stop"
    text = "".join(d.text for d in make_generator().stream(asked, r"a\n\n"))
    assert text == "a\n"


def test_the_end_of_a_text_is_ignored_but_no_token_that_a_request_ends_by(make_generator):
    ((_, tokens, _),) = run(make_generator(), [request(params=DRAWN)])
    ends = {**DRAWN, "stop_token_ids": [tokens[7]]}
    wanted = run(make_generator(), [request(params=ends)])
    assert run(make_generator(), [request(params={**ends, "ignore_eos": True})]) == wanted
    generator = make_generator()
    end = next(iter(generator._ends))
    for ignored, length in ((False, 1), (True, 5)):
        params = {"max_new_tokens": 5, "ignore_eos": ignored, "stop_token_ids": []}
        asked = request(number=length, params=params)
        row = generator._prompts.context(asked, [1])
        for _ in range(5):
            if not row.is_done:
                row.update(end)
        assert row.tokens.generated_length == length


@pytest.mark.parametrize("speculate", [0, 4])
def test_a_complete_grammar_ends_a_text_whose_end_is_ignored(make_generator, speculate):
    """Nothing may follow it; where something may, the text goes on."""
    ends = make_generator()._ends
    params = {**DRAWN, "ignore_eos": True, "max_new_tokens": 40}
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    for regex, options, reason in (
        ("ab(cd){2}", {}, "stop"),
        (None, {"response_format": form}, "stop"),
        ("a*", {}, "length"),
        ("a*", {"params": {**params, "stop_token_ids": list(ends)}}, "stop"),
    ):
        generator = make_generator(speculate=speculate)
        deltas = list(generator.stream(request(**{"params": params, **options}), regex))
        tokens = [token for delta in deltas for token in delta.tokens]
        assert deltas[-1].error is None
        assert deltas[-1].finish_reason == reason
        assert (tokens[-1] in ends) == (reason == "stop")
        assert ends.isdisjoint(tokens[:-1])
