"""Waits for a phase of an mbarrier that another schedule would have wait for another one."""

import pytest
from emulator.build import at, thread
from emulator.memory import EmulatorError
from test_emulator_mbarrier import BARRIER, arrive, execute, start, wait, when

pytestmark = pytest.mark.usefixtures("in_a_context")


@pytest.mark.parametrize("ordered", [True, False])
def test_a_wait_that_the_phase_after_next_may_find(ordered):
    """A thread hands over first, and waits then: two phases may have ended meanwhile."""

    def body(y, base, barrier):
        other = at(base, BARRIER + 8)
        start(other, 1)
        start(barrier, 1)
        with when("equal", thread(), 0):
            arrive(barrier)
            wait(other, 0)
            arrive(barrier)
        with when("equal", thread(), 32):
            for step in (wait, arrive) if ordered else (arrive, wait):
                step(*((barrier, 0) if step is wait else (other,)))

    if ordered:
        execute(body)
        return
    with pytest.raises(EmulatorError, match="nothing orders the wait of thread 32 for a phase"):
        execute(body)
