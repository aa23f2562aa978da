import gc
import re
import tracemalloc
import weakref
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import heddle.contexts
from heddle.contexts import EOSTracker, SamplingParams, StepBatch, TextContext, TokenBuffer
from heddle.runtime import Buffer


def decoding(count, **options):
    contexts = [
        TextContext(max_length=10**6, tokens=TokenBuffer(np.array([i, i + 1])), **options)
        for i in range(1, count + 1)
    ]
    for context in contexts:
        context.update(7)
    return contexts


def written(*contexts):
    """A batch whose step of `contexts` waits for its tokens."""
    batch = StepBatch(rows=3, tokens=9, max_length=9)
    batch.write(contexts)
    return batch


def test_windows_of_all_sizes_follow_one_another(text):
    batch = StepBatch(rows=4, tokens=16, max_length=100, blocks=3)
    prompt, decode, wide, hidden = text((1, 2, 3)), text((4, 5)), text((6,)), text((7, 8))
    decode.update(9)
    wide.update(10)
    wide.jump_ahead(11)
    hidden.apply_processing_offset(1)
    assert batch.write([prompt, decode, wide, hidden]) == [0, 1, 2, 3]
    inputs = batch.inputs
    assert inputs["tokens"].tolist() == [1, 2, 3, 9, 10, 11, 8]
    assert inputs["positions"].tolist() == [0, 1, 2, 2, 1, 2, 1]
    assert inputs["row_offsets"].tolist() == [0, 3, 4, 6, 7]
    assert inputs["lengths"].tolist() == [3, 3, 3, 2]


def test_a_chunk_counts_up_to_its_end(text):
    context = text((1, 2, 3))
    context.tokens.chunk(2)
    batch = StepBatch(rows=1, tokens=2, max_length=9)
    batch.write([context])
    assert batch.inputs["tokens"].tolist() == [1, 2]
    assert batch.inputs["lengths"].tolist() == [2]


def test_memory_is_aligned_and_stays_the_same(text):
    batch = StepBatch(rows=3, tokens=8, max_length=9, blocks=2)
    contexts = decoding(3)
    batch.write(contexts)
    before = {name: view.ctypes.data for name, view in batch.inputs.items()}
    assert all(address % 64 == 0 for address in before.values())
    assert all(isinstance(buffer, Buffer) for buffer in batch.buffers.values())
    batch.send()
    assert (batch.copies, batch.stream) == (0, None)
    batch.write([text()])
    assert {name: view.ctypes.data for name, view in batch.inputs.items()} == before


def test_rows_are_written_when_their_context_changes():
    batch = StepBatch(rows=3, tokens=8, max_length=9, blocks=2)
    hot = decoding(1, sampling_params=SamplingParams(temperature=2, top_k=5, seed=3))[0]
    contexts = decoding(2)
    assert batch.write(contexts) == [0, 1]
    assert batch.write(contexts) == []
    batch.write_blocks(0, [4, 5])
    batch.write_blocks(1, [6], first=1)
    assert batch.write([contexts[0], hot]) == [1]
    assert batch.write([contexts[0], hot, contexts[1]]) == [2]
    assert batch.inputs["sampling"][1].tolist() == [2, 1, 0, 0, 0, 1]
    assert batch.inputs["sampling_integers"][:2].tolist() == [[1, 0], [5, 3]]
    assert batch.inputs["blocks"].tolist() == [[4, 5], [0, 6], [0, 0]]
    assert batch.write([contexts[0]]) == []


def test_what_does_not_fit_is_refused(text):
    batch = StepBatch(rows=2, tokens=3, max_length=4, blocks=1)
    with pytest.raises(ValueError, match="at most 2 contexts, got 3"):
        batch.write([text()] * 3)
    with pytest.raises(ValueError, match="wanted 2 different contexts, got one of them again"):
        batch.write([text((1,))] * 2)
    with pytest.raises(ValueError, match=r"at most 3 tokens .* got 6 tokens"):
        batch.write([text(), text()])
    long = text((1, 2, 3, 4, 5))
    long.tokens.skip_processing(3)
    with pytest.raises(ValueError, match="positions up to 4, got 2 tokens at positions up to 5"):
        batch.write([long])
    with pytest.raises(ValueError, match="at most 1 blocks, got 2"):
        batch.write_blocks(0, [1, 2])
    for row, first in ((2, 0), (-1, 0), (0, -1)):
        with pytest.raises(
            ValueError,
            match="^StepBatch: wanted a row from 0 to 1 and a first block of at least 0, got row "
            f"{row} and block {first}$",
        ):
            batch.write_blocks(row, [], first)


