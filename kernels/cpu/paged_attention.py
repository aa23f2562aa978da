"""Attention within the rows of a ragged batch, whose keys and values are in blocks of a cache."""

from __future__ import annotations

from heddle.kernels.cpu.flash import cut, ragged
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.row_spans import Table, keys_of_table
from heddle.kernels.spec import Launch, Spec


def emit_paged_attention(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks."""
    with cut.rounding(spec, machine):
        ragged.emit_ragged(
            spec, machine, lambda frame: Table(frame, ragged.report, 1, 4), keys_of_table(spec)
        )


def launch(spec: Spec) -> Launch:
    """Tasks of pieces of rows; see `ragged.launch`."""
    return ragged.launch(spec, keys_of_table(spec))


KERNEL = Kernel(
    "paged_attention",
    "cpu",
    emit_paged_attention,
    launch,
    ragged.unsupported,
    checks=True,
    uses=cut.uses,
)
