"""The next token of each row of logits: what it means is said by `graph/ops/sampling.py`.

A block works on a row, which it reads for its largest logit, for histograms of weights where top-k
or top-p cut (`kernels/sampling_cut.py`: no sort), and for the sums of weights of its parts. Most
logits are too small to matter then: a thread reads eight vectors and looks at their largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

from heddle.kernels import bodies, convert, emit, memory, sizes
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda._scan import Scan, in_warp
from heddle.kernels.cuda.ranking.histogram import Histogram
from heddle.kernels.emit import compare, select
from heddle.kernels.mlir import dialect
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.sampling import CHUNKS, Parameters, Scores, is_finite, parameters, unsupported
from heddle.kernels.sampling_cut import Cuts, WeightAt, passes
from heddle.kernels.spec import Launch, Spec, fold, product

arith = dialect("arith")

_WARPS = _frame.THREADS // _block.WARP
_MOST = 4  # Logits of a vector: each of them has the code of a weight.
_TOGETHER = 8  # Vectors that are on their way at once.


def emit_sample_tokens(spec: Spec, machine: Machine) -> None:
    """Emits a block's work."""
    frame = _frame.frame(spec, machine)
    x, (rows, length) = frame.reader(0), frame.shape(spec.operands[0].shape)

    def body(lanes: int) -> None:
        sampler = _Sampler(frame, x, lanes)
        with emit.when(compare("less", sampler.row, rows)):
            token = sampler.token()
            with emit.when(compare("equal", sampler.thread, 0)):
                memory.store(token, frame.outputs[0], sampler.row, "int64")

    _frame.in_vectors(frame, [x.inputs], [length], body, most=_MOST, written=False)


