"""Windows reduced channel by channel: pooling, and convolutions of single or a few channels.

A task is one row of windows by a part of the channels, tile by tile (see `_window_tiles`).
"""

from __future__ import annotations

from math import prod

from heddle.kernels import bodies, emit, host, sizes
from heddle.kernels.cpu._window_tiles import Tiles
from heddle.kernels.registry import Kernel, Machine
from heddle.kernels.spec import Launch, Spec, fold, product
from heddle.kernels.window_reduction import depth_of, unsupported

PART = 512
"""Channels of a task at most."""

MULTIPLE = 64
"""Channels by which parts end: whole vectors of any dtype."""


def emit_reduce(spec: Spec, machine: Machine) -> None:
    """Emits the loop over tasks."""
    frame = host.frame(spec, machine)
    tiles = Tiles(frame)
    channels = tiles.windows.channels
    parts = sizes.greatest(sizes.ceildiv(channels, PART), 1)
    length = sizes.ceildiv(channels, parts * MULTIPLE) * MULTIPLE
    for task in emit.loop(frame.first, frame.last):
        row, part = sizes.split(task, (1, parts))
        if parts == 1:
            tiles.reduce(row, 0, channels)
        else:
            first = part * length
            tiles.reduce(row, first, sizes.least(length, channels - first))


def launch(spec: Spec) -> Launch:
    """One task for each row of windows by each part of the channels."""
    *outer, along, channels = spec.result.shape
    taps = prod(spec.attr("kernel")) * depth_of(spec)
    each = fold("add", 2 * taps, bodies.work(spec.epilogue))
    tasks = product((*outer, fold("ceildiv", channels, PART)))
    return Launch((tasks, 1, 1), product((*outer, along, channels, each)))


def uses(spec: Spec) -> tuple[str, ...]:
    """Dot products multiply pairs of bfloat16."""
    return ("dots",) if len(spec.operands) == 2 and len(spec.operands[1].shape) == 3 else ()


KERNEL = Kernel(
    "window_reduce", "cpu", emit_reduce, launch, unsupported, overwrites="epilogue", uses=uses
)