def test_a_step_that_is_refused_leaves_the_one_before(text):
    batch = StepBatch(rows=3, tokens=4, max_length=50)
    ones = decoding(2)
    batch.write(ones)
    before = {name: view.tolist() for name, view in batch.inputs.items()}
    others = [text((1, 2, 3, 4)), text((1, 2, 3, 4, 5))]
    others[0].update(9)
    for contexts in (others, others[:1] * 2, [*others, *ones]):
        with pytest.raises(ValueError, match="StepBatch: wanted"):
            batch.write(contexts)
        assert {name: view.tolist() for name, view in batch.inputs.items()} == before
    assert not batch.commit(ones, np.array([5, 5]))


def test_a_decode_step_ends_at_the_longest_sequence(text):
    batch = StepBatch(rows=9, tokens=9, max_length=4)
    context = text((1, 2, 3))
    context.update(5)
    batch.write([context])
    assert batch.inputs["positions"].tolist() == [3]
    context.update(5)
    with pytest.raises(
        ValueError,
        match=r"^StepBatch: wanted at most 9 tokens at positions up to 4, got 1 tokens at "
        r"positions up to 5$",
    ):
        batch.write([context])


def test_a_decode_step_grows_nothing():
    contexts = decoding(256)
    batch = StepBatch(rows=256, tokens=256, max_length=4096)
    batch.write(contexts)
    room = tracemalloc.Filter(True, str(Path(heddle.contexts.__file__).parent / "*"))

    def held(steps):
        for _ in range(steps):
            batch.write(contexts)
        traces = tracemalloc.take_snapshot().filter_traces([room])
        return sum(trace.size for trace in traces.traces)

    tracemalloc.start()
    try:
        before = held(5)
        after = held(50)
    finally:
        tracemalloc.stop()
    assert after == before


def test_commit_hands_out_tokens_and_keeps_errors_apart(text, matcher):
    contexts = [text(), text(_matcher=matcher), text((4, 5))]
    contexts[1].update(9)
    contexts[2].tokens.chunk(1)
    refused = written(*contexts).commit(contexts, Buffer.from_numpy(np.array([6, 3, 8], np.int32)))
    assert list(refused) == [1]
    assert "rejects token 3" in str(refused[1])
    assert [context.generated_tokens.tolist() for context in contexts] == [[6], [9], []]


@pytest.mark.parametrize(
    ("tokens", "got"),
    [
        (np.array([6]), "shape [1] of int64"),
        (np.array([6, 7, 8]), "shape [3] of int64"),
        (np.array([[6], [7]]), "shape [2, 1] of int64"),
        (np.array([6.0, 7.0]), "shape [2] of float64"),
        ([6, None], "shape [2] of object"),
        (None, "shape [] of object"),
    ],
)
def test_commit_gives_all_contexts_a_token_or_none(text, tokens, got):
    contexts = [text(), text()]
    wanted = "StepBatch: wanted 2 integers as next tokens, one for each context, got "
    with pytest.raises(ValueError, match=f"^{re.escape(wanted + got)}$"):
        written(*contexts).commit(contexts, tokens)
    assert [context.generated_tokens.tolist() for context in contexts] == [[], []]


def test_commit_wants_no_mask(text):
    context = text()
    wanted = "StepBatch: wanted next tokens without a mask, got a MaskedArray"
    with pytest.raises(ValueError, match=f"^{wanted}$"):
        written(context).commit([context], np.ma.masked_array([6], [1]))
    assert not context.tokens.generated_length


def test_commit_wants_as_many_log_probabilities(text):
    contexts = [text(), text()]
    wanted = "StepBatch: wanted 2 log probabilities, one for each context, got 1"
    with pytest.raises(ValueError, match=f"^{wanted}$"):
        written(*contexts).commit(contexts, np.array([6, 7]), [None])
    assert not contexts[0].tokens.generated_length


def test_commit_keeps_a_token_of_more_than_64_bits_to_its_row(text):
    contexts = [text(), text()]
    tokens = np.array([1 << 63, 7], np.uint64)
    refused = written(*contexts).commit(contexts, tokens)
    assert {row: str(error) for row, error in refused.items()} == {
        0: "token: wanted an integer from 0 to 2**63 - 1, got 9223372036854775808"
    }
    assert contexts[1].generated_tokens.tolist() == [7]


