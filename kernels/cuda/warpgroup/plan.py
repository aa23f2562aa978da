"""Where products run by wgmma on sm_90a: in which tiles, clusters, and pieces of shared memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

from heddle.kernels import emit
from heddle.kernels.cuda import _handover
from heddle.kernels.cuda.products import (
    by_rows,
    matrices,
    minimums,
    mma,
    partial_sums,
    staging,
    tensor_cores,
)
from heddle.kernels.cuda.products import pieces as products_pieces
from heddle.kernels.cuda.products import scaled as products_scaled
from heddle.kernels.cuda.products.scaled_tile import ScaledTile
from heddle.kernels.cuda.products.tile import ROWS, Tile
from heddle.kernels.cuda.products.weight_words import WeightWords
from heddle.kernels.cuda.warpgroup import instructions, maps, panels, result
from heddle.kernels.registry import Machine
from heddle.kernels.row_groups import most
from heddle.kernels.spec import Expr, Launch, Spec, TensorMap, fold, product

CONSUMERS = 2
"""Warpgroups that multiply; one more brings operands."""

REGISTERS = 168
"""Of a thread at launch."""

THREADS = (CONSUMERS + 1) * instructions.THREADS
ROWS_TOGETHER = 2048
"""Rows of tiles that are made side by side: what they read stays in the L2 cache."""

SHORT = 64
"""Rows of a tile by weights of 8 and 4 bits, for calls that have no more."""

KEPT = 20 * 2**20
"""Bytes of those rows that stay there while pieces of tiles read them, each at its own step."""

_SHARED = 227 * 1024  # Bytes that a block can have.
_PANELS = (CONSUMERS * instructions.WARPS * panels.PANELS) * panels.PANEL
# Tiles of so many columns: they read more for each product. That of 64 is by arithmetic.
_SLOWER = {256: 1.0, 224: 1.015, 192: 1.03, 160: 1.035, 128: 1.04, 64: 1.75}
_ALONE = 1.005  # The same of blocks that have no other to share b with.
_WRITING = 2  # Steps in whose time a tile is written, beyond what other work hides.
_MOST_AXES = 2  # Of windows: with more of them, who gathers spills.


@dataclass(frozen=True)
class Plan:
    """How a product is computed: its tiles, blocks of a cluster, whether tiles may be cut."""

    spec: Spec
    tile: Tile | ScaledTile
    cluster: int
    cut: bool

    @property
    def problem(self) -> matrices.Problem:
        """What is multiplied."""
        return matrices.problem(self.spec)

    @property
    def stages(self) -> int:
        """As many as fit beside the panels, the mbarriers and the flags."""
        return (_SHARED - _PANELS - 1024) // self.tile.stage

    @property
    def panels(self) -> int:
        """Where the panels begin in shared memory."""
        return self.stages * self.tile.stage

    @property
    def barriers(self) -> int:
        """Where the mbarriers begin."""
        return self.panels + _PANELS

    @property
    def flags(self) -> int:
        """Where the flags of tiles in pieces begin."""
        return self.barriers + instructions.ring_bytes(self.stages)

    @property
    def half(self) -> int:
        """Lines in a box of what a cluster shares: of the stage's, those that one block fetches.

        That is b; where b is `scaled`, a.
        """
        if self.scaled:
            return self.tile.rows // self.cluster
        return (self.tile.columns if self.tile.transposed else self.tile.depth) // self.cluster

    @property
    def sums(self) -> int:
        """Of a thread that multiplies."""
        beside = self.tile.rows if self.scaled else self.tile.columns
        return beside * instructions.ROWS // instructions.THREADS

    @property
    def line(self) -> int:
        """Bytes of a row that a step multiplies."""
        return self.tile.depth * self.tile.kind.item

    @property
    def cost(self) -> int | None:
        """Steps that it takes to bring the pieces of a tile together, if it may be cut."""
        return products_pieces.COST * staging.LINE // self.line if self.cut else None

    @property
    def tiles(self) -> Expr:
        """Tiles of a cluster: one above the other, or side by side where they share a."""
        problem = self.problem
        if self.grouped:
            down = most(self.spec, self.tile.rows)
            return product((down, fold("ceildiv", problem.n, self.tile.columns)))
        if self.scaled:
            across = fold("ceildiv", problem.n, self.tile.columns * self.cluster)
            return fold("mul", fold("ceildiv", problem.m, self.tile.rows), across)
        down = fold("ceildiv", problem.m, ROWS * self.cluster)
        return product((*problem.batch, down, fold("ceildiv", problem.n, self.tile.columns)))

    @property
    def grouped(self) -> bool:
        """Whether rows are sorted by group, and each group has a b of its own."""
        return self.spec.op in ("grouped_matmul", "quantized_grouped_matmul")

    @property
    def gathers(self) -> bool:
        """Whether the left side is windows, which threads gather."""
        return self.spec.op == "window_matmul"

    @property
    def scaled(self) -> bool:
        """Whether b is weights of 8 or 4 bits with scales, which lanes widen."""
        return isinstance(self.tile, ScaledTile)

    @property
    def registers(self) -> tuple[int, int]:
        """Of a thread that multiplies and of one that brings, once they have shared them out anew.

        Who gathers windows, looks for groups or brings halves of bytes would spill with less; who
        widens weights of 8 bits, too, or looks for the groups of such weights. Who brings what has
        minimums spilled with 56 where sizes are known when it runs.
        """
        if not isinstance(self.tile, ScaledTile):
            return 224, 56
        if self.grouped or self.tile.weights.minimums:
            return 216, 72
        return (232, 40) if self.tile.weights.bits == 8 else (224, 56)

    @property
    def stored(self) -> bool:
        """Whether TMA stores the output: it stores whole tiles, which groups of rows are not."""
        return not self.grouped and result.by_tma(self.spec)


def launch(plan: Plan) -> Launch:
    """As many blocks as there is work for, one for each multiprocessor at most."""
    clusters = _handover.PROCESSORS // plan.cluster
    steps = fold("ceildiv", plan.problem.k, plan.tile.depth)
    parts = fold("max", 1, fold("floordiv", steps, products_pieces.LEAST)) if plan.cut else 1
    tiles = fold("max", 1, plan.tiles)
    groups = fold("min", clusters, fold("mul", tiles, parts))
    pieces = fold("min", 2 * clusters, fold("mul", 2, fold("mul", tiles, parts)))
    each = plan.cluster * plan.tile.rows * plan.tile.columns * 4
    return Launch(
        (fold("mul", groups, plan.cluster), 1, 1),
        plan.problem.work,
        (THREADS, 1, 1),
        plan.flags + CONSUMERS * partial_sums.FLAG,
        cluster=plan.cluster,
        resident=1,
        workspace=fold("mul", pieces, each) if plan.cut else 0,
        counters=_handover.PROCESSORS * CONSUMERS if plan.cut else 0,
        tensor_maps=_maps(plan),
    )


def _maps(plan: Plan) -> tuple[TensorMap, ...]:
    """Those of a, b and the output, of what TMA can copy at all."""
    spec = plan.spec
    width = staging.LINE // emit.ITEM_SIZE[spec.result.dtype]
    found = []
    if maps.brings(spec):
        for i, (box, line) in list(enumerate(_boxes(plan)))[plan.gathers :]:
            keeps = plan.problem.batch != () or (plan.grouped and i == 1)
            found.append(maps.tensor_map(spec, i, spec.operands[i].shape, box, line, keeps))
    if plan.stored:
        box, keeps = (panels.WARP_ROWS, width), plan.problem.batch != ()
        found.append(maps.tensor_map(spec, len(spec.inputs), spec.result.shape, box, keeps=keeps))
    return tuple(found)


def _boxes(plan: Plan) -> list[tuple[tuple[int, int], int]]:
    """The boxes of a and b, and the bytes of their lines."""
    tile, line = plan.tile, staging.LINE
    if isinstance(tile, ScaledTile):
        weights = (tile.columns, tile.b_line), tile.b_line
        return [((plan.half, tile.panel_depth), line), weights]
    return [((lines, tile.depth), line) for lines in (ROWS, plan.half)]


def plan_for(spec: Spec, machine: Machine) -> Plan | None:
    """The plan on `machine`; None where the product is not by wgmma.

    Elements that have not 16 bits must lie along k, and known rows be more than strips are for.
    """
    if machine.arch != "sm_90a":
        return None
    if spec.op in ("quantized_matmul", "quantized_grouped_matmul"):
        return _scaled_plan(spec)
    if not tensor_cores.fits(spec):
        return None
    tile_of = mma.kind_of(spec)
    assert tile_of is not None
    windows = spec.op == "window_matmul"
    if windows and not _gathers(spec):
        return None
    transposed, m = windows or spec.attr("transposed"), matrices.problem(spec).m
    grouped, groups = spec.op == "grouped_matmul", spec.operands[1].shape[0]
    few = by_rows.are_few(spec)
    if grouped:
        few = isinstance(m, int) and isinstance(groups, int) and m <= by_rows.FEW * groups
    if few or spec.gate or (tile_of.item != 2 and not transposed):
        return None
    columns = matrices.SPACE.value("columns", spec, "cuda")
    if grouped:
        return Plan(spec, Tile(tile_of, columns or 256, transposed), 1, cut=False)
    known = all(isinstance(size, int) for size in _sizes(spec))
    clusters = [1] if isinstance(m, int) and m <= ROWS else [2, 1] if known else [2]
    plans = [
        Plan(spec, Tile(tile_of, width, transposed), cluster, cut)
        for width in ([columns] if columns else _SLOWER)
        for cluster in clusters
        for cut in ([False, True] if known else [True])
    ]
    return min(plans, key=_time)


def _scaled_plan(spec: Spec) -> Plan | None:
    """That of weights of 8 and 4 bits: tiles of 128 columns, of which two share their rows.

    Tiles of rows that are sorted by group end with it: they are alone, and short, which leaves
    fewer of their rows empty, and registers to those that look for groups. With minimums tiles are
    alone, too: lanes read x, and to tell another block so would take a fence of the whole GPU.
    """
    problem, grouped = matrices.problem(spec), spec.op == "quantized_grouped_matmul"
    groups = spec.operands[1].shape[0] if grouped else 1
    if not isinstance(groups, int):
        return None
    few = by_rows.are_few(spec, products_scaled.FEW * groups)
    if few or spec.beside or spec.gate or not products_scaled.fits(spec):
        return None
    if problem.k == 0:  # There is no scale that could be asked for in advance.
        return None
    x, weights = spec.operands[:2]
    held = spec.attr("bits"), weights.dtype, minimums.number(spec) is not None
    words = WeightWords(mma.KINDS[x.dtype, x.dtype], *held)
    rows = SHORT if grouped or by_rows.are_few(spec, SHORT) else ROWS
    tile = ScaledTile(words, spec.attr("group"), rows)
    if grouped:
        return Plan(spec, tile, 1, cut=False)
    alone = isinstance(problem.n, int) and problem.n <= tile.columns
    cluster = 1 if alone or words.minimums else 2
    known = all(isinstance(size, int) for size in _sizes(spec))
    plans = [Plan(spec, tile, cluster, cut) for cut in ([False, True] if known else [True])]
    return min(plans, key=_time)


def _gathers(spec: Spec) -> bool:
    """Whether each chunk of a window is in one tap, and there is one group.

    Offsets between the windows of a tile are counted in 32 bits.
    """
    _, *inner, channels = spec.operands[0].shape
    if spec.operands[1].shape[0] != 1 or len(inner) > _MOST_AXES:
        return False
    if not all(isinstance(size, int) for size in (*inner, channels)):
        return False
    each = mma.CHUNK // emit.ITEM_SIZE[spec.operands[0].dtype]
    image = math.prod(size for size in (*inner, channels) if isinstance(size, int))
    small = (ROWS + 1) * image < 1 << 31
    return isinstance(channels, int) and channels > 0 and channels % each == 0 and small


def _time(plan: Plan) -> float:
    """An estimate of what a product takes, in columns of steps of tiles."""
    tile = plan.tile
    *batch, m, n, k = map(matrices.known, _sizes(plan.spec))
    down, across = (1, plan.cluster) if plan.scaled else (plan.cluster, 1)
    down, across = -(-m // (tile.rows * down)), -(-n // (tile.columns * across))
    groups, steps = _handover.PROCESSORS // plan.cluster, max(1, -(-k // tile.depth))
    whole, rest = divmod(math.prod(batch) * down * across, groups)
    last: float = steps * min(rest, 1)
    if plan.cost is not None and min(m, ROWS_TOGETHER) * steps * plan.line <= KEPT:
        last = products_pieces.last_wave(rest, steps, groups, plan.cost)
    slower = _SLOWER[tile.columns] * (_ALONE if plan.cluster == 1 else 1)
    return (whole * steps + last + _WRITING * (whole + 1)) * tile.columns * slower


def _sizes(spec: Spec) -> tuple[Expr, ...]:
    problem = matrices.problem(spec)
    return (*problem.batch, problem.m, problem.n, problem.k)


def own_launch(spec: Spec, machine: Machine) -> Launch | None:
    """The launch on `machine`, where it is that of a `Plan`."""
    plan = plan_for(spec, machine)
    return launch(plan) if plan else None
