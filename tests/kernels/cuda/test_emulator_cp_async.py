"""cp.async, and barriers with numbers: what they copy and order, and the mistakes with them."""

import pytest
from emulator.memory import EmulatorError
from emulator.probe import emulate, numbers

COPY = """
  %src = llvm.addrspacecast %from : !llvm.ptr to !llvm.ptr<1>
  nvvm.cp.async.shared.global %mine, %src, 4, cache = ca{count} : !llvm.ptr<3>, !llvm.ptr<1>{kind}
"""
COMMIT = "nvvm.cp.async.commit.group\n"
WAIT = "nvvm.cp.async.wait.group {}\n"
BARRIER = "nvvm.barrier\n"
FETCH = """
  %w = llvm.load %{} : !llvm.ptr<3> -> i32
  llvm.store %w, %to : i32, !llvm.ptr
"""
WHOLE = COPY.format(count="", kind="")


def test_own_copy_after_the_wait():
    found = emulate(WHOLE + COMMIT + WAIT.format(0) + FETCH.format("mine"), numbers(64),
                    numbers(64) * 0, 2, 32)  # fmt: skip
    assert found.tolist() == list(range(64))


def test_copy_of_another_thread_after_wait_and_barrier():
    body = WHOLE + COMMIT + WAIT.format(0) + BARRIER + FETCH.format("other")
    found = emulate(body, numbers(64), numbers(64) * 0, 1, 64)
    assert found.tolist() == (numbers(64) ^ 1).tolist()


def test_what_is_not_read_becomes_zero():
    body = """
      %four = arith.constant 4 : i32
      %odd = arith.andi %tid, %one : i32
      %size = arith.muli %odd, %four : i32
    """ + COPY.format(count=", %size", kind=", i32")
    found = emulate(body + COMMIT + WAIT.format(0) + FETCH.format("mine"), numbers(), numbers() * 0)
    assert found.tolist() == [n if n % 2 else 0 for n in range(32)]


def test_an_older_group_is_waited_for_alone():
    twice = WHOLE + COMMIT + WHOLE.replace("%src", "%src2").replace("%mine", "%second")
    body = "%second = llvm.getelementptr %mine[32] : (!llvm.ptr<3>) -> !llvm.ptr<3>, i32\n" + twice
    body += COMMIT + WAIT.format(1)
    found = emulate(body + FETCH.format("mine"), numbers(), numbers() * 0, words=2)
    assert found.tolist() == list(range(32))
    with pytest.raises(EmulatorError, match=r"reads what a cp\.async in flight of thread 0 wrote"):
        emulate(body + FETCH.format("second"), numbers(), numbers() * 0, words=2)


