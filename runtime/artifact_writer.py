"""Writes artifacts: records in, the bytes of `docs/artifact.md` out.

The same record gives the same bytes. Whatever is written here has been read back and verified by
the C++ reader, which alone knows all rules of the format.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

from heddle.runtime import artifact_layout as layout
from heddle.runtime import whole_file
from heddle.runtime._core import Artifact, dtype_size
from heddle.runtime.artifact import (
    ArtifactRecord,
    Buffer,
    Code,
    Copy,
    Dispatch,
    Expr,
    Kernel,
    Launch,
    Program,
    Routine,
    TensorMap,
    Weight,
    size_of,
)
from heddle.runtime.artifact_sections import Sections
from heddle.runtime.errors import ArtifactError, CompileError


def write(record: ArtifactRecord, path: str | os.PathLike[str] | None = None) -> Artifact:
    """The artifact of `record`.

    Args:
        record: What it holds; deferred data is read once, one after another.
        path: The file to write it to in one step, from which it is mapped then; None: memory. A
            device or a pipe is written from memory.

    Raises:
        CompileError: The record breaks a rule of the format; the message says which.
        ArtifactError: The file cannot be written; it stays as it was.
    """
    try:
        sections = _Writer(record).gather()
    except (struct.error, UnicodeEncodeError) as error:
        raise CompileError(f"artifact '{record.name}': a value does not fit: {error}") from error
    if path is not None and not whole_file.is_stream(path):
        return _in_file(record.name, sections, path)
    artifact = _verified(record.name, lambda: _in_memory(sections))
    if path is not None:
        artifact.save(path)
    return artifact


def _in_memory(sections: Sections) -> Artifact:
    memory = mmap(-1, sections.offsets()[-1], MAP_PRIVATE | MAP_ANONYMOUS)
    sections.write(memory)
    return Artifact.from_bytes(memory, copy=False)


def _in_file(name: str, sections: Sections, path: str | os.PathLike[str]) -> Artifact:
    with whole_file.of_artifact(path), whole_file.replacing(path) as place:
        with place.open("wb") as file:
            sections.write(file)
        return _verified(name, lambda: Artifact.load(place, name=path))


def _verified(name: str, read: Callable[[], Artifact]) -> Artifact:
    try:
        return read()
    except ArtifactError as error:
        raise CompileError(f"artifact '{name}' breaks a rule: {error}") from error


class _Writer:
    """Gathers the sections of one artifact."""

    def __init__(self, record: ArtifactRecord) -> None:
        self.record = record
        self.sections = Sections()
        self.strings: dict[str, tuple[int, int]] = {}
        self.slots: dict[Expr, int] = {}
        self.symbols = {symbol.name: number for number, symbol in enumerate(record.symbols)}

    def gather(self) -> Sections:
        self._signature()
        for program in sorted(
            self.record.programs, key=lambda row: self._number(layout.TARGETS, row.target, "target")
        ):
            self._program(program)
        return self.sections

    def _error(self, message: str) -> CompileError:
        return CompileError(f"artifact '{self.record.name}': {message}")

    def _number(self, numbers: Mapping[str, int], name: str, what: str) -> int:
        if name not in numbers:
            raise self._error(f"{what}: wanted one of {', '.join(numbers)}, got '{name}'")
        return numbers[name]

    def _add(self, section: str, fields: str, *values: object) -> int:
        """Appends one record and returns its number."""
        target = self.sections[section]
        packed = struct.pack("<" + fields, *values)
        target.append(packed)
        return target.size // len(packed) - 1

    def _count(self, section: str) -> int:
        return self.sections[section].size // dict(layout.SECTIONS)[section]

    def _text(self, text: str) -> tuple[int, int]:
        if text not in self.strings:
            strings, data = self.sections["strings"], text.encode()
            self.strings[text] = (strings.size, len(data))
            strings.append(data)
        return self.strings[text]

    def _slot(self, size: Expr) -> int:
        size = self._fold(size)
        if size not in self.slots:
            if isinstance(size, int):
                row = (1, 0, size)
            elif isinstance(size, str):
                if size not in self.symbols:
                    raise self._error(f"size '{size}': wanted a number or the name of a symbol")
                row = (2, self.symbols[size], 0)
            else:
                op, a, b = size
                row = (layout.OPS[op], self._slot(a), self._slot(b))
            self.slots[size] = self._add("sizes", "IIq", *row)
        return self.slots[size]

    def _fold(self, size: Expr) -> Expr:
        """Numbers in place of operations on numbers: init, state and weights need them so."""
        if not isinstance(size, tuple):
            return size
        op, a, b = size[0], self._fold(size[1]), self._fold(size[2])
        self._number(layout.OPS, op, f"operation of size {size}")
        if not (isinstance(a, int) and isinstance(b, int)):
            return (op, a, b)
        if b == 0 and op in ("floordiv", "ceildiv", "mod"):
            raise self._error(f"size {size}: wanted a divisor, got zero")
        return layout.CALCULATE[op](a, b)

    def _dims(self, sizes: Iterable[Expr]) -> tuple[int, int]:
        slots = [self._slot(size) for size in sizes]
        first = self._count("dims")
        for slot in slots:
            self._add("dims", "I", slot)
        return first, len(slots)

    def _signature(self) -> None:
        record = self.record
        inputs, outputs = len(record.inputs), len(record.outputs)
        self._add(
            "model",
            "10I24x",
            *self._text(record.name),
            *(0, inputs, inputs, outputs),
            *(len(record.symbols), len(record.weights)),
            *(len(record.constants), len(record.programs)),
        )
        for key, value in record.provenance:
            self._add("provenance", "4I", *self._text(key), *self._text(value))
        for symbol in record.symbols:
            self._add("symbols", "IIqq", *self._text(symbol.name), symbol.minimum, symbol.maximum)
        for tensor in record.inputs + record.outputs:
            name, shape = self._text(tensor.name), self._dims(tensor.shape)
            dtype = self._number(layout.DTYPES, tensor.dtype, f"dtype of '{tensor.name}'")
            self._add("tensors", "6I", *name, dtype, *shape, 0)
        for weight in record.weights:
            self._weight(weight)
        for constant in record.constants:
            offset = self.sections["constant data"].place(constant.data)
            self._add("constants", "QQ", offset, size_of(constant.data))

    def _weight(self, weight: Weight) -> None:
        flags, offset = (layout.HAS_SHA256 if weight.sha256 else 0), 0
        dtype = self._number(layout.DTYPES, weight.dtype, f"dtype of '{weight.name}'")
        size = dtype_size(weight.dtype) * math.prod(weight.shape)
        if weight.data is not None:
            flags |= layout.EMBEDDED
            given = size_of(weight.data)
            if given != size:
                raise self._error(
                    f"weight '{weight.name}': wanted {size} bytes of data, got {given}"
                )
            offset = self.sections["weight data"].place(weight.data)
        if weight.settled:
            flags |= layout.SETTLED
        self._add(
            "weights",
            "6IQQ32s",
            *self._text(weight.name),
            dtype,
            *self._dims(weight.shape),
            *(flags, offset, size, weight.sha256),
        )

    def _program(self, program: Program) -> None:
        arities = self._arities(program)
        kernels = self._count("kernels"), len(program.kernels)
        for kernel, arity in zip(program.kernels, arities, strict=True):
            self._kernel(kernel, arity)
        buffers = self._count("buffers"), len(program.buffers)
        for buffer in program.buffers:
            self._buffer(buffer)
        init = self._routine(program.init)
        main = self._routine(program.main)
        arenas = self._slot(program.init.arena), self._slot(program.main.arena)
        target = layout.TARGETS[program.target]
        ranges = (*kernels, *buffers, *init, *main)
        self._add("programs", "12IQ24x", target, *ranges, *arenas, program.overlaps, program.state)

    def _arities(self, program: Program) -> list[tuple[int, int]]:
        """How many buffers and dims each kernel takes, as its dispatches say."""
        found: dict[int, tuple[int, int]] = {}
        for step in program.init.instructions + program.main.instructions:
            if isinstance(step, Dispatch):
                arity = len(step.buffers), len(step.dims)
                wanted = found.setdefault(step.kernel, arity)
                if arity != wanted:
                    raise self._error(
                        f"'{step.label}': wanted {wanted[0]} buffers and {wanted[1]} dims, as"
                        f" before for the same kernel, got {arity[0]} and {arity[1]}"
                    )
        return [found.get(number, (0, 0)) for number in range(len(program.kernels))]

    def _kernel(self, kernel: Kernel, arity: tuple[int, int]) -> None:
        codes = self._count("codes"), len(kernel.codes)
        for code in kernel.codes:
            self._code(code)
        launches = self._count("launches"), len(kernel.launches)
        for launch in kernel.launches:
            self._launch(launch)
        name = self._text(kernel.name)
        self._add("kernels", "9I12x", *name, *codes, *launches, kernel.checks, *arity)

    def _launch(self, launch: Launch) -> None:
        self._add(
            "launches",
            "8I",
            *launch.block,
            *(launch.shared, launch.cluster, launch.resident, launch.overlaps, launch.tensor_maps),
        )

    def _code(self, code: Code) -> None:
        offset = self.sections["code"].place(code.data)
        self._add(
            "codes",
            "10IQQ8x",
            self._number(layout.FORMATS, code.format, "code format"),
            *self._text(code.arch),
            *self._text(code.symbol),
            *(code.entry, code.alignment, code.registers, code.spills, code.launch),
            *(offset, len(code.data)),
        )

    def _buffer(self, buffer: Buffer) -> None:
        kind = self._number(layout.BUFFERS, buffer.kind, "buffer kind")
        offset, size = self._slot(buffer.offset), self._slot(buffer.size)
        self._add("buffers", "4I", kind, buffer.index, offset, size)

    def _routine(self, routine: Routine) -> tuple[int, int]:
        rows = [self._instruction(step) for step in routine.instructions]
        first = self._count("instructions")
        for row in rows:
            self._add("instructions", "13I4x", *row)
        return first, len(rows)

    def _instruction(self, step: Dispatch | Copy) -> tuple[int, ...]:
        numbers: tuple[int, ...]
        maps: tuple[TensorMap, ...] = ()
        if isinstance(step, Copy):
            opcode, kernel, numbers, work = layout.COPY, 0, (step.source, step.target), step.size
            dims = grids = self._dims(())
        else:
            opcode, kernel, numbers, work = layout.DISPATCH, step.kernel, step.buffers, step.work
            dims = self._dims(step.dims)
            grids = self._dims(size for grid in step.grids for size in grid)
            maps = step.tensor_maps
        buffers = self._count("arguments"), len(numbers)
        for number in numbers:
            self._add("arguments", "I", number)
        boxes = self._tensor_maps(maps)
        label = self._text(step.label)
        return opcode, kernel, *buffers, *dims, *grids, *boxes, self._slot(work), *label

    def _tensor_maps(self, maps: Iterable[TensorMap]) -> tuple[int, int]:
        rows = [
            (
                *(row.buffer, row.item, *self._dims(row.shape), *self._dims(row.strides)),
                *(*row.box, *(0,) * (layout.MOST_AXES - len(row.box)), row.swizzle),
            )
            for row in maps
        ]
        first = self._count("tensor maps")
        for row in rows:
            self._add("tensor maps", "12I", *row)
        return first, len(rows)
