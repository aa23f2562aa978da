"""Sums over the threads of a block: of all, and of those before a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block
from heddle.kernels.emit import compare, select
from heddle.kernels.mlir import dialect

arith = dialect("arith")


def in_warp(value: Any, zero: Any = 0, step: int = 1) -> Any:
    """The sum of a number over each `step`-th lane up to this one; whole warps call.

    `zero`: that of the number's type, if that is no i64 or i32.
    """
    lane, distance = _block.thread() % _block.WARP, step
    while distance < _block.WARP:
        reaches = compare("greater_equal", lane, distance)
        before = _block.shuffle_from(value, select(reaches, lane - distance, 0))
        value = value + select(reaches, before, zero)
        distance *= 2
    return value


class Scan:
    """Sums of i64 over a block of `threads`; `name` is that of its shared array."""

    def __init__(self, name: str, threads: int) -> None:
        self._warps = threads // _block.WARP
        self._totals = _block.SharedArray(name, emit.integer(64), self._warps)

    def __call__(self, value: Any) -> tuple[Any, Any]:
        """The sum over the threads before this one, and over all; every thread calls."""
        lane, warp = _block.thread() % _block.WARP, _block.thread() // _block.WARP
        sums = in_warp(value)
        _block.barrier()  # Nobody may still read the totals of the scan before.
        with emit.when(compare("equal", lane, _block.WARP - 1)):
            self._totals.store(sums, warp)
        _block.barrier()
        parts = [self._totals.load(number) for number in range(self._warps)]
        return _behind(warp, sums - value, parts), sum(parts, emit.index(0))


def totals(name: str, threads: int, values: Sequence[Any]) -> list[Any]:
    """The sums of i64 of less than 32 bits over a block of `threads`; every thread calls.

    `name` is that of the shared array, which no other call may use.
    """
    sums = [_word(_block.over_all(value)) for value in values]
    parts = _leave(name, threads, 0, sums)
    _block.barrier()
    return [_block.of_all(_widened(sum(parts(i), _word(0)))) for i in range(len(values))]


def before(name: str, threads: int, values: Sequence[Any]) -> list[Any]:
    """The sums over the threads before this one; as `totals`."""
    warp, words = _block.thread() // _block.WARP, [_word(value) for value in values]
    sums = [in_warp(word) for word in words]
    parts = _leave(name, threads, _block.WARP - 1, sums)
    _block.barrier()
    own = [whole - word for whole, word in zip(sums, words, strict=True)]
    return [_widened(_behind(warp, value, parts(i))) for i, value in enumerate(own)]


def _behind(warp: Any, own: Any, parts: Sequence[Any]) -> Any:
    """What a thread has within its warp, and the parts of all warps before that, of every one."""
    for number, part in enumerate(parts[:-1]):
        own = own + select(compare("greater", warp, number), part, 0)
    return own


def _leave(name: str, threads: int, lane: int, values: Sequence[Any]) -> Callable[[int], list[Any]]:
    """Leaves words of a lane of each warp in shared memory; gives those of value `i`."""
    warps = threads // _block.WARP
    array = _block.SharedArray(name, emit.integer(32), warps * len(values))
    with emit.when(compare("equal", _block.thread() % _block.WARP, lane)):
        for i, value in enumerate(values):
            array.store(value, _block.thread() // _block.WARP + i * warps)
    return lambda i: [array.load(i * warps + warp) for warp in range(warps)]


def _word(value: Any) -> Any:
    """A value of less than 32 bits in as many."""
    return arith.trunci(emit.integer(32), emit.as_index(value))


def _widened(word: Any) -> Any:
    return arith.extui(emit.integer(64), word)
