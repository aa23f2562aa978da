"""cp.async.mbarrier.arrive.noinc by itself, and the mistakes with it."""

import numpy as np
import pytest
from emulator.build import at, attribute, global_pointer, i32, kernel, llvm, nvvm, thread
from emulator.machine import Buffer, launch
from emulator.memory import EmulatorError

from heddle.kernels import emit

pytestmark = pytest.mark.usefixtures("in_a_context")

BARRIERS, SHARED, THREADS = 1024, 1040, 64


def pass_on(mistake: str = "", noinc: bool = True) -> np.ndarray:
    """Warp 0 copies words twice, with an mbarrier for each time; warp 1 reads both."""

    def body(x, y, base):
        barriers = [at(base, BARRIERS + 8 * turn) for turn in range(2)]

        def copy(turn: int) -> None:
            source = global_pointer(at(x, thread() * 16 + 512 * turn))
            cached = attribute("#nvvm<load_cache_modifier cg>")
            nvvm.cp_async_shared_global(at(base, thread() * 16 + 512 * turn), source, 16, cached)

        def arrive(turn: int) -> None:
            if mistake == "an arrival that does not wait":
                nvvm.mbarrier_arrive(barriers[turn], results=[emit.integer(64)])
            else:
                nvvm.cp_async_mbarrier_arrive(barriers[turn], noinc=noinc)

        def read(turn: int) -> None:
            if mistake != "no wait":
                seen = 0 if mistake == "a wait for the other one" else turn
                nvvm.mbarrier_try_wait_parity(barriers[seen], i32(0), i32(1000))
            word = llvm.load(emit.integer(32), at(base, thread() * 16 + 512 * (turn - 1)))
            llvm.store(word, at(y, (thread() + 32 * (turn - 1)) * 4))

        with emit.when(emit.compare("equal", thread(), i32(0))):
            for barrier in barriers:
                nvvm.mbarrier_init(barrier, i32(33 if mistake == "a wrong count" else 32))
        if mistake != "no barrier after the initialisation":
            nvvm.barrier(aligned=True)
        with emit.when(emit.compare("less", thread(), i32(32))):
            steps = [copy, arrive]
            for turn in range(2):
                for step in reversed(steps) if mistake == "a copy after the arrival" else steps:
                    step(turn)
        with emit.when(emit.compare("greater_equal", thread(), i32(32))):
            for turn in range(2):
                read(turn)

    x = np.arange(256, dtype=np.int32)
    y = np.zeros(64, np.int32)
    launch(kernel(2, THREADS, SHARED, body), 1, THREADS, [Buffer(x), Buffer(y, written=True)], [])
    return y


def test_each_arrival_brings_the_copies_before_it():
    assert pass_on().tolist() == [4 * i for i in range(64)]


IN_FLIGHT = "race: reads what a cp.async in flight"
MISTAKES = {
    "no wait": "reads uninitialised bytes of shared memory of block 0",
    "a wait for the other one": f"{IN_FLIGHT} to the mbarrier at byte 1032",
    "an arrival that does not wait": f"{IN_FLIGHT} of thread 0 wrote in shared memory of block 0",
    "a copy after the arrival": f"{IN_FLIGHT} to the mbarrier at byte 1032",
    "a wrong count": r"deadlock(?s:.*)phase 0 lacks 1 of 33 arrivals",
    "no barrier after the initialisation": "uses the mbarrier .* while thread 0 initialises it",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake):
    with pytest.raises(EmulatorError, match=MISTAKES[mistake]):
        pass_on(mistake)


def test_the_other_form():
    with pytest.raises(EmulatorError, match=r"knows cp\.async\.mbarrier\.arrive with noinc alone"):
        pass_on(noinc=False)
