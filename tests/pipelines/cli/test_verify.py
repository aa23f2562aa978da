"""`heddle verify`."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file


def test_a_whole_artifact(heddle, tiny_artifact):
    assert "whole" in heddle("verify", tiny_artifact).stdout


def test_its_weights(heddle, tiny, tiny_artifact):
    path = tiny / "model.safetensors"
    result = json.loads(heddle("verify", tiny_artifact, "--weights", path, "--json").stdout)
    assert result["weights_checked"] == 37
    assert "all 37 weights match" in heddle("verify", tiny_artifact, "--weights", path).stdout


def test_a_changed_byte(heddle, tiny_artifact, tmp_path):
    data = bytearray(tiny_artifact.read_bytes())
    data[len(data) // 2] ^= 1
    path = tmp_path / "changed.heddle"
    path.write_bytes(data)
    assert "checksum" in heddle("verify", path, code=1).stderr


NAME = "encoder.layer.0.output.dense.bias"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop(NAME), "wanted float32 [32], got none of that name"),
        (lambda w: w.update({NAME: np.zeros(31, "f4")}), "wanted float32 [32], got float32 [31]"),
        (lambda w: w.update({NAME: np.zeros(32, "f8")}), "wanted float32 [32], got float64 [32]"),
        (lambda w: w.update({NAME: np.zeros(32, "f4")}), "wanted sha256 "),
    ],
)
def test_other_weights(heddle, tiny_artifact, tiny_weights, tmp_path, change, message):
    weights = dict(tiny_weights)
    change(weights)
    save_file(weights, tmp_path / "w.safetensors")
    result = heddle("verify", tiny_artifact, "--weights", tmp_path / "w.safetensors", code=1)
    assert f"weight '{NAME}': {message}" in result.stderr


def test_an_artifact_that_never_saw_its_weights(heddle, bare_artifact, tiny):
    path = tiny / "model.safetensors"
    result = heddle("verify", bare_artifact, "--weights", path, code=1)
    assert "wanted a sha256 in the artifact, got none" in result.stderr
