"""Scaled dot-product attention with an online softmax (Milakov and Gimelshein, arXiv:1805.02867).

A warp works on a few queries. Each of its lanes scores one of 32 keys at a time, so that a key is
read once for all of them; then each lane adds up its own elements of the values, weighted by what
the other lanes scored. Scores never leave registers. (On tensor cores: `attend.py`.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heddle.kernels import bodies, emit, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.flash import calls, dense, dense_warpgroup, online
from heddle.kernels.cuda.flash.online import WARPS
from heddle.kernels.registry import Kernel, Machine, Portion
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Launch, Spec, fold, product

_LARGEST_HEAD = 256


@dataclass(frozen=True)
class _Shape:
    """The sizes of a problem: `heads` of the query, `key_heads` that divide them."""

    batch: Any
    heads: Any
    queries: Any
    key_heads: Any
    keys: Any
    size: Any

    @staticmethod
    def of(spec: Spec) -> _Shape:
        q, k = spec.operands[0].shape, spec.operands[1].shape
        head, sequence = (1, 2) if spec.attr("layout") == "bhsd" else (2, 1)
        return _Shape(q[0], q[head], q[sequence], k[head], k[sequence], q[3])


def _queries_of_a_warp(spec: Spec) -> int:
    """As many as the registers hold of their results."""
    return 2 if spec.result.dtype == "float64" else 4


def emit_attention(spec: Spec, machine: Machine) -> None:
    """Emits the loop over keys, and around it the start and end of the queries' results."""
    frame = _frame.frame(spec, machine)
    with frame.unless_empty():
        if dense_warpgroup.fits(spec, machine):
            dense_warpgroup.emit_dense(frame)
        elif dense.fits(spec):
            dense.emit_dense(frame)
        else:
            _emit_results(frame)


def _emit_results(frame: _frame.Frame) -> None:
    spec = frame.spec
    _block.share_multiprocessor(2)
    shape = _Shape(*frame.shape(tuple(vars(_Shape.of(spec)).values())))
    element = emit.register_type(spec.operands[0].dtype)
    queries = _block.SharedArray("queries", element, WARPS * _queries_of_a_warp(spec) * shape.size)
    work = _Warp(frame, shape, queries)

    def body(lanes: int) -> None:
        work.fetch_queries()
        _block.barrier()
        state = emit.carry(0, work.last_key(), _block.WARP, work.start(), work.step(lanes))
        work.finish(state)

    _frame.in_vectors(frame, [work.keys.inputs], [shape.size], body)


