import tracemalloc

import numpy as np
import pytest

from heddle.contexts import (
    EOSTracker,
    GenerationStatus,
    LogProbabilities,
    SamplingParams,
    SpecDecodingState,
    TextContext,
    TextGenerationOutput,
)

ACTIVE = GenerationStatus.ACTIVE
END = GenerationStatus.END_OF_SEQUENCE
MAXIMUM = GenerationStatus.MAXIMUM_LENGTH


def probability(token):
    return LogProbabilities([-1.0], [{token: -1.0}])


def test_the_prompt_and_the_minimum_must_fit(text):
    assert text((1, 2), max_length=5, sampling_params=SamplingParams(min_new_tokens=3)).min_tokens
    with pytest.raises(ValueError, match=r"max_length 4, got 3 \+ 2"):
        text((1, 2), max_length=4, sampling_params=SamplingParams(min_new_tokens=3))


@pytest.mark.parametrize("length", [9.5, float("nan"), "9", None])
def test_the_longest_sequence_is_an_integer(text, length):
    with pytest.raises(TypeError) as error:
        text((1, 2), max_length=length)
    assert str(error.value) == f"max_length: wanted an integer, got {length!r}"


@pytest.mark.parametrize("endpoint", [None, "tcp://host:1", "tcp://[::1]:80", "ipc:///tmp/x"])
def test_good_endpoints(text, endpoint):
    assert text(target_endpoint=endpoint).target_endpoint == endpoint


@pytest.mark.parametrize(
    "endpoint", ["", "host:1", "tcp://host", "tcp://host:x", "http://h:1", "ipc://"]
)
def test_bad_endpoints(text, endpoint):
    with pytest.raises(ValueError, match="wanted None, tcp://host:port or ipc://path, got"):
        text(target_endpoint=endpoint)


def test_endings_are_given_one_way():
    options = {"max_length": 9, "tokens": np.array([1])}
    assert TextContext(eos_token_ids={4}, eos_sequences=[[5]], **options).eos_tracker == EOSTracker(
        {4}, [[5]]
    )
    with pytest.raises(ValueError, match="got both"):
        TextContext(eos_token_ids={4}, eos_tracker=EOSTracker({4}), **options)


def test_update_appends_and_ends(text):
    context = text()
    assert context.is_initial_prompt
    context.update(5)
    assert not context.is_initial_prompt
    assert (context.tokens.active.tolist(), context.status) == ([5], ACTIVE)
    context.update(0)
    assert (context.status, context.is_done) == (END, True)
    assert context.to_generation_output().tokens == [5, 0]


def test_an_ending_run_never_reaches_into_the_prompt(text):
    context = text((1, 8))
    context.update(9)
    assert context.status is ACTIVE
    context.update(8)
    context.update(9)
    assert context.status is END


def test_the_token_that_reaches_the_maximum_is_returned(text):
    context = text((1, 2), max_length=4)
    context.update(5)
    context.update(6)
    assert context.status is MAXIMUM
    assert context.to_generation_output().tokens == [5, 6]
    context.update(7)
    context.update(0)
    assert context.status is END


def test_the_end_of_sequence_wins_over_the_maximum(text):
    context = text((1, 2), max_length=3)
    context.update(0)
    assert context.status is END


def test_ignore_eos(text):
    context = text(max_length=5, ignore_eos=True)
    context.update(0)
    assert context.status is ACTIVE
    context.update(0)
    assert context.status is MAXIMUM


def test_while_chunked_an_update_only_moves_on(text, matcher):
    context = text((1, 2, 3), _matcher=matcher)
    context.tokens.chunk(2)
    context.update(0, probability(0))
    assert context.tokens.active.tolist() == [3]
    assert (context.is_initial_prompt, context.status, matcher.consumed) == (True, ACTIVE, [])
    context.update(5)
    assert context.to_generation_output() == TextGenerationOutput(context.request_id, [5], ACTIVE)
    chunked = text((1, 2, 3))
    chunked.tokens.chunk(1)
    chunked.jump_ahead(7)
    chunked.tokens.chunk(1)
    chunked.update_with_future_token()
    assert chunked.tokens.all.tolist() == [1, 2, 3]


def test_log_probabilities_travel_with_their_tokens(text):
    context = text()
    context.update(5, probability(5))
    context.update(6)
    output = context.to_generation_output()
    assert output.log_probabilities == [probability(5), None]
    assert context.to_generation_output() == TextGenerationOutput(context.request_id, [], ACTIVE)


def test_jump_ahead_keeps_the_window_and_checks_the_end(text, matcher):
    context = text(_matcher=matcher)
    context.update(5)
    context.jump_ahead(6)
    assert (context.tokens.active.tolist(), matcher.consumed) == ([5, 6], [5, 6])
    free = text()
    free.jump_ahead(0)
    assert free.status is END


def test_a_rejected_token_changes_no_token(text, matcher):
    context = text(_matcher=matcher)
    context.update(7)
    for advance in (context.update, context.jump_ahead, context.advance_fsm):
        with pytest.raises(AssertionError, match="the grammar rejects token 3"):
            advance(3)
    assert context.tokens.generated.tolist() == matcher.consumed == [7]
    context.update_with_future_token()
    with pytest.raises(AssertionError, match="rejects token 3"):
        context.realize_future_token(3)
    assert context.tokens.awaits_token


