"""Whether what candidates write is what the op's reference computes, element for element.

Before each call the output is filled with a byte, of the first set with 0xFF (NaN, or minus one)
and of the last one with zeros: what a candidate leaves as it was is wrong in one of them, whatever
another candidate wrote there before. It is done before times are taken and again after them: who
computes nothing any more is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from heddle.graph import Graph, TensorType, compile
from heddle.pipelines.bench import baselines, data
from heddle.pipelines.bench.accuracy import error_of
from heddle.runtime import Buffer, InferenceSession

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heddle.pipelines.bench.case import Case, Prepared
    from heddle.pipelines.bench.measure import Call
    from heddle.pipelines.bench.rows import Row

FILLS = ((0, 0xFF), (-1, 0x00))
"""The set whose output is filled, and the byte."""

HEDDLE = "heddle"


class Filler:
    """Fills buffers of one type by a copy of the runtime, in which no kernel has a part."""

    def __init__(self, result: TensorType, target: str, session: InferenceSession) -> None:
        self.result = result
        with Graph("fill", [result]) as graph:
            graph.output(graph.inputs[0])
        self.model = session.load(compile(graph, ["cpu:native" if target == "cpu" else target]))

    def fill(self, buffer: Buffer, byte: int) -> None:
        """Every byte of `buffer` is `byte`."""
        shape = (*map(int, self.result.shape),)
        bits = np.empty(shape, self.result.dtype.to_bits())
        bits.reshape(-1).view(np.uint8)[...] = byte
        source = Buffer.from_numpy(bits, dtype=self.result.dtype.name).to(self.model.device)
        self.model.execute(source, out=[buffer])
        buffer.synchronize()  # others write to it from streams of their own


class Verification:
    """What the results of a case have to be: the op's reference, computed in float64 once."""

    def __init__(self, case: Case, prepared: Prepared, session: InferenceSession) -> None:
        workload = prepared.workload
        self.outputs, self.result = prepared.outputs, workload.result(case.sizes, prepared.dtype)
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in prepared.arrays]
        attrs = workload.canonical(case.sizes, prepared.dtype)
        self.wanted = workload.row.reference(*workload.arguments(wide), **attrs)
        self.allowed = data.allowed(workload, case.sizes, prepared.dtype)
        self.filler = Filler(self.result, case.target, session)

    def row(self, name: str, calls: Sequence[Call], before: Row | None = None) -> Row:
        """The error of a candidate, the greater of this and what was found `before`.

        A peer may be less exact than is asked of Heddle; its row shows by how much.
        """
        errors = [before["max_error"]] if before else []
        for number, byte in FILLS:
            out = self.outputs[number]
            self.filler.fill(out, byte)
            got = baselines.result_of(name, calls[number](), out, self.result.dtype)
            errors.append(error_of(got, self.wanted))
        wrong = max(errors) > self.allowed and name == HEDDLE
        found = {"max_error": max(errors), "tolerance": self.allowed}
        return {**found, "status": "wrong"} if wrong else found
