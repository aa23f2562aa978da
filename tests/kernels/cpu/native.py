"""Compiles a spec and calls the code, on buffers that end where memory ends.

Code for a level that this CPU lacks is the same LLVM IR with what it lacks emulated.

Every buffer's last byte is followed by a page that may not be touched, and preceded by bytes that
must not change, so that a kernel that reads or writes outside its operands does not go unseen.
"""

import ctypes
import math
import mmap
import re
from functools import cache
from itertools import pairwise

import amx_emulation
import avx512_emulation
import numpy as np
from reference import evaluate, numpy_dtype, shape, size

from heddle.graph.compiler.codegen import cpu
from heddle.graph.compiler.codegen.image import flatten
from heddle.graph.targets import native_level
from heddle.kernels.mlir import context, ir
from heddle.kernels.registry import MACHINES, Machine, find
from heddle.kernels.spec import Spec
from heddle.runtime.artifact import Code

ARCHS = ["x86-64-v3", "x86-64-v4"]
"""The architectures without dot products."""

DOTS = [*ARCHS, "cooperlake"]
"""As well the one with dot products, for the kernels that have use for them."""

HERE = DOTS[: DOTS.index(native_level()) + 1] if native_level() in DOTS else DOTS
"""Those of them that this CPU runs; tiles are emulated on every CPU."""

BUFFER = re.compile(r"(%\d+) = alloca i8, i64 (\d+), align (\d+)")
"""A buffer on the stack in LLVM IR: its name, bytes and alignment."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_SIGNATURE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)
GUARD = 0xA5
_NO_ACCESS = 0  # PROT_NONE


@cache
def load(spec: Spec, arch: str):
    """The kernel as a callable, and the memory that holds it."""
    machine = MACHINES[arch]
    function, memory = place(to_code(llvm_ir(spec, machine), machine))
    return amx_emulation.checked(function), memory


def load_as_shipped(spec: Spec, arch: str):
    """As `load`, with the code that ships, which this CPU runs itself."""
    return place(cpu.compile_cpu(spec, MACHINES[arch]))


@cache
def load_apart(spec: Spec, arch: str):
    """As `load`, with the buffers of its stack: each of them ends where memory ends, too."""
    machine, stack = MACHINES[arch], []

    def guarded(buffer: re.Match) -> str:
        name, count, alignment = buffer[1], *map(int, buffer.groups()[1:])
        stack.append(Guarded(np.full(-(-count // alignment) * alignment, GUARD, np.uint8)))
        return f"{name} = getelementptr i8, ptr inttoptr (i64 {stack[-1].address} to ptr), i64 0"

    function, memory = place(to_code(BUFFER.sub(guarded, llvm_ir(spec, machine)), machine))
    return amx_emulation.checked(function), (memory, *stack)


def llvm_ir(spec: Spec, machine: Machine) -> str:
    """The kernel of `spec` as `compile_cpu` hands it to LLVM."""
    with context(), ir.Location.unknown():
        return cpu.llvm_ir(cpu.build(spec, machine))


def to_code(text: str, machine: Machine) -> Code:
    """LLVM IR for `machine` as code for this CPU.

    What is emulated ships nowhere: LLVM writes it as it is, in three tenths of the time.
    """
    if machine.arch in HERE:
        return assemble(text, machine)
    here = MACHINES[HERE[-1]]
    return assemble(avx512_emulation.emulated(amx_emulation.emulated(text), here), here, effort=0)


def assemble(text: str, machine: Machine, effort: int = cpu.MOST) -> Code:
    """LLVM IR as code for `machine`."""
    image = flatten(cpu.to_object(text, machine, effort), cpu.SYMBOL)
    return Code(machine.arch, "image", image.data, image.entry, image.alignment, cpu.SYMBOL)


def place(code):
    """Machine code in memory that may run, and that memory."""
    access = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    memory = mmap.mmap(-1, len(code.data), prot=access)
    memory.write(code.data)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert code.alignment <= mmap.PAGESIZE
    return _SIGNATURE(address + code.entry), memory


class Guarded:
    """A copy of `array` that ends at the end of a page, or `shift` bytes before."""

    def __init__(self, array: np.ndarray, shift: int = 0) -> None:
        page = mmap.PAGESIZE
        pages = -(-(array.nbytes + shift) // page) + 1
        self.memory = mmap.mmap(-1, (pages + 1) * page)
        self.whole = np.frombuffer(self.memory, np.uint8, pages * page)
        address = self.whole.ctypes.data
        assert _LIBC.mprotect(ctypes.c_void_p(address + pages * page), page, _NO_ACCESS) == 0
        self.start = pages * page - array.nbytes - shift
        self.end = self.start + array.nbytes
        self.whole[:] = GUARD
        self.address = address + self.start
        data = self.whole[self.start : self.end]
        self.array = data.view(array.dtype).reshape(array.shape)
        self.array[...] = array

    def check(self) -> None:
        assert (self.whole[: self.start] == GUARD).all(), "wrote before a buffer"
        assert (self.whole[self.end :] == GUARD).all(), "wrote behind a buffer"


def run(
    spec,
    arrays,
    dims=None,
    arch=ARCHS[-1],
    cuts=(),
    over=None,
    load=load,
    shift=0,
    prepared=False,
    shift_written=0,
):
    """The outputs and the status word; the task range is cut at `cuts` (fractions of it).

    With `over` the one output lies over the input of that number. `load`: that, or another one.
    The first input ends `shift` bytes in front of a page, and what is written alone
    `shift_written` bytes. `prepared`: what is updated is in the outputs already, as at run time.
    """
    dims = dims or {}
    kernel = find(spec.op, "cpu")
    function, _memory = load(spec, arch)
    inputs = [
        Guarded(np.ascontiguousarray(array), 0 if number else shift)
        for number, array in enumerate(arrays)
    ]
    outputs = [] if over is None else [inputs[over]]
    outputs += map(Guarded, arrays[: kernel.updates if prepared else 0])
    for operand in spec.written[len(outputs) :]:
        kind, extents = numpy_dtype(operand.dtype), shape(operand.shape, dims)
        bytes_written = np.full(math.prod(extents) * kind.itemsize, GUARD, np.uint8)
        outputs.append(Guarded(bytes_written.view(kind).reshape(extents), shift_written))
    launch = kernel.launch_on(spec, MACHINES[arch])
    status, counters = Guarded(np.zeros(4, np.int64)), Guarded(np.zeros(launch.counters, np.uint32))
    scratch = np.full(size(launch.workspace, dims), GUARD, np.uint8)
    extras = {"workspace": Guarded(scratch), "counters": counters, "status": status}
    buffers = inputs + outputs + [extras[name] for name in kernel.extras(spec)]
    pointers = (ctypes.c_void_p * len(buffers))(*(buffer.address for buffer in buffers))
    values = (ctypes.c_int64 * (len(spec.dims) + 1))(*(dims[name] for name in spec.dims))
    tasks = size(launch.grid[0], dims)
    edges = [0, *sorted(int(cut * tasks) for cut in cuts), tasks]
    # Last first: no task may depend on one before it.
    for first, last in reversed(list(pairwise(edges))):
        function(ctypes.addressof(values), ctypes.addressof(pointers), first, last)
    for buffer, before in zip(inputs, arrays, strict=True):
        if buffer in outputs:
            continue
        assert buffer.array.tobytes() == np.ascontiguousarray(before).tobytes(), "wrote an input"
    for buffer in buffers:
        buffer.check()
    assert not counters.array.any(), "counters are left as zeros"
    return [output.array.copy() for output in outputs], status.array.copy()


def random(rng, dims_shape, dtype: str) -> np.ndarray:
    """Numbers of a dtype's ordinary range; integers over their whole range."""
    kind = numpy_dtype(dtype)
    if dtype == "bool":
        return rng.random(dims_shape) < 0.5
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, dims_shape, kind, endpoint=True)
    return rng.standard_normal(dims_shape).astype(kind)