@pytest.mark.parametrize("token", [-1, -999, -(1 << 70)])
def test_a_negative_token_changes_nothing(text, token):
    context = text()
    context.update(7, probability(7))
    before = context.tokens.state()[1:]
    wanted = f"token: wanted an integer from 0 to 2\\*\\*63 - 1, got {token}"
    for advance in (context.update, context.jump_ahead, context.advance_token_buffer):
        with pytest.raises(ValueError, match=f"^{wanted}$"):
            advance(token)
        assert context.tokens.state()[1:] == before
    assert context.to_generation_output().log_probabilities == [probability(7)]
    assert context.status is ACTIVE
    context.update_with_future_token()
    with pytest.raises(ValueError, match=f"^{wanted}$"):
        context.realize_future_token(token)
    assert context.tokens.awaits_token
    assert context.tokens.generated.tolist() == [7, -999]


def test_advance_fsm_says_whether_there_is_a_grammar(text, matcher):
    context = text()
    assert context.matcher is None
    assert context.advance_fsm(5) is False
    context.set_matcher(matcher)
    assert context.matcher is matcher
    assert context.advance_fsm(5) is True
    assert len(context.tokens) == 3


def test_future_tokens_are_realized_in_place(text, matcher):
    context = text(_matcher=matcher)
    with pytest.raises(ValueError, match="no future token"):
        context.realize_future_token(5)
    context.update(5)
    context.update_with_future_token()
    assert (context.tokens[-1], matcher.consumed) == (-999, [5])
    for advance in (context.update, context.jump_ahead, context.advance_token_buffer):
        with pytest.raises(ValueError, match="a future token waits"):
            advance(6)
    with pytest.raises(ValueError, match="a future token waits"):
        context.update_with_future_token()
    assert matcher.consumed == [5]
    assert context.to_generation_output().tokens == [5]
    context.realize_future_token(6, probability(6))
    assert context.to_generation_output().log_probabilities == [probability(6)]
    assert matcher.consumed == [5, 6]


def test_a_realized_end_ends(text):
    context = text(max_length=5)
    context.update_with_future_token()
    context.realize_future_token(0)
    assert context.status is END
    last = text(max_length=4)
    last.update_with_future_token()
    assert last.status is MAXIMUM
    assert not last.to_generation_output().is_done
    last.realize_future_token(6)
    output = last.to_generation_output()
    assert (output.tokens, output.final_status) == ([6], MAXIMUM)


def test_reset_drops_a_future_token(text):
    context = text()
    context.update(5)
    context.update_with_future_token()
    context.spec_decoding_state.propose([1])
    context.reset()
    assert context.tokens.prompt.tolist() == [1, 2, 3, 5]
    assert context.is_initial_prompt
    assert context.spec_decoding_state == SpecDecodingState()
    assert context.to_generation_output().tokens == []


def test_status_survives_reset(text):
    context = text()
    context.update(0)
    context.reset()
    assert context.status is END


def test_the_state_of_speculative_decoding_is_made_once(text):
    context = text()
    assert context.spec_decoding_state is context.spec_decoding_state


def test_the_end_is_masked_until_the_minimum(text):
    context = text(sampling_params=SamplingParams(min_new_tokens=2))
    masks = context.get_min_token_logit_mask(3)
    assert [mask.tolist() for mask in masks] == [[[0, 0]], [[0, 0]], []]
    assert all(mask.dtype == np.int32 and mask.shape[1:] == (2,) for mask in masks)
    context.update(8)
    assert [mask.tolist() for mask in context.get_min_token_logit_mask(2)] == [[[0, 0], [0, 9]], []]
    context.update(9)
    assert [mask.shape for mask in context.get_min_token_logit_mask(1)] == [(0, 2)]


def test_a_chunked_prompt_masks_nothing(text):
    context = text(sampling_params=SamplingParams(min_new_tokens=2))
    context.tokens.chunk(1)
    assert context.get_min_token_logit_mask(1)[0].shape == (0, 2)


def test_available_steps(text):
    context = text()
    assert context.compute_num_available_steps(10) == 10
    context.update(5)
    assert context.compute_num_available_steps(10) == 7
    assert context.compute_num_available_steps(2) == -1


def test_a_context_is_small(text):
    text()
    tracemalloc.start()
    context = text()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size - context.tokens.all.nbytes < 4096


def test_merge_joins_consecutive_outputs(text):
    context = text()
    context.update(5, probability(5))
    first = context.to_generation_output()
    context.update(0)
    merged = TextGenerationOutput.merge([first, context.to_generation_output()])
    assert (merged.tokens, merged.final_status, merged.is_done) == ([5, 0], END, True)
    assert merged.log_probabilities == [probability(5), None]
    with pytest.raises(ValueError, match="at least one output"):
        TextGenerationOutput.merge([])
    with pytest.raises(ValueError, match="wanted one request"):
        TextGenerationOutput.merge([first, text().to_generation_output()])
    with pytest.raises(ValueError, match="wanted 1 log probabilities"):
        TextGenerationOutput(context.request_id, [5], ACTIVE, [])
    assert "status=end_of_sequence" in repr(context)


def test_a_draft_offset_can_be_given(text):
    context = text(_draft_offset=2)
    assert context.tokens.active.tolist() == [3]
    context.apply_processing_offset(1)
    assert context.tokens.active.tolist() == [2, 3]


def test_a_schema_is_text(text):
    wanted = "None or a text of JSON, as json.dumps makes it, got dict$"
    with pytest.raises(ValueError, match=wanted):
        text(json_schema={"type": "object"})


def test_contexts_that_share_a_tracker_do_not_share_its_tail(text):
    tracker = EOSTracker(eos_stop_strings=["STOP"])
    one, other = text(eos_tracker=tracker), text(eos_tracker=tracker)
    assert one.end_at_stop_string("ST") is None
    assert other.end_at_stop_string("OP") is None
    assert one.end_at_stop_string("OP") == "STOP"
    assert (one.status, other.status) == (GenerationStatus.END_OF_SEQUENCE, GenerationStatus.ACTIVE)
    assert tracker.tail == ""
