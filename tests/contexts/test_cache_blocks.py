"""Who has which blocks of a cache: laws, and the sharing of beginnings."""

import numpy as np
import pytest

from heddle.contexts import TextContext
from heddle.contexts.cache_blocks import CacheBlocks


def context(tokens):
    return TextContext(max_length=1000, tokens=np.asarray(tokens, np.int64))


def processed(blocks, one):
    """As after a step that took the whole window, and gave token 1."""
    assert blocks.reserve(one, len(one.tokens))
    one.update(1)
    blocks.remember(one)


def test_blocks_come_and_go():
    blocks = CacheBlocks(count=4, size=4)
    one, other = context(range(6)), context(range(10, 19))
    assert blocks.reserve(one, 6)
    assert not blocks.reserve(other, 9)
    assert (blocks.blocks(other), blocks.free) == ([], 2)
    first = blocks.blocks(one)
    assert blocks.reserve(one, 8)
    assert blocks.blocks(one) == first
    assert blocks.reserve(one, 9)
    assert blocks.blocks(one)[:2] == first
    blocks.release(one)
    blocks.release(one)
    assert blocks.free == 4
    assert blocks.reserve(other, 9)
    assert len(set(blocks.blocks(other))) == 3


def test_a_beginning_is_shared_while_in_use_and_after():
    blocks = CacheBlocks(count=8, size=4)
    one = context(range(10))
    assert blocks.reuse(one) == 0
    processed(blocks, one)
    other = context([*range(8), 50, 51])
    assert blocks.reuse(other) == 8
    assert other.tokens.active.tolist() == [50, 51]
    assert other.cached_prefix_length == 8
    assert blocks.blocks(other) == blocks.blocks(one)[:2]
    processed(blocks, other)
    blocks.release(one)
    assert set(blocks.blocks(other)).isdisjoint(blocks._free)
    blocks.release(other)
    assert blocks.free == 8
    assert blocks.reuse(context([*range(8), 50, 51])) == 8


def test_what_was_served_of_a_prompt_is_no_more_than_the_prompt():
    """A request that gave its blocks back takes over those of its own generated tokens, too."""
    blocks = CacheBlocks(count=8, size=4)
    one = context(range(4))
    generate(blocks, one, range(50, 68))
    blocks.release(one)
    one.tokens.rewind_processing(one.tokens.processed_length)
    assert blocks.reuse(one) == 20
    assert one.cached_prefix_length == 4


def test_one_token_is_left_to_process():
    blocks = CacheBlocks(count=8, size=4)
    processed(blocks, context(range(8)))
    again = context(range(8))
    assert blocks.reuse(again) == 4
    assert again.tokens.active_length == 4


def test_a_block_that_was_filled_anew_is_not_found():
    blocks = CacheBlocks(count=3, size=4)
    one = context(range(9))
    processed(blocks, one)
    blocks.release(one)
    other = context(range(20, 29))
    processed(blocks, other)  # its blocks are those of `one`
    blocks.release(other)
    assert blocks.reuse(context(range(9))) == 0
    assert blocks.reuse(context(range(20, 29))) == 8


def test_the_same_tokens_behind_another_beginning_are_another_block():
    blocks = CacheBlocks(count=8, size=4)
    processed(blocks, context([0, 0, 0, 0, 5, 5, 5, 5, 9]))
    assert blocks.reuse(context([1, 1, 1, 1, 5, 5, 5, 5, 9])) == 0


