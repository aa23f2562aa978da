"""Tuning tables on their way into an artifact: whose are used, and what depends on them."""

import re

import pytest

from heddle.graph import Graph, TensorType, compile, ops
from heddle.graph.compiler import assemble, cache
from heddle.graph.compiler.pipeline import lower
from heddle.graph.compiler.tuned import TuningWarning, own_tables
from heddle.graph.dtype import DType
from heddle.graph.targets import native_cpu
from heddle.kernels.registry import find
from heddle.kernels.tuning import Row, Table, fingerprint
from heddle.runtime.errors import CompileError


def table(place, *rows, cpu="znver5"):
    return Table(place, cpu, "a CPU", rows)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Writes a table into the folder that `HEDDLE_TUNING` names."""
    monkeypatch.setenv("HEDDLE_TUNING", str(tmp_path))

    def write(table):
        (tmp_path / f"{table.place}.json").write_text(table.to_json())

    return write


def test_without_the_setting_there_are_no_own_tables():
    assert own_tables(native=True) == ()


def test_a_folder_of_tables(own):
    own(table("x86-64-v4"))
    own(table("cuda"))
    assert [found.place for found in own_tables(native=False)] == ["cuda", "x86-64-v4"]


def test_a_table_for_another_cpu_is_not_used_and_says_so(own):
    own(table("cuda", cpu="a GPU"))
    own(table("x86-64-v3", cpu=native_cpu()))
    own(table("x86-64-v4", cpu="pentium4"))
    message = rf"tuning: x86-64-v4\.json: tuned on pentium4 \(a CPU\), this CPU is {native_cpu()}"
    with pytest.warns(TuningWarning, match=f"{message}; the table is not used"):
        found = own_tables(native=True)
    assert [each.place for each in found] == ["cuda", "x86-64-v3"]
    assert len(own_tables(native=False)) == 3


def test_what_is_no_folder_of_tables(own, tmp_path, monkeypatch):
    own(table("avx9000"))
    wanted = r"HEDDLE_TUNING: wanted tables for .*x86-64-v4.*, cuda; got 'avx9000'"
    with pytest.raises(CompileError, match=wanted):
        own_tables(native=False)
    (tmp_path / "avx9000.json").write_text("{}")
    with pytest.raises(CompileError, match=r"HEDDLE_TUNING: .*avx9000.json: wanted a tuning table"):
        own_tables(native=False)
    monkeypatch.setenv("HEDDLE_TUNING", "/nowhere")
    wanted = "HEDDLE_TUNING: wanted a folder of tuning tables, got '/nowhere'"
    with pytest.raises(CompileError, match=wanted):
        own_tables(native=False)


@pytest.mark.parametrize(
    ("op", "values", "message"),
    [
        ("matmul", {"square": 33}, "cuda.json: matmul: square: wanted one of (32, 64"),
        ("matmul", {"nope": 1}, "cuda.json: matmul: wanted one of square, "),
        ("softmax", {"nope": 1}, "cuda.json: softmax: wanted one of no parameter, got 'nope'"),
        ("surprise", {"nope": 1}, "cuda.json: surprise: wanted one of no parameter, got 'nope'"),
    ],
)
def test_values_that_a_kernel_does_not_have(own, op, values, message):
    own(table("cuda", Row(op, "float32", {}, values, "2026-01-01", "")))
    with pytest.raises(CompileError, match=re.escape(f"HEDDLE_TUNING: {message}")):
        own_tables(native=False)


def test_a_row_of_code_that_has_changed_is_told(own):
    own(table("cuda", Row("matmul", "float32", {}, {"square": 32}, "2026-01-01", "older")))
    with pytest.warns(TuningWarning, match=r"cuda\.json: matmul: tuned for code that has changed"):
        assert own_tables(native=False)


def test_values_are_part_of_the_cache_key():
    spec = _product_spec()
    keys = {cache.key(spec, "sm_80", values) for values in ((), (("square", 32),))}
    assert len(keys) == 2


def _product():
    with Graph("product", [TensorType(DType.float32, [16, 48])] * 2) as graph:
        x, y = graph.inputs
        graph.output(ops.matmul(x, ops.transpose(y, 0, 1)))
    return graph


def _product_spec():

    return assemble.requests(lower(_product().module, "cuda"), "cuda")[0][1].spec


@pytest.mark.filterwarnings("ignore::heddle.graph.targets.TargetWarning")
def test_an_own_table_changes_code_launch_and_provenance(own, monkeypatch):
    own(table("cuda"))
    before = compile(_product(), ["cuda:sm_80"])
    shape = find("matmul", "cuda").space.shape_class(_product_spec())
    sources = fingerprint(find("matmul", "cuda"))
    own(table("cuda", Row("matmul", "float32", shape, {"square": 32}, "2026-01-01", sources)))
    after = compile(_product(), ["cuda:sm_80"])
    assert after.to_bytes() == compile(_product(), ["cuda:sm_80"]).to_bytes()
    for artifact, threads in ((before, 256), (after, 64)):
        (kernel,) = artifact.describe()["programs"][0]["kernels"]
        assert kernel["launches"][0]["block"][0] == threads
        assert artifact.describe()["provenance"]["tuning"].startswith("cuda ")
    monkeypatch.delenv("HEDDLE_TUNING")
    assert "tuning" not in compile(_product(), ["cuda:sm_80"]).describe()["provenance"]
