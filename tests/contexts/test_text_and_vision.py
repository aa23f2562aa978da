import numpy as np
import pytest

from heddle.contexts import (
    ImageMetadata,
    TextAndVisionContext,
    TokenBuffer,
    msgpack_numpy_decoder,
    msgpack_numpy_encoder,
)
from heddle.contexts import validators as v
from heddle.runtime.errors import InputError

PROMPT = [*range(51, 55), 97, 98, 98, 98, 98, 99, *range(55, 59), 97, 98, 98, 98, 98, 99, 59, 60]
PIXELS = np.zeros((1, 3, 4, 4), np.float32)


def image(start, end, pixels=PIXELS):
    return ImageMetadata(start, end, pixels)


def make(images=((5, 9), (15, 19)), prompt=PROMPT, **options):
    return TextAndVisionContext(
        max_length=100,
        tokens=TokenBuffer(np.array(prompt)),
        vision_token_ids=[98],
        images=[span if isinstance(span, ImageMetadata) else image(*span) for span in images],
        **options,
    )


@pytest.mark.parametrize("span", [(-1, 3), (3, 3), (4, 3)])
def test_an_image_is_a_span(span):
    with pytest.raises(ValueError, match=rf"got \[{span[0]}, {span[1]}\)"):
        image(*span)


@pytest.mark.parametrize(
    ("spans", "reason"),
    [
        ([(15, 19), (5, 9)], "got image 1 at 5 after one that ends at 19"),
        ([(5, 9), (8, 9)], "got image 1 at 8 after one that ends at 9"),
        ([(15, 23)], "got image 0 that ends at 23"),
        ([(4, 9)], "begins or ends, got 97"),
        ([(5, 10)], "begins or ends, got 99"),
    ],
)
def test_images_lie_in_order_on_vision_tokens(spans, reason):
    with pytest.raises(ValueError, match=reason):
        make(spans)


def test_images_may_touch():
    assert len(make([(5, 7), (7, 9)]).images) == 2


def test_the_next_images_follow_the_window():
    context = make()
    assert (context.image_idx, context.needs_vision_encoding) == (0, True)
    assert len(context.pixel_values) == 2
    context.tokens.skip_processing(8)
    assert context.image_idx == 0
    context.tokens.skip_processing(1)
    assert (context.image_idx, context.next_images) == (1, context.images[1:])
    context.tokens.skip_processing(10)
    assert (context.image_idx, context.needs_vision_encoding) == (2, False)
    context.update(61)
    assert context.tokens.active.tolist() == [61]


def test_an_index_is_aligned_to_its_image():
    context = make()
    assert [context.compute_image_aligned_idx(i) for i in (4, 5, 8, 9, 16)] == [4, 5, 5, 9, 15]


def test_the_position_stays_out_of_images():
    context = make()
    for change in (
        lambda: context.set_token_indices(active_idx=7),
        lambda: context.bump_token_indices(active_idx=-4),
        lambda: context.apply_processing_offset(4),
        lambda: context.set_draft_offset(4),
    ):
        with pytest.raises(ValueError, match="wanted a position outside of images"):
            change()
    assert context.active_idx == len(PROMPT)
    context.apply_processing_offset(1)
    context.apply_processing_offset(0)
    context.set_token_indices(active_idx=5)
    context.update(0)
    context.tokens.chunk(2)
    context.update(0)
    assert context.all_tokens.tolist() == PROMPT


def test_a_chunk_may_end_in_an_image_but_a_new_token_may_not_follow_there(matcher):
    context = make()
    context.tokens.chunk(7)
    context.update(0)
    assert (context.start_idx, context.active_idx) == (7, len(PROMPT))
    context.tokens.apply_processing_offset(15 - 11)
    context.set_matcher(matcher)
    for take in (
        context.update,
        context.jump_ahead,
        context.advance_token_buffer,
        lambda token: context.update_with_future_token(),
    ):
        with pytest.raises(ValueError, match="got 18 in the image"):
            take(1)
    assert not matcher.consumed
    assert context.all_tokens.tolist() == PROMPT


