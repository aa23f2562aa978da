import base64
import io

import numpy as np
import pytest
from PIL import Image

from heddle.contexts import (
    GenerationStatus,
    InputError,
    PixelContext,
    TokenBuffer,
    msgpack_numpy_decoder,
    msgpack_numpy_encoder,
)


@pytest.fixture
def context():
    return PixelContext(tokens=TokenBuffer(np.array([1, 2])), request_id="p")


def decoded(content):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(content.data))))


def test_defaults(context):
    assert (context.height, context.width, context.num_inference_steps) == (1024, 1024, 50)
    assert (context.guidance_scale, context.true_cfg_scale) == (3.5, 1.0)
    assert (context.num_warmup_steps, context.num_images_per_prompt) == (0, 1)
    for name in ("mask", "tokens_2", "negative_tokens", "negative_tokens_2", "guidance"):
        assert getattr(context, name) is None
    for name in ("timesteps", "sigmas", "latents", "latent_image_ids"):
        assert (getattr(context, name).dtype, getattr(context, name).size) == (np.float32, 0)
    assert context.extra_params == {}


def test_steps_status_and_reset(context):
    assert context.compute_num_available_steps(3) == 50
    context.status = GenerationStatus.CANCELLED
    assert context.is_done
    context.reset()
    assert not context.is_done


@pytest.mark.parametrize("image_format", ["png", "webp"])
def test_images_come_back_encoded(context, image_format):
    pixels = np.zeros((2, 8, 8, 3), np.uint8)
    pixels[1] = 255
    context.update(pixels)
    output = context.to_generation_output(image_format)
    assert (output.request_id, output.is_done) == ("p", False)
    assert [content.format for content in output.output] == [image_format] * 2
    assert [decoded(content).mean() for content in output.output] == [0, 255]


def test_floats_are_taken_from_zero_to_one(context):
    context.update(np.array([[[0.0], [0.5], [1.0], [7.0]]], np.float32))
    (content,) = context.to_generation_output().output
    assert decoded(content).tolist() == [[0, 128, 255, 255]]


@pytest.mark.parametrize(
    ("latents", "reason"),
    [
        (np.zeros((4, 4)), r"got \[4, 4\]"),
        (np.zeros((1, 4, 4, 2)), r"got \[1, 4, 4, 2\]"),
        (np.zeros((0, 4, 4, 3)), r"got \[0, 4, 4, 3\]"),
        (np.zeros((4, 4, 3), np.int32), "got int32"),
        (np.full((4, 4, 3), np.nan), "got nan"),
        (np.ma.zeros((4, 4, 3)), "wanted an array without a mask, got a MaskedArray"),
    ],
)
def test_what_is_no_image_is_refused(context, latents, reason):
    context.update(latents)
    with pytest.raises(ValueError, match=reason):
        context.to_generation_output()


@pytest.mark.parametrize(("channels", "image_format"), [(3, "nope"), (4, "jpeg")])
def test_a_format_must_exist_and_fit(context, channels, image_format):
    context.update(np.zeros((4, 4, channels), np.uint8))
    with pytest.raises(ValueError, match=f"wanted a format that holds .*, got '{image_format}'"):
        context.to_generation_output(image_format)


@pytest.mark.parametrize("image_format", [None, 5, ""])
def test_what_names_no_format_is_refused(context, image_format):
    context.update(np.zeros((1, 2, 2, 3), np.uint8))
    wanted = f"^images: wanted a format that Pillow writes, .*, got {image_format!r}$"
    with pytest.raises(ValueError, match=wanted):
        context.to_generation_output(image_format)


def test_snapshots_restore_status_and_latents(context):
    before = context.snapshot()
    context.update(np.ones(3, np.float32))
    context.status = GenerationStatus.CANCELLED
    context.restore(before)
    assert (context.is_done, context.latents.size) == (False, 0)


def test_prompts_may_be_arrays_and_return_from_the_wire():
    tokens = np.array([1, 2])
    context = PixelContext(tokens=tokens, tokens_2=tokens, negative_tokens=tokens)
    decode = msgpack_numpy_decoder(PixelContext)
    found = decode(msgpack_numpy_encoder()(context))
    for name in ("tokens", "tokens_2", "negative_tokens"):
        assert getattr(found, name).all.tolist() == [1, 2]
    assert found.negative_tokens_2 is None


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("height", 0, "an integer, at least 1, got 0"),
        ("width", 1.5, "an integer, at least 1, got 1.5"),
        ("num_inference_steps", -3, "an integer, at least 1, got -3"),
        ("num_warmup_steps", -1, "an integer, at least 0, got -1"),
        ("num_images_per_prompt", True, "an integer, at least 1, got True"),
        ("guidance_scale", float("nan"), "a finite number, got nan"),
        ("true_cfg_scale", "1", "a finite number, got '1'"),
    ],
)
def test_numbers_that_no_image_has_are_refused(name, value, wanted):
    with pytest.raises(ValueError, match=f"^PixelContext.{name}: wanted {wanted}$"):
        PixelContext(tokens=np.array([1]), **{name: value})


def test_numbers_on_the_wire_are_checked_as_well():
    context = PixelContext(tokens=np.array([1]))
    context.height = -1
    with pytest.raises(InputError) as refused:
        msgpack_numpy_decoder(PixelContext)(msgpack_numpy_encoder()(context))
    assert str(refused.value) == (
        "message: wanted PixelContext, got another value: PixelContext.height: wanted an integer, "
        "at least 1, got -1"
    )
