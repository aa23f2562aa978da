"""`POST /v1/embeddings`, beside a text generator of the same server."""

import base64
import threading

import httpx
import numpy as np
import pytest
from served import until

from heddle.pipelines.embedding import SentenceEmbedder
from heddle.pipelines.weights import load
from heddle.runtime import Artifact, InferenceSession

PATH = "/v1/embeddings"


@pytest.fixture
def embedder(tiny, tiny_artifact):
    model = load(InferenceSession(threads=1), Artifact.load(tiny_artifact), None)
    return SentenceEmbedder(model, tiny / "tokenizer.json")


@pytest.fixture
def both(make_server, embedder, make_generator):
    return make_server({"tiny": embedder, "text": make_generator()}, most=2)


def test_vectors_are_those_of_the_embedder(both, embedder):
    texts = ["warp weft", "loom"]
    wanted = embedder.embed(texts)
    found = both.ask(PATH, input=texts)
    assert [row.pop("embedding") for row in found["data"]] == wanted.tolist()
    assert found == {
        "object": "list",
        "data": [{"object": "embedding", "index": index} for index in range(2)],
        "model": "tiny",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }
    rows = embedder.tokens(texts)
    assert both.ask(PATH, input=rows)["data"] == both.ask(PATH, input=texts)["data"]
    (one,) = both.ask(PATH, input=rows[1], user="me")["data"]
    assert np.allclose(one["embedding"], wanted[1], atol=1e-6)
    assert both.metric("heddle_requests_total", finish_reason="stop") == 7
    assert both.metric("heddle_prompt_tokens_total") == 7 * 3 + 3


def test_vectors_in_base64_are_little_endian_float32(both, embedder):
    (row,) = both.ask(PATH, input="warp", encoding_format="base64")["data"]
    found = np.frombuffer(base64.b64decode(row["embedding"]), "<f4")
    assert found.tolist() == embedder.embed(["warp"])[0].tolist()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"input": []}, "input: wanted at most 2048 texts, got none"),
        ({"input": ""}, "input: wanted at most 2048 texts, got an empty one"),
        ({"input": ["a", ""]}, "input: wanted at most 2048 texts, got an empty one"),
        ({"input": ["a"] * 2049}, "input: wanted at most 2048 texts, got 2049"),
        ({"input": [[]]}, "embedder: text 0: wanted at least one token, got none"),
        ({"input": "\ud800"}, "embedder: text 0: wanted a text in UTF-8, got '\\ud800' at 0"),
        ({"input": {"a": 1}}, "input: wanted a text, tokens, a list of texts or of tokens, got"),
        ({"input": "a", "dimensions": 0}, "dimensions: wanted "),
        ({"input": "a", "dimensions": 33}, "dimensions: wanted 1 to 32, got 33"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format: wanted 'float' or 'base64'"),
        (
            {"input": "a", "model": "text"},
            "model: wanted an embedder, got 'text', a text generator",
        ),
        ({"input": [[50]]}, ""),
    ],
)
def test_what_is_refused(both, asked, message):
    status, body = both.post(PATH, **asked)
    assert (status, body["error"]["type"]) == (400, "invalid_request_error")
    assert body["error"]["message"].startswith(message)
    assert not both.metric("heddle_requests_total", finish_reason="error")


def test_an_embedder_generates_no_text(both):
    status, body = both.post("/v1/completions", prompt="x")
    assert status == 400
    assert body["error"]["message"] == "model: wanted a text generator, got 'tiny', an embedder"
    found = both.client.get("/v1/models").json()["data"]
    assert [row["id"] for row in found] == ["tiny", "text"]
    assert both.client.get("/v1/models/text").json() == found[1]


def test_who_comes_when_the_queue_is_full_is_told(both, embedder, monkeypatch):
    go_on = threading.Event()
    embed = embedder.embed_tokens
    monkeypatch.setattr(embedder, "embed_tokens", lambda rows: go_on.wait(10) and embed(rows))
    found = []
    waiting = [
        threading.Thread(target=lambda: found.append(both.post(PATH, input="warp")[0]))
        for _ in range(2)
    ]
    for thread in waiting:
        thread.start()
    until(lambda: both.service.engines["tiny"]._here == 2)
    assert both.post(PATH, input="warp")[0] == 429
    go_on.set()
    for thread in waiting:
        thread.join(10)
    assert found == [200, 200]


