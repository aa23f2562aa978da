"""A ring of stages that two blocks of a cluster fill together, as multicast GEMMs do."""

import numpy as np
import pytest
from assembler import needs_assembler
from emulator.build import assemble, at, get, i32, kernel, llvm, nvvm, put, thread
from emulator.machine import Buffer, launch
from emulator.memory import EmulatorError
from emulator.tensor_map import TensorMap

from heddle.kernels import emit
from heddle.kernels.mlir import ir

pytestmark = pytest.mark.usefixtures("in_a_context")

STEPS, STAGES = 6, 2
ROWS, COLUMNS = 8, 32  # Of the int32 box of a step, of which each block fetches half.
STAGE = ROWS * COLUMNS * 4
FULL, EMPTY = STAGES * STAGE, STAGES * STAGE + 8 * STAGES
TICKS = 1000
FAR = "!llvm.ptr<7>"


def build(mistake: str = "") -> ir.Module:
    """Warp 0 of each block fetches half a stage for both; warp 1 adds up what came."""

    def body(x, y, base):
        rank = nvvm.read_ptx_sreg_cluster_ctarank(results=[emit.integer(32)])

        def barrier(kind: int, step):
            return at(base, step % STAGES * 8 + kind)

        def produce(step):
            nvvm.mbarrier_try_wait_parity(barrier(EMPTY, step), step // STAGES % 2 ^ 1, i32(TICKS))
            nvvm.mbarrier_arrive_expect_tx(barrier(FULL, step), i32(STAGE))
            half = rank * (STAGE // 2)
            target = llvm.addrspacecast(ir.Type.parse(FAR), at(base, step % STAGES * STAGE + half))
            nvvm.cp_async_bulk_tensor_shared_cluster_global(
                target,
                x,
                [i32(0), step * ROWS + rank * (ROWS // 2)],
                barrier(FULL, step),
                [],
                multicast_mask=emit.constant(emit.integer(16), 0b11),
            )

        def consume(step, total):
            nvvm.mbarrier_try_wait_parity(barrier(FULL, step), step // STAGES % 2, i32(TICKS))
            for row in range(ROWS):
                where = step % STAGES * STAGE + thread() % 32 * 4 + row * COLUMNS * 4
                total = total + get(base, where)
            if mistake != "no barrier of the warp":
                nvvm.bar_warp_sync(i32(-1))
            with emit.when(emit.compare("equal", thread() % 32, i32(0))):
                for other in (rank,) if mistake == "released to itself" else (i32(0), i32(1)):
                    nvvm.mbarrier_arrive(
                        nvvm.mapa(ir.Type.parse(FAR), barrier(EMPTY, step), other),
                        scope=ir.Attribute.parse("#nvvm.mem_scope<cluster>"),
                    )
            return total

        with emit.when(emit.compare("equal", thread(), i32(0))):
            for stage in range(STAGES):
                nvvm.mbarrier_init(barrier(FULL, i32(stage)), i32(1))
                count = 1 if mistake == "released to itself" else 2
                nvvm.mbarrier_init(barrier(EMPTY, i32(stage)), i32(count))
            nvvm.fence_mbarrier_init()
        nvvm.cluster_arrive(aligned=True)
        nvvm.cluster_wait(aligned=True)
        roles = emit.scf.IfOp(emit.compare("less", thread(), i32(32)), has_else=True)
        with ir.InsertionPoint(roles.then_block):
            with emit.when(nvvm.elect_sync(results=[emit.integer(1)])):
                loop = emit.scf.ForOp(i32(0), i32(STEPS), i32(1))
                with ir.InsertionPoint(loop.body):
                    produce(loop.induction_variable)
                    emit.scf.yield_([])
            emit.scf.yield_([])
        with ir.InsertionPoint(roles.else_block):
            loop = emit.scf.ForOp(i32(0), i32(STEPS), i32(1), [i32(0)])
            with ir.InsertionPoint(loop.body):
                emit.scf.yield_([consume(loop.induction_variable, loop.inner_iter_args[0])])
            put(y, (rank * 32 + thread() % 32) * 4, loop.results[0])
            emit.scf.yield_([])
        if mistake != "a block ends":
            nvvm.cluster_arrive(aligned=True)
            nvvm.cluster_wait(aligned=True)

    return kernel(2, 64, EMPTY + 8 * STAGES, body, cluster_dim="array<i32: 2, 1, 1>")


def execute(mistake: str = "") -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(1).integers(0, 100, (STEPS * ROWS, COLUMNS), np.int32)
    y = np.zeros((2, COLUMNS), np.int32)
    tensor = TensorMap(Buffer(x), 4, (COLUMNS, len(x)), (4 * COLUMNS,), (COLUMNS, ROWS // 2))
    launch(build(mistake), 2, 64, [tensor, Buffer(y, written=True)], [])
    return x, y


def test_both_blocks_see_all():
    x, y = execute()
    assert (y == x.sum(axis=0)).all()


MISTAKES = {
    "released to itself": r"race: writes (over )?what .* in shared memory of block 1",
    "no barrier of the warp": "race: writes what warp 1 reads in shared memory of block 0",
    "a block ends": r"block . ends, and nothing says that thread \d+ has accessed its",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake):
    with pytest.raises(EmulatorError, match=MISTAKES[mistake]):
        execute(mistake)


@needs_assembler
def test_it_is_assembled():
    text, cubin = assemble(build(), "sm_90a")
    for name in (
        ".multicast::cluster",
        "mapa.shared::cluster",
        "barrier.cluster.wait",
        "elect.sync",
    ):
        assert name in text
    assert cubin.spills == 0
