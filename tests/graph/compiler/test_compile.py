"""`compile` as a whole: its bytes, its weights, its cache, and what goes wrong."""

import hashlib
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, Weight, compile, ops
from heddle.graph.compiler import cache, driver
from heddle.graph.compiler.cache import CacheWarning, KernelCache
from heddle.graph.compiler.codegen import build, pool
from heddle.graph.targets import TargetWarning
from heddle.runtime import Artifact, InferenceSession
from heddle.runtime.errors import CompileError, GraphError

F32 = DType.float32
LEVEL = "cpu:x86-64-v3"
W = np.arange(36, dtype=np.float32).reshape(9, 4)


def linear():
    with Graph("linear", [TensorType(F32, (Dim("batch", 1, 8), 4))]) as graph:
        w = graph.add_weight(Weight("w", F32, (9, 4)))
        graph.output(ops.relu(graph.inputs[0] @ w.T))
    return graph


def ones(artifact, weights):
    model = InferenceSession(threads=1).load(artifact, weights)
    return model.execute(np.ones((2, 4), np.float32))[0].to_numpy().tolist()


EXPECTED = np.maximum(np.ones((2, 4), np.float32) @ W.T, 0).tolist()


def test_the_whole_way(tmp_path):
    compile(linear(), LEVEL).save(tmp_path / "linear.heddle")
    assert ones(Artifact.load(tmp_path / "linear.heddle"), {"w": W}) == EXPECTED


def test_embedded_weights_need_no_others():
    assert ones(compile(linear(), LEVEL, weights={"w": W}, embed_weights=True), None) == EXPECTED


def test_hashes_of_weights_are_recorded():
    (row,) = compile(linear(), LEVEL, weights={"w": W}).weights
    assert row["sha256"] in (hashlib.sha256(W).hexdigest(), hashlib.sha256(W).digest())


def test_both_targets_in_one_artifact():
    kinds = [row["target"] for row in compile(linear(), (LEVEL, "cuda:sm_80")).programs]
    assert kinds == ["cpu", "cuda"]


SCRIPT = """
import hashlib, sys
sys.path.insert(0, {folder!r})
from test_compile import linear
from heddle.graph import compile
print(hashlib.sha256(compile(linear(), ("cpu:x86-64-v3", "cuda:sm_80")).to_bytes()).hexdigest())
"""


def start(tmp_path, seed, cache):
    """A process that compiles from another folder, with another hash seed and cache."""
    script = SCRIPT.format(folder=os.path.dirname(__file__))
    environment = os.environ | {"HEDDLE_CACHE": str(tmp_path / cache), "PYTHONHASHSEED": seed}
    return subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, stdout=subprocess.PIPE
    )


def test_processes_at_once_make_the_same_bytes(tmp_path):
    """Two share a cache folder, the third has its own."""
    started = [start(tmp_path, *pair) for pair in (("1", "a"), ("2", "a"), ("3", "b"))]
    digests = {process.communicate(timeout=120)[0] for process in started}
    assert [process.returncode for process in started] == [0, 0, 0]
    assert len(digests) == 1


def test_the_second_compile_runs_no_child(tmp_path, monkeypatch):
    monkeypatch.setenv("HEDDLE_CACHE", str(tmp_path))
    first = compile(linear(), LEVEL)
    monkeypatch.setattr(pool, "run", None)
    told = []
    second = compile(linear(), LEVEL, progress=lambda *news: told.append(news))
    assert second.to_bytes() == first.to_bytes()
    assert told == [("kernels", 2, 2)]


def test_progress_counts_kernels(monkeypatch):
    monkeypatch.setenv("HEDDLE_CACHE", "off")
    told = []
    compile(linear(), LEVEL, progress=lambda *news: told.append(news))
    assert told == [("kernels", 1, 2), ("kernels", 2, 2)]


def test_a_cache_that_cannot_be_written_costs_one_warning(tmp_path, monkeypatch):
    blocker = tmp_path / "file"
    blocker.write_text("no folder")
    monkeypatch.setenv("HEDDLE_CACHE", str(blocker))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert ones(compile(linear(), LEVEL), {"w": W}) == EXPECTED
    assert [warning.category for warning in caught] == [CacheWarning]


def test_a_child_that_dies_names_kernel_arch_op_and_line(tmp_path, monkeypatch):
    """The child aborts as LLVM does; the other kernel is compiled and kept."""
    child = (
        "import os, sys; from heddle.graph.compiler.codegen import worker\n"
        "def fail(spec, arch, real=worker.compile_kernel):\n"
        "    if spec.op != 'matmul_packed': return real(spec, arch)\n"
        "    print('LLVM ERROR: Cannot select: t5', file=sys.stderr, flush=True); os.abort()\n"
        "worker.compile_kernel = fail; worker.main()"
    )
    command = (sys.executable, "-c", child)
    monkeypatch.setenv("HEDDLE_CACHE", str(tmp_path))
    monkeypatch.setattr(driver, "build", lambda *a: build.build(*a, worker=command))
    line = linear.__code__.co_firstlineno + 3
    with pytest.raises(CompileError) as caught:
        compile(linear(), LEVEL)
    assert str(caught.value) == (
        f"codegen: matmul_packed for x86-64-v3: matmul_packed + relu (test_compile.py:{line}): "
        "the code generator died (exit -6): LLVM ERROR: Cannot select: t5"
    )
    assert len(list((tmp_path / "kernels").iterdir())) == 1