class Held:
    """Holds the model at its first batch, and says what all batches were."""

    def __init__(self, server, embedder, monkeypatch):
        self.batches = []
        self.go_on = threading.Event()
        self._server, self._found = server, {}
        embed = embedder.embed_tokens

        def held(rows):
            self.batches.append(len(rows))
            assert self.go_on.wait(10)
            return embed(rows)

        monkeypatch.setattr(embedder, "embed_tokens", held)

    def ask(self, requests):
        """The answers to the first request, and to others that come while it is held."""
        threads = []
        engine = self._server.service.engines["tiny"]
        for number, given in enumerate(requests):
            thread = threading.Thread(target=self._ask, args=(number, given))
            thread.start()
            threads.append(thread)
            until(lambda count=number: self.batches and len(engine._answers) == count + 1)
        self.go_on.set()
        for thread in threads:
            thread.join(10)
        return [self._found[number] for number in range(len(requests))]

    def _ask(self, number, given):
        self._found[number] = self._server.post(PATH, input=given)


def test_texts_of_requests_that_wait_share_a_batch(make_server, embedder, monkeypatch):
    """The first one does not wait for others."""
    wanted = [embedder.embed([text])[0] for text in ("warp", "weft shed", "loom")]
    held = Held(make_server({"tiny": embedder}), embedder, monkeypatch)
    answers = held.ask(["warp", ["weft shed", "loom"], "loom"])
    assert held.batches == [1, 3]
    vectors = [[row["embedding"] for row in body["data"]] for _, body in answers]
    assert [len(each) for each in vectors] == [1, 2, 1]
    assert np.allclose(vectors[1], wanted[1:], atol=1e-6)
    assert np.allclose([vectors[0][0], vectors[2][0]], [wanted[0], wanted[2]], atol=1e-6)


def test_who_is_refused_takes_nobody_along(make_server, embedder, monkeypatch):
    held = Held(make_server({"tiny": embedder}), embedder, monkeypatch)
    answers = held.ask(["warp", [[2, 5000, 3]], "loom"])
    assert held.batches == [1, 2, 1, 1]
    assert [status for status, _ in answers] == [200, 400, 200]


def test_the_texts_of_who_has_gone_are_left_out(make_server, embedder, monkeypatch):
    server = make_server({"tiny": embedder})
    held = Held(server, embedder, monkeypatch)
    first = threading.Thread(target=server.post, args=(PATH,), kwargs={"input": "weft"})
    first.start()
    until(lambda: held.batches)
    with pytest.raises(httpx.TimeoutException):
        server.client.post(PATH, json={"model": "tiny", "input": ["loom"] * 9}, timeout=0.2)
    until(lambda: server.metric("heddle_requests_total", finish_reason="cancelled") == 1)
    held.go_on.set()
    first.join(10)
    assert held.batches == [1]


@pytest.mark.parametrize("size", [1, 8, 32])
def test_vectors_are_cut_and_of_length_one_again(both, embedder, size):
    wanted = embedder.embed(["warp"])[0][:size]
    (row,) = both.ask(PATH, input="warp", dimensions=size)["data"]
    assert np.allclose(row["embedding"], wanted / np.linalg.norm(wanted), atol=1e-6)


@pytest.mark.parametrize(
    ("dimensions", "message"),
    [
        ((8, 16), "dimensions: wanted one of 8, 16, got 4"),
        ((), "dimensions: wanted none, this model's embeddings are whole, got 4"),
    ],
)
def test_the_model_says_what_vectors_may_be_cut_to(
    make_server, embedder, tiny, dimensions, message
):
    model = SentenceEmbedder(embedder._model, tiny / "tokenizer.json", dimensions=dimensions)
    server = make_server({"tiny": model})
    status, body = server.post(PATH, input="warp", dimensions=4)
    assert (status, body["error"]["message"], body["error"]["param"]) == (
        400,
        message,
        "dimensions",
    )
    if dimensions:
        assert len(server.ask(PATH, input="a", dimensions=8)["data"][0]["embedding"]) == 8


def test_a_failure_is_counted_and_told(both, embedder, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(embedder, "embed_tokens", lambda rows: 1 / 0)
        assert both.post(PATH, input="warp")[0] == 500
    assert both.metric("heddle_requests_total", finish_reason="error") == 1
    assert both.post(PATH, input="warp")[0] == 200
