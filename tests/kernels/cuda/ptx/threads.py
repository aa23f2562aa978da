"""PTX instructions that see threads and memory: a row for each form of name.

A row takes what its name says, the instruction and `Operands`, and makes a function of the lanes.
Meanings are those of the emulator of MLIR; the comment above a group names the section of the PTX
ISA 9.0 manual.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from emulator import atomics, barriers, clusters, dependence, mma, threads, warps
from emulator.grid import SHARED, SHARED_CLUSTER
from emulator.memory import EmulatorError

from ptx.state import GENERIC_SHARED, PAGE, PARAMETERS, Operands, State
from ptx.text import Instruction, Register
from ptx.values import KINDS, SIGNED, UNSIGNED

GLOBAL = 1
SPACES = {"global": GLOBAL, "shared": SHARED, "shared::cluster": SHARED_CLUSTER}
Step = Callable[[State], None]

SPECIAL = {
    # "Special Registers"
    "%tid.x": lambda grid: grid.thread,
    "%ntid.x": lambda grid: grid.threads,
    "%ctaid.x": lambda grid: grid.block,
    "%nctaid.x": lambda grid: grid.blocks,
    "%cluster_ctarank": lambda grid: grid.block[:1] - grid.cluster.first,
}


def _called(line: Instruction, use: Operands, function: Callable, kinds: str) -> Step:
    """`function(grid, mask, operands...)` of registers, whose result is the first operand."""
    put = use.write(line.operands[0])
    reads = [use.read(x, KINDS[k]) for x, k in zip(line.operands[1:], kinds.split(), strict=True)]

    def run(state: State) -> None:
        put(state, function(state.grid, state.mask, *[read(state) for read in reads]))

    return run


def done(function: Callable) -> Callable:
    """A row of `function(grid, mask)`."""
    return lambda form, line, use: lambda state: function(state.grid, state.mask)


# "Data Movement and Conversion Instructions": mov of what is no value, cvta, ld, st


def pack(form, line: Instruction, use: Operands) -> Step:
    put, parts = use.write(line.operands[0]), use.numbers(line.operands[1])

    def run(state: State) -> None:
        found = np.stack(np.broadcast_arrays(*[part(state) for part in parts]), axis=1)
        put(state, found.reshape(-1).view(f"i{found.itemsize * found.shape[1]}"))

    return run


def unpack(form, line: Instruction, use: Operands) -> Step:
    put, whole = use.writes(line.operands[0]), use.read(line.operands[1])
    count = len(line.operands[0])

    def run(state: State) -> None:
        value = np.ascontiguousarray(whole(state))
        parts = value.view(f"i{value.itemsize // count}").reshape(-1, count)
        put(state, [np.ascontiguousarray(part) for part in parts.T])

    return run


def move(form, line: Instruction, use: Operands) -> Step:
    """Of a special register, or of an address."""
    put, source = use.write(line.operands[0]), line.operands[1]
    if source.name in SPECIAL:
        find = SPECIAL[source.name]
        return lambda state: put(
            state, np.broadcast_to(find(state.grid), len(state.mask)).astype(np.int32)
        )
    place = use.symbol(source)
    return lambda state: put(state, place(state))


def _parameter(use: Operands, state: State, address: np.ndarray) -> np.ndarray:
    """The generic address of a tensor map in parameter space."""
    number, inside = divmod(int(address[0]) - PARAMETERS, PAGE)
    if not 0 <= number < len(use.parameters) or inside or (address != address[0]).any():
        raise EmulatorError("wanted the address of a parameter")
    held = use.kernel.parameters[use.parameters[number]]
    if (held.size, held.alignment) != (128, 64):
        raise EmulatorError(f"wanted a tensor map of 128 bytes, aligned to 64, got {held}")
    return state.grid.values[number]


def convert_address(form, line: Instruction, use: Operands) -> Step:
    put, read = use.write(line.operands[0]), use.read(line.operands[1])
    to = {
        "to.global": lambda state: read(state),
        "global": lambda state: read(state),
        "shared": lambda state: read(state) + GENERIC_SHARED,
        "to.shared": lambda state: read(state) - GENERIC_SHARED,
        "to.shared::cluster": lambda state: read(state) - GENERIC_SHARED,
        "param": lambda state: _parameter(use, state, read(state)),
    }[form[1]]
    return lambda state: put(state, to(state))


def prefetch(form, line: Instruction, use: Operands) -> Step:
    address = use.address(line.operands[0])

    def run(state: State) -> None:
        found = address(state)
        if form[1]:
            found = _parameter(use, state, found)
        clusters.prefetch(state.grid, state.mask, found)

    return run


def load_parameter(form, line: Instruction, use: Operands) -> Step:
    put, name = use.write(line.operands[0]), line.operands[1].base.name
    number = use.parameters.index(name)
    if use.kernel.parameters[name].size != int(form[1]) // 8 or line.operands[1].offset:
        raise EmulatorError("wanted a whole parameter")
    return lambda state: put(state, state.grid.values[number].astype(SIGNED[int(form[1])]))


def _size(form) -> tuple[int, np.dtype]:
    """How many elements an access has; narrow ones that are not signed are extended by zeros."""
    kind = form["kind"]
    dtype = KINDS[kind] if kind[0] == "s" else UNSIGNED[int(kind[1:])]
    return int(form["count"] or 1), dtype


def load(form, line: Instruction, use: Operands) -> Step:
    count, dtype = _size(form)
    read = threads.load_from(SPACES[form["space"]], dtype, (count,), count * dtype.itemsize)
    put, address = use.writes(line.operands[0]), use.address(line.operands[1])

    def run(state: State) -> None:
        found = read(state.grid, state.mask, address(state))
        put(state, [np.ascontiguousarray(part) for part in found.T])

    return run


def store(form, line: Instruction, use: Operands) -> Step:
    count, dtype = _size(form)
    size = count * dtype.itemsize
    write = threads.store_to(SPACES[form["space"]], dtype, size, size)
    address, values = use.address(line.operands[0]), use.numbers(line.operands[1], None)
    if any(not isinstance(x, Register) for x in _parts(line.operands[1])):
        values = [
            use.read(x) if isinstance(x, Register) else use.read(x, SIGNED[8 * dtype.itemsize])
            for x in _parts(line.operands[1])
        ]

    def run(state: State) -> None:
        parts = np.broadcast_arrays(*[value(state) for value in values])
        write(state.grid, state.mask, np.stack(parts, axis=1).astype(dtype), address(state))

    return run


def _parts(operand) -> tuple:
    return operand if isinstance(operand, tuple) else (operand,)


# "Parallel Synchronization and Communication Instructions": atom, redux, vote, bar.warp.sync


def atomic(form, line: Instruction, use: Operands) -> Step:
    kind = KINDS[form[2]]
    update = atomics.update_in(SPACES[form[1]], kind, np.add)
    return _at_address(line, use, update, kind)


def exchange(form, line: Instruction, use: Operands) -> Step:
    kind = KINDS[form[2]]
    swap = threads.exchange_in(SPACES[form[1]], kind, kind.itemsize)
    return _at_address(line, use, lambda *given: swap(*given).parts[0], kind)


def _at_address(line: Instruction, use: Operands, function: Callable, kind: np.dtype) -> Step:
    put, address = use.write(line.operands[0]), use.address(line.operands[1])
    values = [use.read(operand, kind) for operand in line.operands[2:]]

    def run(state: State) -> None:
        given = [value(state) for value in values]
        spread = [state.grid.spread(x) for x in given]
        put(state, function(state.grid, state.mask, address(state), *spread))

    return run


def shuffle(form, line: Instruction, use: Operands) -> Step:
    value, lane, limit, members = line.operands[1:]
    shuffled = threads.shuffle_by(form[1])
    ordered = Instruction(line.name, (line.operands[0], members, value, lane, limit), None, "")
    return _called(ordered, use, shuffled, "b32 b32 b32 b32")


def reduce(form, line: Instruction, use: Operands) -> Step:
    return _called(line, use, warps.reduce_by(form[1]), "b32 b32")


def meet(form, line: Instruction, use: Operands) -> Step:
    members = use.read(line.operands[0])
    return lambda state: barriers.warp_barrier(state.grid, state.mask, members(state))


def divide(form, line: Instruction, use: Operands) -> Step:
    """ "Integer Arithmetic Instructions": div, rem."""
    unsigned = form[2][0] == "u"
    function = {
        "div": np.floor_divide if unsigned else threads.quotient,
        "rem": np.remainder if unsigned else np.fmod,
    }[form[1]]
    kind = f"s{form[2][1:]}"
    return _called(line, use, threads.divide(function, unsigned)(None), f"{kind} {kind}")


# "Warp Level Matrix Instructions"


def load_matrices(form, line: Instruction, use: Operands) -> Step:
    count = int(form[1])
    read = mma.load_from(SHARED, count, bool(form[2]))
    put, address = use.writes(line.operands[0]), use.address(line.operands[1])

    def run(state: State) -> None:
        found = read(state.grid, state.mask, address(state))
        put(state, [found] if count == 1 else found.parts)

    return run


def store_matrices(form, line: Instruction, use: Operands) -> Step:
    write = mma.store_to(SHARED, int(form[1]), bool(form[2]))
    address, values = use.address(line.operands[0]), use.numbers(line.operands[1])

    def run(state: State) -> None:
        write(state.grid, state.mask, address(state), *[value(state) for value in values])

    return run


def multiply(form, line: Instruction, use: Operands) -> Step:
    depth, a, b, sums = int(form[1]), form[3], form[4], form[2]
    if depth * mma.KINDS[a].itemsize != 32 or form[5] != sums:
        raise EmulatorError(f"the machine does not know {line.name}")
    product = mma.multiply_add(a, b)
    put = use.writes(line.operands[0])
    values = [read for part in line.operands[1:3] for read in use.numbers(part)]
    values += use.numbers(line.operands[3], KINDS[sums])

    def run(state: State) -> None:
        given = [np.ascontiguousarray(value(state)) for value in values]
        put(state, product(state.grid, state.mask, *given).parts)

    return run


_ACCESS = r"\.(?P<space>global|shared(?:::cluster)?)(?:\.v(?P<count>[24]))?\.(?P<kind>[bsu]\d+)"
ROWS: dict[re.Pattern, Callable] = {
    re.compile(name): row
    for name, row in {
        r"cvta\.([\w.:]+)\.u64": convert_address,
        r"ld\.param\.b(\d+)": load_parameter,
        rf"ld{_ACCESS}": load,
        rf"st{_ACCESS}": store,
        r"prefetch(\.param)?\.tensormap": prefetch,
        r"atom\.(global|shared)\.add\.(u32|u64)": atomic,
        r"atom\.relaxed\.sys\.(global)\.cas\.(b64)": exchange,
        r"shfl\.sync\.(bfly|idx)\.b32": shuffle,
        r"redux\.sync\.(add|max)\.s32": reduce,
        r"bar\.warp\.sync": meet,
        r"(div|rem)\.([su](?:16|32|64))": divide,
        r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared\.b16": load_matrices,
        r"stmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared\.b16": store_matrices,
        r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col\.(\w+)\.(\w+)\.(\w+)\.(\w+)": multiply,
        r"griddepcontrol\.wait": done(dependence.wait),
        r"griddepcontrol\.launch_dependents": done(dependence.launch_dependents),
    }.items()
}
