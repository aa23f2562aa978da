"""`heddle run`."""

import errno
import json

import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, compile, ops
from heddle.runtime import InferenceSession


def test_random_inputs(heddle, tiny_artifact):
    arguments = ("--dim", "batch=3", "--dim", "sequence=7", "--repeat", "2", "--json")
    report = json.loads(heddle("run", tiny_artifact, *arguments).stdout)
    assert report["inputs"] == {"tokens": [3, 7], "attention_mask": [3, 7]}
    assert report["outputs"]["embeddings"]["shape"] == [3, 32]
    assert set(report["times"]) == {"load_s", "first_s", "median_s"}
    memory = report["memory"]
    kinds = [memory[name] for name in ("weights", "state", "arenas", "outputs", "buffers")]
    assert memory["peak"] >= memory["live"] == sum(kinds)
    assert memory["weights"] > 0  # the small ones, that lie between others in the file


def test_for_a_person(heddle, tiny_artifact):
    text = heddle("run", tiny_artifact, "--repeat", "1").stdout
    assert "embeddings" in text
    assert "float32 [1, 32]" in text
    assert "median" in text
    assert "reserved" in text


def test_a_profile_by_kernel(heddle, tiny_artifact):
    arguments = ("--dim", "sequence=7", "--repeat", "2", "--profile")
    rows = json.loads(heddle("run", tiny_artifact, *arguments, "--json").stdout)["kernels"]
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert rows == sorted(rows, key=lambda row: -row["total_s"])
    names = [row["kernel"].partition("-")[0] for row in rows]
    assert {"matmul_packed", "attention", "layer_norm"} <= set(names)
    assert all(row["calls"] >= 1 and row["gops"] > 0 and row["gb"] > 0 for row in rows)
    text = heddle("run", tiny_artifact, *arguments).stdout
    assert "Gop/s" in text
    assert rows[0]["label"] in text


def test_files_in_and_out(heddle, tiny_artifact, tmp_path):
    tokens = np.array([[2, 5, 6, 3]], np.int32)
    mask = np.ones((1, 4), bool)
    np.save(tmp_path / "tokens.npy", tokens)
    np.savez(tmp_path / "rest.npz", attention_mask=mask)
    out = tmp_path / "out.data"
    given = ("--input", f"tokens={tmp_path}/tokens.npy", "--input", tmp_path / "rest.npz")
    assert str(out) in heddle("run", tiny_artifact, *given, "--output", out).stdout
    (wanted,) = InferenceSession().load(tiny_artifact).execute(tokens, mask)
    np.testing.assert_array_equal(np.load(out)["embeddings"], wanted.to_numpy())


def test_a_full_disk_leaves_the_file_that_was_there(heddle, tiny_artifact, tmp_path, monkeypatch):
    def full(file, **values):
        file.write(b"PK")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    out = tmp_path / "out.npz"
    out.write_bytes(b"good")
    text = heddle("run", tiny_artifact, "--output", out, code=1).stderr
    assert str(out) in text
    assert "No space left on device" in text
    assert out.read_bytes() == b"good"
    assert list(tmp_path.iterdir()) == [out]


def test_weights_that_are_not_given_are_asked_for_by_the_option(heddle, bare_artifact):
    """Also by `heddle embed`, before it reads a tokenizer."""
    for arguments in (("run", bare_artifact), ("embed", bare_artifact, "warp")):
        text = heddle(*arguments, code=1).stderr
        assert text.startswith(
            f"error: {bare_artifact}: wanted --weights, a file with 37 weights: "
        )
        assert text.endswith(" and 34 more, got none; or compile it with --embed-weights\n")


def test_a_file_binds_the_symbols_of_random_inputs(heddle, tiny_artifact, tmp_path):
    np.save(tmp_path / "t.npy", np.full((2, 5), 4, np.int32))
    result = heddle("run", tiny_artifact, "--input", f"tokens={tmp_path}/t.npy", "--json")
    assert json.loads(result.stdout)["inputs"]["attention_mask"] == [2, 5]


def test_weights_from_a_file(heddle, bare_artifact, tiny):
    heddle("run", bare_artifact, "--weights", tiny / "model.safetensors", "--repeat", "1")
    assert "weight" in heddle("run", bare_artifact, code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--dim", "batch"], 2, "--dim: wanted NAME=SIZE, got 'batch'"),
        (["--dim", "width=3"], 1, "--dim: wanted one of batch, sequence, got 'width'"),
        (["--dim", "sequence=25"], 1, "--dim sequence: wanted 1 to 24, got 25"),
        (["--dim", f"batch={10**20}"], 1, "--dim batch: wanted 1 to "),
        (["--threads", str(10**20)], 2, f"{10**20} is not in the range 1<=x<=65536"),
        (["--input", "x=none.npy"], 1, "none.npy"),
        (["--input", "x="], 2, "--input: wanted NAME=FILE.npy or FILE.npz, got 'x='"),
        (["--dim", "batch=2", "--dim", "batch=3"], 2, "--dim batch: wanted one size, got 2 and 3"),
        (
            ["--input", f"tokens={__file__}"],
            1,
            f"{__file__}: wanted NAME=FILE.npy with an array of numbers, "
            "got another file or a damaged one\n",
        ),
        (
            ["--input", __file__],
            1,
            f"--input {__file__}: wanted FILE.npz with arrays of numbers, or NAME=FILE.npy, "
            "got another file or a damaged one\n",
        ),
        (["--device", "tpu"], 2, "--device: wanted cpu, cuda or cuda:INDEX, got 'tpu'"),
        (["--device", "cuda:99"], 1, "cuda"),
    ],
)
def test_what_is_wrong_is_said(heddle, tiny_artifact, arguments, code, message):
    assert message in heddle("run", tiny_artifact, *arguments, code=code).stderr


