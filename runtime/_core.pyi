"""Heddle's C++ runtime, as it is seen from Python."""

import os
from collections.abc import Sequence
from typing import Any, Literal, final

import numpy
import numpy.typing

@final
class Checksum:
    """XXH3 of 64 bits, seed 0, of bytes that come in parts."""

    def update(self, data: Any) -> None:
        """Takes the bytes of a contiguous buffer."""

    @property
    def value(self) -> int:
        """The checksum of all bytes so far."""

def path_text(path: str | os.PathLike[str]) -> str:
    """The text of a path.

    Raises:
        InputError: It is no path, or has a NUL, where the system would stop and open another file.
    """

def dtype_size(dtype: Any) -> int:
    """Bytes of one element."""

def live_objects() -> dict[str, int]:
    """How many objects of each kind are alive, by kind."""

def copy_count() -> int:
    """How many arrays were copied so far because their layout could not be used."""

def memory(device: Device) -> dict[str, int]:
    """Bytes of Heddle on a device, by kind."""

def cpu_info() -> dict[str, Any]:
    """Cores, those that can be used, AMX, and what is lacking for each architecture of code."""

def cuda_info() -> dict[str, Any]:
    """Why CUDA cannot be used (or an empty text), the driver's CUDA version, the GPUs."""

def accelerator_count() -> int:
    """How many GPUs can be used; 0 where there is no usable driver."""

@final
class Device:
    """A place for memory and programs, by name. Equal names are equal devices."""

    def __init__(self, kind: str, index: int = 0) -> None:
        """A name.

        Raises:
            DeviceError: It is not `"cpu"` and 0, or `"cuda"` and an index of 0 or more.
        """

    @property
    def kind(self) -> Literal["cpu", "cuda"]: ...
    @property
    def index(self) -> int: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

def CPU() -> Device:  # noqa: N802
    """The host."""

def Accelerator(index: int = 0) -> Device:  # noqa: N802
    """The GPU with this index; whether it is there shows when it is used."""

@final
class Buffer:
    """A dense row-major tensor in the memory of one device.

    NumPy, torch, CuPy and others take it without a copy: through `__array_interface__` on a CPU,
    `__cuda_array_interface__` on a GPU, and DLPack (versions 0 and 1) on both.

    On a GPU a `Buffer` may be handed out before the work that makes it is done. What Heddle does
    with it runs behind that; DLPack makes the consumer's stream wait for it, and the CUDA array
    interface names a stream to wait for; `to_numpy`, `item`, `to` a CPU and `synchronize` make the
    host wait, and raise what a kernel has refused. Its memory ends behind all work that Heddle has
    given out for it and behind the driver's default stream: who reads it on a stream of their own
    that does not wait for that one keeps the `Buffer` until they are done.
    """

    def __init__(self, dtype: Any, shape: Sequence[int], device: Device = ...) -> None:
        """New memory, 64-byte aligned, contents unknown.

        Args:
            dtype: A name such as `"float32"`, or an object with that `name`.
            shape: Sizes of 0 or more, at most 16.
            device: Where the memory is.

        Raises:
            InputError: The dtype or the shape is wrong.
            DeviceError: The device is not there, or its memory is full.
        """

    @staticmethod
    def from_numpy(array: Any, dtype: Any = None) -> Buffer:
        """A buffer over an array's memory; a read-only array gives a buffer that is not writable.

        An array that is not dense, row-major and aligned to its elements is copied, which
        `copy_count` counts. `dtype` renames elements of the same size: bfloat16 has no NumPy dtype,
        so its bits come as uint16 with `dtype="bfloat16"` (or as `ml_dtypes.bfloat16` without).

        Memory of a GPU is read behind what the array's library has started. That library knows of
        no later reads through the buffer: before it writes the memory again, wait for them.

        Raises:
            InputError: The dtype is none of Heddle's, or not in native byte order; or the array
                has a mask.
        """

    @staticmethod
    def from_dlpack(tensor: Any) -> Buffer:
        """A buffer over the memory of an object with `__dlpack__`, as `from_numpy`."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def device(self) -> Device: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def writable(self) -> bool: ...
    @property
    def ready(self) -> bool:
        """Whether the work that makes it is done; on a CPU always."""

    def synchronize(self) -> None:
        """Waits for the work that makes it.

        Raises:
            InputError: The call that made it, or one whose outputs that call has read, was given
                values that a kernel has refused; with the words that a CPU has for it.
            DeviceError: The device is lost; with the kernels that may have caused it.
        """

    def to(self, device: Device) -> Buffer:
        """This buffer where it is on `device` already, else a copy there.

        To the host it waits as `synchronize`, between GPUs it does not.
        """

    def copy(self) -> Buffer:
        """A copy in new memory of the same device, in stream order."""

    def to_numpy(self) -> numpy.typing.NDArray[Any]:
        """A view of memory on a CPU, a copy of memory on a GPU.

        bfloat16 comes as `ml_dtypes.bfloat16` where that package is installed, else as uint16.
        """

    def item(self) -> Any:
        """The one element, as a Python number."""

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> numpy.typing.NDArray[Any]: ...
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class Stream:
    """A queue of work on a GPU, beside the one that calls have without it.

    Work that it was given goes on when the `Stream` itself is dropped.
    """

    def __init__(self, device: Device) -> None:
        """A new stream; it does not wait for the driver's default stream.

        Raises:
            DeviceError: The device is a CPU, or not there, or lost.
        """

    @property
    def device(self) -> Device: ...
    @property
    def handle(self) -> int:
        """The driver's `CUstream`, as a number."""

    def __cuda_stream__(self) -> tuple[int, int]:
        """The protocol of NVIDIA's `cuda.core`: version 0 and the handle."""

    def record(self) -> Event:
        """The point that all work given so far has reached when it is done."""

    def wait(self, event: Event) -> None:
        """Lets what comes later wait for `event`, of any stream or GPU, and the host go on."""

    def synchronize(self) -> None:
        """Waits for all work given so far.

        Raises:
            InputError: A call was given values that a kernel has refused, and nobody was told yet.
            DeviceError: The device is lost.
        """