IN_FLIGHT = "race: reads what a cp.async in flight of thread 0 wrote in shared memory of block 0"
MISTAKES = {
    "no wait": (WHOLE + COMMIT + FETCH.format("mine"), IN_FLIGHT),
    "no commit": (WHOLE + WAIT.format(0) + FETCH.format("mine"), IN_FLIGHT),
    "a wait that leaves one": (WHOLE + COMMIT + WAIT.format(1) + FETCH.format("mine"), IN_FLIGHT),
    "a barrier in place of the wait": (WHOLE + COMMIT + BARRIER + FETCH.format("mine"), IN_FLIGHT),
    "no barrier after the wait": (
        WHOLE + COMMIT + WAIT.format(0) + FETCH.format("other"),
        "race: reads what a cp.async in flight of thread 1 wrote",
    ),
    "a copy over what others read": (
        "llvm.store %tid, %mine : i32, !llvm.ptr<3>\n"
        + BARRIER
        + FETCH.format("other")
        + WHOLE
        + COMMIT,
        "race: writes what warp 0 reads",
    ),
    "two copies to one place": (
        WHOLE.replace("%mine", "%tile"),
        "race: two copies write shared memory",
    ),
    "five bytes": (
        "%five = arith.constant 5 : i32" + COPY.format(count=", %five", kind=", i32"),
        "wanted at most 4 bytes of source, got 5",
    ),
    "source without alignment": (
        WHOLE.replace("%src,", "%odd,").replace(
            "nvvm", "%odd = llvm.getelementptr %src[1] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i8\nnvvm"
        ),
        "misaligned: 4 bytes",
    ),
    "source past the end": (
        WHOLE.replace("%src,", "%next,").replace(
            "nvvm", "%next = llvm.getelementptr %src[1] : (!llvm.ptr<1>) -> !llvm.ptr<1>, i32\nnvvm"
        ),
        "out of bounds: thread 31 reads 4 bytes at 128 of buffer 0",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    body, message = MISTAKES[name]
    with pytest.raises(EmulatorError, match=message):
        emulate(body, numbers(), numbers() * 0)


# Warp 0 writes for warp 1 and arrives; warp 1 waits at the same barrier and reads.
PAIR = """
  %warp_size = arith.constant 32 : i32
  %count = arith.constant {count} : i32
  %far_number = arith.xori %tid, %warp_size : i32
  %far = llvm.getelementptr %tile[%far_number] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
  %first_warp = arith.cmpi slt, %tid, %warp_size : i32
  scf.if %first_warp {{
    llvm.store %tid, %mine : i32, !llvm.ptr<3>
    {arrive}
  }} else {{
    {wait}
    %w = llvm.load %far : !llvm.ptr<3> -> i32
    llvm.store %w, %to : i32, !llvm.ptr
  }}
"""
ARRIVE = "nvvm.barrier.arrive id = %one number_of_threads = %count"
SYNC = "nvvm.barrier id = {} number_of_threads = %count"


def test_producer_and_consumer():
    body = PAIR.format(arrive=ARRIVE, wait=SYNC.format("%one"), count=64)
    found = emulate(body, numbers(64), numbers(64) * 0, block=64)
    assert found[32:].tolist() == list(range(32))


BARRIER_MISTAKES = {
    "nobody arrives": (
        PAIR.format(arrive="", wait=SYNC.format("%one"), count=64),
        r"deadlock: nothing can happen any more\n"
        r"    warp 1 of block 0 waits for barrier 1 of block 0 \(32 of 64\)",
    ),
    "another barrier": (
        PAIR.format(arrive=ARRIVE, wait=SYNC.format("%zero"), count=64),
        "warp 1 of block 0 waits for barrier 0 of block 0",
    ),
    "not enough threads": (
        PAIR.format(arrive=ARRIVE, wait=SYNC.format("%one"), count=32),
        "barrier 1 of block 0: nothing orders an arrival behind the last ones",
    ),
    "half a warp": (
        PAIR.format(arrive=ARRIVE, wait=SYNC.format("%one"), count=48),
        "wanted whole warps of 64 threads, got 48 threads",
    ),
    "different counts": (
        PAIR.format(arrive=ARRIVE, wait=SYNC.format("%one"), count=64).replace(
            "number_of_threads = %count\n  } else", "number_of_threads = %more\n  } else"
        ),
        "barrier 1 of block 0 is used for 64 and for 96 threads",
    ),
    "an arrival too early": (
        PAIR.format(
            arrive=f"{ARRIVE}\n{ARRIVE}", wait=f"{SYNC}\n{SYNC}".format(*["%one"] * 2), count=64
        ),
        "barrier 1 of block 0: nothing orders an arrival behind the last ones",
    ),
    "no such barrier": (
        PAIR.format(arrive=ARRIVE, wait=SYNC.format("%warp_size"), count=64),
        "wanted the number of a barrier, 0 to 15, got 32",
    ),
    "lanes that stay away": (
        "%some = arith.cmpi slt, %tid, %last : i32\nscf.if %some { nvvm.barrier id = %one }",
        "divergent barrier: 31 of 32 threads of a warp arrive",
    ),
}


@pytest.mark.parametrize("name", BARRIER_MISTAKES)
def test_mistakes_with_barriers(name):
    body, message = BARRIER_MISTAKES[name]
    more = "%more = arith.constant 96 : i32\n" if "%more" in body else ""
    with pytest.raises(EmulatorError, match=message):
        emulate(more + body, numbers(96), numbers(96) * 0, block=96 if more else 64)


def test_blocks_of_parts_of_warps():
    with pytest.raises(EmulatorError, match=r"wanted whole warps, .* got 1 blocks of 48"):
        emulate(COMMIT, numbers(48), numbers(48) * 0, block=48)
