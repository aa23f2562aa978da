"""`heddle inspect`."""

import json

from heddle.runtime import Artifact


def test_for_a_person(heddle, tiny_artifact):
    text = heddle("inspect", tiny_artifact).stdout
    for part in (
        "tiny",
        "tokens",
        "int32 [batch, sequence]",
        "1 to 1024",
        "embeddings.word_embeddings.weight",
        "embedded",
        "cpu: kernels",
        "KiB",
        "arena",
        "Runs on",
    ):
        assert part in text, part


def test_json_is_complete(heddle, tiny_artifact):
    everything = json.loads(heddle("inspect", tiny_artifact, "--json").stdout)
    assert everything == Artifact.load(tiny_artifact).describe()
    assert everything["bytes"] == tiny_artifact.stat().st_size
    (program,) = everything["programs"]
    assert all(code["bytes"] for kernel in program["kernels"] for code in kernel["codes"])
    assert all(step["label"] for step in program["main"]["instructions"])