@final
class Event:
    """A point in the work of a stream, from `Stream.record`."""

    @property
    def done(self) -> bool:
        """Whether the work before it is done; does not wait."""

    def synchronize(self) -> None:
        """Waits for it.

        Raises:
            DeviceError: The device is lost.
        """

@final
class Artifact:
    """A verified artifact: what it needs, what it takes and gives, and what is in it."""

    @staticmethod
    def load(path: str | os.PathLike[str], name: str | os.PathLike[str] | None = None) -> Artifact:
        """Maps and verifies a file.

        Args:
            path: Where it is.
            name: What `Artifact.path` and errors call it; None: `path`.

        Raises:
            ArtifactError: With the reason why the file is refused.
            InputError: `path` or `name` is no path, or has a NUL.
        """

    @staticmethod
    def from_bytes(data: Any, copy: bool = True) -> Artifact:
        """Verifies a copy of bytes, as `load`.

        Without `copy` they are used where they are: do not change them.

        Raises:
            ArtifactError: With the reason why they are refused.
            InputError: `data` has no contiguous bytes; or they lie at no multiple of 64, and are
                not to be copied.
        """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file in one step: nobody sees a part of it.

        Raises:
            ArtifactError: It cannot be written; what was there stays.
            InputError: `path` is no path, or has a NUL.
        """

    def to_bytes(self) -> bytes:
        """The file's bytes."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def provenance(self) -> dict[str, str]: ...
    @property
    def symbols(self) -> list[dict[str, Any]]: ...
    @property
    def inputs(self) -> list[dict[str, Any]]: ...
    @property
    def outputs(self) -> list[dict[str, Any]]: ...
    @property
    def weights(self) -> list[dict[str, Any]]: ...
    @property
    def programs(self) -> list[dict[str, Any]]: ...
    @property
    def requirements(self) -> list[dict[str, Any]]:
        """For each program: its target, and the architectures that every kernel has code for."""

    def describe(self) -> dict[str, Any]:
        """All of it as plain data that goes into JSON."""