def test_commit_refuses_a_row_that_has_no_token(text):
    contexts = [text(), text()]
    refused = written(*contexts).commit(contexts, np.array([-1, 5]))
    assert {row: str(error) for row, error in refused.items()} == {
        0: "StepBatch: wanted a token for row 0, got -1: there was nothing to choose from, as "
        "where a mask allows no token or logits are no numbers"
    }
    assert [context.generated_tokens.tolist() for context in contexts] == [[], [5]]


NO_STEP = r"^StepBatch: wanted to commit the contexts of a step, .* got 1 contexts of no step"


def test_commit_wants_a_step_that_was_written_and_each_once(text):
    one, other = text(), text()
    batch = written(one)
    with pytest.raises(ValueError, match=NO_STEP):
        batch.commit([other], [5])
    assert batch.commit([one], [5]) == {}
    with pytest.raises(ValueError, match=NO_STEP):
        batch.commit([one], [5])
    with pytest.raises(ValueError, match=NO_STEP):
        StepBatch(rows=1, tokens=9, max_length=9).commit([other], [5])
    assert [c.tokens.generated_length for c in (one, other)] == [1, 0]


def test_steps_of_other_contexts_may_wait_at_once_and_a_step_may_be_given_up(text):
    one, two, three = text(), text(), text()
    batch = written(one, two)
    batch.write([three])
    assert batch.commit([one, two], [5, 6]) == {}
    assert batch.commit([three], [7]) == {}
    batch.write([one, two])
    batch.write([one])  # after a call that failed
    assert batch.commit([one], [8]) == {}
    with pytest.raises(ValueError, match=r"got 2 contexts of no step that waits$"):
        batch.commit([one, two], [8, 8])
    assert [c.generated_tokens.tolist() for c in (one, two, three)] == [[5, 8], [6], [7]]


def test_so_many_steps_may_wait_at_once_as_the_page_says(text):
    batch, steps = StepBatch(rows=1, tokens=9, max_length=9), [[text()] for _ in range(16)]
    for step in steps:
        batch.write(step)
    assert all(batch.commit(step, [5]) == {} for step in steps)


def test_steps_that_were_given_up_are_forgotten(text):
    batch = written(text())
    first = weakref.ref(batch._owners[0])
    for _ in range(16):
        batch.write([text()])
    gc.collect()
    assert first() is None


def test_commit_gives_no_free_text_to_a_context_with_a_schema(text):
    plain, schema, chunked = text(), text(json_schema="{}"), text(json_schema="{}")
    chunked.tokens.chunk(1)
    refused = written(plain, schema, chunked).commit([plain, schema, chunked], [5, 5, 5])
    assert {row: str(error) for row, error in refused.items()} == {
        1: f"StepBatch: wanted a matcher for the json_schema of request {schema.request_id}, got "
        "none; GrammarCompiler.constrain gives it one"
    }
    assert not schema.tokens.generated_length
    assert not chunked.tokens.actively_chunked


@pytest.mark.parametrize("name", ["rows", "tokens", "max_length", "blocks"])
def test_a_batch_of_nothing_is_refused(name):
    least = 0 if name == "blocks" else 1
    sizes = {"rows": 1, "tokens": 1, "max_length": 1, "blocks": 0, name: least - 1}
    wanted = f"^StepBatch: wanted {name} of at least {least}, got {least - 1}$"
    with pytest.raises(ValueError, match=wanted):
        StepBatch(**sizes)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=9), min_size=1, max_size=5),
    st.data(),
)
def test_a_batch_holds_what_each_context_would_alone(prompts, data):
    contexts = [
        TextContext(max_length=99, tokens=np.array(prompt), eos_tracker=EOSTracker({0}))
        for prompt in prompts
    ]
    batch = StepBatch(rows=5, tokens=64, max_length=99)
    for step in range(4):
        for context in contexts:
            active = context.tokens.active_length
            if step < 2 and active > 1 and data.draw(st.booleans()):
                context.tokens.chunk(data.draw(st.integers(1, active - 1)))
        batch.write(contexts)
        inputs = batch.inputs
        for row, context in enumerate(contexts):
            span = slice(*inputs["row_offsets"][row : row + 2])
            positions = inputs["positions"][span]
            assert inputs["tokens"][span].tolist() == context.tokens.active.tolist()
            assert np.array_equal(context.tokens.all[positions], inputs["tokens"][span])
            assert inputs["lengths"][row] == context.tokens.current_position
        assert batch.commit(contexts, np.full(len(contexts), 5)) == {}
