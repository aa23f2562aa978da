"""Where the arrays of a step are written and read: the same memory on a CPU, two on a GPU.

On a GPU the host writes page-locked memory, from which copies run on the step's stream while the
host goes on; the device reads buffers of `heddle.runtime` as CuPy arrays. CuPy is loaded when the
first such memory is made.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from heddle.runtime import Buffer, Device, DeviceError

# Name -> (dtype, shape).
Layout = Mapping[str, tuple[str, tuple[int, ...]]]
HostArrays = dict[str, npt.NDArray[Any]]


class HostMemory:
    """Arrays of a CPU: what is written is what is read.

    Attributes:
        buffers: The memory, by name.
        slots: The arrays to write, one set for each slot; here always one.
        arrays: The arrays to read.
        copies: How many copies between host and device were started; here none.
        stream: None: nothing runs on its own.
    """

    stream = None
    copies = 0

    def __init__(self, layout: Layout) -> None:
        self.buffers = {name: Buffer(dtype, shape) for name, (dtype, shape) in layout.items()}
        written: HostArrays = {name: buffer.to_numpy() for name, buffer in self.buffers.items()}
        for array in written.values():
            array[...] = 0
        self.slots = [written]
        self.arrays: dict[str, Any] = written

    def turn(self) -> int:
        """The slot to write next: nothing reads it any more."""
        return 0

    def send(self, parts: Mapping[str, slice]) -> None:
        """Nothing to do: what is written is what is read."""

    def fetch(self, array: Any) -> npt.NDArray[Any]:
        """`array` as a NumPy array, where it is."""
        return np.asarray(array)


class DeviceMemory:
    """Arrays of a GPU, written through page-locked memory on the host.

    A slot is not written again before the copies out of it are done: with two slots the host
    prepares a step while the copies of the one before still run.

    Args:
        layout: What to make.
        device: The GPU.
        slots: How many sets of arrays the host writes in turn.
        returned: Most bytes that `fetch` brings back.
        stream: The `cupy.cuda.Stream` that copies run on; None: a new one.

    Raises:
        DeviceError: CuPy is not installed, or the device is not there.
    """

    def __init__(
        self, layout: Layout, device: Device, slots: int, returned: int, stream: Any
    ) -> None:
        try:
            self._cupy: Any = import_module("cupy")
        except ImportError as error:
            raise DeviceError(
                f"{device.kind}:{device.index}: wanted CuPy for the arrays of a step, got none: "
                f"{error}"
            ) from error
        cuda = self._cupy.cuda
        self.buffers = {
            name: Buffer(dtype, shape, device) for name, (dtype, shape) in layout.items()
        }
        with cuda.Device(device.index):
            self.stream = cuda.Stream(non_blocking=True) if stream is None else stream
            self.arrays = {name: self._view(buffer) for name, buffer in self.buffers.items()}
            self.slots = [
                {name: self._page_locked(*row) for name, row in layout.items()}
                for _ in range(slots)
            ]
            self._returned = self._page_locked("uint8", (returned,))
            self._copied = [cuda.Event(disable_timing=True) for _ in range(slots)]
            self._made, self._arrived = (cuda.Event(disable_timing=True) for _ in range(2))
        self._slot = 0
        self.copies = 0
        # Page-locked memory goes back to a pool when it dies: not while a copy uses it.
        weakref.finalize(self, _wait, self._copied).atexit = False

    def _view(self, buffer: Buffer) -> Any:
        if buffer.nbytes == 0:  # no address to make a view of
            return self._cupy.empty(buffer.shape, buffer.dtype)
        return self._cupy.asarray(buffer)

    def _page_locked(self, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        count = math.prod(shape)
        memory = self._cupy.cuda.alloc_pinned_memory(max(1, count * np.dtype(dtype).itemsize))
        array: npt.NDArray[Any] = np.frombuffer(memory, dtype, count).reshape(shape)
        array[...] = 0
        return array

    def turn(self) -> int:
        """The slot to write next; waits until nothing is copied out of it any more."""
        self._slot = (self._slot + 1) % len(self.slots)
        self._copied[self._slot].synchronize()
        return self._slot

    def send(self, parts: Mapping[str, slice]) -> None:
        """Start to copy these parts of the slot to the device, on the stream."""
        written = self.slots[self._slot]
        for name, part in parts.items():
            if written[name].size:
                self.arrays[name][part].set(written[name][part], stream=self.stream)
                self.copies += 1
        self._copied[self._slot].record(self.stream)

    def fetch(self, array: Any) -> npt.NDArray[Any]:
        """`array`, of one dimension, on the host, after one copy into page-locked memory.

        The copy runs on the stream, after what made `array`: DLPack makes this stream wait for what
        wrote a Buffer, and for the current stream of another library. CuPy's arrays do not know
        theirs: call this where the stream that they were made on is CuPy's current one. What is on
        the host already stays where it is. The result is valid until the next call.

        Raises:
            ValueError: `array` has more bytes than the memory, or another rank.
            InputError: `array` is a Buffer of a call that was given values a kernel has refused.
        """
        if not hasattr(array, "__cuda_array_interface__"):
            return np.asarray(array)
        if isinstance(array, self._cupy.ndarray):
            self._made.record(self._cupy.cuda.get_current_stream())
            self.stream.wait_event(self._made)
        with self.stream:
            source = self._cupy.from_dlpack(array)
        if source.ndim != 1 or source.nbytes > len(self._returned):
            raise ValueError(
                f"fetch: wanted one dimension and at most {len(self._returned)} bytes, got shape "
                f"{list(source.shape)} of {source.dtype}"
            )
        fetched: npt.NDArray[Any] = self._returned[: source.nbytes].view(source.dtype)
        source.get(stream=self.stream, out=fetched, blocking=False)
        self.copies += 1
        self._arrived.record(self.stream)
        self._arrived.synchronize()
        if isinstance(array, Buffer):
            array.synchronize()  # no wait any more, but it tells what a kernel has refused
        return fetched


StepMemory = HostMemory | DeviceMemory


def step_memory(
    layout: Layout, device: Device, *, slots: int = 1, returned: int = 0, stream: Any = None
) -> StepMemory:
    """Memory for the arrays of a step on `device`, zero at the start where the host writes.

    See `DeviceMemory` for the arguments; on a CPU there is no stream, and one slot is enough.
    """
    if device.kind == "cpu":
        return HostMemory(layout)
    return DeviceMemory(layout, device, slots, returned, stream)


def _wait(events: Sequence[Any]) -> None:
    for event in events:
        event.synchronize()
