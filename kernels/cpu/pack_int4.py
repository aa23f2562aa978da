"""4-bit weights [n, k / 2] in panels of 32 columns: uint32 [ceildiv(n, 32), k / 8, 32].

Four bytes of a row, eight weights, become one element; a task is one panel.
"""

from __future__ import annotations

from heddle.kernels import emit, host, memory
from heddle.kernels.cpu import pack_b
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Spec


def emit_pack_int4(spec: Spec, machine: Machine) -> None:
    """Emits the loop over panels."""
    frame = host.frame(spec, machine)
    n = frame.size(spec.operands[0].shape[0])
    _, words, _ = frame.shape(spec.result.shape)
    for panel in emit.loop(frame.first, frame.last):
        pack_b.turned(frame, 0, panel * pack_b.PANEL, n, words, panel * words * pack_b.PANEL)


def supports(spec: Spec) -> str | None:
    """uint8 to uint32, without bodies."""
    dtypes = (spec.operands[0].dtype, spec.result.dtype)
    if dtypes != ("uint8", "uint32"):
        return f"wanted uint8 to uint32, got {' to '.join(dtypes)}"
    return memory.moves_only(spec)


KERNEL = Kernel("pack_int4", "cpu", emit_pack_int4, pack_b.launch, supports)
