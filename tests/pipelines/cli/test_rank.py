"""`heddle rank`."""

import json

import pytest


@pytest.fixture
def rank(heddle, reranker, reranker_artifact):
    def call(*arguments, **options):
        return heddle("rank", reranker_artifact, *arguments, "--tokenizer", reranker, **options)

    return call


def test_the_best_text_is_the_first(rank):
    texts = ["loom", "warp weft", "reed reed shed"]
    result = json.loads(rank("warp", *texts, "--json").stdout)
    assert result["query"] == "warp"
    rows = result["ranking"]
    assert [texts[row["number"]] for row in rows] == [row["text"] for row in rows]
    scores = [row["score"] for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 3


def test_a_table_for_a_person(rank):
    lines = [line for line in rank("warp", "loom", "reed").stdout.splitlines() if line]
    assert lines[0].strip() == "warp"
    assert lines[1].split() == ["score", "text"]
    assert {line.split()[1] for line in lines[2:]} == {"loom", "reed"}


def test_texts_of_stdin(rank):
    given = json.loads(rank("warp", "loom", "reed shed", "--json").stdout)
    assert json.loads(rank("warp", "--json", text="loom\n\nreed shed\n").stdout) == given


def test_a_folder_compiled_without_its_weights(heddle, reranker, tmp_path):
    out = tmp_path / "bare.heddle"
    heddle("compile", reranker, "-t", "cpu:native", "-o", out)
    asked = ("rank", out, "warp", "loom", "--tokenizer", reranker / "tokenizer.json")
    assert "wanted --weights, a file with" in heddle(*asked, code=1).stderr
    heddle(*asked, "--weights", reranker / "model.safetensors")


def test_nothing_to_rank(rank):
    assert "wanted texts as arguments or lines of stdin" in rank("warp", code=1, text="").stderr
    assert "query 1: wanted a text, got ' '" in rank(" ", "loom", code=2).stderr
    assert "text 2: wanted a text, got ''" in rank("warp", "loom", "", code=2).stderr


def test_an_embedder_is_refused(heddle, tiny, tiny_artifact):
    result = heddle("rank", tiny_artifact, "warp", "loom", "--tokenizer", tiny, code=1)
    assert "scorer: wanted a model with output scores, got embeddings" in result.stderr
