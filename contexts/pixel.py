"""An image request: prompt tokens, noise schedule, latents, and the images at the end."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from heddle.contexts.numeric import as_array, is_number, is_whole, text
from heddle.contexts.outputs import GenerationOutput, OutputImageContent
from heddle.contexts.tokens import TokenArray, TokenBuffer
from heddle.contexts.values import GenerationStatus, RequestID

Floats = npt.NDArray[np.float32]

COUNTS = {
    "height": 1,
    "width": 1,
    "num_inference_steps": 1,
    "num_warmup_steps": 0,
    "num_images_per_prompt": 1,
}
"""The least of each."""

WEIGHTS = ("guidance_scale", "true_cfg_scale")


def _floats(given: Floats | None) -> Floats:
    array: Floats = np.zeros(0, np.float32) if given is None else as_array(given)
    return array


def _buffer(tokens: TokenBuffer | TokenArray | None) -> TokenBuffer | None:
    return None if tokens is None else TokenBuffer.of(tokens)


class PixelContext:
    """All that a model needs to generate images; nothing that a user reads.

    Args:
        tokens: Prompt of the primary text encoder; it and the others may be arrays.
        request_id: Names the request.
        model_name: Which model serves it.
        mask: Attention mask of the text encoder, bool; numbers other than 0 count as True.
        tokens_2: Prompt of the secondary text encoder.
        negative_tokens: What to avoid, for the primary encoder.
        negative_tokens_2: What to avoid, for the secondary encoder.
        extra_params: Further arrays for the model, by name.
        timesteps: Schedule of time steps.
        sigmas: Schedule of noise levels.
        latents: Noise at the start, images at the end: [images, height, width, channels].
        latent_image_ids: Positions of the latents.
        height: Of an image, pixels.
        width: Of an image, pixels.
        num_inference_steps: Denoising steps.
        guidance_scale: Weight of the prompt, for models that learned it.
        guidance: The same as an array.
        true_cfg_scale: Weight of the prompt against `negative_tokens`.
        num_warmup_steps: Steps before the schedule proper.
        num_images_per_prompt: How many images.
        status: Where generation stands.

    Raises:
        TypeError: A name is no text.
        ValueError: A size or a count is no integer or too small, or a weight is no finite number.
    """

    def __init__(
        self,
        *,
        tokens: TokenBuffer | TokenArray,
        request_id: RequestID | str | None = None,
        model_name: str = "",
        mask: npt.NDArray[np.bool_] | None = None,
        tokens_2: TokenBuffer | TokenArray | None = None,
        negative_tokens: TokenBuffer | TokenArray | None = None,
        negative_tokens_2: TokenBuffer | TokenArray | None = None,
        extra_params: Mapping[str, npt.NDArray[Any]] | None = None,
        timesteps: Floats | None = None,
        sigmas: Floats | None = None,
        latents: Floats | None = None,
        latent_image_ids: Floats | None = None,
        height: int = 1024,
        width: int = 1024,
        num_inference_steps: int = 50,
        guidance_scale: float = 3.5,
        guidance: Floats | None = None,
        true_cfg_scale: float = 1.0,
        num_warmup_steps: int = 0,
        num_images_per_prompt: int = 1,
        status: GenerationStatus = GenerationStatus.ACTIVE,
    ) -> None:
        self.tokens = TokenBuffer.of(tokens)
        self.request_id = RequestID(request_id)
        self.model_name = text("model_name", model_name)
        self.mask = None if mask is None else np.asarray(mask, np.bool_)
        self.tokens_2 = _buffer(tokens_2)
        self.negative_tokens = _buffer(negative_tokens)
        self.negative_tokens_2 = _buffer(negative_tokens_2)
        self.extra_params = {k: as_array(v) for k, v in (extra_params or {}).items()}
        self.timesteps = _floats(timesteps)
        self.sigmas = _floats(sigmas)
        self.latents: npt.NDArray[Any] = _floats(latents)
        self.latent_image_ids = _floats(latent_image_ids)
        self.height = height
        self.width = width
        self.num_inference_steps = num_inference_steps
        self.guidance_scale = guidance_scale
        self.guidance = None if guidance is None else as_array(guidance)
        self.true_cfg_scale = true_cfg_scale
        self.num_warmup_steps = num_warmup_steps
        self.num_images_per_prompt = num_images_per_prompt
        self.status = GenerationStatus(status)
        for name, least in COUNTS.items():
            value = getattr(self, name)
            if not is_whole(value) or value < least:
                raise ValueError(
                    f"PixelContext.{name}: wanted an integer, at least {least}, got {value!r}"
                )
        for name in WEIGHTS:
            value = getattr(self, name)
            if not is_number(value) or not math.isfinite(value):
                raise ValueError(f"PixelContext.{name}: wanted a finite number, got {value!r}")

    @property
    def is_done(self) -> bool:
        """Whether generation has ended."""
        return self.status.is_done

    def compute_num_available_steps(self, max_seq_len: int) -> int:
        """`num_inference_steps`, whatever `max_seq_len`."""
        return self.num_inference_steps

    def reset(self) -> None:
        """Make the request active again."""
        self.status = GenerationStatus.ACTIVE

    def update(self, latents: npt.NDArray[Any]) -> None:
        """Replace the latents."""
        self.latents = latents

    def snapshot(self) -> dict[str, Any]:
        """Everything that can change, apart from this context; for `restore`."""
        return {"status": self.status, "latents": copy.deepcopy(self.latents)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Go back to what `snapshot` returned; it can be restored again."""
        self.status = snapshot["status"]
        self.latents = copy.deepcopy(snapshot["latents"])

    def to_generation_output(self, image_format: str = "png") -> GenerationOutput:
        """The latents as image files.

        The latents must be images by now: [images, height, width, channels] or [height, width,
        channels], channels 1, 3 or 4; uint8 as it is, floats from 0 to 1.

        Raises:
            ValueError: Another rank, number of channels, dtype, or image format.
        """
        from heddle.contexts.images import encode_images

        images = [
            OutputImageContent(data, image_format)
            for data in encode_images(self.latents, image_format)
        ]
        return GenerationOutput(self.request_id, self.status, images)
