"""Reading a checkpoint's safetensors files."""

import json
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from heddle.graph import DType, Graph, TensorType, Weight, compile, ops
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


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_floats_that_numpy_lacks_are_buffers_over_the_file(tmp_path, dtype):
    values = np.array([[1, -2.5, 300]], getattr(ml_dtypes, dtype))
    save_file({"w": values, "f": np.ones(2, np.float32)}, tmp_path / "w.safetensors")
    read = weights.read(tmp_path / "w.safetensors")
    assert read["w"].dtype == weights.dtype_of(read["w"]) == dtype
    assert weights.dtype_of(read["f"]) == "float32"
    assert not read["w"].writable
    np.testing.assert_array_equal(read["w"].to_numpy(), values)


@pytest.mark.parametrize("code", ["F32", "BF16"])
def test_a_tensor_may_lie_where_its_numbers_do_not_align(tmp_path, code):
    """The format asks for no gaps, and has no alignment: one byte before moves all behind it."""
    values = np.array([1.5, -2], {"F32": np.float32, "BF16": ml_dtypes.bfloat16}[code])
    end = 1 + values.nbytes
    header = {
        "first": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "w": {"dtype": code, "shape": [2], "data_offsets": [1, end]},
    }
    path = write(tmp_path / "w.safetensors", header, b"\7" + values.tobytes())
    read = weights.read(path)["w"]
    found = read if code == "F32" else read.to_numpy()
    np.testing.assert_array_equal(np.asarray(found), values)
    dtype = DType[weights.dtype_of(read)]
    with Graph("double", [TensorType(dtype, (2,))]) as graph:
        graph.output(graph.inputs[0].tensor * graph.add_weight(Weight("w", dtype, (2,))))
    model = InferenceSession().load(compile(graph, "cpu"), weights={"w": read})
    (result,) = model.execute(np.array([2, 2], values.dtype))
    np.testing.assert_array_equal(result.to_numpy(), values * 2)


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
        ({"weight_map": {"a": ""}}, "of the index's folder, got ''"),
        ({"weight_map": {"a": 5}}, "of the index's folder, got 5"),
        ({"map": {}}, "weight_map: wanted a JSON object, got None"),
        ([], "index.json: wanted a JSON object, got list"),
    ):
        with pytest.raises(ArtifactError, match=re.escape(message)):
            weights.read(index(tmp_path, content))
    with pytest.raises(ArtifactError, match="no such index"):
        weights.read(tmp_path / "none.safetensors.index.json")


def test_of_a_weight_in_two_files_that_of_the_index_counts(tmp_path):
    for number in (1, 2):
        save_file({"a": np.full(3, number, np.float32)}, tmp_path / f"{number}.safetensors")
    for number in (1, 2):
        read = weights.read(index(tmp_path, {"weight_map": {"a": f"{number}.safetensors"}}))
        np.testing.assert_array_equal(read["a"], np.full(3, number, np.float32))


ROW = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}

BROKEN = {
    "empty": (b"", "w.safetensors: file: wanted 8 bytes or more, got 0"),
    "short": (b"abc", "w.safetensors: file: wanted 8 bytes or more, got 3"),
    "truncated header": (
        (99).to_bytes(8, "little") + b"{}",
        "w.safetensors: header: wanted at most 2 bytes, got 99",
    ),
    "truncated data": (
        ({"w": ROW}, bytes(7)),
        "wanted an end inside the file's 7 bytes of data, got 8",
    ),
    "wrong size": (
        ({"w": {**ROW, "shape": [3]}}, bytes(8)),
        r"tensor 'w', data_offsets: wanted 12 bytes, got 8",
    ),
    "negative offset": (({"w": {**ROW, "data_offsets": [-8, 0]}}, bytes(8)), "a whole number"),
    "dtype": (
        ({"w": {**ROW, "dtype": "F4"}}, bytes(8)),
        "wanted a dtype that Heddle has, got 'F4'",
    ),
    "not json": ((b"{", b""), "header, position 1"),
    "not rows": (({"w": 3}, b""), "header, position 6"),
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
    with pytest.raises(ArtifactError, match=re.escape(f"{tmp_path}/no: cannot be read: ")):
        weights.read(tmp_path / "no")


@pytest.mark.parametrize("before", ["", "bert."])
def test_prefix(before):
    assert weights.prefix([f"{before}words.weight", "x"], "words.weight") == before


def test_prefix_of_another_model():
    with pytest.raises(ArtifactError, match=r"wanted one tensor named \.\.\.words, got 0"):
        weights.prefix(["lm_head.weight"], "words")


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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"v": np.zeros(3, np.float32)}, "wanted the weight 'w' of the model, got none"),
        ({"w": np.zeros(4, np.float32)}, "w: wanted float32[3], got float32[4]"),
        ({"w": np.zeros(3)}, "w: wanted float32[3], got float64[3]"),
    ],
)
def test_the_file_without_a_weight_is_named(tmp_path, given, message):
    path = tmp_path / "w.safetensors"
    save_file(given, path)
    with Graph("small", [TensorType(DType.float32, (3,))]) as graph:
        graph.output(graph.inputs[0] + graph.add_weight(Weight("w", DType.float32, (3,))))
    with pytest.raises(ArtifactError) as error:
        weights.load(InferenceSession(), compile(graph, "cpu:native"), path)
    assert str(error.value) == f"{path}: {message}"


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_weights_of_8_bits_are_loaded(tmp_path, dtype):
    path = tmp_path / "w.safetensors"
    values = np.array([1, -2.5, 0.375], getattr(ml_dtypes, dtype))
    save_file({"w": values}, path)
    with Graph("small", [TensorType(DType.float32, (3,))]) as graph:
        weight = graph.add_weight(Weight("w", DType(dtype), (3,)))
        graph.output(graph.inputs[0] + ops.cast(weight, DType.float32))
    arrays = weights.select(path, graph.weights)
    artifact = compile(graph, "cpu:native", weights=arrays)
    (result,) = weights.load(InferenceSession(), artifact, path).execute(np.zeros(3, np.float32))
    np.testing.assert_array_equal(result.to_numpy(), values.astype(np.float32))


def test_reading_safetensors_imports_no_model():
    """Which would take longer than all else that a process does before its first result."""
    script = (
        "import sys, heddle.pipelines.weights; print([m for m in sys.modules if '.models' in m])"
    )
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"