def test_random_requests_never_share_what_they_write():
    """Whatever comes and goes: no block is lost, and none that is written belongs to two."""
    rng = np.random.default_rng(0)
    blocks = CacheBlocks(count=12, size=4)
    content: dict[int, tuple[int, ...]] = {}
    running = []
    for _ in range(600):
        if running and rng.random() < 0.3:
            blocks.release(running.pop(rng.integers(len(running))))
        new = context(rng.integers(0, 2, rng.integers(1, 20)))
        blocks.reuse(new)
        start = new.tokens.processed_length
        if not blocks.reserve(new, len(new.tokens)):
            blocks.release(new)
            continue
        held = blocks.blocks(new)
        words = new.tokens.all
        for number, block in enumerate(held):
            mine = tuple(words[: (number + 1) * 4].tolist())
            if number * 4 < start:
                assert content[block] == mine
            else:
                assert all(block not in blocks.blocks(other) for other in running)
                content[block] = mine
        new.update(1)
        blocks.remember(new)
        running.append(new)
        used = {block for one in running for block in blocks.blocks(one)}
        assert blocks.free == 12 - len(used)


def test_what_cannot_be():
    with pytest.raises(ValueError, match="wanted at least one block of one token, got 0 of 4"):
        CacheBlocks(0, 4)
    blocks, one = CacheBlocks(4, 4), context(range(5))
    assert blocks.reserve(one, 5)
    with pytest.raises(ValueError, match="wanted a context at its start, got one behind it"):
        blocks.reuse(one)


def test_what_is_remembered_has_blocks():
    blocks, one = CacheBlocks(count=8, size=4), context(range(9))
    blocks.remember(one)
    assert blocks.reserve(one, 4)
    one.update(1)
    wanted = (
        r"^CacheBlocks\.remember: wanted a context with blocks for the 9 tokens it has processed, "
        r"got 1 of 4$"
    )
    with pytest.raises(ValueError, match=wanted):
        blocks.remember(one)


@pytest.mark.parametrize(("chunk", "reused"), [(2, 0), (4, 0), (5, 4), (8, 4)])
def test_a_chunked_context_takes_over_what_leaves_a_token_in_its_window(chunk, reused):
    blocks = CacheBlocks(count=8, size=4)
    processed(blocks, context(range(10)))
    free = blocks.free
    other = context(range(10))
    other.tokens.chunk(chunk)
    assert blocks.reuse(other) == other.tokens.processed_length == reused
    assert len(blocks.blocks(other)) * 4 == reused
    assert other.tokens.active.tolist() == list(range(reused, chunk))
    blocks.release(other)
    assert blocks.free == free


def generate(blocks, one, tokens):
    for token in tokens:
        assert blocks.reserve(one, len(one.tokens))
        one.update(token)
        blocks.remember(one)


def test_a_block_that_is_filled_anew_after_a_rollback_is_known_by_its_new_tokens():
    blocks = CacheBlocks(count=8, size=4)
    one = context(range(9))
    generate(blocks, one, [50, 51, 52, 53])
    held = blocks.blocks(one)
    one.rollback(3)
    generate(blocks, one, [60, 61, 62])
    assert blocks.blocks(one) == held
    assert blocks.reuse(context([*range(9), 50, 51, 52, 53])) == 8
    again = context([*range(9), 50, 60, 61, 62])
    assert blocks.reuse(again) == 12
    assert blocks.blocks(again) == held[:3]


def test_what_is_known_is_forgotten_also_where_room_was_reserved_before():
    blocks = CacheBlocks(count=8, size=4)
    one = context(range(9))
    assert blocks.reserve(one, 32)
    one.update(50)
    one.update(51)
    one.update(52)
    one.update(53)
    blocks.remember(one)
    one.rollback(4)
    for token in (60, 61, 62, 63):
        one.update(token)
    blocks.remember(one)
    assert blocks.reuse(context([*range(9), 50, 51, 52, 53])) == 8
    assert blocks.reuse(context([*range(9), 60, 61, 62, 63])) == 12


def test_shared_blocks_that_a_rollback_leaves_are_not_written():
    blocks = CacheBlocks(count=6, size=4)
    one = context(range(13))
    processed(blocks, one)
    other = context(range(13))
    assert blocks.reuse(other) == 12
    shared = blocks.blocks(one)
    other.set_token_indices(start_idx=4, active_idx=5, end_idx=5)
    assert blocks.reserve(other, 9)
    mine = blocks.blocks(other)
    assert mine[:1] == shared[:1]
    assert set(mine[1:]).isdisjoint(shared)
    assert blocks.blocks(one) == shared
    blocks.release(other)
    blocks.release(one)
    assert blocks.free == 6
    assert blocks.reuse(context(range(13))) == 12