class _Warp:
    """A warp's queries of one head, their state, and the steps of the algorithm.

    The state is, for each query, the maximum score so far, the lane's part of the sum of
    exponentials, and the lane's elements of the weighted values.
    """

    def __init__(self, frame: _frame.Frame, shape: _Shape, queries: _block.SharedArray) -> None:
        self._frame, self._shape, self._shared = frame, shape, queries
        self._spec = frame.spec
        self._read = [frame.reader(i) for i in range(len(self._spec.operands))]
        self._write = frame.writer()
        self._element = queries.element
        self._lane = _block.thread() % _block.WARP
        self._count = _queries_of_a_warp(frame.spec)
        self._slot = _block.thread() // _block.WARP * self._count
        tiles = sizes.ceildiv(emit.as_index(shape.queries), WARPS * self._count)
        rest, tile = _block.block() // tiles, _block.block() % tiles
        self.batch, self._head = sizes.floordiv(rest, shape.heads), sizes.mod(rest, shape.heads)
        group = sizes.floordiv(emit.as_index(shape.heads), shape.key_heads)
        self._key_head = self._head // group
        self._first = tile * (WARPS * self._count) + self._slot
        self._columns = -(-shape.size // _block.WARP)

    @property
    def keys(self) -> _frame.Reader:
        """The one operand that is read in vectors."""
        return self._read[1]

    def fetch_queries(self) -> None:
        """Scales the queries into shared memory; beyond the last one, it is repeated."""
        for query in range(self._count):
            row = emit.minimum(self._first + query, emit.as_index(self._shape.queries) - 1)
            start = self._row(self._shape.heads, self._shape.queries, self._head, row)
            for d in emit.loop(self._lane, self._shape.size, _block.WARP):
                value = self._read[0](start + d, 1) * self._spec.attr("scale")
                self._shared.store(value, (self._slot + query) * self._shape.size + d)

    def last_key(self) -> Size:
        """Where this warp's loop over keys ends."""
        if not self._spec.attr("causal"):
            return self._shape.keys
        end = self._visible(self._first + (self._count - 1)) + 1
        return emit.minimum(emit.maximum(end, 0), self._shape.keys)

    def start(self) -> list[Any]:
        """The state before the first key."""
        top = emit.constant(self._element, -math.inf)
        zero = emit.constant(self._element, 0.0)
        return [top] * self._count + [zero] * (self._count + self._count * self._columns)

    def step(self, lanes: int) -> Any:
        """The function that takes the state over the next 32 keys, one in each lane."""

        def run(first: Any, *state: Any) -> Sequence[Any]:
            scores = self._scores(first + self._lane, lanes)
            weights, shares, values = online.add_all_scores(scores, state, self._columns)
            return [*weights, *self._add_values(first, shares, values)]

        return run

    def finish(self, state: Sequence[Any]) -> None:
        """Divides by the sums of exponentials and writes."""
        for query in range(self._count):
            scale = online.inverse(state[query], state[self._count + query])
            row = self._first + query
            start = self._row(self._shape.heads, self._shape.queries, self._head, row)
            exists = emit.compare("less", row, self._shape.queries)
            for column in range(self._columns):
                d = self._lane + column * _block.WARP
                value = state[2 * self._count + query * self._columns + column] * scale
                with emit.when(exists & emit.compare("less", d, self._shape.size)):
                    self._write(value, start + d)

    def _scores(self, key: Any, lanes: int) -> list[Any]:
        """The scores of this lane's key; -inf where it is not to be attended to."""
        shape = self._shape
        inside = emit.minimum(key, emit.as_index(shape.keys) - 1)
        start = self._row(shape.key_heads, shape.keys, self._key_head, inside)

        def add(d: Any, *so_far: Any) -> list[Any]:
            value = self._read[1](start + d, lanes)
            return [
                emit.fma(self._shared.load((self._slot + i) * shape.size + d, lanes), value, total)
                for i, total in enumerate(so_far)
            ]

        zeros = [emit.constant(self._element, 0.0, lanes)] * self._count
        found = emit.carry(0, shape.size, lanes, zeros, add)
        scores = []
        for query, score in enumerate(found):
            score = _block.fold_lanes(score, lambda a, b: a + b)
            score = online.capped(score, self._spec.attr("softcap"))
            row = emit.minimum(self._first + query, emit.as_index(shape.queries) - 1)
            seen = emit.compare("less", key, shape.keys)
            if self._spec.attr("causal"):
                seen = seen & emit.compare("less_equal", key, self._visible(row))
            if self._spec.attr("window"):
                opened = self._visible(row) - self._spec.attr("window")
                seen = seen & emit.compare("greater", key, opened)
            if self._spec.attr("masked"):
                mask = self._mask(row, inside)
                if self._spec.operands[3].dtype == "bool":
                    seen = seen & mask
                else:
                    score = score + mask
            scores.append(emit.select(seen, score, -math.inf))
        return scores

    def _add_values(self, first: Any, shares: Sequence[Any], sums: Sequence[Any]) -> list[Any]:
        """Adds 32 value rows, each weighted by what its lane scored, to this lane's elements."""
        shape = self._shape
        count = emit.minimum(emit.as_index(shape.keys) - first, _block.WARP)
        places = [
            emit.minimum(self._lane + column * _block.WARP, shape.size - 1)
            for column in range(self._columns)
        ]

        def add(number: Any, *so_far: Any) -> list[Any]:
            start = self._row(shape.key_heads, shape.keys, self._key_head, first + number)
            values = [self._read[2](start + place, 1) for place in places]
            weights = [_block.shuffle_from(share, number) for share in shares]
            return [
                emit.fma(weights[i // self._columns], values[i % self._columns], total)
                for i, total in enumerate(so_far)
            ]

        return emit.carry(0, count, 1, sums, add)

    def _visible(self, query: Size) -> Size:
        """The last key that a query attends to when it is causal."""
        return query + self._shape.keys - self._shape.queries

    def _mask(self, query: Size, key: Size) -> Any:
        """The mask's value."""
        indices = (self.batch, self._head, query, key)
        return self._read[3](dense.place_of_mask(self._frame, indices), 1)

    def _row(self, heads: Size, length: Size, head: Size, number: Size) -> Size:
        """Where the row of `number` in a sequence starts, in the layout of the operands."""
        if self._spec.attr("layout") == "bhsd":
            row = (self.batch * heads + head) * length + number
        else:
            row = (self.batch * length + number) * heads + head
        return row * self._shape.size


def launch(spec: Spec) -> Launch:
    """A block for every few queries of each head."""
    shape, work = _Shape.of(spec), _work(spec)
    if dense.fits(spec):
        return dense.launch(spec, work)
    tiles = fold("ceildiv", shape.queries, WARPS * _queries_of_a_warp(spec))
    grid: Expr = fold("max", 1, product((shape.batch, shape.heads, tiles)))
    return Launch((grid, 1, 1), work, (WARPS * _block.WARP, 1, 1))


def own_launch(spec: Spec, machine: Machine) -> Launch | None:
    """That of blocks on tensor cores: of warpgroups, or of as many stages as there is room for."""
    if dense_warpgroup.fits(spec, machine):
        return dense_warpgroup.launch(spec, _work(spec))
    return dense.launch(spec, _work(spec), machine.arch) if dense.fits(spec) else None


def split(spec: Spec) -> tuple[Portion, ...]:
    """Calls with few queries, and others, where tensor cores take both."""
    if not dense.fits(spec):
        return (Portion(spec),)
    return calls.split(spec, dense.few(spec))


def _work(spec: Spec) -> Expr:
    shape = _Shape.of(spec)
    return product((shape.batch, shape.heads, shape.queries, shape.keys, shape.size, 4))


def supports(spec: Spec) -> str | None:
    """The floating dtypes, with any body, and static head sizes up to 256."""
    if not emit.is_float(spec.result.dtype):
        return f"attention of {spec.result.dtype}"
    size = _Shape.of(spec).size
    if not isinstance(size, int) or not 1 <= size <= _LARGEST_HEAD:
        return f"attention of head size {size}, which is not a number from 1 to {_LARGEST_HEAD}"
    return bodies.unsupported_in(spec)


KERNEL = Kernel(
    "attention",
    "cuda",
    emit_attention,
    launch,
    supports,
    own_launch=own_launch,
    split=split,
)
