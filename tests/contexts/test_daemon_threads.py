"""Work that never ends: other work goes on, and the process ends."""

import gc
import subprocess
import sys
import threading
import time
import weakref

import pytest

from heddle.contexts import GrammarCompiler, GrammarLimits
from heddle.contexts.daemon_threads import DaemonThreads
from heddle.runtime.errors import InputError

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
    """A function: count -> threads, and how many of them are alive, by `alive`."""
    made = []

    def make(count=1):
        made.append(DaemonThreads(count, "heddle-test"))
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
    assert [both.submit(pow, 2, i).result(10) for i in range(9)] == [1 << i for i in range(9)]
    with pytest.raises(ZeroDivisionError):
        both.submit(lambda: 1 // 0).result(10)
    assert both.submit(pow, 3, 2).result(10) == 9
    assert alive() == 2


def test_work_that_waits_goes_on_when_the_one_before_is_given_up(threads, go_on):
    one = threads()
    stuck = one.submit(go_on.wait)
    wait_for(stuck.running)
    waits = one.submit(pow, 2, 3)
    one.give_up(stuck)
    one.give_up(stuck)
    assert waits.result(10) == 8
    assert alive() == 2
    go_on.set()
    assert stuck.result(10)
    wait_for(lambda: alive() == 1)
    one.give_up(waits)  # it has ended
    assert one.submit(pow, 2, 4).result(10) == 16
    assert alive() == 1


def test_threads_end_when_they_are_closed_or_forgotten(threads, go_on):
    closed = threads(2)
    stuck = [closed.submit(go_on.wait) for _ in range(2)]
    wait_for(lambda: all(work.running() for work in stuck))
    waits = closed.submit(pow, 2, 3)
    closed.close()
    assert waits.cancelled()
    with pytest.raises(RuntimeError, match="got closed ones"):
        closed.submit(pow, 2, 3)
    go_on.set()
    wait_for(lambda: alive() == 0)
    forgotten = DaemonThreads(2, "heddle-test")
    forgotten.submit(pow, 2, 3).result(10)
    del forgotten
    gc.collect()
    wait_for(lambda: alive() == 0)


def test_no_result_is_kept(threads):
    one = threads()
    work = one.submit(threading.Event)
    result = weakref.ref(work.result(10))
    del work
    wait_for(lambda: result() is None)


def test_a_grammar_without_an_end_holds_up_no_exit():
    run = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout == "regex: wanted to be compiled within 0.1 s, got no end\n"


def test_a_grammar_that_waits_behind_endless_ones_is_compiled(compiler, monkeypatch):
    patient = GrammarCompiler(compiler.tokenizer, GrammarLimits(seconds=0.5), threads=1)
    begun, go_on, compile_now = threading.Event(), threading.Event(), patient._compile
    refused = []

    def compile_or_wait(kind, text):
        if text != "stuck":
            return compile_now(kind, text)
        begun.set()
        return go_on.wait(30)

    def compile_stuck():
        with pytest.raises(InputError, match="got no end"):
            patient.compile("regex", "stuck")
        refused.append(True)

    monkeypatch.setattr(patient, "_compile", compile_or_wait)
    other = threading.Thread(target=compile_stuck)
    other.start()
    assert begun.wait(10)
    assert patient.compile("regex", "a").consume_token(ord("a"))
    other.join()
    assert refused
    go_on.set()
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
