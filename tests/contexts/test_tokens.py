import numpy as np
import pytest

from heddle.contexts import FUTURE_TOKEN, Range, TokenBuffer


@pytest.mark.parametrize(
    ("array", "found"),
    [
        ([1, 2], "list"),
        (np.zeros((1, 2), np.int64), "2 dimensions of int64"),
        (np.zeros(2, np.int32), "1 dimensions of int32"),
        (np.zeros(0, np.int64), "empty array"),
        (np.ma.masked_array([1, 2], [0, 1]), "got MaskedArray"),
    ],
)
def test_only_a_filled_int64_vector_is_taken(array, found):
    with pytest.raises(ValueError, match=found):
        TokenBuffer(array)


def test_a_new_buffer_is_all_prompt_to_process(buffer):
    tokens = buffer(5, 6, 7)
    for view in (tokens.all, tokens.prompt, tokens.active):
        assert view.tolist() == [5, 6, 7]
    assert tokens.generated.tolist() == []
    assert (len(tokens), tokens.prompt_length, tokens.generated_length) == (3, 3, 0)
    assert (tokens.processed_length, tokens.active_length, tokens.current_position) == (0, 3, 3)
    assert not tokens.actively_chunked
    assert not tokens.has_outstanding_generated_tokens


def test_the_callers_array_is_used_and_capacity_doubles():
    array = np.array([1, 2, 3])
    tokens = TokenBuffer(array)
    assert np.shares_memory(tokens.all, array)
    capacities = []
    for token in range(4, 11):
        tokens.advance_with_token(token)
        capacities.append(tokens.all.base.size)
    assert capacities == [6, 6, 6, 12, 12, 12, 12]
    assert tokens.all.tolist() == list(range(1, 11))
    assert array.tolist() == [1, 2, 3]


def test_a_read_only_array_is_copied_before_a_write():
    array = np.array([1, 2, 3])
    array.flags.writeable = False
    tokens = TokenBuffer(array)
    assert np.shares_memory(tokens.all, array)
    tokens.overwrite_last_token(9)
    assert (tokens.all.tolist(), array.tolist()) == ([1, 2, 9], [1, 2, 3])
    again = TokenBuffer(array)
    again.rollback(1)
    again.advance_with_token(7)
    assert (again.all.tolist(), array.tolist()) == ([1, 2, 7], [1, 2, 3])


def test_items_are_tokens_and_slices_are_views(buffer):
    tokens = buffer(5, 6, 7)
    assert (tokens[0], tokens[-1], tokens[np.int8(1)]) == (5, 7, 6)
    assert type(tokens[0]) is int
    assert np.shares_memory(tokens[1:], tokens.all)
    for index in (3, -4):
        with pytest.raises(IndexError, match=rf"\[-3, 3\), got {index}"):
            tokens[index]
    for index in (True, np.True_, 1.0, "a"):
        with pytest.raises(TypeError, match="wanted an integer or a slice"):
            tokens[index]


def test_it_turns_into_an_array(buffer):
    assert np.asarray(buffer(5, 6)).tolist() == [5, 6]
    assert np.asarray(buffer(5, 6), dtype=np.int32).dtype == np.int32


def test_the_offset_hides_the_start_of_the_window(buffer):
    tokens = buffer(5, 6, 7)
    tokens.apply_processing_offset(1)
    tokens.apply_processing_offset(2)
    assert tokens.active.tolist() == [7]
    assert (tokens.processed_length, tokens.active_length, tokens.processing_offset) == (0, 1, 2)
    assert tokens.current_position == 1
    tokens.apply_processing_offset(3)
    assert tokens.active.tolist() == []
    for offset in (-1, 4):
        with pytest.raises(ValueError, match=f"wanted 0 to 3, got {offset}"):
            tokens.apply_processing_offset(offset)
    tokens.advance_with_token(8)
    assert (tokens.processing_offset, tokens.active.tolist()) == (0, [8])


