"""Where products of 17 to 64 rows run by wgmma on sm_90a: in which tiles, and parts along k."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial, reduce

from heddle.kernels.cuda import _handover
from heddle.kernels.cuda.products import by_rows, matrices, mma, staging, tensor_cores
from heddle.kernels.cuda.products.tile import Tile
from heddle.kernels.cuda.warpgroup import instructions, maps
from heddle.kernels.registry import Machine
from heddle.kernels.spec import Expr, Launch, Operand, Spec, TensorMap, fold, product

THREADS = 2 * instructions.THREADS
"""A warpgroup that multiplies, and one that brings operands."""

_SHARED = 208 * 1024  # Bytes of a block, beside which small blocks of other kernels fit.
_WIDEST = 256  # Columns: 128 sums of a thread.
_LEAST = 3  # Stages: one in use, two on their way.
_PARTS = 1, 2, 4, 8  # Blocks of a cluster; 8 is what every GPU has.

# In nanoseconds, and bytes in one, as fitted to an H200.
_LATENCY = 1200  # Until a stage comes that was asked for.
_STEP = 100  # What a step takes beside its bytes,
_RATE = 150  # which a multiprocessor reads from the L2 cache so fast.
_MEMORY = 4200  # Of what all of them read from memory,
_IDLE = 0.38  # and so much less of that, by the share of those that have no block.
_STARTING = 1500  # A block, its first stage and its way out.
_MEETING = {1: 0, 2: 1500, 4: 4500, 8: 6000}  # Bringing so many parts together.


@dataclass(frozen=True)
class ShortTile(Tile):
    """64 rows by so many columns, half of each of two `products`."""

    products: int = 1

    rows = instructions.ROWS

    @property
    def each(self) -> int:
        """Columns of each product."""
        return self.columns // self.products

    @property
    def b_line(self) -> int:
        """As long as fills panels, so that none has columns of the next tile."""
        if self.transposed:
            return staging.LINE
        return math.gcd(self.columns * self.kind.item, staging.LINE)


@dataclass(frozen=True)
class ShortPlan:
    """How a product is computed: its tiles, and the parts along k that a cluster makes of each."""

    spec: Spec
    tile: ShortTile
    parts: int

    cluster = 1  # TMA brings what its own block needs.
    grouped = scaled = gathers = stored = False

    @property
    def problem(self) -> matrices.Problem:
        """What is multiplied."""
        return matrices.problem(self.spec)

    @property
    def stages(self) -> int:
        """As many as fit beside the mbarriers."""
        return (_SHARED - 1024) // self.tile.stage

    @property
    def barriers(self) -> int:
        """Where the mbarriers begin."""
        return self.stages * self.tile.stage

    @property
    def half(self) -> int:
        """Lines in a box of b."""
        return self.tile.each if self.tile.transposed else self.tile.depth

    @property
    def across(self) -> tuple[Expr, ...]:
        """Tiles side by side, of each product of the same rows."""
        problems = map(matrices.problem, self.spec.each)
        return tuple(fold("ceildiv", problem.n, self.tile.each) for problem in problems)


def launch(plan: ShortPlan) -> Launch:
    """A cluster for each tile."""
    across = reduce(partial(fold, "add"), plan.across)
    tiles = fold("max", 1, product((*plan.problem.batch, across)))
    return Launch(
        (fold("mul", tiles, plan.parts), 1, 1),
        plan.problem.work,
        (THREADS, 1, 1),
        plan.barriers + instructions.ring_bytes(plan.stages),
        cluster=plan.parts,
        tensor_maps=_maps(plan),
    )


def _maps(short: ShortPlan) -> tuple[TensorMap, ...]:
    """Those of a, and of b of each product, or of its gate."""
    spec, tile, keeps = short.spec, short.tile, short.problem.batch != ()
    rights = [(places[1], one) for one, places in zip(spec.each, spec.places, strict=True)]
    if spec.gate:
        rights.append((len(spec.inputs) - len(spec.gate.inputs) + 1, spec.gate))
    sides = [(0, spec.operands[0].shape, tile.rows, staging.LINE)]
    sides += [(buffer, one.operands[1].shape, short.half, tile.b_line) for buffer, one in rights]
    return tuple(
        maps.tensor_map(spec, buffer, shape, (lines, line // tile.kind.item), line, keeps)
        for buffer, shape, lines, line in sides
    )


def plan_for(spec: Spec, machine: Machine) -> ShortPlan | None:
    """The plan on `machine`; None where rows are not known to be 17 to 64, or TMA takes no b."""
    if machine.arch != "sm_90a" or not tensor_cores.fits(spec):
        return None
    if len({(*map(_dtype, one.operands), one.attr("transposed")) for one in spec.each}) > 1:
        return None
    m = matrices.problem(spec).m
    least = m if isinstance(m, int) else spec.attr(by_rows.LEAST, 0)
    if not by_rows.in_strips(spec) or not by_rows.are_few(spec) or least <= by_rows.FEWER:
        return None
    if not all(map(maps.brings, spec.each)):
        return None
    return min(_possible(spec), key=_time, default=None)


def _dtype(operand: Operand) -> str:
    return operand.dtype


def _possible(spec: Spec) -> Iterator[ShortPlan]:
    """Every tile that has enough stages, by every number of parts."""
    kind, transposed = mma.kind_of(spec), spec.attr("transposed")
    assert kind is not None
    products = 2 if spec.gate else 1
    if products > 1 and not transposed:
        return
    # Lines of b of 64 bytes are as fast as those of 128, and shorter ones are not.
    step = 16 * products if transposed else staging.LINE // (2 * kind.item)
    for columns in range(step, _WIDEST + 1, step):
        for parts in _PARTS:
            found = ShortPlan(spec, ShortTile(kind, columns, transposed, products), parts)
            if found.stages >= _LEAST:
                yield found


def _time(short: ShortPlan) -> tuple[float, float]:
    """An estimate of what a product takes, and of what it would if memory were faster."""
    problem, tile = short.problem, short.tile
    k, *batch = map(matrices.known, (problem.k, *problem.batch))
    widths = [matrices.known(matrices.problem(one).n) for one in short.spec.each]
    tiles = sum(-(-n // tile.each) for n in widths)
    blocks = math.prod(batch) * tiles * short.parts
    waves, steps = -(-blocks // _handover.PROCESSORS), -(-k // (tile.depth * short.parts))
    step = max(_STEP + tile.stage / _RATE, _LATENCY / (short.stages - 1))
    made = waves * steps * step
    rate = _MEMORY * (1 - _IDLE * (1 - blocks / (waves * _handover.PROCESSORS)))
    read = math.prod(batch) * sum(widths) * tile.products * k * tile.kind.item / rate
    return max(made, read) + waves * _STARTING + _MEETING[short.parts], made
