"""Threads that take turns, and a generator that several of them use."""

import gc
import signal
import threading
import time

import pytest
from asked import DRAWN, PROMPTS, request, run

from heddle.contexts import SamplingParams
from heddle.pipelines.generation.turns import Turns


def together(*functions):
    """Runs each in a thread of its own; what they return. None may hang."""
    found = [None] * len(functions)

    def call(number):
        found[number] = functions[number]()

    threads = [threading.Thread(target=call, args=(n,), daemon=True) for n in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return found


def test_turns_come_in_order_and_a_loop_keeps_none_waiting():
    turns, order = Turns(), []
    first = threading.Event()

    def loop():
        while len(order) < 3:
            with turns.take():
                first.set()
                time.sleep(0.05)

    def once(number):
        first.wait()
        time.sleep(0.1 * number)
        with turns.take():
            order.append(number)

    together(loop, *(lambda number=number: once(number) for number in range(3)))
    assert order == [0, 1, 2]


def test_wherever_ctrl_c_comes_the_turn_is_given_back():
    """By a timer, so that it comes between any two steps of the interpreter."""
    turns = Turns()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for number in range(2000):
            try:
                signal.setitimer(signal.ITIMER_REAL, (10 + number % 50) * 1e-6)
                while True:
                    with turns.take():
                        pass
            except KeyboardInterrupt:
                pass
            assert not turns._turns
            assert not turns._guard.locked()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_who_gives_up_waiting_holds_nobody_up(monkeypatch):
    turns = Turns()

    class Interrupted:
        """A lock whose owner presses Ctrl-C as it waits: the second time it is taken."""

        def __init__(self):
            self.count = 0

        def acquire(self):
            self.count += 1
            if self.count == 2:
                raise KeyboardInterrupt

        def locked(self):
            return True

        def release(self):
            pass

    with turns.take():
        with monkeypatch.context() as patched:
            patched.setattr(threading, "Lock", Interrupted)
            with pytest.raises(KeyboardInterrupt), turns.take():
                pass
        assert len(turns._turns) == 1
    with turns.take():
        pass
    assert not turns._turns


def test_several_threads_generate_what_one_would(make_generator):
    """Streams, lists of prompts, and steps of somebody else, who is handed nothing of theirs."""
    alone = run(make_generator(), [request(p, n, DRAWN) for n, p in enumerate(PROMPTS)])
    texts = [text for text, _, _ in alone]
    generator = make_generator()
    params = SamplingParams(max_new_tokens=24, **DRAWN)

    def stream(number):
        asked = request(PROMPTS[number], number, DRAWN)
        return "".join(delta.text for delta in generator.stream(asked))

    def steps():
        own = generator.submit(request(PROMPTS[4], 4, DRAWN))
        text, ended = "", False
        while not ended:
            for delta in generator.step():
                assert delta.request_id == own
                text += delta.text
                ended = delta.finish_reason is not None
        return text

    found = together(
        *(lambda number=number: stream(number) for number in range(3)),
        lambda: generator.generate([PROMPTS[3]], params)[0],
        steps,
    )
    assert found == texts
    assert not generator.busy
    assert generator._step.blocks.free == generator._step.blocks.count


def test_threads_that_want_the_first_grammar_share_one_compiler(make_generator):
    generator = make_generator()
    answers = together(
        *(
            lambda number=number: [*generator.stream(request(number=number), regex="ab{9}")]
            for number in range(4)
        )
    )
    assert {"".join(delta.text for delta in deltas) for deltas in answers} == {"a" + 9 * "b"}


def test_a_stream_that_dies_within_a_step_ends_its_request_afterwards(make_generator, monkeypatch):
    """As the garbage collector may find it: in the turn of another call."""
    generator = make_generator()
    stream = generator.stream(request())
    next(stream)
    whole = generator._step.run

    def run_and_collect(*given):
        nonlocal stream
        stream = None
        gc.collect()
        return whole(*given)

    monkeypatch.setattr(generator._step, "run", run_and_collect)
    generator.submit(request(number=1))
    assert {delta.request_id for delta in together(generator.step)[0]} <= {"r1"}
    assert generator.busy
    assert (generator.load.running, generator.load.waiting) == (1, 0)
