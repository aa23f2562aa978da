"""A server in a thread of this process, behind a socket, and clients of it."""

import json
import threading
import time

import httpx

from heddle.pipelines.serving.app import Service, Settings, make_app
from heddle.pipelines.serving.server import Server, address, listen

DEADLINE_S = 60
IN_JSON = {"content-type": "application/json"}


class Running:
    """A server that answers, and a client of it."""

    def __init__(self, models, most=64, api_keys=(), grace=10, settings=None):
        self.service = Service(models, most, api_keys, settings or Settings())
        self.listener = listen("127.0.0.1", 0)
        ready = threading.Event()
        self.server = Server(make_app(self.service), grace, ready.set)
        self.thread = threading.Thread(target=self.server.run, args=([self.listener],))
        self.thread.start()
        assert ready.wait(DEADLINE_S)
        self.client = httpx.Client(base_url=address(self.listener), timeout=DEADLINE_S)

    def post(self, path, **body):
        """The status and the body of an answer."""
        content = json.dumps({"model": "tiny", **body})
        response = self.client.post(path, content=content, headers=IN_JSON)
        return response.status_code, response.json()

    def ask(self, path, **body):
        """The body of an answer that is none of an error."""
        status, found = self.post(path, **body)
        assert status == 200, found
        return found

    def stream(self, path, **body):
        """The pieces of a stream, whose end is left out."""
        with self.open(path, **body) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            found = events(response)
        assert found.pop() == "[DONE]"
        return [json.loads(piece) for piece in found]

    def open(self, path, **body):
        """A stream that is read by who opens it."""
        return self.client.stream("POST", path, json={"model": "tiny", "stream": True, **body})

    def metric(self, name, **labels):
        """What a metric says; 0 where it says nothing yet."""
        labels = {"model": "tiny", **labels}
        return self.service.metrics.registry.get_sample_value(name, labels) or 0

    def stop(self):
        self.server.should_exit = True
        self.client.close()
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()
        self.listener.close()


def events(response):
    """The data of all events of a stream."""
    lines = list(response.iter_lines())
    assert all(line.startswith("data: ") for line in lines[::2])
    assert not any(lines[1::2])
    return [line.removeprefix("data: ") for line in lines[::2]]


def until(condition):
    """Waits until `condition()` holds."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


class Gate:
    """Lets so many steps of a generator go on, and counts those that have begun."""

    def __init__(self, generator, monkeypatch):
        self.begun = 0
        self._open = threading.Semaphore(0)
        run = generator._step.run

        def gated(*given):
            self.begun += 1
            assert self._open.acquire(timeout=DEADLINE_S)
            return run(*given)

        monkeypatch.setattr(generator._step, "run", gated)

    def pass_steps(self, count):
        self._open.release(count)


class Script:
    """Makes a generator of one row say what it is told, a token each step."""

    def __init__(self, generator, monkeypatch):
        self._model = generator._step._model
        self._tokenizer = generator.tokenizer
        self._left = []
        monkeypatch.setattr(generator._step, "_model", self)

    def say(self, text):
        """The text, whose special tokens are these, and an end."""
        ends = sorted(self._tokenizer.eos_token_ids)[:1]
        self._left = self._tokenizer.encode(text, add_special_tokens=False) + ends

    def execute(self, *inputs, out, **options):
        self._model.execute(*inputs, out=out, **options)
        out[0][:] = self._left.pop(0)
