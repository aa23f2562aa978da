"""What warpgroups multiply with on sm_90a: mbarriers, wgmma, barriers (PTX ISA 9.0).

Matrices lie in shared memory in lines of 128 bytes, whose chunks of 16 are swizzled
(`products.staging`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block
from heddle.kernels.cuda.products import mma, pieces, staging
from heddle.kernels.cuda.warpgroup import tma
from heddle.kernels.mlir import dialect, ir

arith, llvm, nvvm, vector = (dialect(name) for name in ("arith", "llvm", "nvvm", "vector"))

WARPS, THREADS = 4, 4 * _block.WARP
"""Of a warpgroup."""

ROWS = 64
"""Rows that one wgmma multiplies."""

ATOM = 8 * staging.LINE
"""Bytes of eight lines, after which the swizzle repeats; matrices start at multiples of it."""

_SUMS = {"float32": "f32", "int32": "s32"}
_BARRIER_BYTES = 8
_TICKS = 10_000_000  # Nanoseconds that a thread may sleep in a wait before it looks again.


def registers_at_launch(count: int) -> None:
    """The kernel's threads start with so many registers."""
    for operation in _block.module().regions[0].blocks[0]:
        if "nvvm.kernel" in operation.attributes:
            number = ir.IntegerAttr.get(emit.integer(32), count)
            operation.attributes["nvvm.maxnreg"] = number


def registers(count: int, action: str) -> None:
    """The warpgroup goes on with so many registers in each thread."""
    nvvm.setmaxregister(count, getattr(nvvm.SetMaxRegisterAction, action))


# Stages that go round


@dataclass(frozen=True)
class Turn:
    """A stage in one of its rounds: its first byte, its two mbarriers, and the round's parity."""

    number: Any
    start: Any
    full: Any
    empty: Any
    parity: Any

    def wait_until_empty(self) -> None:
        """Waits until the consumers have released the stage in the round before this one."""
        nvvm.mbarrier_try_wait_parity(self.empty, self.parity ^ 1, _word(_TICKS))

    def wait_until_full(self) -> None:
        """Waits until all is there that comes in this round."""
        nvvm.mbarrier_try_wait_parity(self.full, self.parity, _word(_TICKS))

    def is_full(self) -> Any:
        """Whether all is there that comes in this round: then the thread has waited for it."""
        return nvvm.mbarrier_test_wait(self.full, self.parity, results=[emit.integer(1)])

    def expect(self, size: int) -> None:
        """The thread arrives at `full`, which then waits for so many bytes by TMA as well."""
        nvvm.mbarrier_arrive_expect_tx(self.full, _word(size))

    def arrive_full(self) -> None:
        """The threads for whom this one speaks have written the stage."""
        _arrive(self.full)

    def arrive_empty(self) -> None:
        """The consumers for whom the thread speaks do not read the stage any more."""
        _arrive(self.empty)

    def arrive_empty_at(self, block: Any) -> None:
        """The same, in another block of the cluster."""
        tma.arrive_at(self.empty, block)


