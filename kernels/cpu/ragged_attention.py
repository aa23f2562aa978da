"""Attention within the rows of a ragged batch, whose keys and values follow one another."""

from __future__ import annotations

from heddle.kernels.cpu.flash import cut, ragged
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.row_spans import Contiguous
from heddle.kernels.spec import Expr, Launch, Spec


def emit_ragged_attention(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks."""
    with cut.rounding(spec, machine):
        ragged.emit_ragged(
            spec, machine, lambda frame: Contiguous(frame, ragged.report), _seen(spec)
        )


def launch(spec: Spec) -> Launch:
    """Tasks of pieces of rows; see `ragged.launch`."""
    return ragged.launch(spec, _seen(spec))


def _seen(spec: Spec) -> Expr:
    """The most keys that a token sees."""
    return spec.operands[1].shape[0]


KERNEL = Kernel(
    "ragged_attention",
    "cpu",
    emit_ragged_attention,
    launch,
    ragged.unsupported,
    checks=True,
    uses=cut.uses,
)
