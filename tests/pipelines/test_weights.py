"""Reading a checkpoint's safetensors files."""

import json
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from heddle.graph import DType, Graph, TensorType, Weight, compile
from heddle.pipelines import weights
from heddle.pipelines.checkpoint import Checkpoint
from heddle.runtime import InferenceSession
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


def test_bfloat16_is_a_buffer_over_the_file(tmp_path):
    values = np.array([[1, -2.5, 3e5]], ml_dtypes.bfloat16)
    save_file({"w": values, "f": np.ones(2, np.float32)}, tmp_path / "w.safetensors")
    read = weights.read(tmp_path / "w.safetensors")
    assert read["w"].dtype == weights.dtype_of(read["w"]) == "bfloat16"
    assert weights.dtype_of(read["f"]) == "float32"
    assert not read["w"].writable
    np.testing.assert_array_equal(read["w"].to_numpy(), values)


def index(folder, content):
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps(content))
    return path


def test_an_index_of_several_files(tmp_path):
    arrays = {name: np.full(3, i, np.float32) for i, name in enumerate("abc")}
    files = {"a": "1.safetensors", "b": "2.safetensors", "c": "1.safetensors"}
    for file in ("1.safetensors", "2.safetensors"):
        save_file({n: a for n, a in arrays.items() if files[n] == file}, tmp_path / file)
    read = weights.read(index(tmp_path, {"weight_map": files}))
    assert read.keys() == arrays.keys()
    assert all((read[name] == arrays[name]).all() for name in arrays)
    assert Checkpoint(tmp_path).weights.name == "model.safetensors.index.json"
    for content, message in (
        ({"weight_map": {**files, "d": "2.safetensors"}}, "weight 'd' in 2.safetensors, got none"),
        (
            {"weight_map": {"a": "../w.safetensors"}},
            "of the index's folder, got '../w.safetensors'",
        ),
        ({"map": {}}, "wanted an index with a weight_map"),
    ):
        with pytest.raises(ArtifactError, match=re.escape(message)):
            weights.read(index(tmp_path, content))
    with pytest.raises(ArtifactError, match="no such index"):
        weights.read(tmp_path / "none.safetensors.index.json")


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


def resident(path):
    """KiB of the file `path` that are mapped and present in this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(path)):
            rss = next(field for field in lines if field.startswith("Rss:"))
            return int(rss.split()[1])
    raise AssertionError(f"{path} is not mapped")


@pytest.mark.parametrize("load", [weights.load, InferenceSession.load])
def test_loading_gives_the_pages_of_packed_weights_back(load, tmp_path):
    path = tmp_path / "w.safetensors"
    values = np.random.default_rng(0).standard_normal((512, 512), np.float32)
    save_file({"w": values}, path)
    with Graph("packed", [TensorType(DType.float32, ("rows", 512))]) as graph:
        graph.output(graph.inputs[0] @ graph.add_weight(Weight("w", DType.float32, (512, 512))))
    model = load(InferenceSession(), compile(graph, "cpu:native"), path)
    (result,) = model.execute(np.eye(3, 512, dtype=np.float32))
    np.testing.assert_array_equal(result.to_numpy(), values[:3])
    assert resident(path) == 0
    kept = weights.read(path)  # Another mapping of the same file is not touched.
    assert kept["w"].sum() == values.sum()
