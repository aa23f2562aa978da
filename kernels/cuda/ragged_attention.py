"""Attention within the rows of a ragged batch, whose keys and values follow one another."""

from __future__ import annotations

from heddle.kernels.cuda.flash import online
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.row_spans import Contiguous, unsupported
from heddle.kernels.spec import Launch, Spec


def emit_ragged_attention(spec: Spec, machine: Machine) -> None:
    """Emits a warp's work."""
    online.emit_ragged(spec, machine, lambda frame: Contiguous(frame, online.report))


def launch(spec: Spec) -> Launch:
    """A warp for every few heads of each token, or a block for a tile."""
    return online.launch(spec, spec.operands[1].shape[0])


def own_launch(spec: Spec, machine: Machine) -> Launch | None:
    """That of blocks on tensor cores, where they compute `spec`."""
    return online.own_launch(spec, machine, spec.operands[1].shape[0])


KERNEL = Kernel(
    "ragged_attention",
    "cuda",
    emit_ragged_attention,
    launch,
    unsupported,
    checks=True,
    own_launch=own_launch,
    split=online.split,
    ahead=lambda spec: (3, 4),
)
