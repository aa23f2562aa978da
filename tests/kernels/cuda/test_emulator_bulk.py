"""Bulk copies without a tensor map, there and back; and mistakes with them."""

import numpy as np
import pytest
from assembler import needs_assembler
from emulator.build import assemble, at, attribute, global_pointer, i32, kernel, llvm, nvvm, thread
from emulator.machine import Buffer, launch
from emulator.memory import EmulatorError

from heddle.kernels import emit
from heddle.kernels.mlir import ir

pytestmark = pytest.mark.usefixtures("in_a_context")

COUNT = 256  # Bytes.


def there_and_back(mistake: str = ""):
    """Bytes come to shared memory, get one added to each word, and go away again."""
    count = 24 if mistake == "size" else COUNT

    def body(x, y, base):
        barrier = at(base, 1024)
        first = emit.compare("equal", thread(), i32(0))
        with emit.when(first):
            nvvm.mbarrier_init(barrier, i32(1))
            nvvm.fence_mbarrier_init()
        nvvm.barrier(aligned=True)
        with emit.when(first):
            nvvm.mbarrier_arrive_expect_tx(barrier, i32(count))
            target = llvm.addrspacecast(ir.Type.parse("!llvm.ptr<7>"), base)
            source = at(x, 8) if mistake == "source" else x
            nvvm.cp_async_bulk_shared_cluster_global(
                target, global_pointer(source), barrier, i32(count)
            )
        if mistake != "wait":
            nvvm.mbarrier_try_wait_parity(barrier, i32(0), i32(1000))
        for i in range(2):
            word = at(base, thread() * 4 + 128 * i)
            value = llvm.load(emit.integer(32), word, alignment=4)
            llvm.store(value + 1, word, alignment=4)
        if mistake != "fence":
            nvvm.fence_proxy(
                attribute("#nvvm.proxy_kind<async.shared>"),
                space=attribute("#nvvm.shared_space<cta>"),
            )
        nvvm.barrier(aligned=True)
        with emit.when(first):
            nvvm.cp_async_bulk_global_shared_cta(global_pointer(y), base, i32(count))
            if mistake != "commit":
                nvvm.cp_async_bulk_commit_group()
            nvvm.cp_async_bulk_wait_group(0, read=True)
        if mistake == "early":
            llvm.store(i32(1), at(base, thread() * 4), alignment=4)

    return kernel(2, 32, 1032, body)


def execute(mistake: str = "") -> tuple[np.ndarray, np.ndarray]:
    x = np.arange(COUNT // 4, dtype=np.int32)
    y = np.zeros_like(x)
    launch(there_and_back(mistake), 1, 32, [Buffer(x), Buffer(y, written=True)], [])
    return x, y


def test_there_and_back():
    x, y = execute()
    assert (y == x + 1).all()


MISTAKES = {
    "wait": "race: reads what a copy in flight to the mbarrier at byte 1024",
    "fence": r"race: no fence\.proxy\.async before it reads what thread 0 wrote",
    "commit": "thread 0 ends while its bulk stores read shared memory",
    "early": "race: writes what a bulk store of thread 0 reads",
    "size": "wanted a multiple of 16 bytes, got 24",
    "source": "misaligned: 16 bytes at an address that is no multiple of 16",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake):
    with pytest.raises(EmulatorError, match=MISTAKES[mistake]):
        execute(mistake)


def test_a_store_of_some_bytes():
    def body(x, base):
        nvvm.cp_async_bulk_global_shared_cta(
            global_pointer(x), base, i32(16), byte_mask=emit.constant(emit.integer(16), 1)
        )

    with pytest.raises(EmulatorError, match="the emulator knows bulk stores of all bytes alone"):
        launch(kernel(1, 32, 1024, body), 1, 32, [Buffer(np.zeros(16, np.uint8))], [])


@needs_assembler
def test_it_is_assembled():
    text, cubin = assemble(there_and_back(), "sm_90a")
    assert "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes" in text
    assert "cp.async.bulk.global.shared::cta.bulk_group" in text
    assert cubin.spills == 0
