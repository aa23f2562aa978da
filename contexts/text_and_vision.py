"""A text request with images in its prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from heddle.contexts.numeric import as_array, whole
from heddle.contexts.text import TextContext


@dataclass(frozen=True, eq=False)
class ImageMetadata:
    """One image of a prompt.

    Attributes:
        start_idx: Position of its first token.
        end_idx: Position after its last token.
        pixel_values: What the vision encoder reads.
        image_hash: Identifies the image to a cache; without one, none shares it.

    Raises:
        TypeError: A position or the hash is no integer.
        ValueError: The positions are negative, or not in order.
    """

    start_idx: int
    end_idx: int
    pixel_values: npt.NDArray[Any]
    image_hash: int | None = None

    def __post_init__(self) -> None:
        for name in ("start_idx", "end_idx", "image_hash"):
            value = getattr(self, name)
            if name != "image_hash" or value is not None:
                object.__setattr__(self, name, whole(f"ImageMetadata.{name}", value))
        object.__setattr__(self, "pixel_values", as_array(self.pixel_values))
        if self.start_idx < 0 or self.end_idx <= self.start_idx:
            raise ValueError(
                f"ImageMetadata: wanted 0 <= start_idx < end_idx, got [{self.start_idx}, "
                f"{self.end_idx})"
            )


class TextAndVisionContext(TextContext):
    """A text context whose prompt holds images, each a run of vision tokens.

    The window to process never ends inside an image, unless the prompt is being chunked: where it
    does, a token that comes is a ValueError.

    Args:
        vision_token_ids: The tokens that may begin and end an image's run.
        images: The images, by ascending position.
        extra_model_args: Further arrays for the model, by name.
        pixel_values: The older way to give images, of which nothing but these arrays is known;
            instead of `images`.
        **options: Those of `TextContext`.

    Raises:
        ValueError: The images overlap, are not in order, leave the prompt, or do not lie on vision
            tokens; both `images` and `pixel_values`.
    """

    def __init__(
        self,
        *,
        vision_token_ids: Sequence[int] = (),
        images: Sequence[ImageMetadata] = (),
        extra_model_args: Mapping[str, npt.NDArray[Any]] | None = None,
        pixel_values: Sequence[npt.NDArray[Any]] = (),
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.vision_token_ids = [whole("vision_token_ids", token) for token in vision_token_ids]
        self.images = list(images)
        self.extra_model_args = {k: as_array(v) for k, v in (extra_model_args or {}).items()}
        self._loose_pixel_values = tuple(map(as_array, pixel_values))
        if self.images and self._loose_pixel_values:
            raise ValueError("TextAndVisionContext: wanted images or pixel_values, got both")
        self._check_images()
        self._check_position(self.tokens.current_position)

    def _check_images(self) -> None:
        before = 0
        for index, image in enumerate(self.images):
            if image.start_idx < before:
                raise ValueError(
                    f"images: wanted ascending spans that do not overlap, got image {index} at "
                    f"{image.start_idx} after one that ends at {before}"
                )
            before = image.end_idx
            if image.end_idx > len(self.tokens):
                raise ValueError(
                    f"images: wanted spans within the {len(self.tokens)} tokens, got image {index} "
                    f"that ends at {image.end_idx}"
                )
            for at in (image.start_idx, image.end_idx - 1):
                if self.tokens[at] not in self.vision_token_ids:
                    raise ValueError(
                        f"images: wanted a token of {self.vision_token_ids} at {at}, where image "
                        f"{index} begins or ends, got {self.tokens[at]}"
                    )

    def _check_position(self, position: int) -> None:
        for image in self.images:
            if image.start_idx < position < image.end_idx and not self.tokens.actively_chunked:
                raise ValueError(
                    f"current_position: wanted a position outside of images, got {position} in the "
                    f"image at [{image.start_idx}, {image.end_idx})"
                )

    @property
    def image_idx(self) -> int:
        """Index of the first image that is not encoded yet; the number of images if all are."""
        processed = self.tokens.processed_length
        return next(
            (i for i, image in enumerate(self.images) if processed < image.end_idx),
            len(self.images),
        )

    @property
    def next_images(self) -> list[ImageMetadata]:
        """The images that are not encoded yet."""
        return self.images[self.image_idx :]

    @property
    def needs_vision_encoding(self) -> bool:
        """Whether an image is not encoded yet.

        Where images are is not known of those given by `pixel_values`: they wait until the prompt
        is processed.
        """
        if self._loose_pixel_values:
            return self.needs_ce
        return self.image_idx < len(self.images)

    @property
    def pixel_values(self) -> tuple[npt.NDArray[Any], ...]:
        """What the vision encoder reads of each image."""
        return tuple(image.pixel_values for image in self.images) or self._loose_pixel_values

    def compute_image_aligned_idx(self, idx: int) -> int:
        """The start of the image that holds position `idx`, else `idx`."""
        for image in self.images:
            if image.start_idx <= idx < image.end_idx:
                return image.start_idx
        return idx

    def cache_content(self, start: int, end: int) -> bytes | None:
        """As `TextContext.cache_content`: the tokens, and which images lie where among them.

        None also where an image has no hash, and where images are given by `pixel_values` alone,
        of which it is not known where they are.
        """
        tokens = super().cache_content(start, end)
        if tokens is None or self._loose_pixel_values:
            return None
        images = [
            (image.start_idx - start, image.end_idx - start, image.image_hash)
            for image in self.images
            if image.start_idx < end and start < image.end_idx
        ]
        if any(image_hash is None for *_, image_hash in images):
            return None
        return tokens + repr(images).encode() if images else tokens

    def _refuse_position(self) -> None:
        """Raises ValueError where the window ends inside an image."""
        self._check_position(self.tokens.current_position)

    def apply_processing_offset(self, offset: int) -> None:
        """As `TextContext.apply_processing_offset`.

        Raises:
            ValueError: Besides, the position would lie inside an image.
        """
        self._check_position(self.tokens.current_position + self.tokens.processing_offset - offset)
        super().apply_processing_offset(offset)

    def set_token_indices(
        self,
        start_idx: int | None = None,
        active_idx: int | None = None,
        end_idx: int | None = None,
        committed_idx: int | None = None,
    ) -> None:
        """As `TextContext.set_token_indices`.

        Raises:
            ValueError: Besides, the position would lie inside an image, or an image would be cut.
        """
        self._check_position(self.active_idx if active_idx is None else active_idx)
        self._check_length(self.end_idx if end_idx is None else end_idx)
        super().set_token_indices(start_idx, active_idx, end_idx, committed_idx)

    def rollback(self, idx: int) -> None:
        """As `TextContext.rollback`.

        Raises:
            ValueError: Besides, an image would be cut.
        """
        self._check_length(len(self.tokens) - idx)
        super().rollback(idx)

    def _check_length(self, length: int) -> None:
        end = self.images[-1].end_idx if self.images else 0
        if length < end:
            raise ValueError(
                f"length: wanted at least {end}, where the last image ends, got {length}"
            )
