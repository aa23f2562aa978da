"""Attention within the rows of a ragged batch, whose keys and values are in blocks of a cache."""

from __future__ import annotations

from heddle.kernels.cuda.flash import online
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.row_spans import Table, keys_of_table, unsupported
from heddle.kernels.spec import Launch, Spec


def emit_paged_attention(spec: Spec, machine: Machine) -> None:
    """Emits a warp's work."""
    online.emit_ragged(spec, machine, lambda frame: Table(frame, online.report, 1, 4))


def launch(spec: Spec) -> Launch:
    """A warp for every few heads of each token, or a block for a tile."""
    return online.launch(spec, keys_of_table(spec))


def own_launch(spec: Spec, machine: Machine) -> Launch | None:
    """That of blocks on tensor cores, where they compute `spec`."""
    return online.own_launch(spec, machine, keys_of_table(spec))


KERNEL = Kernel(
    "paged_attention",
    "cuda",
    emit_paged_attention,
    launch,
    unsupported,
    checks=True,
    own_launch=own_launch,
    split=online.split,
    ahead=lambda spec: (3, 4, 5),
)
