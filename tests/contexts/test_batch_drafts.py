"""Drafts behind the windows of a step: written there, and no tokens of their contexts."""

import pytest

from heddle.contexts import StepBatch


def test_drafts_are_written_behind_windows(text):
    batch = StepBatch(rows=3, tokens=10, max_length=6)
    prompt, decode, last = text((1, 2, 3)), text((4, 5)), text((6, 7))
    for context in (decode, last):
        context.update(8)
    batch.write([prompt, decode, last], [[10], [11, 12, 13], []])
    inputs = batch.inputs
    assert inputs["tokens"].tolist() == [1, 2, 3, 10, 8, 11, 12, 13, 8]
    assert inputs["positions"].tolist() == [0, 1, 2, 3, 2, 3, 4, 5, 2]
    assert inputs["row_offsets"].tolist() == [0, 4, 8, 9]
    assert inputs["lengths"].tolist() == [4, 6, 3]
    assert decode.tokens.all.tolist() == [4, 5, 8]
    assert not batch.commit([prompt, decode, last], [20, 21, 22])
    assert decode.tokens.all.tolist() == [4, 5, 8, 21]
    batch.write([prompt, decode, last], [[], [], []])
    assert batch.inputs["tokens"].tolist() == [20, 21, 22]
    assert batch.inputs["lengths"].tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    ("drafts", "message"),
    [
        ([[]], "a draft for each of 2 contexts, got 1"),
        ([[1] * 4, [1] * 4], "at most 9 tokens at positions up to 6, got 10 tokens at positions"),
        ([[1] * 5, []], "got 7 tokens at positions up to 7"),
    ],
)
def test_drafts_that_do_not_fit_are_refused(text, drafts, message):
    batch = StepBatch(rows=2, tokens=9, max_length=6)
    contexts = [text((1, 2)), text((3, 4))]
    for context in contexts:
        context.tokens.skip_processing(1)
    batch.write(contexts)
    with pytest.raises(ValueError, match=message):
        batch.write(contexts, drafts)
    assert batch.inputs["tokens"].tolist() == [2, 4]


def test_no_draft_is_behind_a_chunk(text):
    context = text((1, 2, 3))
    context.tokens.chunk(2)
    with pytest.raises(ValueError, match=r"wanted no draft behind a chunk, got \[5\] in row 0"):
        StepBatch(rows=1, tokens=9, max_length=9).write([context], [[5]])
