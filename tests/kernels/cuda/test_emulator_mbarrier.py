"""mbarriers, clusters, elect and setmaxnreg by themselves; and mistakes with them."""

import numpy as np
import pytest
from emulator.build import at, get, i32, kernel, llvm, nvvm, put, thread
from emulator.machine import Buffer, launch
from emulator.memory import EmulatorError

from heddle.kernels import emit
from heddle.kernels.mlir import dialect, ir

pytestmark = pytest.mark.usefixtures("in_a_context")

BARRIER, SHARED = 1024, 1040
TICKS = 1000


def when(relation: str, a, b):
    return emit.when(emit.compare(relation, a, i32(b)))


def start(barrier, count: int, fence: bool = True) -> None:
    with when("equal", thread(), 0):
        nvvm.mbarrier_init(barrier, i32(count))
        if fence:
            nvvm.fence_mbarrier_init()
    nvvm.barrier(aligned=True)


def arrive(barrier, **options) -> None:
    nvvm.mbarrier_arrive(barrier, results=[emit.integer(64)], **options)


def wait(barrier, parity: int) -> None:
    nvvm.mbarrier_try_wait_parity(barrier, i32(parity), i32(TICKS))


def execute(body, grid: int = 1, threads: int = 64, **attributes) -> np.ndarray:
    """Runs `body(y, base, barrier)`; y has a word for each thread of the launch."""
    y = np.zeros(grid * threads, np.int32)
    whole = lambda y, base: body(y, base, at(base, BARRIER))  # noqa: E731
    module = kernel(1, threads, SHARED, whole, **attributes)
    launch(module, grid, threads, [Buffer(y, written=True)], [])
    return y


def hand_over(mistake: str = ""):
    """Warp 0 writes words, three times; warp 1 reads each before the next is written."""

    def body(y, base, barrier):
        # Arrivals of both warps, of each thread, in turns: phases 0, 2, 4 say "written".
        start(barrier, 33 if mistake == "count" else 32)
        total = i32(0)
        for turn in range(3):
            with when("less", thread(), 32):
                if turn:
                    wait(barrier, 1)
                put(base, thread() * 4, thread() * (turn + 1))
                if mistake == "one lane arrives":
                    with when("equal", thread(), 0):
                        arrive(barrier, count=i32(32))
                else:
                    arrive(barrier)
            branch = emit.scf.IfOp(
                emit.compare("less", thread(), i32(32)), [emit.integer(32)], has_else=True
            )
            with ir.InsertionPoint(branch.then_block):
                emit.scf.yield_([total])
            with ir.InsertionPoint(branch.else_block):
                if mistake != "wait":
                    wait(barrier, 1 if mistake == "parity" else 0)
                found = total + get(base, (thread() ^ 63) * 4)
                if turn < 2:
                    arrive(barrier)
                if mistake == "twice":
                    arrive(barrier)
                emit.scf.yield_([found])
            total = branch.results[0]
        put(y, thread() * 4, total)

    return body


def test_phases():
    assert execute(hand_over())[32:].tolist() == [6 * (31 - i) for i in range(32)]