def test_skip_and_rewind(buffer):
    tokens = buffer(5, 6, 7)
    tokens.skip_processing(2)
    assert tokens.active.tolist() == [7]
    for count in (-1, 1):
        with pytest.raises(ValueError, match=f"wanted 0 to 0, got {count}"):
            tokens.skip_processing(count)
    for count in (-1, 3):
        with pytest.raises(ValueError, match=f"wanted 0 to 2, got {count}"):
            tokens.rewind_processing(count)
    tokens.rewind_processing(2)
    assert tokens.active.tolist() == [5, 6, 7]


def test_chunks_visit_the_prompt_in_order(buffer):
    tokens = buffer(5, 6, 7, 8)
    for size in (0, 4, -1):
        with pytest.raises(ValueError, match=f"wanted 1 to 3, got {size}"):
            tokens.chunk(size)
    tokens.chunk(3)
    tokens.chunk(2)
    assert tokens.active.tolist() == [5, 6]
    assert tokens.actively_chunked
    with pytest.raises(ValueError, match="chunked"):
        tokens.advance_with_token(9)
    tokens.apply_processing_offset(1)
    tokens.advance_chunk()
    assert tokens.active.tolist() == [7, 8]
    assert (tokens.actively_chunked, tokens.processing_offset) == (False, 0)
    with pytest.raises(ValueError, match="wanted a chunked window"):
        tokens.advance_chunk()


@pytest.mark.parametrize(
    "name",
    ["chunk", "apply_processing_offset", "rewind_processing", "skip_processing", "rollback"],
)
@pytest.mark.parametrize("count", [1.5, 1.0, "1", None])
def test_no_window_ends_inside_a_token(buffer, name, count):
    tokens = buffer(5, 6, 7, 8)
    with pytest.raises(TypeError) as error:
        getattr(tokens, name)(count)
    assert str(error.value) == f"{name}: wanted an integer, got {count!r}"
    assert tokens.active.tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("token", "error", "message"),
    [
        (1.5, TypeError, "token: wanted an integer, got 1.5"),
        (None, TypeError, "token: wanted an integer, got None"),
        (
            1 << 63,
            ValueError,
            "token: wanted an integer from 0 to 2**63 - 1, got 9223372036854775808",
        ),
        (-1, ValueError, "token: wanted an integer from 0 to 2**63 - 1, got -1"),
        (FUTURE_TOKEN, ValueError, "token: wanted an integer from 0 to 2**63 - 1, got -999"),
    ],
)
def test_what_is_no_token_is_said(buffer, token, error, message):
    tokens = buffer(5)
    with pytest.raises(error) as found:
        tokens.advance_with_token(token)
    assert str(found.value) == message
    with pytest.raises(error) as found:
        tokens.overwrite_last_token(token)
    assert str(found.value) == message
    assert tokens.state()[1:] == buffer(5).state()[1:]
    assert tokens.all.tolist() == [5]


def test_a_jump_ahead_token_widens_the_window(buffer):
    tokens = buffer(5, 6)
    tokens.advance_with_token(7)
    tokens.advance_with_token(8, mark_previous_as_processed=False)
    assert tokens.active.tolist() == [7, 8]
    assert tokens.generated.tolist() == [7, 8]


def test_generated_tokens_are_handed_out_once(buffer):
    tokens = buffer(5)
    with pytest.raises(ValueError, match="no token is outstanding"):
        tokens.consume_recently_generated_tokens()
    tokens.advance_with_token(6)
    tokens.advance_with_token(7)
    assert tokens.outstanding == Range(1, 3)
    assert tokens.has_outstanding_generated_tokens
    assert tokens.consume_recently_generated_tokens(hold_back=1).tolist() == [6]
    assert tokens.consume_recently_generated_tokens().tolist() == [7]
    assert not tokens.has_outstanding_generated_tokens


def test_a_token_must_be_an_integer(buffer):
    tokens = buffer(5)
    with pytest.raises(TypeError):
        tokens.advance_with_token(1.5)
    assert tokens.all.tolist() == [5]


