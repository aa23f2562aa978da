"""What a kernel asks memory for: in the LLVM IR that ships, each prefetch becomes a call."""

import ctypes
import re

import native
import numpy as np

_PREFETCH = re.compile(r"@llvm\.prefetch\.p0\((ptr [^,]+), [^)]*\)")


def lines_asked_for(spec, machine, buffers, dims, first, last) -> list[set[int]]:
    """The numbers of the lines of each buffer that tasks `first` to `last - 1` ask for.

    Of 64 bytes, from the start of the buffer on; `buffers` are those of the call.
    """
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
    pointers = (ctypes.c_void_p * len(buffers))(*(buffer.ctypes.data for buffer in buffers))
    values = (ctypes.c_int64 * len(dims))(*dims)
    function(ctypes.addressof(values), ctypes.addressof(pointers), first, last)
    places = np.array(asked)
    found = []
    for buffer in buffers:
        offsets = places - buffer.ctypes.data
        found.append(set(offsets[(offsets >= 0) & (offsets < buffer.nbytes)] // 64))
    return found
