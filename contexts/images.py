"""Arrays to image files, by Pillow."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from heddle.contexts.numeric import is_masked


def encode_images(pixels: npt.NDArray[Any], image_format: str) -> list[str]:
    """Each image of `pixels` as a file, base64.

    Args:
        pixels: Shape [images, height, width, channels] or [height, width, channels], channels 1, 3
            or 4; uint8 as it is, floats from 0 to 1 (values beyond are cut off).
        image_format: A format that Pillow writes, for example `png`, `jpeg` or `webp`.

    Raises:
        ValueError: Another shape, dtype or format, a mask, or a float that is no number.
    """
    if not isinstance(image_format, str) or not image_format:
        raise ValueError(
            f"images: wanted a format that Pillow writes, such as 'png', got {image_format!r}"
        )
    if is_masked(pixels):
        raise ValueError("images: wanted an array without a mask, got a MaskedArray")
    if pixels.ndim not in (3, 4) or pixels.shape[-1] not in (1, 3, 4) or not pixels.size:
        raise ValueError(
            "images: wanted the shape [images, height, width, channels] or [height, width, "
            f"channels] with 1, 3 or 4 channels, got {list(pixels.shape)}"
        )
    if np.issubdtype(pixels.dtype, np.floating):
        if np.isnan(pixels).any():
            raise ValueError("images: wanted numbers from 0 to 1, got nan")
        pixels = np.rint(np.clip(pixels.astype(np.float32), 0, 1) * 255).astype(np.uint8)
    elif pixels.dtype != np.uint8:
        raise ValueError(f"images: wanted uint8 or floats from 0 to 1, got {pixels.dtype}")
    if pixels.ndim == 3:
        pixels = pixels[np.newaxis]
    if pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    return [_encode(image, image_format) for image in pixels]


def _encode(image: npt.NDArray[np.uint8], image_format: str) -> str:
    file = io.BytesIO()
    try:
        Image.fromarray(np.ascontiguousarray(image)).save(file, image_format)
    except (KeyError, OSError) as error:
        raise ValueError(
            f"images: wanted a format that holds {image.shape}, got {image_format!r}"
        ) from error
    return base64.b64encode(file.getvalue()).decode()
