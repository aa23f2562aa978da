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
    Event,
    Model,
    Stream,
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
from heddle.runtime.memory import MemoryStatistics, memory_statistics
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
    "Event",
    "GraphError",
    "HeddleError",
    "InferenceSession",
    "InputError",
    "MemoryStatistics",
    "Model",
    "Stream",
    "TensorSpec",
    "accelerator_count",
    "memory_statistics",
    "replay",
]
