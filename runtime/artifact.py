"""What an artifact holds, as records that the compiler fills.

`heddle.runtime.artifact_writer` turns them into the bytes that `docs/artifact.md` specifies. The
C++ reader is the only parser. Sizes are the same nested tuples as in `heddle.kernels.spec.Expr`,
over the names of `Symbol`s: `("mul", "batch", 384)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

Expr = int | str | tuple[str, Any, Any]


@dataclass(frozen=True)
class Symbol:
    """A runtime dimension, bound by the first input that has it, with its inclusive range."""

    name: str
    minimum: int
    maximum: int


@dataclass(frozen=True)
class Tensor:
    """One input or output of the model."""

    name: str
    dtype: str
    shape: tuple[Expr, ...]


@dataclass(frozen=True)
class Deferred:
    """`nbytes` bytes that `read` makes anew at each call, so that nobody need hold them."""

    nbytes: int
    read: Callable[[], bytes | memoryview]


Data = bytes | memoryview | Deferred
"""Row-major little-endian bytes of a tensor."""


def size_of(data: Data) -> int:
    """How many bytes `data` is."""
    return len(data) if isinstance(data, bytes) else data.nbytes


def contents(data: Data) -> bytes | memoryview:
    """The bytes; what is deferred is made now."""
    return data.read() if isinstance(data, Deferred) else data


@dataclass(frozen=True)
class Weight:
    """A weight that the user supplies at init, or (with `data`) one that is embedded.

    `sha256` is that of the row-major little-endian bytes, 32 bytes, or empty when the compiler
    never saw the data. A `settled` one is embedded, too, but as kernels read it: in constants.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: bytes = b""
    data: Data | None = None
    settled: bool = False


@dataclass(frozen=True)
class Constant:
    """A constant tensor of the graph, or a settled weight."""

    data: Data


BufferKind = Literal[
    "input", "output", "weight", "constant", "state", "arena", "status", "counters"
]


@dataclass(frozen=True)
class Buffer:
    """Where a value lives.

    `index` numbers the input, output, weight or constant; `offset` places a value in the state
    (kept from init on: packed weights) or in the arena (of init or of one execute), in bytes, a
    multiple of 64. `size` is in bytes. The counters are the same memory for every kernel, zero
    before and after each.
    """

    kind: BufferKind
    size: Expr
    index: int = 0
    offset: Expr = 0


@dataclass(frozen=True)
class TensorMap:
    """How TMA copies boxes of a buffer, as `heddle.kernels.spec.TensorMap` says it.

    `buffer` is its position among the dispatch's, `item` the bytes of an element.
    """

    buffer: int
    item: int
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    swizzle: int = 0


@dataclass(frozen=True)
class Dispatch:
    """Run a kernel: buffer numbers and dimension values in the kernel's own order.

    `label` says what this is to a person: the op and the user's line. `work` is that of
    `heddle.kernels.spec.Launch`; there is a grid for each launch of the kernel, and the tensor maps
    are those of the launches one after another.
    """

    kernel: int
    buffers: tuple[int, ...]
    dims: tuple[Expr, ...]
    grids: tuple[tuple[Expr, ...], ...]
    work: Expr
    label: str
    tensor_maps: tuple[TensorMap, ...] = ()


@dataclass(frozen=True)
class Copy:
    """Copy `size` bytes from one buffer to another: an input that is returned as it is."""

    source: int
    target: int
    size: Expr
    label: str


@dataclass(frozen=True)
class Code:
    """Machine code of one kernel for one architecture.

    `format` is `"image"` (position-independent x86-64 bytes, code and data together, aligned to
    `alignment`, called at `entry`), `"cubin"` or `"ptx"` (NUL-terminated), where `symbol` is
    looked up. `registers` and `spills` are 0 where the assembler does not tell. `launch` is the
    number of the kernel's launch that it is made for.
    """

    arch: str
    format: Literal["image", "cubin", "ptx"]
    data: bytes
    entry: int = 0
    alignment: int = 64
    symbol: str = ""
    registers: int = 0
    spills: int = 0
    launch: int = 0


@dataclass(frozen=True)
class Launch:
    """How a kernel is started, apart from its grid: see `heddle.kernels.spec.Launch`.

    `tensor_maps` is their number.
    """

    block: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0
    cluster: int = 1
    resident: int = 0
    overlaps: bool = False
    tensor_maps: int = 0


@dataclass(frozen=True)
class Kernel:
    """One distinct kernel of a program, with its code for each architecture."""

    name: str
    codes: tuple[Code, ...]
    checks: bool = False
    launches: tuple[Launch, ...] = (Launch(),)


@dataclass(frozen=True)
class Routine:
    """Instructions in order, and the bytes of arena that they need."""

    instructions: tuple[Dispatch | Copy, ...]
    arena: Expr = 0


@dataclass(frozen=True)
class Program:
    """The whole model for one kind of device.

    `init` runs once for each `Model`, after its weights are bound; it may read weights and
    constants, use its own arena and write state. `main` runs at each `execute`; where it
    `overlaps`, its first kernel may be started before what is in front of the run has ended, as
    none reads what a call brings before it has waited.
    """

    target: Literal["cpu", "cuda"]
    kernels: tuple[Kernel, ...]
    buffers: tuple[Buffer, ...]
    init: Routine
    main: Routine
    state: int = 0
    overlaps: bool = False


@dataclass(frozen=True)
class ArtifactRecord:
    """Everything that goes into one artifact. `provenance` is shown by `heddle inspect`."""

    name: str
    symbols: tuple[Symbol, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    weights: tuple[Weight, ...]
    constants: tuple[Constant, ...]
    programs: tuple[Program, ...]
    provenance: tuple[tuple[str, str], ...] = field(default=())
