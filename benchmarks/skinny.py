"""Products of a few rows with weights of 8192 x 2048: how near they are to the machine's limits.

    python benchmarks/skinny.py [--threads 2] [--rounds 15] [--save]

A call is of a model with up to 16 products, one after the other, as in a step of a decoder, each by
a weight of its own. As many weights take turns as fill twice the last cache, and at least 128 MiB,
so that each is read from memory. Times are those of one product. Limits are measured between the
cases: a kernel that only reads as many bytes (the largest element of each row of integers), and
products of bfloat16 and of float32 whose operands stay in the caches. The limit of a case is the
larger of the times that its bytes need at the one rate and its multiplications at that of its
activations. These and scales are bfloat16, or float32 beside weights of float32.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import measure
import numpy as np

from heddle.graph import Dim, DType, Graph, TensorType, TensorValue, Weight, compile, ops
from heddle.runtime import Buffer, InferenceSession

N, K = 8192, 2048
READ = 32 << 20
"""Bytes that a call of the kernel reads which only reads."""

MOST = 16
"""Products of a call, at most."""

PRODUCT = (96, 2048, 1024)
"""m, k and n of the product that stays in the caches."""


@dataclass(frozen=True)
class Kind:
    """How weights are held: 32 or 16 bits without groups, or 8 or 4 of integers or `floats`."""

    bits: int
    group: int = 0
    floats: DType | None = None

    def __str__(self) -> str:
        if not self.group:
            return str(self.rows)
        return f"{self.floats or f'int{self.bits}'}, groups of {self.group}"

    @property
    def rows(self) -> DType:
        """What holds activations and scales."""
        return DType.float32 if self.bits == 32 else DType.bfloat16

    @property
    def dtype(self) -> DType:
        """What holds the weights."""
        if not self.group:
            return self.rows
        return self.floats or (DType.int8 if self.bits == 8 else DType.uint8)

    @property
    def nbytes(self) -> int:
        """Bytes of one weight with its scales."""
        return N * K * self.bits // 8 + (2 * N * K // self.group if self.group else 0)

    @property
    def count(self) -> int:
        """Weights that take turns."""
        return measure.sets(self.nbytes)

    @property
    def together(self) -> int:
        """Products of a call, each by a weight of its own."""
        return min(MOST, self.count)


KINDS = (
    Kind(32),
    Kind(16),
    Kind(8, 128),
    Kind(8, 32),
    Kind(4, 128),
    Kind(4, 32),
    Kind(8, 128, DType.float8_e4m3fn),
    Kind(8, K, DType.float8_e4m3fn),
)
ROWS = (1, 4, 8, 16)


def product(graph: Graph, kind: Kind, number: int) -> TensorValue:
    """An input of the graph by a weight of its own."""
    x = graph.inputs[number].tensor
    if not kind.group:
        return x @ graph.add_weight(Weight(f"w{number}", kind.dtype, (N, K))).T
    w = graph.add_weight(Weight(f"w{number}", kind.dtype, (N, K * kind.bits // 8)))
    s = graph.add_weight(Weight(f"s{number}", DType.bfloat16, (N, K // kind.group)))
    return ops.quantized_matmul(x, w, s, bits=kind.bits, group=kind.group)


def skinny(session: InferenceSession, kind: Kind) -> Callable[[int], Callable[[], object]]:
    """Given rows, a call of the next model's products."""
    m, numbers = Dim("m", 1, 16), range(kind.together)
    with Graph("skinny", [TensorType(kind.rows, (m, K)) for _ in numbers]) as graph:
        graph.output(*(product(graph, kind, number) for number in numbers))
    artifact = compile(graph, "cpu")
    given = {"w": filled(kind.dtype, N, K if kind.bits > 4 else K // 2)}
    if kind.group:
        given["s"] = filled(kind.rows, N, K // kind.group)
    each = {f"{name}{number}": weight for name, weight in given.items() for number in numbers}
    models = [session.load(artifact, each) for _ in range(-(-kind.count // kind.together))]

    def prepare(rows: int) -> Callable[[], object]:
        # Memory that nobody wrote is one page of zeros over and over, whose places in cache clash.
        x = [filled(kind.rows, rows, K)] * kind.together
        out = [Buffer(kind.rows.name, (rows, N)) for _ in numbers]
        return measure.Turns([partial(model.execute, *x, out=out) for model in models])

    return prepare


def filled(dtype: DType, *shape: int) -> Buffer:
    """Bytes of 0x3c: they matter, the numbers do not, which are 0.0115 in the wider floats."""
    bits = np.full((*shape[:-1], shape[-1] * dtype.to_bits().itemsize), 0x3C, np.uint8)
    return Buffer.from_numpy(bits.view(dtype.to_bits()), dtype.name)


def reading(session: InferenceSession) -> Callable[[], object]:
    """A call that reads the next 32 MiB and does little with them."""
    shape = (READ // 2**16, 2**14)
    with Graph("read", [TensorType(DType.int32, shape)]) as graph:
        graph.output(ops.max(graph.inputs[0], axis=-1))
    model = session.load(compile(graph, "cpu"))
    out = [Buffer("int32", (shape[0], 1))]
    given = [Buffer("int32", shape) for _ in range(measure.sets(READ))]
    for x in given:  # in memory as the weights have it: NumPy's is not aligned to pages
        np.from_dlpack(x)[:] = 1
    return measure.Turns([partial(model.execute, x, out=out) for x in given])


def computing(session: InferenceSession, dtype: DType) -> Callable[[], object]:
    """A call of a product that is bound by its multiplications."""
    m, k, n = PRODUCT
    with Graph("compute", [TensorType(dtype, (m, k))]) as graph:
        graph.output(graph.inputs[0] @ graph.add_weight(Weight("w", dtype, (k, n))))
    model = session.load(compile(graph, "cpu"), {"w": filled(dtype, k, n)})
    x, out = filled(dtype, m, k), [Buffer(dtype.name, (m, n))]
    return lambda: model.execute(x, out=out)


def row(kind: Kind, rows: int, ms: float, read: float, computed: float) -> dict[str, Any]:
    """The figures of a case, from its milliseconds and the limits in GB/s and TFLOP/s."""
    nbytes, operations = kind.nbytes, 2 * rows * N * K
    needs = {"memory": nbytes / read / 1e6, "compute": operations / computed / 1e9}
    bound = max(needs, key=lambda name: needs[name])
    return {
        "weights": str(kind),
        "rows": rows,
        "median_ms": ms,
        "GB/s": round(nbytes / ms / 1e6, 1),
        "of read bandwidth": round(needs["memory"] / ms, 2),
        "bound": bound,
        "of its limit": round(needs[bound] / ms, 2),
    }


def main() -> None:
    """Measures and prints; `--save` also writes the results' file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    session = InferenceSession(threads=options.threads)
    calls: dict[Any, Callable[[], object]] = {
        "read": reading(session),
        DType.float32: computing(session, DType.float32),
        DType.bfloat16: computing(session, DType.bfloat16),
    }
    for kind in KINDS:
        prepare = skinny(session, kind)
        calls |= {(kind, rows): prepare(rows) for rows in ROWS}
    times = measure.interleaved(calls, options.rounds, 8)
    medians = {key: measure.median_ms(seconds) for key, seconds in times.items()}
    read = READ / medians.pop("read") / 1e6
    limits = (DType.float32, DType.bfloat16)
    computed = {d: 2 * math.prod(PRODUCT) / medians.pop(d) / 1e9 for d in limits}
    rows = [
        row(kind, m, round(ms / kind.together, 3), read, computed[kind.rows])
        for (kind, m), ms in medians.items()
    ]
    for line in rows:
        print(json.dumps(line))
    figures = {
        "threads": options.threads,
        "read GB/s": round(read, 1),
        **{f"{dtype} TFLOP/s": round(rate, 3) for dtype, rate in computed.items()},
        "rows": rows,
    }
    print({name: value for name, value in figures.items() if name != "rows"})
    if options.save:
        print(measure.save("skinny", figures))


if __name__ == "__main__":
    main()
