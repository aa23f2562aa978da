"""Attention of ragged rows with an online softmax (Milakov and Gimelshein, arXiv:1805.02867).

A warp works on one token and a few of the query heads that share a key head. Each lane scores one
of 32 keys at a time, so that a key is read once for all of them; then each lane adds up its own
elements of the values, weighted by what the other lanes scored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from heddle.kernels import emit, memory
from heddle.kernels.cuda import _block, _frame, gather
from heddle.kernels.cuda._spans import WarpSpans
from heddle.kernels.cuda.flash import calls, ragged
from heddle.kernels.cuda.flash.task import sinks_of
from heddle.kernels.functions import vector_math as vm
from heddle.kernels.functions.powers_of_two import finite
from heddle.kernels.registry import Machine, Portion
from heddle.kernels.row_spans import QUERY_OFFSETS, Keys, group_of
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

WARPS = 4
"""Warps of a block."""

_TOGETHER = 4
"""Most query heads of a warp."""

_SUMS = 64
"""Elements of results that a lane's registers hold."""


def emit_ragged(spec: Spec, machine: Machine, keys_of: Callable[[_frame.Frame], Keys]) -> None:
    """Emits a warp's work, or a block's where tensor cores take the spec."""
    frame = _frame.frame(spec, machine)
    with frame.unless_empty():
        keys = keys_of(frame)
        tokens = emit.as_index(frame.size(spec.operands[0].shape[0]))
        spans = WarpSpans(frame, report, QUERY_OFFSETS, tokens)
        if ragged.fits(spec):
            ragged.emit_ragged(frame, keys, spans)
        else:
            frame.wait()
            _emit_warp(frame, keys, spans)
    frame.wait()  # Blocks without a tile, too.


def _emit_warp(frame: _frame.Frame, keys: Keys, spans: WarpSpans) -> None:
    """Emits the work of a warp without tensor cores."""
    spec = frame.spec
    tokens = emit.as_index(frame.size(spec.operands[0].shape[0]))
    warp = _block.block() * WARPS + _block.thread() // _block.WARP
    with emit.when(emit.compare("less", warp, tokens * _parts(spec))):
        token, part = warp // _parts(spec), warp % _parts(spec)
        _Warp(frame, keys, frame.writer(), spans.find(token), token, part).attend()


def report(frame: _frame.Frame, code: int, value: Any, limit: Any, before: Any) -> None:
    """Writes the status word; see `heddle.kernels.row_spans.Report`."""
    gather.report(frame.status, value, limit, code, before)


def capped(score: Any, cap: float | None) -> Any:
    """A scaled score, `cap` * tanh(score / `cap`) where there is a cap."""
    return vm.tanh(score * (1.0 / cap)) * cap if cap else score


def add_scores(score: Any, top: Any, total: Any) -> tuple[Any, Any, Any, Any]:
    """Takes the scores of a warp's lanes into the greatest one so far and a lane's part of the sum.

    Returns both, what the weighted values so far are scaled by, and the lane's own weight.
    """
    best = emit.maximum(_block.across(score, emit.maximum, _block.WARP), top)
    shift = finite(best)
    fading, share = vm.exp(top - shift), vm.exp(score - shift)
    return best, emit.fma(total, fading, share), fading, share


def add_all_scores(
    scores: Iterable[Any], state: Sequence[Any], columns: int
) -> tuple[list[Any], list[Any], list[Any]]:
    """`add_scores` of several queries, whose state is their maxima, sums, and weighted values.

    A lane has so many `columns` of each one's values. Returns the maxima and sums, the lane's own
    weights, and the values so far, scaled.
    """
    count = len(state) // (2 + columns)
    tops, totals, values = [], [], list(state[2 * count :])
    shares = []
    for query, score in enumerate(scores):
        top, total, fading, share = add_scores(score, state[query], state[count + query])
        tops.append(top)
        totals.append(total)
        shares.append(share)
        own = slice(query * columns, (query + 1) * columns)
        values[own] = [value * fading for value in values[own]]
    return [*tops, *totals], shares, values


def inverse(top: Any, total: Any, sink: Any = None) -> Any:
    """What to multiply by in place of dividing by the lanes' sum; 1 where that is 0.

    `sink`: the score of one more key, which adds to the sum.
    """
    total = _block.across(total, lambda a, b: a + b, _block.WARP)
    if sink is not None:
        total = total + vm.exp(sink - finite(top))
    return 1.0 / emit.select(emit.compare("equal", total, 0.0), 1.0, total)


