"""Runs the PTX of a kernel, in NumPy, on the memory, barriers and units of the emulator of MLIR.

A `Program` of PTX is launched as one of MLIR is (`emulator.launch`). Lanes that are at the same
block run it together: all threads of a launch whose only order is the barrier of whole blocks,
else those of one warp. `ptx.flow` says which block is next, `ptx.values`, `ptx.threads` and
`ptx.asynchronous` what instructions do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import cache

import numpy as np
from emulator.barriers import barrier_of_all
from emulator.cluster import Wait
from emulator.grid import WARP, Grid
from emulator.masks import Mask, every, some
from emulator.memory import EmulatorError
from emulator.rows import Ordering

from ptx import asynchronous, threads
from ptx.flow import Block, blocks_of
from ptx.state import Operands, State, bits_of, held_by
from ptx.text import Instruction, Symbol, parse
from ptx.values import ROWS, read_as, write_as

MOST_BLOCKS = 200_000
"""So many blocks does a group of lanes go through: a loop that does not end is an error."""

Step = Callable[[State], None]


class Program:
    """A kernel's PTX, read once for all of its launches.

    Raises:
        EmulatorError: An instruction is not known, or a register is read before it is written.
    """

    def __init__(self, text: str) -> None:
        kernel = parse(text)
        self.order = Ordering()
        self.arguments = list(range(len(kernel.parameters)))
        self.arrays = kernel.arrays
        self.cluster, self.registers = kernel.cluster, kernel.registers
        self.threads = kernel.threads
        self._use = Operands(kernel)
        for line in kernel.instructions:
            self._note_order(line)
        self._blocks = blocks_of(kernel)
        self._steps = [[self._step(x) for x in block.instructions] for block in self._blocks]
        self._start: list = [None] * len(self._use.slots)
        for number, constant in self._use.constants.items():
            self._start[number] = constant

    def _note_order(self, line: Instruction) -> None:
        clocked = any(pattern.fullmatch(line.name) for pattern in asynchronous.ALL)
        self.order.by_warps |= clocked and not asynchronous.whole_block(line)
        self.order.of_blocks |= line.name == "fence.acq_rel.gpu"
        self.order.of_grids |= line.name.startswith("griddepcontrol.")

    def run(self, grid: Grid, mask: Mask) -> Generator[Wait, None, None]:
        """Runs all lanes of `mask` to the end of the kernel."""
        if self.threads != grid.threads:
            raise EmulatorError(f"wanted blocks of {self.threads} threads, got {grid.threads}")
        lanes, end = len(mask), len(self._blocks)
        at = np.where(mask, 0, end)
        state = State(grid, list(self._start), mask, at, np.zeros(lanes, np.int64))
        held = np.zeros(lanes, bool)  # By a barrier of the block.
        for _ in range(MOST_BLOCKS):
            here = int(np.where(held, end, at).min())
            if here == end:
                if some(held):
                    barrier_of_all(grid, held)  # Which says who is missing.
                return
            state.mask = (at == here) & ~held
            state.full = every(state.mask)
            state.until[state.mask & (state.until <= here)] = 0
            block = self._blocks[here]
            if (
                not self.order.by_warps
                and block.instructions[:1]
                and (block.instructions[0].name == "bar.sync")
            ):
                state.check_converged("bar.sync")
                at[state.mask] = block.next
                held |= state.mask
                held = _open_barrier(grid, held)
                continue
            yield from self._run_block(here, state)
            self._go_on(block, state)
        raise EmulatorError(f"does not end: {MOST_BLOCKS} blocks of instructions")

    def _run_block(self, here: int, state: State) -> Generator[Wait, None, None]:
        for line, step, waits in self._steps[here]:
            try:
                if waits:
                    yield from step(state)
                else:
                    step(state)
            except EmulatorError as error:
                raise EmulatorError(f"{error}\n    {line.text[:160]}") from None

    def _go_on(self, block: Block, state: State) -> None:
        end = len(self._blocks)
        following = end if block.next is None else block.next
        if block.branch is None:
            state.at[state.mask] = following
            return
        predicate, wanted, target = block.branch
        if predicate is None:
            state.at[state.mask] = target
            return
        holds = state.values[self._use.slots[predicate]]
        jumps = state.grid.spread(holds if wanted else ~holds)
        state.at[state.mask] = np.where(jumps, target, following)[state.mask]
        self._note_parted(block, state, jumps)

    def _note_parted(self, block: Block, state: State, jumps: np.ndarray) -> None:
        jumped = (jumps & state.mask).reshape(-1, WARP).any(axis=1)
        stayed = (~jumps & state.mask).reshape(-1, WARP).any(axis=1)
        parted = jumped & stayed
        if not some(parted):
            return
        if block.uniform:
            raise EmulatorError("divergent: the lanes of a warp part at bra.uni")
        lanes = np.repeat(parted, WARP) & state.mask
        state.until[lanes] = np.maximum(state.until[lanes], block.meet)

    def _step(self, line: Instruction) -> tuple[Instruction, Callable, bool]:
        """The instruction, what it does, and whether it may wait."""
        use = self._use
        moves = line.name.startswith("mov.")
        if moves and any(isinstance(operand, tuple) for operand in line.operands):
            packs = isinstance(line.operands[1], tuple)
            made = (threads.pack if packs else threads.unpack)(None, line, use)
            return line, made, False
        if moves and isinstance(line.operands[1], Symbol):
            return line, threads.move(None, line, use), False
        if line.name in ROWS:
            return line, self._value_step(line), False
        if found := _find(line.name):
            row, form, waits = found
            return line, _aligned(line, row(form, line, use), waits), waits
        raise EmulatorError(f"the machine has no row for {line.text}")

    def _value_step(self, line: Instruction) -> Step:
        row, use = ROWS[line.name], self._use
        result, *operands = line.operands
        if len(operands) != len(row.kinds):
            raise EmulatorError(f"wanted {len(row.kinds)} operands: {line.text}")
        put, held = use.slot(result, 0), held_by(result.bits)
        slots, reads = [], []
        for i, operand in enumerate(operands):
            bits = getattr(operand, "bits", bits_of(row.kinds[i]))
            slots.append(use.slot(operand, bits))
            reads.append(read_as(row.kinds[i], held_by(bits)))
        function = row.function

        def any_number(state: State) -> None:
            values = state.values
            given = [
                values[slot] if read is None else read(values[slot])
                for slot, read in zip(slots, reads, strict=True)
            ]
            state.write(put, write_as(function(*given), held))

        def plain(state: State) -> None:
            """Two operands that are read as registers hold them."""
            values = state.values
            found = function(values[first], values[last])
            if not state.full:
                old = values[put]
                if old is not None:
                    found = np.where(state.mask, found, old)
            values[put] = found

        first, last = slots[0], slots[-1]
        same = len(slots) == 2 and reads == [None, None] and row.kinds == (held, held)
        return plain if same else any_number


@cache
def _find(name: str) -> tuple[Callable, re.Match, bool] | None:
    """The row of an instruction, the match of its name, and whether it may wait."""
    for rows in (threads.ROWS, asynchronous.ROWS, asynchronous.BLOCKING):
        for pattern, row in rows.items():
            if form := pattern.fullmatch(name):
                return row, form, rows is asynchronous.BLOCKING
    return None


def _aligned(line: Instruction, step: Callable, waits: bool) -> Callable:
    """With a look at the warp, where all of its threads have to execute the instruction."""
    if not (".aligned" in line.name or line.name in ("bar.sync", "bar.arrive")):
        return step

    def check(state: State) -> None:
        state.check_converged(line.name)
        step(state)

    def check_and_wait(state: State) -> Generator[Wait, None, None]:
        state.check_converged(line.name)
        yield from step(state)

    return check_and_wait if waits else check


def _open_barrier(grid: Grid, held: Mask) -> Mask:
    """Lets blocks go on whose threads have all come; returns who is held still."""
    complete = held.reshape(grid.blocks, grid.threads).all(axis=1)
    if some(complete):
        through = np.repeat(complete, grid.threads)
        barrier_of_all(grid, through)
        return held & ~through
    return held
