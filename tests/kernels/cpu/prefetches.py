"""What a kernel asks memory for: in the LLVM IR that ships, each prefetch becomes a call."""

import ctypes
import re
from itertools import accumulate

import native
import numpy as np
from reference import size

from heddle.kernels.registry import find

_PREFETCH = re.compile(r"@llvm\.prefetch\.p0\((ptr [^,]+), [^)]*\)")

LINE, APART = 64, 1 << 24
"""Bytes of a line of cache, and between two buffers."""


def lines_asked_for(spec, machine, buffers, dims, first, last) -> list[set[int]]:
    """The numbers of the lines of each buffer that tasks `first` to `last - 1` ask for.

    Of 64 bytes, from the start of the buffer on. The call has copies of the `buffers`, so far apart
    that what is asked for behind one of them is in no other.
    """
    sizes = ((buffer.nbytes + APART) // LINE * LINE for buffer in buffers)
    starts = list(accumulate(sizes, initial=LINE))
    room = np.zeros(starts.pop(), np.uint8)
    starts = [room.ctypes.data // LINE * LINE + start for start in starts]
    for buffer, start in zip(buffers, starts, strict=True):
        ctypes.memmove(start, buffer.ctypes.data, buffer.nbytes)
    asked: list[int] = []
    record = ctypes.CFUNCTYPE(None, ctypes.c_size_t)(asked.append)
    text = native.llvm_ir(spec, machine)
    text = re.sub(r"^declare .*@llvm\.prefetch.*\n", "", text, flags=re.MULTILINE)
    text = _PREFETCH.sub(r"@asked(\1)", text)
    address = ctypes.cast(record, ctypes.c_void_p).value
    text += (
        "\ndefine internal void @asked(ptr %line) {\n"
        f"  call void inttoptr (i64 {address} to ptr)(ptr %line)\n  ret void\n}}\n"
    )
    function, _memory = native.place(native.to_code(text, machine))
    pointers = (ctypes.c_void_p * len(buffers))(*starts)
    values = (ctypes.c_int64 * len(dims))(*dims)
    function(ctypes.addressof(values), ctypes.addressof(pointers), first, last)
    places = np.array(asked)
    found = []
    for buffer, start in zip(buffers, starts, strict=True):
        offsets = places - start
        found.append(set(offsets[(offsets >= 0) & (offsets < buffer.nbytes)] // LINE))
    return found


def all_lines_asked_for(spec, machine, arrays, dims) -> list[set[int]]:
    """`lines_asked_for` by all tasks of a kernel of one output, for `arrays` as its operands."""
    kernel = find(spec.op, "cpu")
    launch = kernel.launch_on(spec, machine)
    words = {
        "workspace": np.zeros(size(launch.workspace, dims), np.uint8),
        "counters": np.zeros(launch.counters, np.uint32),
        "status": np.zeros(4, np.int64),
    }
    buffers = [*arrays, np.empty_like(arrays[0]), *(words[name] for name in kernel.extras(spec))]
    values = [dims[name] for name in spec.dims]
    return lines_asked_for(spec, machine, buffers, values, 0, size(launch.grid[0], dims))