@final
class TensorSpec:
    """Name, dtype and shape of an input or output; symbolic sizes are texts."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int | str, ...]: ...

def replay(
    calls: Sequence[tuple[Model, tuple[Any, ...], tuple[Any, ...]]],
    repeats: int = 1,
    count: int = 1,
) -> list[float]:
    """Times calls on a GPU, without the host: what a benchmark wants.

    Args:
        calls: A model, its inputs, and the memory of its outputs, all on one device.
        repeats: How often all of them run, in order, in one CUDA graph.
        count: How often that graph is launched, after two launches that do not count.

    Returns:
        For each launch the seconds that passed on the device.

    Raises:
        InputError: As `Model.execute`, or the models are on several devices, or a kernel has
            refused a value.
        DeviceError: The models are on a CPU, or the device failed.
    """

@final
class Model:
    """A loaded model. It may be used from many threads at once."""

    def execute(
        self, *inputs: Any, out: Sequence[Any] | None = None, stream: Any = None
    ) -> tuple[Any, ...]:
        """Runs the model; other Python threads run meanwhile.

        On a CPU it is done at return. On a GPU the work is given to a stream: the call waits for
        the copies of inputs that are on the host, never for a kernel. All that it uses is kept
        until that work is done, inputs that the caller drops included. The outputs' `Buffer`s say
        when that is, and raise what a kernel has refused; who looks at none of them is told by the
        next call of this model on this stream that finds it out, or by `Stream.synchronize`.

        Args:
            *inputs: In the order of `input_metadata`: NumPy arrays, Buffers, objects with
                `__cuda_array_interface__` or `__dlpack__`, or numbers for tensors of rank 0. What
                is on the host is copied to a GPU, and may change once this returns; what is on the
                GPU is used where it is, behind the stream that it comes with. That of a CUDA array
                interface waits in turn; other owners change their memory in the order of `stream`.
            out: Writable Buffers or arrays that receive the outputs; None: new Buffers. An output
                that is an input with changes (`ops.paged_write`) may be that input's memory.
            stream: For a GPU a `Stream`, one of CuPy or torch, an object with `__cuda_stream__`, or
                the number of a `CUstream`; None: a stream that all such calls on the device share.

        Returns:
            The outputs in the order of `output_metadata`; `out` as a tuple where it was given.

        Raises:
            InputError: Wrong number, dtype, shape, device or values, with the name of the input; or
                a stream that is not of the model's device.
            DeviceError: The device failed: the model, and all others on it, are lost where the text
                says so.
        """

    def __call__(
        self, *inputs: Any, out: Sequence[Any] | None = None, stream: Any = None
    ) -> tuple[Any, ...]:
        """The same as `execute`."""

    def profile(self, *inputs: Any) -> list[dict[str, Any]]:
        """Runs the model once and drops its outputs; what each step with work took, in order.

        Each row has `kernel` and `label` (the ops and the user's line), `seconds`, `work`
        (elementary operations or bytes, whichever are more, as the launch estimates them) and
        `bytes` (of all buffers that the step was given).

        Raises:
            InputError: As `execute`.
            DeviceError: The model is not on a CPU.
        """

    @property
    def name(self) -> str: ...
    @property
    def artifact(self) -> Artifact: ...
    @property
    def device(self) -> Device: ...
    @property
    def input_metadata(self) -> list[TensorSpec]: ...
    @property
    def output_metadata(self) -> list[TensorSpec]: ...
    @property
    def signature(self) -> str:
        """`"mlp(x: float32[batch, 384]) -> (y: float32[batch, 10])"`."""

    @property
    def archs(self) -> list[str]:
        """The architecture of the code that was chosen for each kernel."""

    @property
    def diagnostics(self) -> str:
        """Why calls are slower than they should be, as far as Heddle saw; empty: it saw nothing.

        On a GPU the first CUDA graph of calls that could not be made: they run all the same.
        """

    @property
    def state_bytes(self) -> int:
        """What init made and the model keeps, such as packed weights."""

@final
class Safetensors:
    """A safetensors file, mapped.

    Raises:
        ArtifactError: There is none, or it is truncated or wrong.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None: ...
    def tensors(self) -> dict[str, Buffer]:
        """All tensors, read-only and where they are, which keep the mapping."""

    def forget_pages(self) -> None:
        """Gives the pages back that were read; they come in again when they are touched."""

@final
class Session:
    """The devices of an `InferenceSession`."""

    def __init__(self, devices: Sequence[Device], threads: int, pin: bool) -> None: ...
    def load(
        self,
        artifact: Artifact,
        weights: dict[str, Any] | str | os.PathLike[str] | None = None,
        device: Device | None = None,
    ) -> Model: ...
