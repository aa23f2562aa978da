"""Run compiled models: load an artifact, bind weights, execute. Needs no compiler.

Example:
    ```python
    from heddle.runtime import CPU, InferenceSession

    model = InferenceSession(devices=[CPU()]).load("mlp.heddle", weights="mlp.safetensors")
    (y,) = model.execute(x)  # NumPy, CuPy, torch or a Buffer in; Buffers out
    y.to_numpy()
    ```
"""

from heddle.runtime._core import (
    CPU,
    Accelerator,
    Artifact,
    Buffer,
    Device,
    Model,
    TensorSpec,
    accelerator_count,
    replay,
)
from heddle.runtime.errors import (
    ArtifactError,
    ArtifactReason,
    CompileError,
    DeviceError,
    GraphError,
    HeddleError,
    InputError,
)
from heddle.runtime.session import InferenceSession

__all__ = [
    "CPU",
    "Accelerator",
    "Artifact",
    "ArtifactError",
    "ArtifactReason",
    "Buffer",
    "CompileError",
    "Device",
    "DeviceError",
    "GraphError",
    "HeddleError",
    "InferenceSession",
    "InputError",
    "Model",
    "TensorSpec",
    "accelerator_count",
    "replay",
]
