"""PTX instructions that wait, or that go on beside the warp: a row for each form of name.

As in `ptx.threads`; meanings are those of the emulator of MLIR. A row of `BLOCKING` makes a
coroutine. A kernel with any of these rows runs warp by warp, under vector clocks.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from emulator import arrivals, atomics, barriers, bulk, clusters, cp_async, mbarrier, tma, wgmma
from emulator.grid import SHARED, SHARED_CLUSTER
from emulator.memory import EmulatorError
from emulator.structs import Pending

from ptx.state import Operands, State, held_by
from ptx.text import Address, Immediate, Instruction
from ptx.threads import GLOBAL, Step, done
from ptx.values import BOOL, KINDS

I32 = KINDS["b32"]


def _after(make: Callable) -> Callable:
    """A row of an instruction with a number, of which `make` makes `function(grid, mask)`."""

    def row(form, line: Instruction, use: Operands) -> Step:
        function = make(use.number(line.operands[0]))
        return lambda state: function(state.grid, state.mask)

    return row


def _at(make: Callable) -> Callable:
    """A row of `make(space)(grid, mask, address, values...)`, whose result nobody wants."""

    def row(form, line: Instruction, use: Operands) -> Step:
        first = next(i for i, x in enumerate(line.operands) if isinstance(x, Address))
        function = make(form)
        address = use.address(line.operands[first])
        values = [use.read(x, I32) for x in line.operands[first + 1 :]]
        put = use.write(line.operands[0]) if first else None

        def run(state: State) -> None:
            given = [value(state) for value in values]
            found = function(state.grid, state.mask, address(state), *given)
            if put is not None:
                put(state, found)

        return run

    return row


# "Asynchronous copy": cp.async


def copy(form, line: Instruction, use: Operands) -> Step:
    size = use.number(line.operands[2])
    if form[1] == "cg" and size != 16:
        raise EmulatorError("cp.async.cg copies 16 bytes")
    function = cp_async.copy_between(SHARED, GLOBAL, size)
    to, start = (use.address(operand) for operand in line.operands[:2])
    counts = [use.read(operand, I32) for operand in line.operands[3:]]

    def run(state: State) -> None:
        given = [count(state) for count in counts]
        function(state.grid, state.mask, to(state), start(state), *given)

    return run


# "Tensor copy": cp.async.bulk.tensor


def load_box(form, line: Instruction, use: Operands) -> Step:
    function = tma.load_to(SHARED_CLUSTER, SHARED_CLUSTER)
    into, tensor, barrier, *multicast = line.operands
    to, mapped, meet = (use.address(operand) for operand in (into, tensor, barrier))
    coordinates = use.numbers(tensor.coordinates)
    blocks = [use.read(operand, KINDS["b16"]) for operand in multicast]
    _check_axes(form, line, coordinates, bool(form[2]) == bool(multicast))

    def run(state: State) -> None:
        parts = ([to], [mapped], coordinates, [meet], blocks)
        given = [[part(state) for part in group] for group in parts]
        function(state.grid, state.mask, *given)

    return run


def store_box(form, line: Instruction, use: Operands) -> Step:
    function = tma.store_from(SHARED)
    tensor, source = line.operands
    mapped, out, coordinates = use.address(tensor), use.address(source), tensor.coordinates
    _check_axes(form, line, coordinates, True)
    coordinates = use.numbers(coordinates)

    def run(state: State) -> None:
        given = [[part(state) for part in group] for group in ([mapped], [out], coordinates)]
        function(state.grid, state.mask, *given)

    return run


def _check_axes(form, line: Instruction, coordinates, fits: bool) -> None:
    if len(coordinates) != int(form[1]) or not fits:
        raise EmulatorError(f"the operands do not fit the name of {line.text}")


# "mbarrier"


def try_wait(form, line: Instruction, use: Operands):
    """Gives up once where it would have to wait, so that who does not ask again is found out."""
    put, address = use.write(line.operands[0]), use.address(line.operands[1])
    parity = use.read(line.operands[2], I32)
    passed = mbarrier.passed_at(SHARED)
    wait = mbarrier.wait_at(SHARED)

    def run(state: State):
        place, odd = address(state), parity(state)
        if id(line) not in state.tried and not passed(state.grid, state.mask, place, odd):
            state.tried.add(id(line))
            put(state, np.zeros(1, BOOL))
            return
        yield from wait(state.grid, state.mask, place, odd, None)
        state.tried.discard(id(line))
        put(state, np.ones(1, BOOL))

    return run


def test_wait(form, line: Instruction, use: Operands) -> Step:
    put, address = use.write(line.operands[0]), use.address(line.operands[1])
    parity = use.read(line.operands[2], I32)
    test = mbarrier.test_at(SHARED)
    return lambda state: put(state, test(state.grid, state.mask, address(state), parity(state)))


# "Asynchronous Warpgroup Level Matrix Instructions"


def multiply(form, line: Instruction, use: Operands) -> Step:
    sums, a, b, adds, *rest = line.operands
    signs, major = _flags(use, form, a, rest)
    shape = wgmma.Shape(int(form[1]), form[4], form[5], form[3], signs, major)
    shape.check(int(form[2]))
    slots = [use.slot(part, 32) for part in sums]
    left = use.numbers(a) if isinstance(a, tuple) else use.read(a)
    right, adding = use.read(b), use.read(adds, BOOL)
    dtype = KINDS[form[3]]

    def sums_of(state: State) -> list:
        found = []
        for slot in slots:
            held = state.values[slot]
            if held is None:
                raise EmulatorError("adds to an accumulator that nobody wrote")
            before, value = state.settled.get(slot, (None, None))
            found.append(
                held if isinstance(held, Pending) else before if held is value else held.view(dtype)
            )
        return found

    def run(state: State) -> None:
        adds = adding(state)
        if (adds != adds[0]).any():
            raise EmulatorError("divergent: whether wgmma adds differs in a warp")
        one = [part(state) for part in left] if isinstance(left, list) else left(state)
        other = right(state)
        name = (id(line), bool(adds[0]), int(other[0]))
        units = wgmma.in_step(state.grid, state.mask, name)
        parts = sums_of(state) if adds[0] else None
        found = wgmma.multiply(state.grid, shape, units, one, other, parts)
        for slot, part in zip(slots, found, strict=True):
            state.values[slot] = part

    return run


def _flags(use: Operands, form, a, rest) -> tuple[tuple[int, int], tuple[bool, bool]]:
    """Signs of A and B, and whether each is K-major."""
    numbers = [use.number(operand) for operand in rest]
    integers, halves = form[3] == "s32", form[4] in ("f16", "bf16")
    wanted = 0 if integers else 2 + (2 - isinstance(a, tuple) if halves else 0)
    if len(numbers) != wanted:
        raise EmulatorError(f"wanted {wanted} numbers behind the predicate, got {len(numbers)}")
    first, second = numbers[:2] or (1, 1)
    turned = [0, *numbers[2:]][-2:] if halves else (0, 0)
    return (first, second), (not turned[0], not turned[1])


def commit(form, line: Instruction, use: Operands) -> Step:
    function = wgmma.commit(id(line))
    return lambda state: function(state.grid, state.mask)


def fence(form, line: Instruction, use: Operands) -> Step:
    function = wgmma.fence(id(line))
    return lambda state: function(state.grid, state.mask)


def wait(form, line: Instruction, use: Operands):
    function = wgmma.wait(id(line), use.number(line.operands[0]))

    def run(state: State):
        yield from function(state.grid, state.mask)
        for slot, held in enumerate(state.values):
            if isinstance(held, Pending) and held.ready():
                value = held.value.view(held_by(32))
                state.values[slot], state.settled[slot] = value, (held, value)

    return run


# Barriers and registers


def sync(form, line: Instruction, use: Operands):
    number, *count = (use.read(operand, I32) for operand in line.operands)

    def run(state: State):
        given = count[0](state) if count else None
        yield from barriers.sync(state.grid, state.mask, number(state), given)

    return run


def arrive(form, line: Instruction, use: Operands) -> Step:
    number, count = (use.read(operand, I32) for operand in line.operands)
    return lambda state: barriers.arrive(
        state.grid, state.mask, number(state), count(state)
    ) and None  # fmt: skip


def wait_for_cluster(form, line: Instruction, use: Operands):
    return lambda state: clusters.wait(state.grid, state.mask)


def set_registers(form, line: Instruction, use: Operands):
    function = clusters.set_registers(use.number(line.operands[0]), form[1] == "inc")
    return lambda state: function(state.grid, state.mask)


def map_address(form, line: Instruction, use: Operands) -> Step:
    put, address = use.write(line.operands[0]), use.read(line.operands[1])
    rank = use.read(line.operands[2], I32)
    return lambda state: put(
        state,
        clusters.map_address(state.grid, state.mask, address(state), rank(state)),
    )


_TENSOR = r"cp\.async\.bulk\.tensor\.([1-5])d"
_COUNTED = r"\.mbarrier::complete_tx::bytes(\.multicast::cluster)?"


def _compiled(rows: dict[str, Callable]) -> dict[re.Pattern, Callable]:
    return {re.compile(name): row for name, row in rows.items()}


BLOCKING = _compiled(
    {
        r"bar\.sync": sync,
        r"barrier\.cluster\.wait": wait_for_cluster,
        r"mbarrier\.try_wait\.parity\.shared\.b64": try_wait,
        r"setmaxnreg\.(inc|dec)\.sync\.aligned\.u32": set_registers,
        r"wgmma\.wait_group\.sync\.aligned": wait,
    }
)
ROWS = _compiled(
    {
        r"bar\.arrive": arrive,
        r"barrier\.cluster\.arrive": done(clusters.arrive(True)),
        r"barrier\.cluster\.arrive\.relaxed": done(clusters.arrive(False)),
        r"mapa\.shared::cluster\.u64": map_address,
        r"cp\.async\.(ca|cg)\.shared\.global": copy,
        r"cp\.async\.commit_group": done(cp_async.commit),
        r"cp\.async\.wait_group": _after(cp_async.wait_until),
        r"cp\.async\.mbarrier\.arrive\.noinc\.shared\.b64": _at(
            lambda form: arrivals.arrive_at(SHARED)
        ),
        rf"{_TENSOR}\.shared::cluster\.global\.tile{_COUNTED}": load_box,
        rf"{_TENSOR}\.global\.shared::cta\.tile\.bulk_group": store_box,
        r"cp\.async\.bulk\.commit_group": done(bulk.commit),
        r"cp\.async\.bulk\.wait_group(\.read)?": _after(bulk.wait_until),
        r"mbarrier\.init\.shared\.b64": _at(lambda form: mbarrier.init_in(SHARED)),
        r"mbarrier\.arrive\.shared\.b64": _at(lambda form: mbarrier.arrive_at(SHARED)),
        r"mbarrier\.arrive(\.release\.cluster)?\.shared::cluster\.b64": _at(
            lambda form: mbarrier.arrive_at(SHARED_CLUSTER, form[1] is not None)
        ),
        r"mbarrier\.arrive\.expect_tx\.shared\.b64": _at(
            lambda form: mbarrier.arrive_and_expect_at(SHARED)
        ),
        r"mbarrier\.test_wait\.parity\.shared\.b64": test_wait,
        r"fence\.mbarrier_init\.release\.cluster": done(mbarrier.fence_init),
        r"fence\.proxy\.async\.shared::cta": done(mbarrier.fence_proxy),
        r"fence\.acq_rel\.gpu": done(atomics.fence_of_gpu),
        r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.(\w+)\.(\w+)\.(\w+)": multiply,
        r"wgmma\.commit_group\.sync\.aligned": commit,
        r"wgmma\.fence\.sync\.aligned": fence,
    }
)

ALL = (*BLOCKING, *ROWS)


def whole_block(line: Instruction) -> bool:
    """Whether a bar.sync is the barrier of the whole block, which needs no clocks."""
    return line.name == "bar.sync" and line.operands == (Immediate(0),)
