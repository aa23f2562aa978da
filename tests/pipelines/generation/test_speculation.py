"""Texts with drafts are those without: drawn, constrained, penalized, together, in tiny caches."""

import json

import numpy as np
import pytest
from asked import DRAWN, PROMPTS, request, run

from heddle.contexts.matcher import TrackedMatcher
from heddle.pipelines.generation import generator
from heddle.pipelines.generation.drafts import Drafts
from heddle.runtime.errors import InputError

LOOPS = {"max_new_tokens": 96, "repetition_penalty": 0.5}
"""With which the tiny model soon says the same again and again."""

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "integer", "maximum": 99}, "kind": {"enum": ["warp", "weft"]}},
    "required": ["name", "kind"],
    "additionalProperties": False,
}

REQUESTS = [
    request(PROMPTS[0], 0),
    request(PROMPTS[1], 1, LOOPS),
    request(PROMPTS[2], 2, DRAWN, logprobs=2),
    request(PROMPTS[3], 3, {**DRAWN, "frequency_penalty": 0.5, "presence_penalty": -0.5}),
    request(PROMPTS[4], 4, {**DRAWN, "top_p": 0.9, "min_p": 0.01, "min_new_tokens": 20}),
    request("ab" * 9, 5, {**LOOPS, "temperature": 0.1, "stop_token_ids": [*range(70, 80)]}),
    request("x" * 40, 6, LOOPS, stop=["zz", "\n"]),
    request(
        "Who?",
        7,
        {**DRAWN, "max_new_tokens": 100},
        response_format={"type": "json_schema", "json_schema": SCHEMA},
    ),
]


class Knowing(Drafts):
    """Knows the text, and is wrong now and then."""

    def __init__(self, tokens, rng):
        super().__init__()
        self.tokens, self.rng = tokens, rng

    def propose(self, context, most, tokens):
        at = context.tokens.generated_length
        known = self.tokens[at : at + max(0, most)]
        wrong = self.rng.random(len(known)) < 0.3
        return [(token + bad) % 260 for token, bad in zip(known, wrong.tolist(), strict=True)]


@pytest.fixture
def knowing(monkeypatch):
    """Lets the requests of `REQUESTS` know what they will say."""

    running = generator.Running

    def know(found):
        waiting = [Knowing(tokens, np.random.default_rng(n)) for n, (_, tokens, _) in found]
        monkeypatch.setattr(
            generator, "Running", lambda *args: running(*args, drafts=waiting.pop(0))
        )

    return know


def run_drafted(generator, requests):
    """As `run`, and how many steps there were."""
    steps = 0
    step = generator._step.run

    def counted(*args):
        nonlocal steps
        steps += 1
        return step(*args)

    generator._step.run = counted
    return run(generator, requests), steps


SIZES = [{}, {"rows": 3, "tokens": 9}, {"rows": 4, "tokens": 32, "cache_tokens": 208}]


@pytest.mark.parametrize("options", SIZES)
@pytest.mark.parametrize("known", [False, True])
def test_a_text_is_the_same_with_drafts(make_generator, knowing, options, known):
    """Side by side, in chunks, and with a cache so small that requests wait and start over."""
    plain, many = run_drafted(make_generator(**options), REQUESTS)
    if known:
        knowing(enumerate(plain))
    generator = make_generator(**options, speculate=5)
    drafted, fewer = run_drafted(generator, REQUESTS)
    assert drafted == plain
    assert json.loads(plain[7][0]).keys() == {"name", "kind"}
    assert {reason for *_, reason in plain} == {"length", "stop"}
    checked, right = generator.drafts
    assert 0 < right < checked
    assert fewer < many


def test_a_stop_string_within_a_draft(make_generator):
    """What comes behind it is none of the text, and its tokens are none of the answer."""
    wanted = {**LOOPS, "ignore_eos": True}
    ((text, *_),) = run(make_generator(), [request("x" * 40, params=wanted)])
    for start, least in ((30, 0), (45, 0), (30, 60)):
        params = {**wanted, "min_new_tokens": least}
        stops = request("x" * 40, params=params, stop=text[start : start + 3])
        plain, many = run_drafted(make_generator(), [stops])
        assert (len(plain[0][1]) < 96, plain[0][2]) == (True, "stop")
        drafted, fewer = run_drafted(make_generator(speculate=8), [stops])
        assert drafted == plain
        assert fewer < many / 2


