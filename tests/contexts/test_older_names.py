import numpy as np
import pytest

from heddle.contexts import (
    GenerationStatus,
    LogProbabilities,
    TextContext,
    reserve_token_space_for_batch,
)

ACTIVE = GenerationStatus.ACTIVE
END = GenerationStatus.END_OF_SEQUENCE


def test_indices_and_views_are_those_of_the_buffer(text):
    context = text()
    assert context.needs_ce
    assert context.is_ce
    context.update(5)
    assert (context.start_idx, context.active_idx, context.end_idx) == (3, 4, 4)
    assert (context.current_length, context.active_length, context.committed_idx) == (4, 1, 0)
    assert context.all_tokens.tolist() == [1, 2, 3, 5]
    assert context.next_tokens.tolist() == context.generated_tokens.tolist() == [5]
    assert context.prompt_tokens.tolist() == context.prompt == [1, 2, 3]
    assert (context.needs_ce, context.is_ce) == (False, False)
    options = {"max_length": 9, "tokens": context.tokens}
    assert TextContext(prompt="words", **options).prompt == "words"


def test_endings_are_those_of_the_tracker(text):
    assert (text().eos_token_ids, text().eos_sequences) == ({0}, [[8, 9]])


def test_indices_are_set_all_or_none(text):
    context = text()
    context.set_token_indices(start_idx=1, active_idx=2)
    assert context.next_tokens.tolist() == [2]
    assert context.tokens.actively_chunked
    for wrong in (
        {"start_idx": 2},
        {"active_idx": 4},
        {"start_idx": -1},
        {"committed_idx": 4},
        {"start_idx": 0, "committed_idx": -1},
    ):
        with pytest.raises(ValueError, match="token indices: wanted"):
            context.set_token_indices(**wrong)
    assert (context.start_idx, context.active_idx, context.end_idx) == (1, 2, 3)
    assert context.committed_idx == 0


def test_indices_are_bumped_all_or_none(text):
    context = text()
    context.bump_token_indices(start_idx=1, active_idx=-1, committed_idx=1)
    assert (context.start_idx, context.active_idx, context.committed_idx) == (1, 2, 1)
    with pytest.raises(ValueError, match="start 3, active 2"):
        context.bump_token_indices(start_idx=2)
    context.bump_token_indices(active_idx=4, end_idx=4)
    assert (context.active_idx, context.end_idx) == (6, 7)


def test_setting_one_index_leaves_the_others(text):
    context = text()
    context.set_draft_offset(2)
    context.set_token_indices(committed_idx=1)
    assert (context.next_tokens.tolist(), context.active_idx) == ([3], 1)


def test_rollback_restores(text, matcher):
    context = text(_matcher=matcher)
    context.update(5)
    context.update(6, LogProbabilities([-1.0], [{}]))
    context.update_status(END)
    context.rollback(1)
    assert (context.status, context.all_tokens.tolist()) == (ACTIVE, [1, 2, 3, 5])
    assert matcher.consumed == [5]
    context.update(7)
    assert context.to_generation_output().log_probabilities is None
    context.rollback(2)
    assert context.is_initial_prompt
    assert context.next_tokens.tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="wanted 0 to 2 tokens, got 3"):
        context.rollback(3)


def test_rollback_undoes_the_status_that_the_dropped_tokens_made(text):
    context = text(max_length=5)
    context.update(0)
    context.update(4)
    assert context.status is GenerationStatus.MAXIMUM_LENGTH
    context.rollback(1)
    assert context.status is END
    context.rollback(1)
    assert context.status is ACTIVE
    context.update_status("cancelled")
    context.rollback(1)
    assert context.status is GenerationStatus.CANCELLED


def test_rollback_leaves_a_matcher_that_came_later_alone(text, matcher):
    context = text()
    context.update(5)
    context.set_matcher(matcher)
    context.update(6)
    context.update_with_future_token()
    context.rollback(1)
    assert matcher.consumed == [6]
    context.rollback(2)
    assert matcher.consumed == []


def test_a_matcher_that_cannot_go_back_is_reported(text, matcher):
    context = text(_matcher=matcher)
    context.update(5)
    matcher.consumed.clear()
    with pytest.raises(AssertionError, match="cannot take back 1 tokens"):
        context.rollback(1)


def test_a_token_that_is_none_is_rejected(text, matcher, monkeypatch):
    def consume(tokens):
        raise OverflowError

    monkeypatch.setattr(matcher, "try_consume_tokens", consume)
    with pytest.raises(AssertionError, match="rejects token -5"):
        text(_matcher=matcher).update(-5)


def test_cache_slots(text):
    context = text()
    with pytest.raises(ValueError, match="got one without"):
        context.cache_seq_id  # noqa: B018
    context.assign_to_cache(4)
    assert (context.cache_seq_id, context.is_assigned_to_cache) == (4, True)
    with pytest.raises(RuntimeError, match="got one in slot 4"):
        context.assign_to_cache(5)
    context.unassign_from_cache()
    context.unassign_from_cache()
    assert not context.is_assigned_to_cache