class _Sampler:
    """The block's row, which is read in vectors of `width`, and its shared memory."""

    lanes = 1

    def __init__(self, frame: _frame.Frame, x: _frame.Reader, width: int) -> None:
        self.frame, self.x, self.width = frame, x, width
        self.length = emit.as_index(frame.size(frame.spec.operands[0].shape[1]))
        self.parts = emit.index(_frame.THREADS)
        self.row, self.thread = _block.block(), _block.thread()
        self.word, number = emit.integer(64), emit.register_type("float32")
        self.largest = _block.Reducer("largest", _frame.THREADS, number)
        self.nearest = _block.Reducer("nearest", _frame.THREADS, self.word)
        self.scan = Scan("before", _frame.THREADS)
        self.sums = _block.SharedArray("sums", self.word, CHUNKS)
        self.found = _block.SharedArray("found", self.word, 2)
        histograms = [Histogram(name, self.scan) for name in ("first", "finer")]
        self.cuts = Cuts(self, *histograms)

    def token(self) -> Any:
        """The token of the row, in every thread."""
        lowest = emit.constant(emit.register_type("float32"), -math.inf)
        maximum = partial(bodies.maximum, "float32")
        first, stride = self._own

        def larger(start: Any, top: Any) -> list[Any]:
            return [reduce(maximum, self._ahead(start, self.length, stride), top)]

        (top,) = emit.carry(first, self.length, stride * _TOGETHER, [lowest], larger)
        self.floor = self.largest(top, emit.minimum)
        top = self.largest(top, maximum)

        def choose() -> list[Any]:
            settings = parameters(self.frame, self.row, self.length)
            draw = partial(self._draw, Scores(top, settings.inverse), settings)
            first = partial(self._first_of, top)
            return emit.either(settings.greedy, [self.word], first, draw)

        return emit.either(is_finite(top), [self.word], choose, lambda: [emit.index(-1)])[0]

    def x_at(self, column: Any, width: int) -> list[Any]:
        """The logits from `column` on, a multiple of `width`; what is not allowed is -inf."""
        found = _block.lanes(self.x(self.row * self.length + column, width))
        if len(self.frame.inputs) <= 4:
            return found
        words = emit.as_index(self.frame.size(self.frame.spec.operands[4].shape[1]))

        def load() -> list[Any]:
            place = self.row * words + column // 32
            return [memory.load(self.frame.inputs[4], place, "uint32")]

        none = emit.constant(emit.integer(32), 0)
        inside = compare("less", column, words * 32)
        (bits,) = emit.either(inside, [none.type], load, lambda: [none])
        bits = bits >> convert.cast(column % 32, "int64", "int32")
        return [
            select(compare("equal", bits >> i & 1, 1), x, -math.inf) for i, x in enumerate(found)
        ]

    @property
    def _own(self) -> tuple[Any, int]:
        """The first column of the thread in a sweep of the block, and how far the next one is."""
        return self.thread * self.width, _frame.THREADS * self.width

    def _ahead(self, start: Any, stop: Any, stride: int) -> list[Any]:
        """The logits of some vectors from `start` on; instead of those beyond `stop` the first."""
        columns = [start + i * stride for i in range(_TOGETHER)]
        columns = [select(compare("less", column, stop), column, start) for column in columns]
        return [x for column in columns for x in self.x_at(column, self.width)]

    def vectors(
        self,
        span: tuple[Any, Any, int],
        least: Any,
        values: list[Any],
        body: Callable[..., list[Any]],
    ) -> list[Any]:
        """`body(column, *values)` gives the next values, over the vectors of a thread in `span`.

        It begins, ends and has a stride. Vectors without a logit that reaches `least` may be left
        out.
        """
        first, stop, stride = span

        def some(start: Any, *values: Any) -> list[Any]:
            # No logit is NaN where this is asked; across the vectors, so that all have to be there.
            largest = _halved(self._ahead(start, stop, stride))
            end = emit.minimum(start + stride * _TOGETHER, stop)
            return emit.either(
                compare("greater_equal", largest, least),
                [value.type for value in values],
                lambda: emit.carry(start, end, stride, list(values), body),
                lambda: list(values),
            )

        return emit.carry(first, stop, stride * _TOGETHER, values, some)

    def columns(self, least: Any, values: list[Any], body: Callable[..., list[Any]]) -> list[Any]:
        """`body(column, x, *values)` gives the next values, over this thread's columns.

        Those of logits below `least` may be left out.
        """

        def vector(column: Any, *values: Any) -> list[Any]:
            following = list(values)
            for i, x in enumerate(self.x_at(column, self.width)):
                following = body(column + i, x, *following)
            return following

        first, stride = self._own
        return self.vectors((first, self.length, stride), least, values, vector)

    def _first_of(self, top: Any) -> list[Any]:
        """The first place of `top`."""

        def nearest(column: Any, x: Any, best: Any) -> list[Any]:
            return [emit.minimum(select(compare("equal", x, top), column, self.length), best)]

        (best,) = self.columns(top, [self.length], nearest)
        return [self.nearest(best, emit.minimum)]

    def _draw(self, scores: Scores, settings: Parameters) -> list[Any]:
        cut = self.cuts.find(scores, settings)

        def weight_at(column: Any, x: Any) -> Any:
            """The weight of what is kept, else 0."""
            tied = compare("equal", x, cut.logit) & compare("less", column, cut.stop)
            weight = scores.weight(x)
            kept = compare("greater", x, cut.logit) | tied
            return select(kept & compare("greater_equal", weight, settings.least), weight, 0)

        return [self.passed(cut.logit, weight_at, settings.target)]

    def each(self, least: Any, body: Callable[[Any], None]) -> None:
        """See `heddle.kernels.sampling_cut.Row`."""

        def at(column: Any, x: Any) -> list[Any]:
            with emit.when(compare("greater_equal", x, least)):
                body(x)
            return []

        self.columns(least, [], at)

    def passed(self, least: Any, weight_at: WeightAt, target_of: Callable[[Any], Any]) -> Any:
        """See `heddle.kernels.sampling_cut.Row`."""
        size = sizes.ceildiv(self.length, CHUNKS * _block.WARP) * _block.WARP
        lane, warp = self.thread % _block.WARP, self.thread // _block.WARP
        zero = emit.index(0)

        def wide_at(column: Any, width: int) -> Any:
            """The weights of so many logits from `column` on, added up."""
            total = zero
            for i, x in enumerate(self.x_at(column, width)):

                def weight(column: Any = column + i, x: Any = x) -> list[Any]:
                    return [convert.cast(weight_at(column, x), "int32", "int64")]

                reaches = compare("greater_equal", x, least)
                total = total + emit.either(reaches, [self.word], weight, lambda: [zero])[0]
            return total

        _block.barrier()  # Nobody may still read the sums of the search before.
        for chunk in emit.loop(warp, CHUNKS, _WARPS):
            start = chunk * size
            stop = sizes.least(start + size, self.length)
            first, stride = start + lane * self.width, _block.WARP * self.width
            (part,) = self.vectors(
                (first, stop, stride),
                least,
                [zero],
                lambda i, part: [part + wide_at(i, self.width)],
            )
            part = _block.across(part, lambda a, b: a + b, _block.WARP)
            with emit.when(compare("equal", lane, 0)):
                self.sums.store(part, chunk)
        _block.barrier()
        has_one = compare("less", self.thread, CHUNKS)
        (part,) = emit.either(
            has_one, [self.word], lambda: [self.sums.load(self.thread)], lambda: [zero]
        )
        before, total = self.scan(part)
        target = target_of(total)

        with emit.when(passes(target, before, part)):
            self.found.store(self.thread, 0)
            self.found.store(before, 1)
        _block.barrier()
        chunk, before = self.found.load(0), self.found.load(1)
        _block.barrier()

        def step(first: Any, before: Any) -> list[Any]:
            column = first + lane
            inside = compare("less", column, self.length)
            (weight,) = emit.either(
                inside, [self.word], lambda: [wide_at(column, 1)], lambda: [zero]
            )
            sums = in_warp(weight)
            with emit.when(passes(target, before + sums - weight, weight)):
                self.found.store(column, 0)
            return [before + _block.shuffle_from(sums, _block.WARP - 1)]

        with emit.when(compare("equal", warp, 0)):
            emit.carry(chunk * size, chunk * size + size, _block.WARP, [before], step)
        _block.barrier()
        return self.found.load(0)


def _halved(numbers: list[Any]) -> Any:
    """The largest of a power of two of numbers, by halves."""
    while len(numbers) > 1:
        half = len(numbers) // 2
        numbers = [
            arith.maxnumf(*pair) for pair in zip(numbers[:half], numbers[half:], strict=True)
        ]
    return numbers[0]


def launch(spec: Spec) -> Launch:
    """A block for each row."""
    shape = spec.operands[0].shape
    return Launch((fold("max", 1, shape[0]), 1, 1), product((*shape, 24)), (_frame.THREADS, 1, 1))


KERNEL = Kernel("sample_tokens", "cuda", emit_sample_tokens, launch, unsupported)
