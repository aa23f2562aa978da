"""Many requests of one generator: those that go away, wait, or lose their model."""

import json
import socket
import threading
import time

import pytest
from served import Gate, events, until

from heddle.pipelines.generation.generator import TextGenerator
from heddle.pipelines.generation.step import Stepped
from heddle.pipelines.generation.tokenizer import TextTokenizer

PATH = "/v1/completions"
LONG = {"prompt": "Warp", "max_tokens": 200, "temperature": 0, "ignore_eos": True}


@pytest.fixture
def generator(make_generator):
    return make_generator(rows=1)


@pytest.fixture
def gate(generator, monkeypatch):
    return Gate(generator, monkeypatch)


def cancelled(server):
    return server.metric("heddle_requests_total", finish_reason="cancelled")


def idle(server, generator):
    until(lambda: not generator.busy)
    assert generator.load.blocks_used == 0
    assert not server.service.engines["tiny"]._answers


def send(server, **body):
    """A client of its own that has sent a request and reads nothing."""
    content = json.dumps({"model": "tiny", **LONG, **body}).encode()
    client = socket.create_connection(server.listener.getsockname())
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    client.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return client


def test_a_stream_whose_client_goes_is_cancelled_at_once(make_server, generator, gate):
    """After the step that runs: not when there is something to write."""
    server = make_server({"tiny": generator})
    gate.pass_steps(3)
    with server.open(PATH, **LONG) as response:
        lines = response.iter_lines()  # kept: its end closes the connection
        assert next(lines).startswith("data: ")
        until(lambda: gate.begun == 4)
    until(lambda: cancelled(server) == 1)
    gate.pass_steps(1)
    idle(server, generator)
    assert gate.begun == 4


@pytest.mark.parametrize("n", [1, 3])
def test_a_request_whose_client_goes_is_cancelled_at_once(make_server, generator, gate, n):
    """One that is answered whole, also where choices of it wait for a row."""
    server = make_server({"tiny": generator})
    client = send(server, n=n)
    until(lambda: gate.begun == 1)
    client.close()
    until(lambda: cancelled(server) == n)
    gate.pass_steps(1)
    idle(server, generator)
    assert gate.begun == 1


def test_a_client_that_goes_while_its_prompt_is_read(make_server, generator, gate, monkeypatch):
    reading, go_on = threading.Event(), threading.Event()
    submit = generator.submit

    def slowly(*asked):
        reading.set()
        assert go_on.wait(10)
        return submit(*asked)

    monkeypatch.setattr(generator, "submit", slowly)
    server = make_server({"tiny": generator})
    client = send(server)
    assert reading.wait(10)
    client.close()
    until(lambda: cancelled(server) == 1)
    go_on.set()
    idle(server, generator)
    assert gate.begun == 0


def test_who_comes_when_the_queue_is_full_is_told(make_server, generator, gate):
    server = make_server({"tiny": generator}, most=2)
    with server.open(PATH, **LONG, n=2) as response:
        until(lambda: gate.begun == 1)
        load = (server.metric("heddle_requests_running"), server.metric("heddle_requests_waiting"))
        assert load == (1, 1)
        assert server.metric("heddle_cache_blocks_used") > 0
        refused = server.client.post(PATH, json={"model": "tiny", **LONG})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"] == {
            "message": "server: wanted at most 2 texts at once, got one more; try again later",
            "type": "rate_limit_error",
            "param": None,
            "code": "queue_full",
        }
        gate.pass_steps(1000)
        assert events(response)[-1] == "[DONE]"
    gate.pass_steps(1000)
    assert server.post(PATH, **LONG)[0] == 200


def test_a_model_that_is_lost_is_told_to_all(make_server, generator, monkeypatch):
    server = make_server({"tiny": generator})
    here = threading.Event()

    def fail(*given):
        assert here.wait(10)
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(generator._step, "run", fail)
    lost = {
        "message": "model 'tiny' is lost: the device is gone",
        "type": "server_error",
        "param": None,
        "code": "model_lost",
    }
    with server.open(PATH, **LONG) as response:
        waiting = send(server)
        until(lambda: len(server.service.engines["tiny"]._answers) == 2)
        here.set()
        assert [json.loads(event) for event in events(response)] == [{"error": lost}]
    assert waiting.recv(100).startswith(b"HTTP/1.1 500 ")
    waiting.close()
    assert server.post(PATH, **LONG) == (500, {"error": lost})
    health = server.client.get("/health")
    assert (health.status_code, health.json()) == (
        503,
        {"status": "lost", "models": {"tiny": "the device is gone"}},
    )
    assert server.metric("heddle_requests_total", finish_reason="error") == 2