def test_a_grammar_says_what_comes(make_generator):
    """Where it leaves no choice, a step has as many tokens as there may be drafts, and one more."""
    generator = make_generator(speculate=8)
    asked = request(params={**DRAWN, "max_new_tokens": 60})
    deltas = list(generator.stream(asked, regex="(hello world, ){3}end"))
    assert "".join(delta.text for delta in deltas) == "hello world, " * 3 + "end"
    assert [len(delta.tokens) for delta in deltas] == [9, 9, 9, 9, 7]
    assert generator.drafts.checked == generator.drafts.right


def test_log_probabilities_of_drafts(make_generator):
    found = []
    for speculate in (0, 8):
        asked = request("x" * 40, params={**LOOPS, "temperature": 0.1}, logprobs=2)
        deltas = list(make_generator(speculate=speculate).stream(asked))
        entries = [entry for delta in deltas for entry in delta.log_probabilities]
        tokens = [token for delta in deltas for token in delta.tokens]
        assert len(tokens) == len(entries)
        found.append((tokens, entries, len(deltas)))
    (tokens, plain, many), (again, drafted, few) = found
    assert tokens == again
    assert few < many
    for one, other in zip(plain, drafted, strict=True):
        (top,), (same,) = one.top_log_probabilities, other.top_log_probabilities
        assert same == pytest.approx(top, abs=1e-4)
        assert other.token_log_probabilities == pytest.approx(one.token_log_probabilities, abs=1e-4)


def test_what_a_grammar_refuses_within_a_draft_is_said(make_generator, monkeypatch):
    """The tokens before it are handed out, and the text ends with the error, as without drafts.

    A matcher refuses what its mask allows where it fails, as at a limit of llguidance.
    """
    consume = TrackedMatcher.consume

    def fail(self, token, ends_sequence):
        if self._consumed == 3:
            raise AssertionError("advance_fsm: a limit")
        consume(self, token, ends_sequence)

    monkeypatch.setattr(TrackedMatcher, "consume", fail)
    found = []
    for speculate in (0, 6):
        generator = make_generator(speculate=speculate)
        *deltas, last = list(generator.stream(request(), regex="abcab"))
        found.append(([t for d in deltas for t in d.tokens], last.finish_reason, str(last.error)))
    assert found[0] == found[1] == (generator.tokenizer.encode("abc"), "error", found[0][2])
    assert generator.drafts.checked


def test_a_cancelled_request_leaves_nothing(make_generator):
    generator = make_generator(speculate=4)
    stream = generator.stream(request("x" * 40, params=LOOPS))
    for _ in range(15):
        next(stream)
    stream.close()
    assert not generator.busy
    assert generator._step.blocks.free == generator._step.blocks.count
    assert generator.drafts.right


def test_a_known_beginning_has_no_wrong_draft(make_generator, knowing):
    """What a text leaves in the cache for others is what it says, not what was guessed."""
    generator, long = make_generator(speculate=5), {**LOOPS, "max_new_tokens": 60}
    plain = run(make_generator(), [request("x" * 40, params=long)])
    knowing(enumerate(plain))
    assert run(generator, [request("x" * 40, params=long)]) == plain
    tokens = generator.tokenizer.encode("x" * 40) + plain[0][1]
    for size in (48, 64, 90):
        follows = [request(tokens[:size], params={**long, "max_new_tokens": 9})]
        knowing([(0, ("", [], None))] * 2)
        assert run(generator, follows) == run(make_generator(), follows)


@pytest.mark.parametrize("speculate", [-1, 64])
def test_refused(make_generator, speculate):
    with pytest.raises(InputError, match=r"speculate: wanted 0 to 63 draft tokens, beside one of"):
        make_generator(tokens=64, speculate=speculate)
