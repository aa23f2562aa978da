"""What models ask of vision requests; plain text contexts pass, except where images are a must."""

from __future__ import annotations

from heddle.contexts.text import TextContext
from heddle.contexts.text_and_vision import TextAndVisionContext
from heddle.runtime.errors import InputError


def _require(condition: bool, context: TextContext, wanted: str, got: str) -> None:
    if not condition:
        raise InputError(f"request {context.request_id}: wanted {wanted}, got {got}")


def _require_argument(context: TextContext, name: str) -> None:
    if isinstance(context, TextAndVisionContext) and context.needs_vision_encoding:
        _require(
            name in context.extra_model_args,
            context,
            f"{name} among extra_model_args, for its images",
            f"{sorted(context.extra_model_args)}",
        )


def validate_requires_vision_context(context: TextContext | TextAndVisionContext) -> None:
    """Refuse what is not a `TextAndVisionContext`.

    Raises:
        InputError: It is not.
    """
    _require(
        isinstance(context, TextAndVisionContext),
        context,
        "a TextAndVisionContext",
        type(context).__name__,
    )


def validate_initial_prompt_has_image(context: TextContext | TextAndVisionContext) -> None:
    """Refuse an initial prompt without an image.

    Raises:
        InputError: There is none.
    """
    if isinstance(context, TextAndVisionContext) and context.is_initial_prompt:
        _require(bool(context.pixel_values), context, "an image in the prompt", "none")


def validate_only_one_image(context: TextContext | TextAndVisionContext) -> None:
    """Refuse more than one image.

    Raises:
        InputError: There are more.
    """
    if isinstance(context, TextAndVisionContext):
        count = len(context.pixel_values)
        _require(count <= 1, context, "at most one image", f"{count}")


def validate_image_shape_5d(context: TextContext | TextAndVisionContext) -> None:
    """Refuse images whose pixel values do not have five dimensions.

    Raises:
        InputError: One has another number.
    """
    if isinstance(context, TextAndVisionContext):
        for pixels in context.pixel_values:
            _require(pixels.ndim == 5, context, "images of 5 dimensions", f"{pixels.ndim}")


def validate_aspect_ratio_args(context: TextContext | TextAndVisionContext) -> None:
    """Refuse images to encode without `aspect_ratio_ids` and `aspect_ratio_mask`.

    Raises:
        InputError: One of them is missing.
    """
    _require_argument(context, "aspect_ratio_ids")
    _require_argument(context, "aspect_ratio_mask")


def validate_image_grid_thw_args(context: TextContext | TextAndVisionContext) -> None:
    """Refuse images to encode without `image_grid_thw`.

    Raises:
        InputError: It is missing.
    """
    _require_argument(context, "image_grid_thw")


def validate_vision_position_ids(context: TextContext | TextAndVisionContext) -> None:
    """Refuse images to encode without `vision_position_ids`.

    Raises:
        InputError: It is missing.
    """
    _require_argument(context, "vision_position_ids")