def test_a_text_that_cannot_go_on_ends_alone(make_server, generator, monkeypatch):
    server = make_server({"tiny": generator})
    run = generator._step.run
    refused = Stepped({0: ValueError("no number is finite")}, [0], [[]])
    monkeypatch.setattr(generator._step, "run", lambda *given: refused)
    status, body = server.post(PATH, **LONG)
    assert (status, body["error"]["type"]) == (500, "server_error")
    assert body["error"]["message"] == "the text could not go on: no number is finite"
    with server.open(PATH, **LONG) as response:
        assert json.loads(events(response)[-1]) == body
    monkeypatch.setattr(generator._step, "run", run)
    assert server.post(PATH, **LONG)[0] == 200
    assert server.client.get("/health").json() == {"status": "ok"}


def test_a_failure_of_the_server_is_one_answer(make_server, generator, monkeypatch, caplog):
    server = make_server({"tiny": generator})
    with monkeypatch.context() as broken:
        broken.setattr(generator, "submit", lambda *asked: 1 / 0)
        status, body = server.post(PATH, **LONG)
    assert status == 500
    assert body["error"]["message"] == "server: ZeroDivisionError: division by zero"
    assert "ZeroDivisionError" in caplog.text  # and a traceback for who runs the server
    assert server.post(PATH, **LONG)[0] == 200


def test_nothing_is_done_where_there_is_nothing_to_do(make_server, generator, monkeypatch):
    server = make_server({"tiny": generator})
    engine = server.service.engines["tiny"]
    seen = []
    step = engine._step
    monkeypatch.setattr(engine, "_step", lambda: seen.append(1) or step())
    assert server.post(PATH, **LONG)[0] == 200
    until(lambda: not generator.busy)
    time.sleep(0.05)
    before = len(seen)
    time.sleep(0.2)
    assert len(seen) == before > 0


@pytest.mark.parametrize("stream", [False, True])
def test_who_waits_for_all_of_a_text_is_not_woken_before(
    make_server, generator, monkeypatch, stream
):
    monkeypatch.setattr("heddle.pipelines.serving.engine.LATE_S", 1000)
    server = make_server({"tiny": generator})
    engine = server.service.engines["tiny"]
    engine._told = time.perf_counter()
    seen = []
    hand_out = engine._hand_out
    monkeypatch.setattr(engine, "_hand_out", lambda: seen.append(1) or hand_out())
    (server.stream if stream else server.ask)(PATH, **{**LONG, "max_tokens": 30})
    assert (len(seen) > 1) == stream
    assert server.metric("heddle_time_per_output_token_seconds_count") == 29


def test_what_runs_ends_within_the_time_of_grace(make_server, generator, gate):
    server = make_server({"tiny": generator})
    with server.open(PATH, **LONG) as response:
        until(lambda: gate.begun == 1)
        server.server.should_exit = True
        until(lambda: not server.server.servers[0].is_serving())
        gate.pass_steps(1000)
        assert events(response)[-1] == "[DONE]"
    server.thread.join(10)
    assert not server.thread.is_alive()


def test_what_runs_longer_is_cancelled(make_server, generator, gate):
    server = make_server({"tiny": generator}, grace=0)
    client = send(server, stream=True)
    until(lambda: gate.begun == 1)
    server.server.should_exit = True
    until(lambda: cancelled(server) == 1)
    gate.pass_steps(1)
    server.thread.join(10)
    assert not server.thread.is_alive()
    assert gate.begun == 1
    client.close()


def test_drafts_are_counted(make_server, decoder, decoder_model):
    """Several tokens of a step come as one piece, and each of them has its share of the time."""
    generator = TextGenerator(decoder_model, TextTokenizer(decoder), speculate=4)
    server = make_server({"tiny": generator})
    asked = {"prompt": "Warp", "max_tokens": 60, "guided_regex": "(warp and weft ){4}"}
    text = server.ask(PATH, **asked)["choices"][0]["text"]
    assert text == "warp and weft " * 4
    drafts = server.metric("heddle_draft_tokens_total")
    assert server.metric("heddle_accepted_draft_tokens_total") == drafts > 40
    assert server.metric("heddle_generated_tokens_total") == len(text) + 1
    later = server.metric("heddle_time_per_output_token_seconds_count")
    assert len(text) - 4 <= later <= len(text)  # all but those of the first piece


def test_times_are_counted_by_token(make_server, generator):
    server = make_server({"tiny": generator})
    server.ask(PATH, **{**LONG, "n": 2, "max_tokens": 5})
    for name, count in (
        ("heddle_time_to_first_token_seconds_count", 2),
        ("heddle_time_per_output_token_seconds_count", 8),
        ("heddle_generated_tokens_total", 10),
        ("heddle_prompt_tokens_total", 8),
    ):
        assert server.metric(name) == count, name
    assert server.metric("heddle_requests_total", finish_reason="length") == 2
    response = server.client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    assert 'heddle_cache_blocks{model="tiny"} 512.0' in response.text
