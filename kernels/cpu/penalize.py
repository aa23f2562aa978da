"""Logits with the penalties of their rows, for the few tokens that a row has seen.

A task is one row. The result is the logits already when the kernel starts (`Kernel.updates`); only
what changes is written. A token outside of the vocabulary is reported, and dropped.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit, host
from heddle.kernels.cpu.flash.ragged import report
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.row_spans import RowSpans
from heddle.kernels.sampling import Penalties, unsupported
from heddle.kernels.spec import Launch, Spec, product


def launch(spec: Spec) -> Launch:
    """One task for each row."""
    return Launch((spec.operands[0].shape[0], 1, 1), product((spec.operands[2].shape[0], 32)))


def emit_penalize(spec: Spec, machine: Machine) -> None:
    """Emits the loop over rows and their entries."""
    frame = host.frame(spec, machine, checks=True)
    spans = RowSpans(frame, report, 3, frame.size(spec.operands[2].shape[0]))
    vocabulary = emit.as_index(frame.size(spec.result.shape[1]))

    def penalize(row: Any) -> None:
        penalties = Penalties(frame, row)
        start, stop, wrong = spans.ends(row)
        for entry in emit.loop(start, emit.select(wrong, start, stop)):
            penalties.apply(entry, vocabulary, report)

    for row in emit.loop(frame.first, frame.last):
        penalize(row)


KERNEL = Kernel("penalize", "cpu", emit_penalize, launch, unsupported, checks=True, updates=1)