class _Warp:
    """A token and up to four query heads of one key head.

    The state is, for each head, the greatest score so far, the lane's part of the sum of
    exponentials, and the lane's elements of the weighted values.
    """

    def __init__(
        self,
        frame: _frame.Frame,
        keys: Keys,
        write: _frame.Writer,
        span: tuple[Any, Any],
        token: Any,
        part: Any,
    ) -> None:
        spec = frame.spec
        self._frame, self._spec, self._keys, self._write = frame, spec, keys, write
        self._row, stop = span
        self._element = emit.register_type("float32")
        self._lane = _block.thread() % _block.WARP
        self._count = _heads_of_a_warp(spec)
        _, heads, self._size = frame.shape(spec.operands[0].shape)
        self._key_heads = frame.size(spec.operands[1].shape[-2])
        self._values = frame.size(spec.result.shape[-1])
        self._columns = _columns(spec)
        self._part = part
        self._head = token * heads + part * self._count
        self._first = self._head * self._size
        self._key_head = part // (_parts(spec) // self._key_heads)
        self._length = keys.length(self._row)
        self._position = self._length - (stop - token)

    def attend(self) -> None:
        """Over 32 keys at a time, and writes."""
        start, stop = emit.index(0), self._length
        if self._spec.attr("causal"):
            stop = emit.maximum(emit.minimum(self._position + 1, stop), 0)
        if self._spec.attr("window"):
            start = emit.maximum(self._position + 1 - self._spec.attr("window"), 0)
        zero = emit.constant(self._element, 0.0)
        top = emit.constant(self._element, -math.inf)
        state = [top] * self._count + [zero] * (self._count * (1 + self._columns))

        def step(first: Any, *before: Any) -> Sequence[Any]:
            return self._step(first, stop, before)

        self._finish(emit.carry(start, stop, _block.WARP, state, step))

    def _step(self, first: Any, stop: Any, state: Sequence[Any]) -> Sequence[Any]:
        key = first + self._lane
        inside = emit.compare("less", key, stop)
        place, _ = self._keys.place(self._row, emit.minimum(key, stop - 1))
        place = (place * self._key_heads + self._key_head) * self._size
        scale, cap = self._spec.attr("scale"), self._spec.attr("softcap")
        scores = (
            emit.select(inside, capped(product * scale, cap), -math.inf)
            for product in self._products(place)
        )
        weights, shares, values = add_all_scores(scores, state, self._columns)
        count = emit.minimum(stop - first, _block.WARP)
        return [*weights, *self._add_values(place, count, shares, values)]

    def _products(self, place: Any) -> list[Any]:
        """The products of this lane's key with the queries."""

        def add(d: Any, *so_far: Any) -> list[Any]:
            value = self._load(1, place + d)
            return [
                emit.fma(self._load(0, self._first + head * self._size + d), value, total)
                for head, total in enumerate(so_far)
            ]

        zeros = [emit.constant(self._element, 0.0)] * self._count
        return emit.carry(0, self._size, 1, zeros, add)

    def _add_values(
        self, place: Any, count: Any, shares: Sequence[Any], sums: Sequence[Any]
    ) -> list[Any]:
        """Adds value rows, each weighted by what its lane scored, to this lane's elements."""
        columns = [
            emit.minimum(self._lane + column * _block.WARP, self._values - 1)
            for column in range(self._columns)
        ]

        def add(number: Any, *so_far: Any) -> list[Any]:
            start = _block.shuffle_from(place, number)
            values = [self._load(2, start + column) for column in columns]
            weights = [_block.shuffle_from(share, number) for share in shares]
            return [
                emit.fma(weights[i // self._columns], values[i % self._columns], total)
                for i, total in enumerate(so_far)
            ]

        return emit.carry(0, count, 1, sums, add)

    def _finish(self, state: Sequence[Any]) -> None:
        """Divides by the sums of exponentials and writes."""
        sinks, first = sinks_of(self._frame), self._head * self._values
        for head in range(self._count):
            sink = None if sinks is None else sinks(self._part * self._count + head, 1)
            scale = inverse(state[head], state[self._count + head], sink)
            for column in range(self._columns):
                d = self._lane + column * _block.WARP
                value = state[2 * self._count + head * self._columns + column] * scale
                with emit.when(emit.compare("less", d, self._values)):
                    self._write(value, first + head * self._values + d)

    def _load(self, number: int, offset: Any) -> Any:
        return memory.load(self._frame.inputs[number], offset, self._spec.operands[number].dtype)


def _columns(spec: Spec) -> int:
    """Elements of a head's result that a lane has."""
    values = spec.result.shape[-1]
    assert isinstance(values, int)
    return -(-values // _block.WARP)


def _heads_of_a_warp(spec: Spec) -> int:
    """As many as divide the heads of a key head, and registers hold the results of."""
    most = min(_TOGETHER, _SUMS // _columns(spec))
    return next(n for n in range(most, 0, -1) if group_of(spec) % n == 0)


def _parts(spec: Spec) -> int:
    """Warps of a token."""
    heads = spec.operands[0].shape[1]
    assert isinstance(heads, int)
    return heads // _heads_of_a_warp(spec)


def launch(spec: Spec, keys: Expr) -> Launch:
    """A warp for every few heads of each token, or a block for a tile; it may see all `keys`."""
    work = _work(spec, keys)
    if ragged.fits(spec):
        return ragged.launch(spec, keys, work)
    tokens = spec.operands[0].shape[0]
    warps = fold("mul", tokens, _parts(spec))
    grid = fold("max", 1, fold("ceildiv", warps, WARPS))
    return Launch((grid, 1, 1), work, (WARPS * _block.WARP, 1, 1))


def own_launch(spec: Spec, machine: Machine, keys: Expr) -> Launch | None:
    """That of blocks on tensor cores, where they compute `spec`."""
    if not ragged.fits(spec):
        return None
    wide = ragged.by_warpgroups(spec, machine)
    return ragged.launch(spec, keys, _work(spec, keys), machine.arch, wide)


def split(spec: Spec) -> tuple[Portion, ...]:
    """Calls in which most rows have one token, and others, where tensor cores take both."""
    if not ragged.fits(spec):
        return (Portion(spec),)
    return calls.split(spec, ragged.few(spec))


def _work(spec: Spec, keys: Expr) -> Expr:
    return product((*spec.operands[0].shape, keys, 4))