def test_images_are_not_cut():
    context = make()
    for change in (lambda: context.rollback(4), lambda: context.set_token_indices(0, 15, 15)):
        with pytest.raises(ValueError, match="wanted at least 19"):
            change()
    context.rollback(3)
    assert len(context.tokens) == 19


def test_validators_accept_what_models_want(text):
    arguments = ("aspect_ratio_ids", "aspect_ratio_mask", "image_grid_thw", "vision_position_ids")
    good = make(
        [image(5, 9, np.zeros((1, 1, 3, 4, 4)))],
        extra_model_args={name: np.zeros(1) for name in arguments},
    )
    for name in dir(v):
        if name.startswith("validate_"):
            getattr(v, name)(good)
            if name != "validate_requires_vision_context":
                getattr(v, name)(text())


def test_validators_name_request_and_want(text):
    context = make(request_id="r1")
    for validate, wanted in (
        (v.validate_only_one_image, "request r1: wanted at most one image, got 2"),
        (v.validate_image_shape_5d, "request r1: wanted images of 5 dimensions, got 4"),
        (v.validate_aspect_ratio_args, r"wanted aspect_ratio_ids among .*, got \[\]"),
        (v.validate_image_grid_thw_args, "wanted image_grid_thw among"),
        (v.validate_vision_position_ids, "wanted vision_position_ids among"),
    ):
        with pytest.raises(InputError, match=wanted):
            validate(context)
    with pytest.raises(InputError, match="wanted aspect_ratio_mask"):
        v.validate_aspect_ratio_args(make(extra_model_args={"aspect_ratio_ids": PIXELS}))
    with pytest.raises(InputError, match="wanted an image in the prompt, got none"):
        v.validate_initial_prompt_has_image(make([]))
    with pytest.raises(InputError, match="wanted a TextAndVisionContext, got TextContext"):
        v.validate_requires_vision_context(text())


def test_the_rest_passes_where_there_is_nothing_to_encode():
    context = make([])
    context.update(61)
    v.validate_initial_prompt_has_image(context)
    v.validate_vision_position_ids(context)


def test_loose_pixel_values_are_the_older_way():
    pixels = np.ones((2, 2))
    context = TextAndVisionContext(
        max_length=9, tokens=np.array([1, 2]), prompt="ab", pixel_values=(pixels,)
    )
    assert context.pixel_values[0] is pixels
    assert context.needs_vision_encoding
    again = msgpack_numpy_decoder(TextAndVisionContext)(msgpack_numpy_encoder()(context))
    assert again.pixel_values[0].tolist() == pixels.tolist()
    with pytest.raises(ValueError, match="wanted images or pixel_values, got both"):
        TextAndVisionContext(
            max_length=9,
            tokens=np.array([98, 2]),
            vision_token_ids=[98],
            images=[ImageMetadata(0, 1, pixels)],
            pixel_values=(pixels,),
        )


def test_validators_see_images_that_were_given_the_older_way():
    def older(*pixels, **options):
        return TextAndVisionContext(
            max_length=9, tokens=np.array([1, 2]), pixel_values=pixels, **options
        )

    one, two = older(PIXELS), older(PIXELS, PIXELS)
    v.validate_initial_prompt_has_image(one)
    v.validate_only_one_image(one)
    with pytest.raises(InputError, match="wanted at most one image, got 2"):
        v.validate_only_one_image(two)
    with pytest.raises(InputError, match="wanted an image in the prompt, got none"):
        v.validate_initial_prompt_has_image(older())
    for validate in (v.validate_aspect_ratio_args, v.validate_image_grid_thw_args):
        with pytest.raises(InputError, match="among extra_model_args"):
            validate(one)
    v.validate_image_grid_thw_args(older(PIXELS, extra_model_args={"image_grid_thw": PIXELS}))
    assert one.needs_vision_encoding
    one.tokens.chunk(1)
    one.update(3)
    assert one.needs_vision_encoding
    one.update(3)
    assert not one.needs_vision_encoding
    one.reset()
    assert one.needs_vision_encoding
