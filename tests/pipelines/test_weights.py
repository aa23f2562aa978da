"""Reading a checkpoint's safetensors file."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import save_file

from heddle.pipelines import weights
from heddle.runtime.errors import ArtifactError, ArtifactReason


def write(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


@pytest.mark.parametrize("dtype", ["?", *"bhilBHIL", "e", "f", "d"])
def test_reads_what_safetensors_writes(tmp_path, dtype):
    arrays = {
        "matrix": np.arange(12).reshape(3, 4).astype(dtype),
        "scalar": np.array(1, dtype),
        "empty": np.zeros((0, 5), dtype),
    }
    save_file(arrays, tmp_path / "w.safetensors", metadata={"format": "np"})
    read = weights.read(tmp_path / "w.safetensors")
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)
        assert not read[name].flags.writeable


ROW = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}

BROKEN = {
    "empty": (b"", "the file is empty"),
    "short": (b"abc", "wanted a header of"),
    "truncated header": ((99).to_bytes(8, "little") + b"{}", "wanted a header of 99 bytes, got 2"),
    "truncated data": (({"w": ROW}, bytes(7)), r"w: wanted 8 bytes within the 7 of data"),
    "wrong size": (
        ({"w": {**ROW, "shape": [3]}}, bytes(8)),
        r"w: wanted 12 bytes within the 8 of data, got 0 to 8",
    ),
    "negative offset": (({"w": {**ROW, "data_offsets": [-8, 0]}}, bytes(8)), "got -8 to 0"),
    "dtype": (({"w": {**ROW, "dtype": "F4"}}, bytes(8)), "w: wanted a dtype of .*, got F4"),
    "not json": ((b"{", b""), "the header is malformed"),
    "not rows": (({"w": 3}, b""), "the header is malformed"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused(tmp_path, case):
    content, message = BROKEN[case]
    path = tmp_path / "w.safetensors"
    if isinstance(content, tuple):
        write(path, *content)
    else:
        path.write_bytes(content)
    with pytest.raises(ArtifactError, match=message) as error:
        weights.read(path)
    assert error.value.reason is ArtifactReason.WEIGHTS
    assert str(path) in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ArtifactError, match=re.escape(f"{tmp_path}/no: no such weights file")):
        weights.read(tmp_path / "no")


@pytest.mark.parametrize("before", ["", "bert."])
def test_prefix(before):
    assert weights.prefix([f"{before}embeddings.word_embeddings.weight", "x"]) == before


def test_prefix_of_another_model():
    with pytest.raises(ArtifactError, match=r"wanted one tensor named .*word_emb.*, got 0"):
        weights.prefix(["lm_head.weight"])