def test_a_rollback_without_room_or_into_a_shared_block_changes_nothing():
    blocks = CacheBlocks(count=4, size=4)
    one = context(range(13))
    processed(blocks, one)
    other = context(range(13))
    blocks.reuse(other)
    other.set_token_indices(start_idx=4, active_idx=5, end_idx=5)
    assert blocks.free == 0
    assert not blocks.reserve(other, 5)
    blocks.remember(other)
    assert blocks.blocks(other) == blocks.blocks(one)[:3]
    other.set_token_indices(start_idx=5, active_idx=6, end_idx=6)
    for call in (lambda: blocks.reserve(other, 6), lambda: blocks.remember(other)):
        with pytest.raises(ValueError, match="into the middle of block 1, which another context"):
            call()
    assert blocks.blocks(other) == blocks.blocks(one)[:3]
    blocks.release(other)
    assert blocks.reuse(context(range(13))) == 12


def test_random_rollbacks_never_leave_a_block_known_by_other_tokens():
    """What a block holds is written down at each step; whoever reuses it must find its tokens."""
    rng = np.random.default_rng(1)
    blocks = CacheBlocks(count=24, size=4)
    content = np.full((24, 4), -1)
    running = []

    def step(one):
        """True after a step that has written the window, False where there was no room."""
        if not blocks.reserve(one, len(one.tokens)):
            return False
        held, tokens = blocks.blocks(one), one.tokens
        for at in range(tokens.processed_length, len(tokens)):
            block = held[at // 4]
            if content[block, at % 4] != tokens[at]:  # a window that goes back writes the same
                used = [block in blocks.blocks(other) for other in running if other is not one]
                assert not any(used)
            content[block, at % 4] = tokens[at]
        for at, token in enumerate(tokens.all):
            assert content[held[at // 4], at % 4] == token
        one.update(int(rng.integers(0, 2)))
        blocks.remember(one)
        return True

    refused = 0
    for _ in range(4000):
        choice = rng.random()
        if choice < 0.1 or not running:
            new = context(rng.integers(0, 2, rng.integers(1, 20)))
            blocks.reuse(new)
            running.append(new)
            if not step(new):
                blocks.release(running.pop())
            continue
        one = running[rng.integers(len(running))]
        try:
            if choice < 0.25:
                one.rollback(int(rng.integers(0, min(8, len(one.tokens)))))
                if rng.random() < 0.5:
                    blocks.remember(one)
            if choice < 0.9 and len(one.tokens) < 40 and step(one):
                continue
        except ValueError:
            refused += 1
        blocks.release(one)
        running = [other for other in running if other is not one]
    assert 0 < refused < 100
    for one in running:
        blocks.release(one)
    assert blocks.free == 24


def test_blocks_behind_a_length_are_given_back():
    """Those that hold nothing known are used before what others may find again."""
    blocks = CacheBlocks(count=6, size=4)
    one, other = context(range(9)), context(range(20, 28))
    processed(blocks, other)
    blocks.release(other)
    processed(blocks, one)
    assert blocks.reserve(one, 20)
    kept = blocks.blocks(one)[:3]
    blocks.shorten(one, 9)
    assert (blocks.blocks(one), blocks.free) == (kept, 3)
    blocks.shorten(one, 12)
    assert blocks.blocks(one) == kept
    for _ in range(9):  # room for drafts, again and again
        assert blocks.reserve(one, 16)
        blocks.shorten(one, 12)
    blocks.shorten(context([1]), 0)
    again = context([*range(20, 28), 1])
    assert blocks.reuse(again) == 4
    assert blocks.reuse(context([*range(8), 1])) == 8
    blocks.shorten(one, 0)
    assert blocks.blocks(one) == []
    blocks.release(one)
