"""Logits with the penalties of their rows, for the few tokens that a row has seen.

A block works on a row, an entry in each thread. The result is the logits already when the kernel
starts (`Kernel.updates`). A token outside of the vocabulary is reported, and dropped.
"""

from __future__ import annotations

from heddle.kernels import emit
from heddle.kernels.cuda import _block, _frame
from heddle.kernels.cuda.flash.online import report
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.row_spans import RowSpans
from heddle.kernels.sampling import Penalties, unsupported
from heddle.kernels.spec import Launch, Spec, fold, product


def emit_penalize(spec: Spec, machine: Machine) -> None:
    """Emits a thread's work."""
    frame = _frame.frame(spec, machine)
    spans = RowSpans(frame, report, 3, frame.size(spec.operands[2].shape[0]))
    rows, vocabulary = map(emit.as_index, frame.shape(spec.result.shape))
    row = _block.block()
    with emit.when(emit.compare("less", row, rows)):
        penalties = Penalties(frame, row)
        start, stop, wrong = spans.ends(row)
        stop = emit.select(wrong, start, stop)
        for entry in emit.loop(start + _block.thread(), stop, _frame.THREADS):
            penalties.apply(entry, vocabulary, report)


def launch(spec: Spec) -> Launch:
    """A block for each row."""
    grid = fold("max", 1, spec.operands[0].shape[0])
    work = product((spec.operands[2].shape[0], 32))
    return Launch((grid, 1, 1), work, (_frame.THREADS, 1, 1))


KERNEL = Kernel("penalize", "cuda", emit_penalize, launch, unsupported, checks=True, updates=1)