def test_last_generated_token(text):
    context = text()
    with pytest.raises(ValueError, match="wanted a generated token"):
        context.last_generated_token  # noqa: B018
    context.update(5)
    assert context.last_generated_token == 5


def test_outstanding_tokens_come_with_log_probabilities(text):
    context = text()
    entry = LogProbabilities([-1.0], [{}])
    context.update(5, entry)
    context.update(6)
    assert context.outstanding_completion_tokens() == [(5, entry), (6, None)]
    assert context.outstanding_completion_tokens() == []


def test_reserved_space_is_given_back_also_after_an_error(text):
    context, other = text((1, 2, 3)), text((4,), request_id="same")
    twin = text((5,), request_id="same")
    batch = [context, other, twin, context]

    def step():
        with reserve_token_space_for_batch(batch, 4):
            assert [c.end_idx for c in batch] == [7, 5, 5, 7]
            assert len(context.next_tokens) == context.active_idx == 7
            raise KeyError

    with pytest.raises(KeyError):
        step()
    assert [c.end_idx for c in (context, other, twin)] == [3, 1, 1]
    assert context.next_tokens.tolist() == [1, 2, 3]
    context.update(5)
    assert context.all_tokens.tolist() == [1, 2, 3, 5]
    with reserve_token_space_for_batch([context], 0):
        assert context.end_idx == 4
    with (
        pytest.raises(ValueError, match="wanted at least 0, got -1"),
        reserve_token_space_for_batch([context], -1),
    ):
        pass


def test_views_share_the_tokens(text):
    context = text()
    assert np.shares_memory(context.all_tokens, context.prompt_tokens)


@pytest.mark.parametrize("max_length", [4, 100])
def test_a_cancelled_request_does_not_come_back_by_rollback(text, max_length):
    context = text(max_length=max_length)
    context.update(0 if max_length == 100 else 7)
    context.update_status("cancelled")
    context.update(5)
    context.rollback(1)
    assert context.status is GenerationStatus.CANCELLED
    context.rollback(1)
    assert context.status is GenerationStatus.CANCELLED


def test_indices_that_shorten_take_back_what_the_tokens_did(text, matcher):
    context = text(_matcher=matcher)
    context.update(5, LogProbabilities([-0.5], [{}]))
    context.update(6)
    context.update_status(END)
    context.set_token_indices(start_idx=2, active_idx=3, end_idx=3)
    assert (context.status, context.is_initial_prompt) == (ACTIVE, True)
    assert matcher.consumed == []
    context.update(4)
    assert context.to_generation_output().log_probabilities is None
    free = text()
    free.update(0)
    free.bump_token_indices(-1, -1, -1)
    assert free.status is ACTIVE
    free.update(7)
    free.rollback(1)
    assert free.status is ACTIVE
    free.update(0)
    free.set_token_indices(start_idx=2)  # takes no token away
    assert free.status is END


@pytest.mark.parametrize("count", [1, 2])
def test_tokens_that_come_into_reserved_space_leave_nothing_behind(text, matcher, plain, count):
    context = text(_matcher=matcher, max_length=6)
    context.update(5)
    context.update(6)
    context.set_draft_offset(1)
    before = plain(context)
    with reserve_token_space_for_batch([context], count):
        assert context.tokens.all[5:].tolist() == [0] * count
        context.update(7, LogProbabilities([-1.0], [{}]))
        context.update(8)
        assert context.status is not ACTIVE
    assert plain(context) == before
    assert context.to_generation_output().tokens == [5, 6]
    with reserve_token_space_for_batch([context], count):
        context.update(7)
        assert context.to_generation_output().tokens[-1] == 7
    assert context.to_generation_output().tokens == []
    context.update(9)
    assert context.to_generation_output().tokens == [9]


@pytest.mark.parametrize("ended", [False, True])
def test_what_comes_in_the_place_of_reserved_space_does_nothing_after_it(text, plain, ended):
    context = text()
    if ended:
        context.update(0)
    before = plain(context.snapshot())
    with reserve_token_space_for_batch([context], 1):
        context.rollback(1)
        context.update(0)
    assert plain(context.snapshot()) == before
    with reserve_token_space_for_batch([context], 2):
        context.rollback(1)
        context.rollback(1)
    assert plain(context.snapshot()) == before


def test_reserved_space_is_no_future_token(text):
    context = text((1, 2, 3, 4))
    context.update(5)
    context.update_with_future_token()
    context.rollback(1)
    with reserve_token_space_for_batch([context], 1):
        assert not context.tokens.awaits_token
        assert context.all_tokens.tolist() == [1, 2, 3, 4, 5, 0]
    assert not context.tokens.awaits_token
