"""What the threads of a block share: numbers, shuffles, barriers, shared memory, reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from heddle.kernels import emit
from heddle.kernels.mlir import dialect, ir
from heddle.kernels.setting import Setting

arith, llvm, nvvm, vector = (dialect(name) for name in ("arith", "llvm", "nvvm", "vector"))

WARP = 32
_ALL_LANES = -1
_DYNAMIC = -(2**31)
_ALIGNMENT = 16  # Bytes: what one access of a thread moves at most.


def thread() -> Any:
    """The number of this thread in its block, i64."""
    return arith.extui(emit.integer(64), nvvm.read_ptx_sreg_tid_x(results=[emit.integer(32)]))


def block() -> Any:
    """The number of this block in the grid, i64."""
    return arith.extui(emit.integer(64), nvvm.read_ptx_sreg_ctaid_x(results=[emit.integer(32)]))


def blocks() -> Any:
    """The number of blocks in the grid, i64."""
    return arith.extui(emit.integer(64), nvvm.read_ptx_sreg_nctaid_x(results=[emit.integer(32)]))


_members: Setting[int | None] = Setting("members", None)


@contextmanager
def first_threads(count: int) -> Iterator[None]:
    """What is emitted in it is done by so many threads of the block, whole warps: they meet alone.

    Also where a block has more threads on one architecture than on another. Meanwhile the others
    may wait for all (barrier 0).
    """
    with _members.to(count), emit.when(emit.compare("less", thread(), count)):
        yield


def barrier() -> None:
    """Waits for every thread of the block; what was written to shared memory is seen after it."""
    count, word = _members.get(), emit.integer(32)
    if count is None:
        nvvm.barrier(aligned=True)
    else:
        one, number = (emit.constant(word, x) for x in (1, count))
        nvvm.barrier(barrier_id=one, number_of_threads=number)


def shuffle_xor(value: Any, distance: int) -> Any:
    """The scalar of the lane whose number differs in the bits of `distance`; whole warps call."""
    return _shuffle(value, nvvm.ShflKind.bfly, emit.constant(emit.integer(32), distance))


def shuffle_from(value: Any, lane: Any) -> Any:
    """The scalar of the lane numbered `lane` (an int or an i64); whole warps call."""
    return _shuffle(value, nvvm.ShflKind.idx, arith.trunci(emit.integer(32), emit.as_index(lane)))


def _shuffle(value: Any, kind: Any, source: Any) -> Any:
    element, word = value.type, emit.integer(32)
    if emit.bits_of(element) == 64:
        whole = emit.bitcast(value, emit.integer(64))
        low, high = (
            arith.extui(emit.integer(64), _shuffle(arith.trunci(word, part), kind, source))
            for part in (whole, whole >> 32)
        )
        return emit.bitcast(low | (high << 32), element)
    if emit.bits_of(element) < 32:
        return arith.trunci(element, _shuffle(arith.extui(word, value), kind, source))
    members, clamp = emit.constant(word, _ALL_LANES), emit.constant(word, WARP - 1)
    return nvvm.shfl_sync(members, value, source, clamp, kind, results=[element])


def of_all(value: Any) -> Any:
    """The greatest of the lanes, of less than 32 bits.

    After redux.sync the assembler knows that all lanes have the same. Of what was loaded or
    shuffled it does not: for sm_80 it guards the shuffles of all that depends on it, and spills.
    """
    return _reduced(value, nvvm.ReductionKind.MAX)


def over_all(value: Any) -> Any:
    """The sum over the lanes, of less than 32 bits."""
    return _reduced(value, nvvm.ReductionKind.ADD)


def quotient(a: Any, b: Any) -> Any:
    """`a / b` rounded down, both of less than 32 bits.

    A quotient of 64 bits has branches, of which the assembler does not know that all lanes take the
    same; see `of_all`.
    """
    word = emit.integer(32)
    sides = (arith.trunci(word, emit.as_index(side)) for side in (a, b))
    return arith.extui(emit.integer(64), arith.divui(*sides))


def anew(value: Any) -> Any:
    """The same value, of less than 32 bits, but what is computed of it is computed once more.

    So nothing of that is held from in front of it to what is behind.
    """
    word = arith.trunci(emit.integer(32), emit.as_index(value))
    found = llvm.inline_asm(word.type, [word], "", "=r,0", has_side_effects=True)
    return arith.extui(emit.integer(64), found)


def _reduced(value: Any, kind: Any) -> Any:
    word, members = emit.integer(32), emit.constant(emit.integer(32), _ALL_LANES)
    found = nvvm.redux_sync(arith.trunci(word, value), kind, members, results=[word])
    return arith.extsi(emit.integer(64), found)


def _symbol(operation: Any) -> str:
    return str(ir.StringAttr(operation.attributes["sym_name"]).value)


class SharedArray:
    """A static array in the block's shared memory.

    Args:
        name: Unique among what a block does: ways of which it takes one may share arrays.
        element: The element type, as stored.
        count: The number of elements.
    """

    def __init__(self, name: str, element: Any, count: int) -> None:
        self.element = element
        self._pointer = ir.Type.parse("!llvm.ptr<3>")
        text = (
            f"llvm.mlir.global private @{name}()"
            f" {{addr_space = 3 : i32, alignment = {_ALIGNMENT} : i64}}"
            f" : !llvm.array<{count} x {element}>"
        )
        body, array = module().regions[0].blocks[0], ir.Operation.parse(text)
        before = next((op for op in body.operations if _symbol(op) == name), None)
        if before is None:
            body.append(array)
        else:
            assert before.attributes["global_type"] == array.attributes["global_type"]
        self._base = llvm.AddressOfOp(self._pointer, name).result

    def load(self, offset: Any, lanes: int = 1) -> Any:
        """`lanes` elements from `offset` on; more than one only at a multiple of `lanes`."""
        kind = emit.widen(self.element, lanes)
        return llvm.load(kind, self._at(offset), alignment=self._alignment(lanes))

    def store(self, value: Any, offset: Any) -> None:
        """Writes the lanes of `value` from `offset` on, a multiple of their number."""
        llvm.store(value, self._at(offset), alignment=self._alignment(emit.lanes_of(value)))

    def _alignment(self, lanes: int) -> int:
        return min(_ALIGNMENT, lanes * emit.bits_of(self.element) // 8)

    def _at(self, offset: Any) -> Any:
        flags = llvm.GEPNoWrapFlags.inbounds
        where = [emit.as_index(offset)]
        return llvm.getelementptr(self._pointer, self._base, where, [_DYNAMIC], self.element, flags)


def module() -> Any:
    """The module that is being emitted."""
    owner = ir.InsertionPoint.current.block.owner.operation
    while owner.name != "builtin.module":
        owner = owner.parent.operation
    return owner


def share_multiprocessor(blocks: int) -> None:
    """So many blocks of the kernel are to fit a multiprocessor, with what registers that leaves.

    Unless it is told, ptxas chooses a number of blocks by itself, and may spill to get there.
    """
    owner = ir.InsertionPoint.current.block.owner.operation
    while owner.name != "llvm.func":
        owner = owner.parent.operation
    owner.attributes["nvvm.minctasm"] = ir.IntegerAttr.get(emit.integer(32), blocks)


Combine = Callable[[Any, Any], Any]


class Reducer:
    """Reductions over groups of threads: a warp, or the whole block through shared memory.

    Args:
        name: The name of its shared array.
        threads: The group's size: 32, or the block's size (a power of two).
        element: The type of the values.
    """

    def __init__(self, name: str, threads: int, element: Any) -> None:
        self._warps = threads // WARP
        self._scratch = SharedArray(name, element, self._warps) if self._warps > 1 else None

    def __call__(self, value: Any, combine: Combine) -> Any:
        """The values of all threads of the group, combined; every thread gets the answer.

        `combine` is associative and commutative. Every thread of the group calls.
        """
        value = across(value, combine, WARP)
        if self._scratch is None:
            return value
        lane, warp = thread() % WARP, thread() // WARP
        barrier()  # Nobody may still read the scratch for the reduction before.
        with emit.when(emit.compare("equal", lane, 0)):
            self._scratch.store(value, warp)
        barrier()
        return across(self._scratch.load(lane % self._warps), combine, self._warps)


def across(value: Any, combine: Combine, lanes: int) -> Any:
    """Combines over aligned groups of `lanes` lanes of a warp."""
    distance = lanes // 2
    while distance:
        value = combine(value, shuffle_xor(value, distance))
        distance //= 2
    return value


def fold_lanes(value: Any, combine: Combine) -> Any:
    """The lanes of a vector combined into a scalar, first to last."""
    total, *rest = lanes(value)
    for part in rest:
        total = combine(total, part)
    return total


def lanes(value: Any) -> list[Any]:
    """The scalars in a vector; a scalar alone."""
    count = emit.lanes_of(value)
    return [value] if count == 1 else [vector.extract(value, [], [i]) for i in range(count)]
