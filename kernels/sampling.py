"""What both kernels that draw a token compute alike, so that they draw the same one, bit for bit.

A token's weight is e^((x - top) / temperature) in units of 2^-30, an integer: sums of weights are
exact, whatever their order. Which tokens are kept is decided by logits alone and by such sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from heddle.kernels import convert, emit, memory, ordering, philox
from heddle.kernels.emit import compare, select
from heddle.kernels.functions import vector_math
from heddle.kernels.mlir import dialect
from heddle.kernels.row_spans import OUT_OF_RANGE, Report
from heddle.kernels.spec import Spec

arith = dialect("arith")

ONE = 2.0**30
"""The weight of the largest logit."""

RANGE = 21.5
"""At such a distance below the top, in units of the temperature, weights are 0."""

BINS = 1024
"""Bins of a histogram. One more takes what is in none of them."""

CHUNKS = 128
"""Parts of a row whose weights are summed before a token is looked for."""

ROUNDS = 4
"""Histograms of keys that narrow a bin to one of 2^32 keys."""

_LEAST, _GREATEST = 2.0**-126, float.fromhex("0x1.fffffep127")
_OFFSET = 2**31


@dataclass(frozen=True)
class Parameters:
    """How a row is drawn from.

    Attributes:
        inverse: 1 / temperature, float32, positive and finite.
        greedy: Whether the first of the largest logits is the answer.
        top_k: How many tokens are kept at most, from 1 to the row's length.
        top_p: Which share of their weight, float64 from 0 to 1.
        least: The least weight of a token, int32.
        uniform: From 0 to 1, float64.
    """

    inverse: Any
    greedy: Any
    top_k: Any
    top_p: Any
    least: Any
    uniform: Any

    @property
    def cuts(self) -> Any:
        """Whether `top_p` cuts anything off."""
        return compare("less", self.top_p, 1.0)

    def budget(self, total: Any) -> Any:
        """The weight that better tokens have less of where a token is kept; `total` is int64."""
        share = arith.sitofp(emit.register_type("float64"), total) * self.top_p
        return emit.maximum(emit.minimum(_ceiling(share), total), 1)

    def target(self, total: Any) -> Any:
        """A weight from 0 to below `total`: the token is where the running sum passes it."""
        place = arith.sitofp(emit.register_type("float64"), total) * self.uniform
        return emit.minimum(convert.cast(place, "float64", "int64"), total - 1)


def parameters(frame: Any, row: Any, length: Any) -> Parameters:
    """Those of `row`, whose length is an i64, from the operands 1 to 3."""
    _, numbers, integers, steps = frame.inputs[:4]
    temperature, top_p, min_p = (memory.load(numbers, row * 6 + i, "float32") for i in range(3))
    top_k, seed = (memory.load(integers, row * 2 + i, "int64") for i in range(2))
    step = memory.load(steps, row, "int64")
    inverse = emit.minimum(emit.maximum(1.0 / temperature, _LEAST), _GREATEST)
    top_k = select(compare("less_equal", top_k, 0), length, emit.minimum(top_k, length))
    cold = compare("greater", temperature, 0.0) ^ True
    least = _wide(emit.minimum(emit.maximum(min_p, 0.0), 1.0)) * ONE
    first, second = (_wide(number) for number in philox.uniform(emit.index(0), seed, step)[:2])
    return Parameters(
        inverse,
        cold | compare("equal", top_k, 1),
        top_k,
        _wide(emit.maximum(emit.minimum(top_p, 1.0), 0.0)),
        arith.trunci(emit.integer(32), _ceiling(least)),
        (first - 2.0**-24) + second * 2.0**-23,
    )


def _wide(number: Any) -> Any:
    return convert.cast(number, "float32", "float64")


def _ceiling(number: Any) -> Any:
    """The least int64 that is no less than the float64 `number`, which is not negative."""
    whole = convert.cast(number, "float64", "int64")
    below = compare("less", arith.sitofp(number.type, whole), number)
    return whole + arith.extui(whole.type, below)


def is_finite(number: Any) -> Any:
    """Whether it is neither NaN nor infinite."""
    return compare("less", emit.absolute(number), math.inf)


@dataclass(frozen=True)
class Scores:
    """Logits of a row as weights and bins, from its largest one and 1 / temperature."""

    top: Any
    inverse: Any

    def weight(self, x: Any) -> Any:
        """The weights, int32."""
        kind = emit.widen(emit.integer(32), emit.lanes_of(x))
        return arith.fptosi(kind, vector_math.exp_falling(self._exponent(x)) * ONE + 0.5)

    def bin(self, x: Any) -> Any:
        """The bins, int32: 0 has the largest logits, `BINS` those without weight."""
        kind = emit.widen(emit.integer(32), emit.lanes_of(x))
        return arith.fptosi(kind, emit.minimum(self._exponent(x) * (-BINS / RANGE), float(BINS)))

    def _exponent(self, x: Any) -> Any:
        return (x - emit.like(x, self.top)) * emit.like(x, self.inverse)

    def greatest_key(self, number: Any) -> Any:
        """The greatest key (`number_of`) in bin `number` or one of worse logits, an i64."""
        # Below the top alone: beyond are infinity and NaN.
        top = convert.cast(ordering.key("float32", self.top), "int32", "int64") + _OFFSET

        def halve(_: Any, low: Any, high: Any) -> list[Any]:
            middle = (low + high + 1) >> 1
            here = convert.cast(self.bin(number_of(middle)), "int32", "int64")
            inside = compare("greater_equal", here, number)
            return [select(inside, middle, low), select(inside, high, middle - 1)]

        return emit.carry(0, 32, 1, [emit.index(0), top], halve)[0]


def number_of(key: Any) -> Any:
    """The float32 of a scalar key: its `ordering.key` plus 2^31, an i64."""
    return ordering.number("float32", word_of(key))


def word_of(key: Any) -> Any:
    """The `ordering.key`, an i32, of a scalar key."""
    return arith.trunci(emit.integer(32), key - _OFFSET)


def shift_for(width: Any) -> Any:
    """The least shift that brings the i64 `width` below `BINS`."""

    def further(_: Any, shift: Any) -> list[Any]:
        wide = compare("greater_equal", width >> shift, BINS)
        return [shift + arith.extui(shift.type, wide)]

    return emit.carry(0, 22, 1, [emit.index(0)], further)[0]


class Penalties:
    """The penalties of a row, from columns 3 to 5 of operand 1."""

    def __init__(self, frame: Any, row: Any) -> None:
        self._frame, self._row, self._dtype = frame, row, frame.spec.result.dtype
        self._before, self._after = frame.inputs[0], frame.outputs[0]
        self._frequency, self._presence, self._repetition = (
            memory.load(frame.inputs[1], row * 6 + i, "float32") for i in (3, 4, 5)
        )

    def apply(self, entry: Any, vocabulary: Any, report: Report) -> None:
        """Writes the logit of the token of `entry`; one outside of the vocabulary is reported."""
        seen = self._frame.inputs[2]
        token, count = (memory.load(seen, entry * 2 + i, "int64") for i in (0, 1))
        known = compare("less", token, vocabulary, unsigned=True)
        with emit.when(known ^ True):
            report(self._frame, OUT_OF_RANGE, token, vocabulary, emit.index(0))
        with emit.when(known):
            self._write(self._row * vocabulary + token, count)

    def _write(self, place: Any, count: Any) -> None:
        """Writes the logit at `place`, of a token that was generated `count` times."""
        x = memory.load(self._before, place, self._dtype)
        positive = compare("greater", x, 0.0)
        x = select(positive, x / self._repetition, x * self._repetition)
        x = x - self._frequency * convert.cast(count, "int64", "float32")
        x = x - select(compare("greater", count, 0), self._presence, 0.0)
        memory.store(x, self._after, place, self._dtype)


def unsupported(spec: Spec) -> str | None:
    """Why the kernels do not take `spec`, or None."""
    dtype = spec.operands[0].dtype
    if dtype not in ("float32", "float16", "bfloat16"):
        return f"wanted floats of up to 32 bits, got {dtype}"
    return memory.moves_only(spec)
