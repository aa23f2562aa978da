"""The control flow of PTX: blocks, the order in which lanes go through them, where they meet again.

PTX ISA 9.0, "Control Flow Instructions", "Divergence of Threads in Control Constructs". Lanes run
by groups, always the group that is furthest behind in an order in which a block comes after those
that lead to it and a loop is left after its body ("thread frontiers", Diamos et al. 2011). Lanes
that a branch parted count as diverged up to its immediate post-dominator, although some may meet
before it: the assembler does not promise more.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from emulator.memory import EmulatorError

from ptx.text import Address, Instruction, Kernel, Register, Symbol

NO_RESULT = (
    "st.", "bra", "bar", "ret", "prefetch", "cp.", "fence", "mbarrier.init", "stmatrix",
    "setmaxnreg", "griddepcontrol", "wgmma.fence", "wgmma.commit", "wgmma.wait", "red.",
)  # fmt: skip


@dataclass
class Block:
    """Instructions without a branch but the last one; `bar.sync` stands alone.

    `branch` is (predicate or None, its value to jump, target), `next` what follows otherwise, None
    at the end; both are places in the order. `meet` is where lanes that part here are one again.
    """

    instructions: list[Instruction] = field(default_factory=list)
    branch: tuple[Register | None, bool, int] | None = None
    uniform: bool = False
    next: int | None = None
    meet: int = 0

    def followers(self) -> list[int]:
        found = [] if self.branch is None else [self.branch[2]]
        return found if self.next is None else [*found, self.next]


def blocks_of(kernel: Kernel) -> list[Block]:
    """The blocks of a kernel in the order in which lanes go through them, the entry first.

    Raises:
        EmulatorError: A register is read where it may not have been written.
    """
    blocks = _ordered(_cut(kernel))
    _find_meetings(blocks)
    _check_written(blocks)
    return blocks


def _cut(kernel: Kernel) -> list[Block]:
    lines = kernel.instructions
    starts = {0, *kernel.labels.values()}
    for i, line in enumerate(lines):
        if line.name.startswith(("bra", "ret")) or line.name in ("bar.sync", "barrier.sync"):
            starts.add(i + 1)
        if line.name == "bar.sync":
            starts.add(i)
    ordered = sorted(start for start in starts if start < len(lines))
    number = {start: i for i, start in enumerate(ordered)}
    blocks = []
    for i, start in enumerate(ordered):
        stop = ordered[i + 1] if i + 1 < len(ordered) else len(lines)
        block, last = Block(lines[start:stop]), lines[stop - 1]
        falls = last.name != "ret"
        if last.name.startswith("bra"):
            target = number.get(kernel.labels.get(last.operands[0].name, -1))
            if target is None:
                raise EmulatorError(f"no such label: {last.text}")
            guard = last.guard or (None, True)
            block.branch, block.uniform = (*guard, target), last.name == "bra.uni"
            falls = last.guard is not None
            block.instructions = lines[start : stop - 1]
        elif last.name == "ret":
            block.instructions = lines[start : stop - 1]
        if any(line.guard for line in block.instructions):
            raise EmulatorError("the machine knows predicates of branches alone")
        if falls and i + 1 == len(ordered):
            raise EmulatorError("runs past the end of the kernel")
        block.next = i + 1 if falls else None
        blocks.append(block)
    return blocks


def _ordered(blocks: list[Block]) -> list[Block]:
    order = _sort(blocks, set(range(len(blocks))), 0)
    place = {old: new for new, old in enumerate(order)}
    for block in blocks:
        if block.branch is not None:
            block.branch = (*block.branch[:2], place.get(block.branch[2], -1))
        block.next = None if block.next is None else place.get(block.next, -1)
    return [blocks[i] for i in order]


def _sort(blocks: list[Block], among: set[int], entry: int) -> list[int]:
    """`among` in topological order from `entry` on, each loop in one piece, inner ones too.

    Edges back to `entry` are left out; what is not reached is dropped.
    """
    found: list[int] = []
    for part in reversed(_components(blocks, among, entry)):
        if len(part) == 1:
            found += part
            continue
        inside = set(part)
        ways_in = {node for b in among - inside for node in blocks[b].followers()}
        found += _sort(blocks, inside, min(inside & ways_in))
    return found


def _components(blocks: list[Block], among: set[int], entry: int) -> list[list[int]]:
    """Strongly connected components (Tarjan), sinks first."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    found: list[list[int]] = []
    work = [(entry, iter(_inside(blocks, among, entry, entry)))]
    index[entry] = low[entry] = 0
    stack.append(entry)
    while work:
        node, rest = work[-1]
        for other in rest:
            if other not in index:
                index[other] = low[other] = len(index)
                stack.append(other)
                work.append((other, iter(_inside(blocks, among, other, entry))))
                break
            if other in stack:
                low[node] = min(low[node], index[other])
        else:
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                at = stack.index(node)
                found.append(stack[at:])
                del stack[at:]
    return found


