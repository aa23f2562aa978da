import numpy as np
import pytest

from heddle.contexts import GenerationStatus, TokenBuffer, TTSContext

END = GenerationStatus.END_OF_SEQUENCE


@pytest.fixture
def context():
    return TTSContext(max_length=100, tokens=TokenBuffer(np.array([1, 2])), eos_token_ids={0})


def test_done_is_about_the_audio(context):
    context.update(0)
    assert (context.status, context.speech_token_status, context.is_done) == (END, END, False)
    context.update_audio_generation_status(END)
    assert context.is_done
    context.update_speech_token_status(GenerationStatus.ACTIVE)
    assert (context.status, context.is_done) == (GenerationStatus.ACTIVE, True)


def test_speech_tokens_grow_by_whole_blocks_before_they_are_full(context):
    sizes = []
    for count in (100, 27, 1, 300):
        context.update_speech_tokens(np.arange(count))
        sizes.append(context._speech_tokens.size)
    assert sizes == [128, 128, 256, 512]
    assert context.block_counter == 4
    assert context.speech_tokens.dtype == np.int32
    assert context.speech_tokens.tolist() == [*range(100), *range(27), 0, *range(300)]


def test_a_read_only_buffer_is_copied():
    given = np.arange(128, dtype=np.int32)
    given.flags.writeable = False
    context = TTSContext(
        max_length=9, tokens=np.array([1]), _speech_tokens=given, _speech_token_end_idx=3
    )
    context.update_speech_tokens(np.array([9]))
    assert context.speech_tokens.tolist() == [0, 1, 2, 9]


@pytest.mark.parametrize(
    "wrong", [np.zeros(2), np.zeros((1, 2), np.int32), np.ma.masked_array([1, 2], [0, 1])]
)
def test_speech_tokens_are_a_vector_of_integers(context, wrong):
    with pytest.raises(ValueError, match="wanted a one-dimensional integer array"):
        context.update_speech_tokens(wrong)


def test_speech_tokens_are_never_cut_to_32_bits(context):
    wanted = "speech tokens: wanted integers of 32 bits, got 7 to 1099511627776"
    with pytest.raises(ValueError, match=f"^{wanted}$"):
        context.update_speech_tokens(np.array([7, 1 << 40]))
    wanted = "speech tokens: wanted a one-dimensional integer array, got list"
    with pytest.raises(ValueError, match=f"^{wanted}$"):
        context.update_speech_tokens([1, 2])
    assert (context.speech_tokens.tolist(), context.block_counter) == ([], 0)


@pytest.mark.parametrize("name", ["audio_chunk_size", "buffer"])
def test_no_piece_of_speech_is_negative(context, name):
    context.update_speech_tokens(np.arange(10))
    wanted = f"next_speech_tokens: wanted {name} of at least 0, got -3"
    with pytest.raises(ValueError, match=f"^{wanted}$"):
        context.next_speech_tokens(**{name: -3})


def test_next_speech_tokens_look_back_and_never_move(context):
    context.update_speech_tokens(np.arange(10))
    context.set_decoded_index(4)

    def ask(*arguments):
        tokens, buffer = context.next_speech_tokens(*arguments)
        assert np.shares_memory(tokens, context.speech_tokens)
        return tokens.tolist(), buffer

    assert ask() == ([4, 5, 6, 7, 8, 9], 0)
    assert ask(2) == ([4, 5], 0)
    assert ask(2, 3) == ([1, 2, 3, 4, 5], 3)
    assert ask(99, 99) == (list(range(10)), 4)
    assert context.decoded_index == 4


def test_undecoded_speech_tokens(context):
    assert not context.has_undecoded_speech_tokens()
    context.update_speech_tokens(np.arange(3))
    context.set_decoded_index(2)
    assert context.has_undecoded_speech_tokens()
    assert not context.has_undecoded_speech_tokens(exclude_last_n=1)
    with pytest.raises(ValueError, match="got -1"):
        context.has_undecoded_speech_tokens(-1)
    for index in (-1, 4):
        with pytest.raises(ValueError, match=f"wanted 0 to 3, got {index}"):
            context.set_decoded_index(index)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"_speech_token_size": 0}, "blocks of at least 1"),
        ({"_speech_token_end_idx": 129}, "0 to 128 of them used, .* and 129 used"),
        ({"_speech_tokens": np.zeros(3)}, "one-dimensional integer array"),
        ({"decoded_index": 1}, "wanted 0 to 0, got 1"),
    ],
)
def test_a_speech_state_that_contradicts_itself_is_refused(options, reason):
    with pytest.raises(ValueError, match=reason):
        TTSContext(max_length=9, tokens=np.array([1]), **options)


def test_a_buffer_of_smaller_integers_does_not_wrap():
    given = np.arange(128, dtype=np.int8)
    context = TTSContext(
        max_length=9, tokens=np.array([1]), _speech_tokens=given, _speech_token_end_idx=2
    )
    context.update_speech_tokens(np.array([300, 70000]))
    assert context.speech_tokens.tolist() == [0, 1, 300, 70000]
