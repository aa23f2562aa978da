"""What taking tokens back costs: nothing that grows with the sequence."""

from collections.abc import Sequence

import numpy as np
import pytest

from heddle.contexts import CacheBlocks, EOSTracker, LogProbabilities, TextContext
from heddle.contexts.ranges import drop_from

LP = LogProbabilities([-0.5], [{7: -0.5}])


class Unread(dict):
    """A dict that nobody goes through from its first item on."""

    def __iter__(self):
        raise AssertionError("read as a whole")

    keys = values = items = __iter__


@pytest.fixture
def context():
    """One with something to remember for each token: jump-ahead, and log probabilities."""
    made = TextContext(max_length=1000, tokens=np.arange(1, 12))
    for _ in range(200):
        made.jump_ahead(5)
        made.update(6, LP)
    return made


@pytest.mark.parametrize(
    "take_back",
    [
        lambda context: context.rollback(3),
        lambda context: context.tokens.rollback(3),
        lambda context: context.bump_token_indices(active_idx=-3, end_idx=-3, start_idx=-4),
    ],
)
def test_only_what_is_dropped_is_looked_at(context, take_back):
    context.tokens._starts = Unread(context.tokens._starts)
    context._log_probabilities_data = Unread(context._log_probabilities_data)
    take_back(context)
    assert len(context.tokens) == 408
    assert max(dict.keys(context.tokens._starts)) < 408


def test_what_is_dropped_is_all_behind_a_position():
    kept = dict.fromkeys((1, 4, 5, 9))
    drop_from(kept, 5)
    assert list(kept) == [1, 4]
    drop_from(kept, 0)
    drop_from(kept, 0)
    assert not kept


def test_what_comes_in_any_order_is_dropped_too():
    context = TextContext(
        max_length=100, tokens=np.arange(1, 5), _log_probabilities_data={3: LP, 1: LP}
    )
    context.rollback(1)
    assert list(context._log_probabilities_data) == [1]
    state = context.tokens.state()._replace(starts=((2, 0, 0), (1, 0, 0)))
    context.tokens.restore(state)
    context.rollback(1)
    assert list(context.tokens._starts) == [1]


def test_only_blocks_behind_the_shortest_length_are_compared(monkeypatch):
    blocks, looked_at = CacheBlocks(count=32, size=4), []
    content = CacheBlocks._content
    context = TextContext(max_length=1000, tokens=np.arange(1, 102))

    def step(token):
        blocks.reserve(context, len(context.tokens))
        context.update(token)
        blocks.remember(context)

    def count(self, context, index):
        looked_at.append(index)
        return content(self, context, index)

    step(7)
    monkeypatch.setattr(CacheBlocks, "_content", count)
    context.rollback(2)
    step(8)
    context.rollback(1)
    step(9)
    assert looked_at == []
    context.rollback(9)
    for token in range(9):
        context.update(token)
    context.rollback(1)
    step(1)
    assert looked_at == [23, 23, 24]  # the first that has changed; then those that are remembered


def test_the_least_length_since_any_cut(buffer):
    tokens = buffer(*range(1000))
    rng = np.random.default_rng(0)
    lengths = []
    for _ in range(300):
        if rng.random() < 0.5:
            tokens.advance_with_token(5)
        else:
            tokens.rollback(int(rng.integers(1, min(5, len(tokens)))))
            lengths.append(len(tokens))
        for cuts in range(len(lengths) + 1):
            assert tokens.kept_since(cuts) == min(lengths[cuts:], default=len(tokens))
        assert len(tokens._lowest) <= len(tokens) + 1
    assert tokens.cuts == len(lengths)
    tokens.restore(tokens.state())
    assert tokens.kept_since(len(lengths)) == 0
    assert tokens.kept_since(tokens.cuts) == len(tokens)


class Counted(Sequence):
    """A sequence that counts how many of its items were asked for."""

    def __init__(self, items):
        self.items = items
        self.asked = 0

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        found = self.items[index]
        self.asked += len(found) if isinstance(index, slice) else 1
        return found


def test_the_first_end_needs_the_last_tokens_before_it():
    tracker = EOSTracker({0}, [[7, 8, 9], [8, 8]])
    prior = Counted([5] * 1000 + [7, 8])
    assert tracker.first_eos_offset(prior, [9, 4]) == 0
    assert prior.asked <= 3
    assert tracker.first_eos_offset([7, 8], [8, 0]) == 0
    assert tracker.first_eos_offset([], [7, 8, 9]) == 2
    assert tracker.first_eos_offset(np.array([1, 7]), np.array([8, 1, 0])) == 2
    assert EOSTracker({3}).first_eos_offset([3], [2]) is None