def _inside(blocks: list[Block], among: set[int], node: int, entry: int) -> list[int]:
    return [other for other in blocks[node].followers() if other in among and other != entry]


def _find_meetings(blocks: list[Block]) -> None:
    """Immediate post-dominators; where there is none before the end, the end."""
    end = len(blocks)
    every = (1 << end + 1) - 1
    after = [every] * end + [1 << end]
    changed = True
    while changed:
        changed = False
        for i in reversed(range(end)):
            common = every
            for other in blocks[i].followers() or [end]:
                common &= after[other]
            common |= 1 << i
            changed |= common != after[i]
            after[i] = common
    for i, block in enumerate(blocks):
        others = after[i] & ~(1 << i)
        places = [j for j in range(end + 1) if others >> j & 1]
        # The nearest of them is the one that all others post-dominate.
        block.meet = max(places, key=lambda j: after[j].bit_count(), default=end)


def _check_written(blocks: list[Block]) -> None:
    """Whether each register is written on every way to where it is read."""
    written: list[frozenset | None] = [None] * len(blocks)
    written[0] = frozenset()
    waiting = [0]
    while waiting:
        here = waiting.pop()
        have = set(written[here] or ())
        for line in blocks[here].instructions:
            have.update(results_of(line))
        for other in blocks[here].followers():
            before = written[other]
            now = frozenset(have) if before is None else before & have
            if now != before:
                written[other] = now
                waiting.append(other)
    for block, before in zip(blocks, written, strict=True):
        have = set(before or ())
        for line in block.instructions:
            _check_read(line, reads_of(line), have)
            have.update(results_of(line))
        if block.branch is not None and block.branch[0] is not None:
            _check_read(block.branch, [block.branch[0]], have)


def _check_read(line, reads: list[Register], have: set) -> None:
    for register in reads:
        if register not in have:
            text = line.text if isinstance(line, Instruction) else "a branch"
            raise EmulatorError(f"reads {register.name}, which may not be written:\n    {text}")


def results_of(line: Instruction) -> list[Register]:
    """The registers that an instruction writes: those of its first operand."""
    if line.name.startswith(NO_RESULT):
        return []
    return _registers(line.operands[:1])


def reads_of(line: Instruction) -> list[Register]:
    """Without the accumulators of wgmma, which it does not read where its predicate is false."""
    without = line.name.startswith(NO_RESULT)
    return _registers(line.operands if without else line.operands[1:])


def _registers(operands) -> list[Register]:
    found: list[Register] = []
    for operand in operands:
        if isinstance(operand, Register):
            found.append(operand)
        elif isinstance(operand, tuple):
            found += _registers(operand)
        elif isinstance(operand, Address):
            found += _registers([operand.base, *operand.coordinates])
        elif operand is not None and not isinstance(operand, Symbol):
            continue
    return found