def check(
    spec, dims=None, arrays=None, arch=ARCHS[-1], rtol=2e-6, atol=2e-6, seed=0, **places: int
):
    """Runs `spec` on random arrays, whole and in parts, and compares with the reference.

    `places`: the shifts of `run`.
    """
    dims = dims or {}
    if arrays is None:
        rng = np.random.default_rng(seed)
        arrays = [random(rng, shape(o.shape, dims), o.dtype) for o in spec.inputs]
    got, _ = run(spec, arrays, dims, arch, prepared=True, **places)
    parts, _ = run(spec, arrays, dims, arch, (0.3, 0.35, 0.8), prepared=True, **places)
    wanted = evaluate(spec, dims, arrays)
    for output, again, reference, operand in zip(got, parts, wanted, spec.written, strict=True):
        assert output.tobytes() == again.tobytes(), "the answer depends on the task split"
        assert output.shape == reference.shape
        if not operand.dtype.startswith(("float", "bfloat")):
            np.testing.assert_array_equal(output, reference)
            continue
        step = {"float16": 2e-3, "bfloat16": 1.6e-2, "float64": 0.0}.get(operand.dtype, 0.0)
        precision = 1e-6 if operand.dtype == "float64" else 1.0
        np.testing.assert_allclose(
            output.astype(np.float64),
            reference.astype(np.float64),
            rtol=max(rtol * precision, step),
            atol=max(atol * precision, step * atol / 2e-6 * 1e-3),
        )
    return got
