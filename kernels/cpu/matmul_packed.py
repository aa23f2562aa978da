"""a @ b for a b that `pack_b` laid out in panels of 32 columns (see `products.panels`).

Products are summed in float32 (float64 for float64), in the order of k.

- a of float32: a 16-bit b stays so in memory and is widened in registers. With AMX more rows than a
  tile of registers has are multiplied in tiles, as sums of bfloat16 (see `amx.float32`).
- Both bfloat16: b is in pairs along k, and a step takes a pair of each row of a. Where the machine
  has dot products of pairs (VDPBF16PS), they are used: each product is exact, each of the two sums
  is rounded to nearest even, and denormal inputs and sums count as zero (Intel SDM, volume 2), as
  do denormal results that are rounded to bfloat16.
  Tiles (TDPBF16PS) do the same with 16 pairs, the first elements and the second ones apart.
  Elsewhere both are widened. The error of a sum of k products is at most k * 2^-24 times the sum of
  their magnitudes either way, beside what denormals would add.
"""

from __future__ import annotations

from typing import Any

from heddle.kernels import bodies, convert, emit, host
from heddle.kernels.cpu import _bfloat16
from heddle.kernels.cpu.amx import float32, products
from heddle.kernels.cpu.products import beside, deep, panels, staged
from heddle.kernels.cpu.products.tile import Step
from heddle.kernels.cpu.products.vectors import emit_products, on_vectors
from heddle.kernels.registry import MACHINES, Kernel, Machine
from heddle.kernels.spec import Launch, Spec


def emit_matmul(spec: Spec, machine: Machine) -> None:
    """Emits the products of all blocks."""
    block = panels.BLOCK
    if in_tiles(spec, machine):
        block = products.BLOCK
    elif float32.fits(spec, machine):
        block = float32.BLOCK
    for frame in beside.frames(spec, machine, block):
        emit_blocks(frame, panels.Tasks)


def in_tiles(spec: Spec, machine: Machine) -> bool:
    """Whether it is computed in AMX tiles."""
    return machine.tiles and spec.operands[0].dtype == "bfloat16"


def own_launch(spec: Spec, machine: Machine) -> Launch | None:
    """With AMX that of its tasks, and those of rows that go on the stack."""
    if in_tiles(spec, machine):
        return beside.launch(spec, products.BLOCK, products.RUN)
    if float32.fits(spec, machine):
        return beside.launch(spec, float32.BLOCK, float32.RUN)
    return staged.own_launch(spec, machine) or deep.own_launch(spec, machine)


def emit_blocks(frame: host.Frame, tasks: type[panels.Tasks]) -> None:
    """Emits the products of all blocks of `tasks`."""
    dtype, machine = frame.spec.operands[0].dtype, frame.machine
    with _bfloat16.conversions(machine, loses=dtype == "bfloat16"):
        if in_tiles(frame.spec, machine):
            products.emit_runs(frame, "float32", tasks)
        elif float32.fits(frame.spec, machine):
            lanes = host.lanes_for(machine, ["float32"])
            own = tasks(frame, lanes, "float32", float32.BLOCK)
            float32.emit_runs(own, on_vectors(own, step_of(dtype, machine)))
        else:
            emit_products(frame, step_of(dtype, machine), tasks)


def step_of(dtype: str, machine: Machine) -> Step:
    """What a step adds without tiles, for an a of `dtype`."""
    if dtype != "bfloat16":
        return Step(dtype, emit.fma, dtype)
    if machine.dots:
        return Step("float32", _bfloat16.add_dots, latency=7)  # Zen 5
    return Step("float32", emit.fma, "float32", 2, _widened, _widened)


def _widened(pairs: Any) -> list[Any]:
    return [convert.half(pairs, number) for number in range(2)]


def supports(spec: Spec) -> str | None:
    """Floats; no prologue, which would be computed again for each panel."""
    a, b = (operand.dtype for operand in spec.operands[:2])
    if a not in ("float32", "float64", "bfloat16"):
        return f"a: wanted float32, float64 or bfloat16, got {a}"
    if a == "bfloat16" and b != a:
        return f"b: wanted bfloat16 for bfloat16, got {b}"
    if not emit.is_float(b) or (b == "float64") != (a == "float64"):
        return f"b: wanted a float for {a}, got {b}"
    if spec.prologue is not None:
        return "it takes no prologue"
    return bodies.unsupported(spec.epilogue)


def uses(spec: Spec) -> tuple[str, ...]:
    """Dot products and tiles multiply bfloat16; tiles as well parts of float32."""
    if spec.operands[0].dtype == "bfloat16":
        return "dots", "tiles"
    return ("tiles",) if float32.fits(spec, MACHINES["sapphirerapids"]) else ()


KERNEL = Kernel(
    "matmul_packed",
    "cpu",
    emit_matmul,
    beside.launch,
    beside.supports_each(supports),
    split=beside.split,
    overwrites="epilogue",
    uses=uses,
    space=panels.SPACE,
    own_launch=own_launch,
)
