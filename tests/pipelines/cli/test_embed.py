"""`heddle embed`."""

import json
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer

from heddle.pipelines.cli.embed import cosines


@pytest.fixture
def embed(heddle, tiny, tiny_artifact):
    def call(*arguments, **options):
        file = tiny / "tokenizer.json"
        return heddle("embed", tiny_artifact, "--tokenizer", file, *arguments, **options)

    return call


def test_similarity_for_a_person(embed):
    text = embed("warp weft", "loom", "warp weft").stdout
    assert "Cosine similarity" in text
    assert text.count("1.000") == 5


def test_many_sentences_show_the_nearest(embed):
    texts = [f"{'loom ' * n}reed" for n in range(1, 9)]
    assert "Nearest neighbours" in embed(*texts).stdout


def test_vectors_of_lines(embed):
    result = json.loads(embed("--vectors", "--json", text="warp weft\n\nloom\n").stdout)
    assert result["sentences"] == ["warp weft", "loom"]
    vectors = np.array(result["embeddings"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    lines = embed("--vectors", text="warp weft\nloom\n").stdout.splitlines()
    np.testing.assert_allclose([list(map(float, line.split())) for line in lines], vectors, 1e-4)


def test_similarity_as_json(embed):
    result = json.loads(embed("warp", "loom", "--json").stdout)
    matrix = np.array(result["similarity"])
    np.testing.assert_allclose(np.diag(matrix), 1, atol=1e-5)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-6)


def test_a_folder_with_a_tokenizer_and_weights_beside(heddle, bare_artifact, tiny):
    weights = tiny / "model.safetensors"
    heddle("embed", bare_artifact, "--tokenizer", tiny, "--weights", weights, "loom", "reed")


def test_no_sentences(embed):
    assert "wanted sentences as arguments or lines" in embed(code=1, text="\n").stderr


def test_no_tokenizer(heddle, tiny_artifact):
    result = heddle("embed", tiny_artifact, "loom", code=1)
    assert "artifact 'tiny': wanted --tokenizer; only minilm has a packaged one" in result.stderr


def test_without_the_tokenizers_package(embed, monkeypatch):
    monkeypatch.delitem(sys.modules, "heddle.pipelines.embedding", raising=False)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert embed("loom", code=1).stderr == (
        "error: wanted the package tokenizers, which is not installed; "
        "pip install 'heddle[generate]'\n"
    )


def test_an_error_of_heddle_itself_is_no_missing_package(embed, monkeypatch):
    monkeypatch.setitem(sys.modules, "heddle.pipelines.embedding", None)
    assert "pip install" not in embed("loom", code=1).stderr


@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_sentence_is_refused(embed, empty):
    result = embed("loom", empty, code=2)
    assert result.stderr.endswith(f"Error: sentence 2: wanted a text, got {empty!r}\n")


@pytest.mark.parametrize("given", [{"text": b"loom\nwarp \xff\n"}, {}])
def test_a_sentence_that_is_no_utf_8_is_refused(embed, given):
    """From stdin as from the arguments, where Python has a lone surrogate for such a byte."""
    arguments = () if given else ("loom", "warp \udcff")
    result = embed(*arguments, **given, code=1)
    wanted = "error: embedder: text 1: wanted a text in UTF-8, got '\\udcff' at 5\n"
    assert result.stderr == wanted


@pytest.fixture
def folder(tiny, tmp_path):
    """A folder with the tokenizer, prompts, and how much of a text is looked at."""
    (tmp_path / "tokenizer.json").write_bytes((tiny / "tokenizer.json").read_bytes())
    prompts = {"prompts": {"query": "warp weft: ", "plain": ""}, "default_prompt_name": "query"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 8}')
    return tmp_path


@pytest.fixture
def vectors(heddle, tiny_artifact, folder):
    def call(*arguments, tokenizer=folder, **options):
        asked = ("embed", tiny_artifact, "--vectors", "--json", "--tokenizer", tokenizer)
        return np.array(json.loads(heddle(*asked, *arguments, **options).stdout)["embeddings"])

    return call


def test_a_prompt_is_put_before_each_sentence(vectors, tiny):
    texts = ("loom", "reed shed")
    plain = vectors(*texts, tokenizer=tiny)
    asked = vectors(*texts, "--prompt", "query")
    written = vectors(*(f"warp weft: {text}" for text in texts), tokenizer=tiny)
    np.testing.assert_allclose(asked, written, atol=1e-6)
    np.testing.assert_allclose(vectors(*texts), written, atol=1e-6)  # it is the default one
    np.testing.assert_allclose(vectors(*texts, "--prompt", "plain"), plain, atol=1e-6)
    assert np.abs(asked - plain).max() > 1e-3


def test_a_prompt_that_is_not_there(heddle, embed, tiny_artifact, folder):
    result = heddle(
        "embed", tiny_artifact, "loom", "--tokenizer", folder, "--prompt", "code", code=1
    )
    assert "prompt: wanted query, plain, got 'code'" in result.stderr
    result = embed("loom", "--prompt", "query", code=1)
    assert "--prompt query: wanted the model's folder as --tokenizer, got" in result.stderr


def test_as_much_is_looked_at_as_the_folder_says(vectors):
    long, cut = vectors("loom " * 20, "loom " * 6, "--prompt", "plain")
    np.testing.assert_allclose(long, cut, atol=1e-6)


def test_texts_are_in_lower_case_where_the_folder_says_so(vectors, folder):
    """Whatever the tokenizer does with them, which knows no `LOOM` here."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = None
    tokenizer.save(str(folder / "tokenizer.json"))
    lower, upper = vectors("loom", "LOOM")
    assert np.abs(lower - upper).max() > 1e-3
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    np.testing.assert_allclose(vectors("LOOM"), [lower], atol=1e-6)


def test_cosines_of_vectors_that_are_not_of_length_1():
    found = cosines(np.array([[3, 0], [2, 2], [0, -5]], np.float32))
    half = np.sqrt(0.5)
    np.testing.assert_allclose(found, [[1, half, 0], [half, 1, -half], [0, -half, 1]], atol=1e-6)
    assert cosines(np.array([[0, 0], [3, 4]], np.float32))[0].tolist() == [0, 0]