def test_all_failures_are_counted(monkeypatch):
    command = (sys.executable, "-c", "import os; os._exit(3)")
    monkeypatch.setattr(driver, "build", lambda *a: build.build(*a, worker=command))
    monkeypatch.setattr(KernelCache, "get", lambda *a: None)
    with pytest.raises(CompileError, match=r"said nothing \(and 1 other kernels failed\)$"):
        compile(linear(), LEVEL)


def test_without_an_assembler_there_is_ptx_alone(monkeypatch):
    """The children are told what the parent sees: here they write PTX as they would without one."""
    child = (
        "from heddle.graph.compiler.codegen import ptx, worker\nptx._ASSEMBLERS = ()\nworker.main()"
    )
    command = (sys.executable, "-c", child)
    monkeypatch.setattr(driver, "build", lambda *a: build.build(*a, worker=command))
    monkeypatch.setattr(cache, "assembler", lambda: "")
    with pytest.warns(TargetWarning, match=r"^cuda: no PTX assembler \(.*\): there is PTX alone$"):
        artifact = compile(linear(), "cuda:sm_80")
    (program,) = artifact.programs
    assert {code["format"] for row in program["kernels"] for code in row["codes"]} == {"ptx"}


def test_stop_after_gives_the_text_of_each_target():
    text = compile(linear(), (LEVEL, "cuda:sm_80"), stop_after="pack")
    assert text.count("heddle.matmul_packed") == 1
    assert text.count('"heddle.matmul"') == 1


def test_what_no_kernel_takes_is_refused_with_the_reason():
    x = TensorType(F32, ("b", "h", "s", "d"))
    with Graph("attention", [x, x, x]) as graph:
        graph.output(ops.attention(*graph.inputs, scale=1.0))
    text = r"^select: attention \(test_compile.py:\d+\): the cpu kernel of 'attention': wanted a st"
    with pytest.raises(CompileError, match=text):
        compile(graph, LEVEL)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (
            {},
            "weight 'w': wanted an array, got none; 1 of the graph's 1 weights are missing from "
            "weights=",
        ),
        ({"w": W, "x": W}, "weights: wanted names of the graph, got 'x'"),
        (
            {"w": np.ma.masked_array(W, W > 1)},
            "weight 'w': wanted an array without a mask, got one with",
        ),
        (
            {"w": W.astype(">f4")},
            "weight 'w': wanted an array in native byte order, got >f4 (swap it: "
            "array.astype(array.dtype.newbyteorder('=')))",
        ),
        ({"w": W[:2]}, "weight 'w': wanted float32[9, 4], got float32[2, 4]"),
        ({"w": W.astype("float64")}, "weight 'w': wanted float32[9, 4], got float64[9, 4]"),
    ],
)
def test_wrong_weights(weights, message):
    with pytest.raises(CompileError) as caught:
        compile(linear(), LEVEL, weights=weights)
    assert str(caught.value) == message


def test_an_unfinished_graph_is_refused():
    graph = Graph("open", [TensorType(F32, (2,))])
    for options in ({}, {"stop_after": "fuse"}):
        with pytest.raises(GraphError, match=r"graph 'open': wanted a call of output, got none$"):
            compile(graph, LEVEL, **options)


def test_settings_are_read_with_a_warm_cache(monkeypatch):
    compile(linear(), LEVEL)
    monkeypatch.setenv("HEDDLE_JOBS", "abc")
    with pytest.raises(CompileError) as error:
        compile(linear(), LEVEL)
    assert str(error.value) == "HEDDLE_JOBS: wanted a number of 0 or more, got 'abc'"


def test_embedding_needs_weights():
    with pytest.raises(CompileError, match=r"^embed_weights: wanted weights, got none$"):
        compile(linear(), LEVEL, embed_weights=True)


def test_returned_as_it_is():
    """Inputs, weights, constants, reshapes and one value twice: copies, not kernels."""
    with Graph("copies", [TensorType(F32, ("n", 4))]) as graph:
        (x,) = graph.inputs
        w = graph.add_weight(Weight("w", F32, (9, 4)))
        y = x + 1.0
        outputs = [x, w, ops.reshape(x, (-1,)), y, ops.reshape(y, (4, "n")), y, w * 2.0]
        graph.output(*outputs, graph.constant(np.arange(3, dtype=np.int8)))
    model = InferenceSession(threads=1).load(compile(graph, LEVEL), {"w": W})
    array = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    found = [result.to_numpy() for result in model.execute(array)]
    y = array + 1
    wanted = [
        array,
        W,
        array.reshape(-1),
        y,
        y.reshape(4, 5),
        y,
        W * 2,
        np.arange(3, dtype=np.int8),
    ]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("dtype", "rows", "k", "levels"),
    [
        (DType.float32, 1300, 16, ["x86-64-v3", "x86-64-v4"]),
        (DType.float32, 1300, 17, ["x86-64-v3", "x86-64-v4", "sapphirerapids"]),
        (DType.bfloat16, 3, 17, ["x86-64-v3", "x86-64-v4", "cooperlake", "sapphirerapids"]),
    ],
)
def test_a_level_has_code_of_its_own_where_it_differs(dtype, rows, k, levels):
    """Dot products and tiles are for products of bfloat16, not for the packing beside them."""
    with Graph("product", [TensorType(dtype, (rows, k)), TensorType(dtype, (k, 900))]) as graph:
        graph.output(graph.inputs[0].tensor @ graph.inputs[1].tensor)
    (program,) = compile(graph, "cpu").programs
    archs = {
        row["name"].partition("-")[0]: [code["arch"] for code in row["codes"]]
        for row in program["kernels"]
    }
    assert archs == {"pack_b": ["x86-64-v3", "x86-64-v4"], "matmul_packed": levels}
