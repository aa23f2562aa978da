"""4-bit weights [..., n, k / 2] in panels of 32 columns: uint32 [..., ceildiv(n, 32), k / 8, 32].

Four bytes of a row, eight weights, become one element, the even ones in its lower half and the odd
ones in its upper: so a pair along k lies at the same place of both halves. A task is one panel.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import emit, host, memory, sizes
from heddle.kernels.cpu import pack_b
from heddle.kernels.cpu.products.blocks import PANEL
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Spec


def emit_pack_int4(spec: Spec, machine: Machine) -> None:
    """Emits the loop over panels."""
    frame = host.frame(spec, machine)
    n = frame.size(spec.operands[0].shape[-2])
    *_, panels, words, _ = frame.shape(spec.result.shape)
    lanes = machine.vector_bytes // 4
    for task in emit.loop(frame.first, frame.last):
        item, panel = sizes.split(task, (1, panels))
        first = task * words * PANEL
        pack_b.turned(frame, item * n * words, panel * PANEL, n, words, first)
        for place in emit.loop(first, first + words * PANEL, lanes):
            value = memory.load(frame.outputs[0], place, "uint32", lanes)
            memory.store(_parted(value), frame.outputs[0], place, "uint32")


def _parted(word: Any) -> Any:
    """Nibbles 0 to 7 in the order 0, 2, 4, 6, 1, 3, 5, 7: neighbours are exchanged, then bytes."""
    for distance, mask in ((4, 0x00F000F0), (8, 0x0000FF00)):
        differ = (word ^ (word >> distance)) & mask
        word = word ^ differ ^ (differ << distance)
    return word


def supports(spec: Spec) -> str | None:
    """uint8 to uint32, without bodies."""
    dtypes = (spec.operands[0].dtype, spec.result.dtype)
    if dtypes != ("uint8", "uint32"):
        return f"wanted uint8 to uint32, got {' to '.join(dtypes)}"
    return memory.moves_only(spec)


KERNEL = Kernel("pack_int4", "cpu", emit_pack_int4, pack_b.launch, supports)