def test_an_unknown_input_is_refused(heddle, tiny_artifact, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros(1))
    twice = ("--input", tmp_path / "x.npz", "--input", tmp_path / "x.npz")
    result = heddle("run", tiny_artifact, *twice, code=2)
    assert f"--input {tmp_path}/x.npz: wanted one array called x, got two" in result.stderr
    result = heddle("run", tiny_artifact, "--input", tmp_path / "x.npz", code=1)
    assert "--input: wanted one of tokens, attention_mask, got 'x'" in result.stderr


def test_a_computed_dim_needs_a_file(heddle, tmp_path):
    kinds = [TensorType(DType.float32, (dim,)) for dim in (Dim("n", 1, 9), Dim("2*n"))]
    with Graph("pair", kinds, input_names=["x", "y"]) as graph:
        graph.output(*(value + 1 for value in graph.inputs))
    compile(graph, targets=["cpu:native"]).save(tmp_path / "pair.heddle")
    result = heddle("run", tmp_path / "pair.heddle", code=1)
    assert "input 'y': its dim 2 * n is computed; give it with --input" in result.stderr
    np.save(tmp_path / "y.npy", np.zeros(6, np.float32))
    given = ("--input", f"y={tmp_path}/y.npy", "--dim", "n=3", "--json")
    report = json.loads(heddle("run", tmp_path / "pair.heddle", *given).stdout)
    assert report["inputs"] == {"x": [3], "y": [6]}


def test_an_input_file_without_a_name_with_several_arrays_or_damaged_is_refused(
    heddle, tiny_artifact, tmp_path
):
    np.save(tmp_path / "x.npy", np.zeros(3))
    np.savez(tmp_path / "x.npz", x=np.zeros(3))
    np.save(tmp_path / "o.npy", np.array([{}], object))
    whole = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[:-30])
    (tmp_path / "flipped.npz").write_bytes(whole.replace(bytes(16), bytes(15) + b"1"))
    got = "got another file or a damaged one\n"
    for name in ("x.npy", "cut.npz", "flipped.npz"):
        bare = tmp_path / name
        result = heddle("run", tiny_artifact, "--input", bare, code=1)
        wanted = f"--input {bare}: wanted FILE.npz with arrays of numbers, or NAME=FILE.npy, {got}"
        assert result.stderr.endswith(wanted)
    for name in ("x.npz", "o.npy"):
        item = f"tokens={tmp_path}/{name}"
        result = heddle("run", tiny_artifact, "--input", item, code=1)
        wanted = f"--input {item}: wanted NAME=FILE.npy with an array of numbers, {got}"
        assert result.stderr.endswith(wanted)


def test_a_size_that_a_file_contradicts_is_refused(heddle, tiny_artifact, tmp_path):
    np.save(tmp_path / "t.npy", np.full((2, 5), 4, np.int32))
    given = ("--input", f"tokens={tmp_path}/t.npy", "--dim", "sequence=5")
    heddle("run", tiny_artifact, *given, "--repeat", "1")
    result = heddle("run", tiny_artifact, *given, "--dim", "batch=3", code=1)
    assert result.stderr == "error: --dim batch: wanted 2, as input 'tokens' has, got 3\n"


def test_inputs_that_memory_cannot_hold_are_named(heddle, tmp_path):
    path = tmp_path / "large.heddle"
    with Graph("large", [TensorType(DType.float32, ("n", "m"))], input_names=["x"]) as graph:
        graph.output(graph.inputs[0] + 1)
    compile(graph, targets=["cpu:native"]).save(path)
    result = heddle("run", path, "--dim", "n=1000000", "--dim", "m=100000000", code=1)
    assert result.stderr == (
        "error: input 'x': wanted 372529.0 GiB for float32 [1000000, 100000000], got less memory; "
        "give smaller sizes with --dim\n"
    )


def test_what_is_not_finite_is_null(heddle, tmp_path):
    """JSON has no other numbers."""
    path = tmp_path / "log.heddle"
    with Graph("log", [TensorType(DType.float32, (2,))], input_names=["x"]) as graph:
        graph.output(ops.log(graph.inputs[0]), names=["y"])
    compile(graph, targets=["cpu:native"]).save(path)
    np.save(tmp_path / "x.npy", np.array([0, 1], np.float32))
    text = heddle("run", path, "--input", f"x={tmp_path}/x.npy", "--json").stdout
    row = json.loads(text, parse_constant=pytest.fail)["outputs"]["y"]
    assert [row[name] for name in ("min", "mean", "max")] == [None, None, 0]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_floats_that_numpy_lacks_are_drawn_saved_and_read(heddle, tmp_path, dtype):
    path, out, again = (tmp_path / name for name in ("small.heddle", "out.npz", "again.npz"))
    with Graph("small", [TensorType(DType(dtype), (Dim("n", 1, 99),))], input_names=["x"]) as graph:
        graph.output(graph.inputs[0].reshape((1, -1)), names=["x"])
    compile(graph, targets=["cpu:native"]).save(path)
    common = ("--repeat", "1", "--json")
    report = json.loads(heddle("run", path, "--dim", "n=99", "--output", out, *common).stdout)
    row = report["outputs"]["x"]
    values = np.load(out)["x"]
    assert (row["dtype"], row["shape"], values.dtype) == (dtype, [1, 99], np.float32)
    assert (row["min"], row["max"]) == (values.min(), values.max())
    assert -5 < row["min"] < -1 < 1 < row["max"] < 5
    np.savez(tmp_path / "in.npz", x=values[0])
    heddle("run", path, "--input", tmp_path / "in.npz", "--output", again, *common)
    np.testing.assert_array_equal(np.load(again)["x"], values)
