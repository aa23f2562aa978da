"""Whose images a block of a cache may hold."""

import numpy as np
import pytest

from heddle.contexts import CacheBlocks, ImageMetadata, TextAndVisionContext, TextContext

PROMPT = [1, 2, 98, 98, 98, 98, 3, 4, 5, 6, 7]
PIXELS = np.zeros((1, 3, 4, 4), np.float32)


def images(*spans):
    """Each as its start, its end and its hash."""
    return [ImageMetadata(start, end, PIXELS, name) for start, end, name in spans]


def context(spans=(), prompt=PROMPT, **options):
    return TextAndVisionContext(
        max_length=100,
        tokens=np.array(prompt),
        vision_token_ids=[98],
        images=images(*spans),
        **options,
    )


def filled(blocks, one):
    assert blocks.reserve(one, len(one.tokens))
    one.update(3)
    blocks.remember(one)
    return one


@pytest.mark.parametrize(
    ("spans", "reused"),
    [
        ([(2, 6, 7)], 8),
        ([(2, 6, 8)], 0),  # another image
        ([(2, 6, None)], 0),
        ([(2, 5, 7)], 0),  # the same one in another place
        ([(2, 4, 7), (4, 6, 7)], 0),
        ([], 0),
    ],
)
def test_an_image_is_shared_with_whom_has_it_too(spans, reused):
    blocks = CacheBlocks(count=8, size=4)
    filled(blocks, context([(2, 6, 7)]))
    assert blocks.reuse(context(spans)) == reused


def test_text_shares_with_text_of_any_kind():
    blocks = CacheBlocks(count=8, size=4)
    filled(blocks, context())
    assert blocks.reuse(TextContext(max_length=100, tokens=np.array(PROMPT))) == 8


@pytest.mark.parametrize(("name", "other"), [(7, 8), (None, None)])
def test_what_comes_before_an_image_is_shared(name, other):
    blocks = CacheBlocks(count=8, size=4)
    prompt = [1, 2, 3, 4, *PROMPT]
    first = filled(blocks, context([(6, 10, name)], prompt))
    second = context([(6, 10, other)], prompt)
    assert blocks.reuse(second) == 4
    filled(blocks, second)
    assert set(blocks.blocks(first)[1:]).isdisjoint(blocks.blocks(second))


def test_images_whose_places_are_not_known_are_not_shared():
    blocks = CacheBlocks(count=8, size=4)
    filled(blocks, context(pixel_values=[PIXELS]))
    for one in (context(pixel_values=[PIXELS]), context()):
        assert blocks.reuse(one) == 0
        blocks.release(one)


def test_a_block_with_an_image_stays_known_after_a_rollback_behind_it():
    blocks = CacheBlocks(count=8, size=4)
    one = filled(blocks, context([(2, 6, 7)]))
    one.rollback(1)
    filled(blocks, one)
    assert blocks.reuse(context([(2, 6, 7)])) == 8
    assert blocks.reuse(context([(2, 6, 8)])) == 0
