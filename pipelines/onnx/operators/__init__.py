"""Every ONNX operator that Heddle builds; importing this fills the table."""

from heddle.pipelines.onnx.operators import (  # noqa: F401
    activations,
    arithmetic,
    attention,
    attention_contrib,
    convolution,
    grid,
    indexing,
    linear,
    logic,
    normalization,
    pooling,
    quantization,
    recurrent,
    reductions,
    resizing,
    rotary,
    scattering,
    shaping,
    signals,
    trigonometry,
)