MISTAKES = {
    "wait": "race: reads what thread 31 wrote|reads uninitialised bytes of shared memory",
    "parity": "race: reads what thread 31 wrote|reads uninitialised bytes of shared memory",
    "count": "more than 33 arrivals in a phase of the mbarrier at byte 1024 of shared memory of",
    "one lane arrives": "race: reads what thread 31 wrote",
    "twice": r"deadlock(?s:.*)warp 0 .* phase 7 lacks 32 of 32 arrivals and 0 bytes",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_phases_with_a_mistake(mistake):
    with pytest.raises(EmulatorError, match=MISTAKES[mistake]):
        execute(hand_over(mistake))


def one_arrives_for_all(y, base, barrier):
    start(barrier, 1)
    with when("less", thread(), 32):
        put(base, thread() * 4, thread())
        nvvm.bar_warp_sync(i32(-1))
        with when("equal", thread(), 0):
            arrive(barrier)
    wait(barrier, 0)
    put(y, thread() * 4, get(base, (thread() % 32) * 4))


def test_a_warp_barrier_lets_one_lane_arrive_for_all():
    assert execute(one_arrives_for_all).tolist() == [*range(32), *range(32)]


def test_who_finds_a_phase_complete_has_waited_for_it():
    def body(y, base, barrier):
        start(barrier, 32)
        with when("less", thread(), 32):
            put(base, thread() * 4, thread() + 1)
            arrive(barrier)
        complete = nvvm.mbarrier_test_wait(barrier, i32(0), results=[emit.integer(1)])
        with emit.when(complete):
            put(y, thread() * 4, get(base, thread() % 32 * 4))

    found, written = execute(body).reshape(2, 32).tolist(), [*range(1, 33)]
    assert found[0] == written
    assert found[1] in (written, [0] * 32)  # Of another warp, when it asks.


BAD = {
    "nobody initialised an mbarrier at byte 1024": lambda y, base, b: arrive(b),
    "wanted a count of 1 to 1048575 arrivals, got 0": lambda y, base, b: start(b, 0),
    "touches an mbarrier in shared memory of block 0": lambda y, base, b: (
        start(b, 1),
        get(b, 4),
    ),
    "wanted the parity of a phase, 0 or 1, got 2": lambda y, base, b: (start(b, 1), wait(b, 2)),
    "waits for 2097152 bytes, wanted at most 1048575": lambda y, base, b: (
        start(b, 64),
        nvvm.mbarrier_arrive_expect_tx(b, i32(2**16)),
    ),
    "deadlock(?s:.*)phase 0 lacks 0 of 64 arrivals and 64 bytes": lambda y, base, b: (
        start(b, 64),
        nvvm.mbarrier_expect_tx(b, i32(1)),
        arrive(b),
        wait(b, 0),
    ),
    "wanted the scope of the cluster at an mbarrier of another block": lambda y, base, b: (
        start(b, 1),
        nvvm.mbarrier_expect_tx(llvm.addrspacecast(ir.Type.parse("!llvm.ptr<7>"), b), i32(4)),
    ),
    "misaligned: 8 bytes": lambda y, base, b: arrive(at(b, 4)),
    "the emulator knows the proxy fences of the async proxy alone": lambda y, base, b: (
        start(b, 1),
        nvvm.fence_proxy(ir.Attribute.parse("#nvvm.proxy_kind<alias>")),
    ),
    "waits at the barrier of the cluster without an arrival": lambda y, base, b: nvvm.cluster_wait(
        aligned=True
    ),
    "arrives twice at the barrier of the cluster without a wait": lambda y, base, b: (
        nvvm.cluster_arrive(aligned=True),
        nvvm.cluster_arrive(aligned=True),
    ),
    "divergent: the barrier of the cluster wants whole warps": lambda y, base, b: with_one_thread(
        lambda: nvvm.cluster_arrive(aligned=True)
    ),
    "wanted the rank of one of 1 blocks, got 1": lambda y, base, b: nvvm.mapa(
        ir.Type.parse("!llvm.ptr<7>"), base, i32(1)
    ),
}


def with_one_thread(run) -> None:
    with when("equal", thread(), 0):
        run()


@pytest.mark.parametrize("message", BAD)
def test_what_is_forbidden(message):
    with pytest.raises(EmulatorError, match=message):
        execute(BAD[message])


def registers(count: int, action: str):
    return nvvm.setmaxregister(count, getattr(nvvm.SetMaxRegisterAction, action))


REGISTERS = {
    "setmaxnreg from 128 to 120 is no increase": (128, lambda: registers(120, "increase")),
    "setmaxnreg from 128 to 136 is no decrease": (128, lambda: registers(136, "decrease")),
    "divergent: setmaxnreg wants all threads": (
        128,
        lambda: with_one_thread(lambda: registers(120, "decrease")),
    ),
    "64 threads of 1032 registers, there are 65536": (1032, lambda: registers(24, "decrease")),
}


@pytest.mark.parametrize("message", REGISTERS)
def test_registers(message):
    most, action = REGISTERS[message]
    with pytest.raises(EmulatorError, match=message):
        execute(lambda y, base, b: action(), maxnreg=f"{most} : i32")


def test_registers_of_a_kernel_that_does_not_say():
    with pytest.raises(EmulatorError, match=r"no nvvm\.maxnreg: without it the assembler ignores"):
        execute(lambda y, base, b: registers(24, "decrease"))


def test_elect_takes_one_lane_of_each_warp():
    def body(y, base, barrier):
        chosen = nvvm.elect_sync(results=[emit.integer(1)])
        put(y, thread() * 4, dialect("arith").extui(emit.integer(32), chosen))

    assert execute(body).reshape(2, 32).sum(axis=1).tolist() == [1, 1]


def neighbours(mistake: str = ""):
    """Each block of a cluster of two writes its number to the other and arrives there."""

    def body(y, base, barrier):
        start(barrier, 32, fence=mistake != "no fence")
        nvvm.cluster_arrive(aligned=True)
        nvvm.cluster_wait(aligned=True)
        rank = nvvm.read_ptx_sreg_cluster_ctarank(results=[emit.integer(32)])
        cluster = nvvm.read_ptx_sreg_clusterid_x(results=[emit.integer(32)])
        far = ir.Type.parse("!llvm.ptr<7>")
        put(nvvm.mapa(far, base, rank ^ 1), thread() * 4, cluster * 100 + rank)
        scope = "cta" if mistake == "scope of the block" else "cluster"
        scope = ir.Attribute.parse(f"#nvvm.mem_scope<{scope}>")
        nvvm.mbarrier_arrive(nvvm.mapa(far, barrier, rank ^ 1), scope=scope)
        if mistake != "no wait":
            wait(barrier, 0)
        put(y, (rank * 32 + cluster * 64 + thread()) * 4, get(base, thread() * 4))
        if mistake == "one ends":
            with when("equal", rank, 0):
                nvvm.bar_warp_sync(i32(-1))
                wait(barrier, 1)

    return body


PAIR = {"grid": 4, "threads": 32, "cluster_dim": "array<i32: 2, 1, 1>"}


def test_clusters():
    found = execute(neighbours(), **PAIR)
    assert found.reshape(4, 32)[:, 0].tolist() == [1, 0, 101, 100]


CLUSTER_MISTAKES = {
    "no fence": "no fence.mbarrier_init between .* and its use from outside of the block",
    "no wait": "reads uninitialised bytes of shared memory|race: reads what thread",
    "scope of the block": "race: reads what thread",
    "one ends": r"deadlock(?s:.*)warp 0 of block 0 waits for parity 1",
}


@pytest.mark.parametrize("mistake", CLUSTER_MISTAKES)
def test_clusters_with_a_mistake(mistake):
    with pytest.raises(EmulatorError, match=CLUSTER_MISTAKES[mistake]):
        execute(neighbours(mistake), **PAIR)


def test_shared_memory_of_a_block_that_ended():
    def body(y, base, barrier):
        rank = nvvm.read_ptx_sreg_cluster_ctarank(results=[emit.integer(32)])
        nvvm.cluster_arrive(aligned=True)
        with when("equal", rank, 1):
            nvvm.cluster_wait(aligned=True)
            put(nvvm.mapa(ir.Type.parse("!llvm.ptr<7>"), base, i32(0)), thread() * 4, rank)

    with pytest.raises(EmulatorError, match="accesses shared memory of block 0, which ended"):
        execute(body, **PAIR)


@pytest.mark.parametrize("meets", [True, False])
def test_a_block_ends_behind_who_reads_its_shared_memory(meets):
    def meet():
        nvvm.cluster_arrive(aligned=True)
        nvvm.cluster_wait(aligned=True)

    def body(y, base, barrier):
        rank = nvvm.read_ptx_sreg_cluster_ctarank(results=[emit.integer(32)])
        put(base, thread() * 4, rank)
        meet()
        cluster = nvvm.read_ptx_sreg_clusterid_x(results=[emit.integer(32)])
        far = nvvm.mapa(ir.Type.parse("!llvm.ptr<7>"), base, rank ^ 1)
        with when("equal", rank, 1):  # Who comes first here: the other block has not ended.
            put(y, (cluster * 32 + thread()) * 4, get(far, thread() * 4))
        if meets:
            meet()

    if meets:
        execute(body, **PAIR)
        return
    with pytest.raises(EmulatorError, match=r"block . ends, and nothing says that thread"):
        execute(body, **PAIR)


def test_blocks_that_make_no_clusters():
    with pytest.raises(EmulatorError, match="wanted whole warps, and blocks in clusters of 2, got"):
        execute(neighbours(), **{**PAIR, "grid": 3})
