"""Streams beside steps, requests that end early, and what was held back."""

import pytest
from asked import DRAWN, request, run

from heddle.pipelines.generation.step import Stepped
from heddle.runtime.errors import InputError


def text_of(deltas):
    return "".join(delta.text for delta in deltas)


def test_a_stream_beside_steps_of_the_caller(make_generator):
    """A step has what is new of others; the stream keeps its own, also when it is closed late."""
    (whole,) = run(make_generator(), [request()])
    generator = make_generator()
    stream = generator.stream(request())
    first = next(stream)
    others = [generator.submit(request(number=number)) for number in (1, 2)]
    seen = set()
    while generator.busy:
        seen |= {delta.request_id for delta in generator.step()}
    assert seen == set(others)
    rest = list(stream)
    assert text_of([first, *rest]) == whole[0]
    assert rest[-1].finish_reason == "length"
    assert not generator.busy


def test_a_stream_whose_request_is_cancelled_ends(make_generator):
    generator = make_generator()
    stream = generator.stream(request())
    next(stream)
    generator.cancel("r0")
    generator.step()
    assert [delta.finish_reason for delta in stream] == ["cancelled"]
    assert not generator.busy


def test_a_stream_that_has_ended_is_nobody_s(make_generator):
    """Its id is free with its last delta; closing it then ends no other request."""
    generator = make_generator()
    stream = generator.stream(request())
    while not next(stream).finish_reason:
        pass
    generator.submit(request())
    stream.close()
    assert run_on(generator)["r0"][-1].finish_reason == "length"


def run_on(generator):
    """What is left, by request."""
    found = {}
    while generator.busy:
        for delta in generator.step():
            found.setdefault(delta.request_id, []).append(delta)
    return found


def test_a_step_that_fails_loses_nothing_that_was_ready(make_generator, monkeypatch):
    generator = make_generator()
    generator.submit(request(params={"max_new_tokens": 0}))
    generator.submit(request(number=1))
    with monkeypatch.context() as broken:
        broken.setattr(generator._step, "run", fail)
        with pytest.raises(RuntimeError, match="lost"):
            generator.step()
    assert [delta.finish_reason for delta in run_on(generator)["r0"]] == ["length"]


def fail(contexts, masks, drafts):
    raise RuntimeError("lost")


def test_an_id_is_taken_until_its_last_delta_is_fetched(make_generator):
    generator = make_generator()
    generator.submit(request(params={"max_new_tokens": 0}))
    with pytest.raises(InputError, match="wanted an id of its own"):
        generator.submit(request())
    assert [delta.finish_reason for delta in generator.step()] == ["length"]
    generator.submit(request())


@pytest.mark.parametrize("reason", ["cancelled", "error"])
def test_text_that_was_held_back_comes_with_the_end(make_generator, monkeypatch, reason):
    ((whole, _, _),) = run(make_generator(), [request(params=DRAWN)])
    stop = whole[:9] + "never"  # whose beginning the text is, so that it waits
    generator = make_generator()
    generator.submit(request(params=DRAWN, stop=stop))
    shown = ""
    for _ in range(6):
        shown += text_of(generator.step())
    assert shown == ""
    if reason == "cancelled":
        generator.cancel("r0")
    else:
        stepped = Stepped({0: ValueError("cannot go on")}, [0], [[]])
        monkeypatch.setattr(generator._step, "run", lambda contexts, masks, drafts: stepped)
    (last,) = generator.step()
    assert last.finish_reason == reason
    assert last.text == whole[: len(last.text)] != ""


def test_many_that_wait_are_found_at_once(make_generator):
    """Looking one up does not go through all of them."""
    generator = make_generator()
    for number in range(300):
        generator.submit(request("x", number))
    looked = []
    generator._schedule._waiting = Watched(generator._schedule._waiting, looked)
    generator.submit(request("x", 300))
    with pytest.raises(InputError, match="wanted an id of its own"):
        generator.submit(request("x", 299))
    assert not looked


class Watched:
    """A queue that tells when somebody goes through it."""

    def __init__(self, queue, looked):
        self._queue, self._looked = queue, looked

    def __iter__(self):
        self._looked.append(True)
        return iter(self._queue)

    def __getattr__(self, name):
        return getattr(self._queue, name)
