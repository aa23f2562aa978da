"""What the next token of each place is chosen by."""

import numpy as np

from heddle.contexts import (
    GrammarCompiler,
    GrammarMasks,
    SamplingParams,
    TextContext,
    grammar_tokenizer,
)
from heddle.pipelines.generation.places import allowed, seen

END = 256
VOCABULARY = [*(bytes([i]) for i in range(END)), b""]
FREE = np.full((8, 9), -1, np.int32)


def context(tokens, **params):
    return TextContext(
        max_length=100,
        tokens=np.array(tokens),
        eos_token_ids={END},
        sampling_params=SamplingParams(**params),
    )


def bit(row, token):
    return bool(row[token // 32] >> token % 32 & 1)


def test_no_end_before_the_least_number_of_tokens():
    short, free = context([1], min_new_tokens=2), context([2])
    bitmask, drafts = allowed([free, short], [[5], [6, 7, 8]], None, FREE)
    assert drafts == [[5], [6, 7, 8]]
    assert [bit(row, END) for row in bitmask] == [True, True, False, False, True, True]
    assert (bitmask[:, :8] == -1).all()
    assert (FREE == -1).all()
    short.update(6)
    short.update(7)
    bitmask, _ = allowed([free, short], [[], []], None, FREE)
    assert [bit(row, END) for row in bitmask] == [True, True]


def test_masks_follow_the_drafts_that_a_grammar_takes():
    compiler = GrammarCompiler(grammar_tokenizer(VOCABULARY, eos_token_ids=[END]))
    held, least, free = context([1]), context([1], min_new_tokens=9), context([2])
    held.set_matcher(compiler.compile("regex", "abc|abd"))
    least.set_matcher(compiler.compile("regex", "xy"))
    masks = GrammarMasks(compiler.tokenizer, 16)
    proposed = [list(b"abx"), [7], list(b"xy")]
    bitmask, drafts = allowed([held, free, least], proposed, masks, FREE)
    compiler.close()
    assert drafts == [list(b"ab"), [7], list(b"xy")]
    rows = ["".join(chr(t) for t in range(97, 123) if bit(row, t)) for row in bitmask]
    every = "".join(map(chr, range(97, 123)))
    assert rows == ["a", "b", "cd", every, every, "x", "y", ""]
    assert bit(bitmask[-1], END)  # nothing else may come


def test_penalties_see_the_drafts_before_a_place():
    penalized, free = context([3, 4, 3], frequency_penalty=1.0), context([5])
    penalized.update(4)
    entries, offsets = seen([free, penalized], [[1], [3, 9]])
    assert offsets.tolist() == [0, 0, 0, 2, 4, 7]
    assert entries.tolist() == [[3, 0], [4, 1], [3, 1], [4, 1], [3, 1], [4, 1], [9, 1]]