class Ring:
    """Stages of `size` bytes at the start of shared memory; their mbarriers from `barriers` on."""

    def __init__(self, shared: mma.DynamicShared, stages: int, size: int, barriers: int) -> None:
        self.stages, self.size = stages, size
        self._shared, self._barriers = shared, barriers

    def initialise(self, full: Any, empty: Any) -> None:
        """One thread makes the mbarriers, for so many arrivals (i32); the block meets after it."""
        for number in range(self.stages):
            for place, count in ((0, full), (self.stages, empty)):
                nvvm.mbarrier_init(self._barrier(number + place), count)
        nvvm.fence_mbarrier_init()

    def turn(self, step: Any) -> Turn:
        """The stage of `step`, an i32 that counts the rounds of all stages."""
        return self.at(step % self.stages, step // self.stages % 2)

    def at(self, number: Any, parity: Any) -> Turn:
        """The stage of that number (i32), in a round of that parity."""
        return Turn(
            number,
            arith.extui(emit.integer(64), number * self.size),
            self._barrier(number),
            self._barrier(number + self.stages),
            parity,
        )

    def after(self, turn: Turn) -> Turn:
        """The stage of the next step: what loops carry, as `turn` divides."""
        last = emit.compare("equal", turn.number, self.stages - 1)
        number = emit.select(last, 0, turn.number + 1)
        return self.at(number, emit.select(last, turn.parity ^ 1, turn.parity))

    def _barrier(self, number: Any) -> Any:
        return self._shared.at(number * _BARRIER_BYTES + self._barriers)


def ring_bytes(stages: int) -> int:
    """Shared memory of the mbarriers of a `Ring`."""
    return stages * 2 * _BARRIER_BYTES


def _arrive(barrier: Any) -> None:
    nvvm.mbarrier_arrive(barrier, results=[emit.integer(64)])


def _word(number: int) -> Any:
    return emit.constant(emit.integer(32), number)


# Products


@dataclass(frozen=True)
class Matrices:
    """wgmma of 64 rows by `columns`, `kind.depth` deep; `k_last`: k is the last axis of b.

    With elements of 8 bits it has to be. Else b may have shorter lines, of `b_line` bytes.
    """

    kind: mma.Kind
    columns: int
    k_last: bool
    b_line: int = staging.LINE

    @property
    def each(self) -> int:
        """Sums of a thread."""
        return self.columns * ROWS // THREADS

    def a(self, pointer: Any) -> Any:
        """The descriptor of rows of a that start at a multiple of `ATOM`; k is their last axis."""
        return _descriptor(pointer, mma.CHUNK)  # No leading offset with a swizzle: any will do.

    def b(self, pointer: Any, panel: int) -> Any:
        """The descriptor of b; it lies in panels of so many bytes where k is not its last axis."""
        return _descriptor(pointer, mma.CHUNK if self.k_last else panel, self.b_line)

    def a_slice(self, descriptor: Any, i: int) -> Any:
        """The descriptor of slice `i` of k."""
        return behind(descriptor, i * self.kind.depth * self.kind.item)

    def b_slice(self, descriptor: Any, i: int) -> Any:
        """The descriptor of slice `i` of k."""
        step = self.kind.item if self.k_last else self.b_line
        return behind(descriptor, i * self.kind.depth * step)

    def zeros(self) -> list[Any]:
        """The `parts` of sums that are zero.

        In registers from here on: constants would be moved there behind the fence of a lone step.
        """
        return self.settled(self.whole([emit.constant(self._element(), 0)] * self.each))

    def multiply(self, sums: Any, a: Any, b: Any) -> Any:
        """`sums`, if not None, plus a slice of a by one of b; in flight until `wait`."""
        scale = "zero" if sums is None else "one"
        sums = llvm.mlir_undef(self._sums()) if sums is None else sums
        a_kind, b_kind, kind = (
            ir.Attribute.parse(f"#nvvm.wgmma_type<{name}>")
            for name in (self.kind.a, self.kind.b, _SUMS[self.kind.sums])
        )
        shape = f"#nvvm.shape<m = {ROWS}, n = {self.columns}, k = {self.kind.depth}>"
        one = ir.Attribute.parse("#nvvm.wgmma_scale_in<one>")
        return nvvm.wgmma_mma_async(
            self._sums(),
            sums,
            a,
            b,
            ir.Attribute.parse(shape),
            a_kind,
            b_kind,
            kind,
            ir.Attribute.parse(f"#nvvm.wgmma_scale_out<{scale}>"),
            one,
            one,
            ir.Attribute.parse("#nvvm.mma_layout<row>"),
            ir.Attribute.parse(f"#nvvm.mma_layout<{'col' if self.k_last else 'row'}>"),
        )

    def multiply_words(self, sums: Any, words: Sequence[Any], b: Any, adds: bool = True) -> Any:
        """The same for a slice of a in registers: the fragment of mma.sync, of each warp's rows.

        Where it does not add, it takes the registers of `sums`, if any, alone. nvvm has no
        operation for it.
        """
        assert self.kind.item == 2
        count, name = self.each, f"{self.kind.a}.{self.kind.b}"
        results = ", ".join(f"${i}" for i in range(count))
        registers = ", ".join(f"${i}" for i in range(count, count + 4))
        text = (
            f"{{ .reg .pred p; setp.ne.b32 p, {int(adds)}, 0;"
            f" wgmma.mma_async.sync.aligned.m{ROWS}n{self.columns}k{self.kind.depth}.f32.{name}"
            f" {{{results}}}, {{{registers}}}, ${count + 4}, p, 1, 1, {int(not self.k_last)}; }}"
        )
        before = [] if sums is None else self.parts(sums)
        constraints = ["=f"] * count + ["r"] * 4 + ["l"] + [str(i) for i in range(len(before))]
        operands = [*words, b, *before]
        return llvm.inline_asm(
            self._sums(), operands, text, ",".join(constraints), has_side_effects=True
        )

    def settled(self, sums: Any) -> list[Any]:
        """The `parts` of sums for which the thread has waited.

        Nothing of what is done with them can be moved in front of the wait.
        """
        tied = [str(i) for i in range(self.each)]
        register = "r" if self.kind.sums == "int32" else "f"
        constraints = ",".join([f"={register}"] * self.each + tied)
        after = llvm.inline_asm(
            self._sums(), self.parts(sums), "", constraints, has_side_effects=True
        )
        return self.parts(after)

    def whole(self, parts: Sequence[Any]) -> Any:
        """Sums of such parts."""
        sums = llvm.mlir_undef(self._sums())
        for i, part in enumerate(parts):
            sums = llvm.insertvalue(sums, part, _position(i))
        return sums

    def parts(self, sums: Any) -> list[Any]:
        """A thread's sums: for each 8 columns, two of row `lane // 4`, two 8 rows below.

        They are columns `lane % 4 * 2` and the next; the rows of a warp are its 16 of the 64.
        """
        element = self._element()
        return [llvm.extractvalue(element, sums, _position(i)) for i in range(self.each)]

    def _element(self) -> Any:
        return emit.register_type(self.kind.sums)

    def _sums(self) -> Any:
        return ir.Type.parse(f"!llvm.struct<({', '.join([str(self._element())] * self.each)})>")


def fence() -> None:
    """Before the first wgmma after others have touched its registers."""
    nvvm.wgmma_fence_aligned()


def commit() -> None:
    """Ends a group of wgmma."""
    nvvm.wgmma_commit_group_sync_aligned()


def wait(left: int) -> None:
    """Waits until at most `left` groups of the warpgroup are in flight."""
    nvvm.wgmma_wait_group_sync_aligned(left)


def behind(descriptor: Any, size: int, times: Any = 1) -> Any:
    """The descriptor of what lies so many bytes behind, `times` (i32) that.

    The low word alone changes: 18 bits of a place in shared memory do not overflow there.
    """
    low = arith.trunci(emit.integer(32), descriptor) + times * (size >> 4)
    return arith.extui(emit.integer(64), low) | descriptor & -1 << 32


def _descriptor(pointer: Any, leading: int, line: int = staging.LINE) -> Any:
    """Manual, "Matrix Descriptor Format": an atom is the stride, the swizzle is of a line."""
    start = arith.extui(emit.integer(64), llvm.ptrtoint(emit.integer(32), pointer))
    swizzle = {32: -1, 64: -2, 128: 1}[line] << 62  # 3 and 2, of the two highest bits.
    strides = ATOM * line // staging.LINE >> 4 << 32 | leading >> 4 << 16
    return (start >> 4) & 0x3FFF | (swizzle | strides)


def _position(i: int) -> Any:
    return ir.DenseI64ArrayAttr.get([i])


# Meetings


def meet_in_warp() -> None:
    """Orders what the lanes of a warp do to memory before and after it."""
    nvvm.bar_warp_sync(_word(-1))


def meet(number: Any, threads: int) -> None:
    """A barrier of so many threads of the block, the one with that number."""
    nvvm.barrier(barrier_id=pieces.word(number), number_of_threads=_word(threads))


def arrive(number: Any, threads: int) -> None:
    """Arrives at such a barrier without waiting."""
    nvvm.barrier_arrive(_word(threads), barrier_id=pieces.word(number))
