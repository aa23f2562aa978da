"""Guesses at what comes next: where they are found, how many are worth it, which were right."""

import numpy as np
import pytest

from heddle.contexts import TextContext
from heddle.pipelines.generation.drafts import SIZES, Drafts, Lookup, right


def context(tokens, ends=()):
    return TextContext(max_length=1000, tokens=np.array(tokens, np.int64), eos_token_ids=set(ends))


@pytest.mark.parametrize(
    ("text", "count", "wanted"),
    [
        ([1, 2, 3, 4, 1, 2], 3, [3, 4, 1]),
        ([1, 2, 3, 4, 1, 2], 9, [3, 4, 1, 2, 3, 4, 1, 2, 3]),  # it goes on with itself
        ([7, 7, 7], 4, [7, 7, 7, 7]),
        ([1, 2, 8, 1, 2, 9, 1, 2], 1, [9]),  # the last place of those alike
        ([5, 4, 3, 1, 2, 8, 0, 1, 2, 9, 5, 4, 3, 1, 2], 1, [8]),  # the longer run
        ([1, 2, 3, 4], 3, []),
        ([1], 3, []),
        ([1, 2, 3, 4, 1, 2], 0, []),
    ],
)
def test_what_followed_the_same_tokens_before(text, count, wanted):
    assert Lookup()(np.array(text), count) == wanted


def scan(text, count):
    """As `Lookup`, by a look at each place."""
    for size in SIZES:
        alike = [at for at in range(size, len(text)) if text[at - size : at] == text[-size:]]
        if alike:
            found = list(text)
            for _ in range(count):
                found.append(found[alike[-1] + len(found) - len(text)])
            return found[len(text) :]
    return []


def test_a_text_that_grows_is_looked_through_once():
    rng = np.random.default_rng(4)
    for most in (2, 3, 8):
        text, lookup = rng.integers(0, most, 300), Lookup()
        end = 1
        while end < len(text):
            assert lookup(text[:end], 6) == scan(text[:end].tolist(), 6)
            end += int(rng.integers(1, 9))


REPEATED = [1, 2, 3, 4, 5, 6] * 3


def test_as_many_as_have_a_chance():
    drafts, text = Drafts(), context(REPEATED)

    def proposed(tokens=1):
        return len(drafts.propose(text, 8, tokens))

    assert drafts.propose(text, 2, 1) == [1, 2]
    assert proposed(tokens=500) == 0  # chunks of prompts fill the step
    few = proposed()
    assert 0 < few < 8
    for _ in range(9):
        drafts.verify(proposed(), proposed())
    assert proposed() == 8
    alone, beside = proposed(tokens=30), proposed(tokens=200)
    assert alone > beside
    for _ in range(20):
        if count := proposed():
            drafts.verify(count, 0)
    steps = [bool(proposed()) and not drafts.verify(1, 0) for _ in range(200)]
    assert 0 < sum(steps) < 40  # it tries again now and then
    while not proposed():
        pass
    for _ in range(30):
        if count := proposed():
            drafts.verify(count, count)
    assert proposed() == 8


def test_an_end_is_no_guess():
    assert Drafts().propose(context(REPEATED, ends=[2]), 2, 1) == [1]
    assert Drafts().propose(context(REPEATED), 0, 1) == []


@pytest.mark.parametrize(
    ("draft", "drawn", "wanted"),
    [
        ([], [5], 0),
        ([5, 6], [5, 6, 7], 2),
        ([5, 6], [5, 9, 7], 1),
        ([5, 6], [4, 6, 7], 0),
        ([5, 6], [5, 6, -1], 1),
        ([5], [-1, 3], 0),
    ],
)
def test_guesses_are_right_up_to_the_first_wrong_one(draft, drawn, wanted):
    assert right(draft, drawn) == wanted
