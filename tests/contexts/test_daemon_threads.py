"""Work that never ends: other work goes on, and the process ends."""

import gc
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from heddle.contexts import GrammarCompiler, GrammarLimits
from heddle.contexts.daemon_threads import DaemonThreads
from heddle.runtime.errors import InputError

LATE = TimeoutError("late")
STUCK = """
import threading
from heddle.contexts import GrammarCompiler, GrammarLimits, grammar_tokenizer
from heddle.runtime.errors import InputError

vocabulary = [bytes([i]) for i in range(256)] + [b""]
compiler = GrammarCompiler(grammar_tokenizer(vocabulary, [256]), GrammarLimits(seconds=0.1))
compiler._compile = lambda kind, text: threading.Event().wait()
try:
    compiler.compile("regex", "a")
except InputError as error:
    print(error)
"""


@pytest.fixture
def threads():
    """A function: count, seconds -> threads; how many of them are alive says `alive`."""
    made = []

    def make(count=1, seconds=60):
        made.append(DaemonThreads(count, "heddle-test", seconds))
        return made[-1]

    yield make
    for each in made:
        each.close()
    wait_for(lambda: alive() == 0)  # or the next test would count them


@pytest.fixture
def go_on(threads):
    """What stuck work waits for; it ends with the test at the latest."""
    event = threading.Event()
    yield event
    event.set()


def alive(name="heddle-test"):
    return sum(thread.name == name for thread in threading.enumerate())


def wait_for(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_what_a_call_gives_or_raises(threads):
    both = threads(2)
    work = [both.submit(LATE, pow, 2, i) for i in range(9)]
    assert [each.result(10) for each in work] == [1 << i for i in range(9)]
    with pytest.raises(ZeroDivisionError):
        both.submit(LATE, lambda: 1 // 0).result(10)
    assert both.submit(LATE, pow, 3, 2).result(10) == 9
    assert alive() == 2


def test_no_thread_watches_where_none_works(threads, go_on):
    both = threads(2)
    work = [both.submit(LATE, go_on.wait) for _ in range(5)]
    wait_for(lambda: alive("heddle-test-watch") == 1)
    go_on.set()
    assert all(each.result(10) for each in work)
    wait_for(lambda: alive("heddle-test-watch") == 0)


def test_work_that_takes_too_long_is_given_up_by_itself(threads, go_on):
    one = threads(seconds=1)
    stuck = one.submit(LATE, go_on.wait)
    waits = one.submit(LATE, pow, 2, 3)
    with pytest.raises(TimeoutError, match="late"):
        stuck.result(10)
    assert waits.result(10) == 8
    assert alive() == 2
    go_on.set()
    wait_for(lambda: alive() == 1)
    with pytest.raises(TimeoutError, match="late"):
        stuck.result()  # it stays given up
    assert one.submit(LATE, pow, 2, 4).result(10) == 16
    assert alive() == 1


@pytest.fixture
def fail(monkeypatch):
    """A function: the start of the thread of that name and number fails."""
    start, started = threading.Thread.start, []

    def failing(name, number):
        def start_or_fail(thread):
            started.append(thread.name)
            if thread.name == name and started.count(name) == number:
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_or_fail)

    return failing


@pytest.mark.parametrize(("name", "number"), [("heddle-test-watch", 1), ("heddle-test", 2)])
def test_the_system_may_have_no_thread_for_a_while(threads, go_on, fail, name, number):
    """Without a watch work goes on; the watch takes the place of a thread that cannot start."""
    fail(name, number)
    one = threads(seconds=1)
    assert one.submit(LATE, pow, 2, 3).result(10) == 8
    with pytest.raises(TimeoutError, match="late"):
        one.submit(LATE, go_on.wait).result(10)
    assert one.submit(LATE, pow, 2, 4).result(10) == 16


def test_work_that_no_thread_can_take_is_refused(threads, fail):
    fail("heddle-test", 1)
    one = threads()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        one.submit(LATE, pow, 2, 3)
    assert one.submit(LATE, pow, 2, 3).result(10) == 8


def test_work_may_take_forever(threads):
    assert threads(seconds=float("inf")).submit(LATE, pow, 2, 3).result(10) == 8


def test_how_long_work_waits_does_not_count(threads):
    one = threads(seconds=1)
    work = [one.submit(LATE, time.sleep, 0.1) for _ in range(20)]
    assert [each.result(30) for each in work] == [None] * 20


def test_threads_end_when_they_are_closed_or_forgotten(threads, go_on):
    closed = threads(2)
    stuck = [closed.submit(LATE, go_on.wait) for _ in range(2)]
    wait_for(lambda: all(work.running() for work in stuck))
    waits = closed.submit(LATE, pow, 2, 3)
    closed.close()
    assert waits.cancelled()
    with pytest.raises(RuntimeError, match="got closed ones"):
        closed.submit(LATE, pow, 2, 3)
    go_on.set()
    wait_for(lambda: alive() == 0)
    forgotten = DaemonThreads(2, "heddle-test", 60)
    forgotten.submit(LATE, pow, 2, 3).result(10)
    del forgotten
    gc.collect()
    wait_for(lambda: alive() == 0)


def test_no_result_is_kept(threads):
    one = threads()
    work = one.submit(LATE, threading.Event)
    result = weakref.ref(work.result(10))
    del work
    wait_for(lambda: result() is None)


def test_a_grammar_without_an_end_holds_up_no_exit():
    run = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout == "regex: wanted to be compiled within 0.1 s, got no end\n"


def test_a_grammar_that_waits_behind_endless_ones_is_compiled(compiler, monkeypatch):
    """Also where nobody asks what became of those."""
    patient = GrammarCompiler(compiler.tokenizer, GrammarLimits(seconds=1), threads=2)
    go_on, compile_now = threading.Event(), patient._compile

    def compile_or_wait(kind, text):
        return go_on.wait(30) if text == "stuck" else compile_now(kind, text)

    monkeypatch.setattr(patient, "_compile", compile_or_wait)
    stuck = [patient.submit("regex", "stuck") for _ in range(6)]
    assert patient.compile("regex", "a").consume_token(ord("a"))
    for each in stuck:
        with pytest.raises(InputError, match="wanted to be compiled within 1 s, got no end"):
            each.result(10)
    go_on.set()
    patient.close()


def test_grammars_of_a_burst_are_all_compiled(compiler, monkeypatch):
    """`GrammarLimits.seconds` is the time to compile one, not to wait for those before it."""
    patient = GrammarCompiler(compiler.tokenizer, GrammarLimits(seconds=1), threads=2)
    compile_now = patient._compile

    def compile_late(kind, text):
        time.sleep(0.1)
        return compile_now(kind, text)

    monkeypatch.setattr(patient, "_compile", compile_late)
    with ThreadPoolExecutor(40) as callers:
        assert len(list(callers.map(patient.compile, ["regex"] * 40, ["a"] * 40))) == 40
    patient.close()


def test_a_grammar_that_waits_while_its_compiler_is_closed_is_refused(compiler, monkeypatch):
    closing = GrammarCompiler(compiler.tokenizer, GrammarLimits(seconds=30), threads=1)
    go_on = threading.Event()
    monkeypatch.setattr(closing, "_compile", lambda kind, text: go_on.wait(30))
    closing.submit("regex", "stuck")
    closer = threading.Timer(0.1, closing.close)
    closer.start()
    with pytest.raises(InputError, match="wanted one that is open, got one that was closed"):
        closing.compile("regex", "a")
    closer.join()
    go_on.set()
