import numpy as np
import pytest

from heddle.contexts import GenerationStatus, TextContext, TTSContext


def make(kind=TextContext, tokens=(1, 2, 3, 4, 5, 0, 0), **older):
    return kind(max_length=99, tokens=np.array(tokens), **older)


def test_indices_place_the_windows_over_a_longer_array():
    context = make(_start_idx=4, _active_idx=5, _end_idx=5, _prompt_len=3, _size=7)
    assert context.all_tokens.tolist() == [1, 2, 3, 4, 5]
    assert context.prompt_tokens.tolist() == [1, 2, 3]
    assert context.next_tokens.tolist() == [5]
    assert (context.start_idx, context.active_idx, context.end_idx) == (4, 5, 5)
    assert context.to_generation_output().tokens == []
    context.update(6)
    assert context.generated_tokens.tolist() == [4, 5, 6]


def test_completion_indices_say_what_the_user_has_not_got():
    context = make(_end_idx=5, _prompt_len=2, _completion_start_idx=3, _completion_end_idx=5)
    assert context.to_generation_output().tokens == [4, 5]


def test_a_window_that_ends_early_is_a_chunk():
    context = make(_active_idx=2, _end_idx=5, _prompt_len=5)
    assert context.tokens.actively_chunked
    context.update(9)
    assert context.next_tokens.tolist() == [3, 4, 5]


def test_size_is_the_least_capacity():
    context = make(tokens=(1, 2, 3), _size=100)
    before = context.tokens.all.ctypes.data
    for token in range(90):
        context.update(token)
    assert context.tokens.all.ctypes.data == before


def test_what_is_no_index_leaves_the_windows_alone():
    first = make(tokens=(1, 2))
    first.update(7)
    context = TextContext(
        max_length=9, tokens=first.tokens, _status=GenerationStatus.CANCELLED, _cache_seq_id=3
    )
    assert context.generated_tokens.tolist() == [7]
    assert context.status is GenerationStatus.CANCELLED
    assert context.cache_seq_id == 3
    assert make(_committed_idx=2).committed_idx == 2
    assert make(log_probabilities=None).log_probabilities == 0


def test_indices_of_speech():
    context = make(
        TTSContext,
        _speech_tokens=np.arange(4),
        _speech_token_end_idx=3,
        _decoded_index=2,
        _audio_generation_status=GenerationStatus.END_OF_SEQUENCE,
    )
    assert context.decoded_index == 2
    assert context.is_done


@pytest.mark.parametrize(
    ("older", "reason"),
    [
        (
            {"_start_idx": 3, "_active_idx": 3},
            "wanted 0 <= _start_idx < _active_idx .* got 3, 3, 7",
        ),
        ({"_end_idx": 8}, "<= _end_idx <= 7, got 0, 8, 8"),
        ({"_end_idx": 4, "_prompt_len": 5}, "leave the 4 tokens"),
        ({"_committed_idx": 8}, "_committed_idx: wanted 0 to 7, got 8"),
        ({"_status": "nothing"}, "nothing"),
    ],
)
def test_contradictions_are_refused(older, reason):
    with pytest.raises(ValueError, match=reason):
        make(**older)


def test_unknown_arguments_are_refused():
    with pytest.raises(TypeError, match="TextContext: wanted known arguments, got other, size"):
        make(size=3, other=4)
