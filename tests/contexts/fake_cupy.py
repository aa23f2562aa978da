"""A stand-in for CuPy whose streams do nothing until somebody waits for them.

Device memory is a NumPy array that the host must not touch. Work on a stream is queued; it runs,
oldest first, when the stream or an event that was recorded on it is synchronised, or when another
stream that waits for it runs. So a staging array that is written too early, a missing wait and a
missing order between streams all show up as wrong data. `log` holds what has happened.
"""

import contextlib
import ctypes
import types

import numpy as np

log = []


class Stream:
    def __init__(self, non_blocking=False):
        self.queue = []
        self.done = 0

    def launch(self, work, name="kernel"):
        self.queue.append((name, work))

    def run_to(self, count):
        while self.done < min(count, len(self.queue)):
            name, work = self.queue[self.done]
            self.done += 1
            work()
            log.append(name)

    def synchronize(self):
        self.run_to(len(self.queue))

    def wait_event(self, event):
        self.launch(event.synchronize, "wait")

    def __enter__(self):
        _current.append(self)
        return self

    def __exit__(self, *_):
        _current.pop()


_current = [Stream()]


class Event:
    def __init__(self, disable_timing=False):
        assert disable_timing
        self.at = None

    def record(self, stream):
        self.at = (stream, len(stream.queue))

    def synchronize(self):
        log.append("wait for event")
        if self.at is not None:  # as in CUDA, an event that was never recorded is over
            self.at[0].run_to(self.at[1])


class Array:
    """Device memory, which knows nothing of the stream that its work is on."""

    def __init__(self, memory):
        self.memory = memory
        self.dtype, self.shape, self.ndim = memory.dtype, memory.shape, memory.ndim
        self.nbytes = memory.nbytes
        self.__cuda_array_interface__ = {"version": 3}

    def __len__(self):
        return len(self.memory)

    def __getitem__(self, part):
        return Array(self.memory[part])

    def set(self, host, stream):
        assert isinstance(host, np.ndarray)
        assert (host.dtype, host.shape) == (self.dtype, self.shape)
        assert host.flags.c_contiguous
        assert is_page_locked(host)
        stream.launch(lambda: np.copyto(self.memory, host), "to device")

    def get(self, stream, out, blocking):
        assert not blocking
        assert (out.dtype, out.shape) == (self.dtype, self.shape)
        assert is_page_locked(out)
        stream.launch(lambda: np.copyto(out, self.memory), "to host")


_page_locked = []


def is_page_locked(array):
    address = array.ctypes.data
    return any(start <= address < end for start, end in _page_locked)


def alloc_pinned_memory(size):
    memory = bytearray(size)
    start = np.frombuffer(memory, np.uint8).ctypes.data
    _page_locked.append((start, start + size))
    return memory


def asarray(buffer):
    if isinstance(buffer, Buffer):
        return Array(buffer.memory)
    # A buffer of the runtime beside its fake driver (fake_cuda.c), whose device addresses are those
    # of host memory with one bit more.
    described = buffer.__cuda_array_interface__
    address = described["data"][0] & ~(1 << 60)
    memory = (ctypes.c_char * buffer.nbytes).from_address(address)
    return Array(np.frombuffer(memory, described["typestr"]).reshape(buffer.shape))


def from_dlpack(array):
    """As CuPy's: its own arrays come from the current stream, which need not wait for itself."""
    return array if isinstance(array, Array) else asarray(array)


def empty(shape, dtype):
    return Array(np.empty(shape, dtype))


ndarray = Array

cuda = types.SimpleNamespace(
    Device=contextlib.nullcontext,
    Event=Event,
    Stream=Stream,
    alloc_pinned_memory=alloc_pinned_memory,
    get_current_stream=lambda: _current[-1],
)


class Buffer:
    """Stands in for `heddle.runtime.Buffer` on a GPU; its memory starts as garbage."""

    def __init__(self, dtype, shape, device):
        self.dtype, self.shape, self.device = dtype, shape, device
        self.memory = np.full(shape, 77, dtype)
        self.nbytes = self.memory.nbytes
