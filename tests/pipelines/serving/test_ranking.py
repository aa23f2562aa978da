"""`POST /v1/rerank`."""

import pytest

from heddle.pipelines.ranking import PairScorer
from heddle.runtime import InferenceSession

PATH = "/v1/rerank"

TEXTS = ["loom", "warp weft shed", "reed reed reed", "thread"]


@pytest.fixture(scope="module")
def scorer(reranker, reranker_artifact):
    model = InferenceSession(threads=1).load(reranker_artifact)
    return PairScorer(model, reranker / "tokenizer.json")


@pytest.fixture
def ranking(make_server, scorer, make_generator):
    return make_server({"tiny": scorer, "text": make_generator()})


def test_the_best_text_comes_first(ranking, scorer):
    scores = scorer.score("warp", TEXTS).tolist()
    order = sorted(range(len(TEXTS)), key=lambda number: -scores[number])
    tokens = sum(len(pair.ids) for pair in scorer.pairs("warp", TEXTS))
    assert ranking.ask(PATH, query="warp", documents=TEXTS) == {
        "object": "list",
        "results": [{"index": n, "relevance_score": scores[n]} for n in order],
        "model": "tiny",
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    assert ranking.metric("heddle_requests_total", finish_reason="stop") == len(TEXTS)
    assert ranking.metric("heddle_prompt_tokens_total") == tokens


def test_so_many_of_them_and_what_they_say(ranking):
    whole = ranking.ask(PATH, query="warp", documents=TEXTS)["results"]
    documents = [{"text": text, "id": number} for number, text in enumerate(TEXTS)]
    found = ranking.ask(PATH, query="warp", documents=documents, top_n=2, return_documents=True)
    texts = [row.pop("document") for row in found["results"]]
    assert found["results"] == whole[:2]
    assert texts == [{"text": TEXTS[row["index"]]} for row in whole[:2]]
    same = ranking.ask(PATH, query="warp", documents=["loom", "reed", "loom"])["results"]
    first, last = ([row["index"] for row in same].index(number) for number in (0, 2))
    assert first < last


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"documents": []}, "scorer: wanted at least one text, got none"),
        ({"documents": ["a", "\ud800"]}, "scorer: text 1: wanted a text in UTF-8, got"),
        ({"documents": ["a"] * 2049}, "documents: "),
        ({"query": 7}, "query: "),
        ({"documents": [7]}, "documents: wanted a text, or an object with a text, got"),
        ({"top_n": 0}, "top_n: "),
        ({"rank_fields": ["title"]}, "rank_fields: wanted none, this server does not have it"),
        ({"model": "text"}, "model: wanted a cross-encoder, got 'text', a text generator"),
    ],
)
def test_what_is_refused(ranking, asked, message):
    status, body = ranking.post(PATH, **{"query": "warp", "documents": TEXTS, **asked})
    assert (status, body["error"]["type"]) == (400, "invalid_request_error")
    assert body["error"]["message"].startswith(message)