def test_reset_makes_everything_prompt(buffer):
    tokens = buffer(5, 6)
    with pytest.raises(ValueError, match="no generated token to delete"):
        tokens.reset_as_new_prompt(delete_last_generated_token=True)
    tokens.advance_with_token(7)
    tokens.advance_with_future_token()
    assert tokens.all.tolist() == [5, 6, 7, FUTURE_TOKEN]
    assert tokens.awaits_token
    tokens.reset_as_new_prompt(delete_last_generated_token=True)
    assert tokens.prompt.tolist() == tokens.active.tolist() == [5, 6, 7]
    assert not tokens.has_outstanding_generated_tokens
    tokens.chunk(1)
    tokens.apply_processing_offset(1)
    tokens.reset_as_new_prompt()
    assert tokens.active.tolist() == [5, 6, 7]
    assert (tokens.actively_chunked, tokens.processing_offset) == (False, 0)


def test_rollback_restores_the_window(buffer):
    tokens = buffer(5, 6, 7)
    tokens.skip_processing(1)
    tokens.apply_processing_offset(1)
    for token in (8, 9):
        tokens.advance_with_token(token)
    tokens.rollback(2)
    assert tokens.active.tolist() == [7]
    assert (tokens.processed_length, tokens.processing_offset) == (1, 1)
    tokens.rollback(0)
    tokens.rollback(2)
    assert (tokens.all.tolist(), tokens.active.tolist(), tokens.prompt_length) == ([5], [5], 1)
    for count in (1, -1):
        with pytest.raises(ValueError, match=f"wanted 0 to 0 tokens, got {count}"):
            tokens.rollback(count)


@pytest.mark.parametrize(
    ("change", "dropped", "window"),
    [
        (lambda tokens: None, 2, [5, 6, 7, 8]),
        (lambda tokens: tokens.skip_processing(3), 2, [8]),
        (lambda tokens: tokens.skip_processing(3), 4, [6]),
        (lambda tokens: tokens.chunk(3), 2, [5, 6, 7, 8]),
        (lambda tokens: tokens.apply_processing_offset(2), 2, [7, 8]),
        (lambda tokens: tokens.apply_processing_offset(5), 4, [6]),
        (lambda tokens: tokens.advance_with_token(11, mark_previous_as_processed=False), 3, None),
        (lambda tokens: tokens.advance_with_token(11), 3, None),
    ],
)
def test_rollback_into_the_prompt_leaves_no_token_unprocessed(buffer, change, dropped, window):
    tokens = buffer(5, 6, 7, 8, 9, 10)
    change(tokens)
    tokens.rollback(dropped)
    assert tokens.active.tolist() == (window or [5, 6, 7, 8])
    assert not tokens.actively_chunked


def test_rollback_leaves_what_is_to_be_processed_again(buffer):
    tokens = buffer(5, 6)
    for token in (7, 8, 9):
        tokens.advance_with_token(token)
    tokens.rewind_processing(3)
    tokens.rollback(1)
    assert tokens.active.tolist() == [6, 7, 8]


def test_a_prompt_placeholder_is_no_future_token(buffer):
    assert not buffer(5, FUTURE_TOKEN).awaits_token


def test_repr_shows_lengths_window_and_both_ends(buffer):
    tokens = buffer(*range(100, 120))
    tokens.chunk(4)
    tokens.apply_processing_offset(1)
    assert repr(tokens) == (
        "TokenBuffer(length=20, prompt=20, generated=0, active=[1, 4), "
        "tokens=[100 101 102 103 104 105 106 107 ... 112 113 114 115 116 117 118 119])"
    )


def test_restore_refuses_a_state_that_contradicts_itself(buffer):
    tokens = buffer(5, 6, 7)
    tokens.advance_with_token(8)
    state = tokens.state()
    for change in (
        {"prompt_length": 5},
        {"window": (3, 5)},
        {"completion": (3, 5)},
        {"offset": 2},
        {"starts": ((9, 0, 0),)},
    ):
        with pytest.raises(ValueError, match="leave the 4 tokens"):
            tokens.restore(state._replace(**change))
    with pytest.raises(ValueError, match="wanted 0 <= start <= end"):
        tokens.restore(state._replace(window=(3, 2)))
    assert tokens.state().tokens.tolist() == [5, 6, 7, 8]
