"""What is generated from the op rows: every sample of every op, in every dtype that it takes."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.graph import DType, Graph, ops
from heddle.graph.ops.build import build
from heddle.graph.ops.row import ROWS
from heddle.graph.reference import evaluate
from heddle.graph.rounding import held
from heddle.runtime.errors import GraphError

CASES = [
    pytest.param(row, sample, id=f"{row.name}-{number}")
    for row in ROWS.values()
    for number, sample in enumerate(row.samples)
]


def data_of(rng, dtype, shape):
    if dtype.is_float:
        return held(rng.standard_normal(shape), dtype)
    return rng.integers(0, 2 if dtype is DType.bool else 4, shape).astype(dtype.value)


def build_all(row, sample):
    """One graph with an op for each dtype that the row takes."""
    taken = []
    for dtype in DType:
        try:
            row.infer(sample.types(dtype), sample.attrs)
        except GraphError:
            continue
        taken.append(sample.types(dtype))
    inputs = [type for types in taken for type in types]
    with Graph(row.name, inputs) as graph:
        free = iter(graph.inputs)
        graph.output(
            *(build(row, [next(free) for _ in types], dict(sample.attrs)) for types in taken)
        )
    return graph


@pytest.mark.parametrize(("row", "sample"), CASES)
def test_the_inferred_type_is_the_reference_results(row, sample):
    graph = build_all(row, sample)
    graph.verify()
    assert graph.inputs
    results = [
        graph.type_of(v)
        for v in list(graph.module.body.operations[0].entry_block.operations)[-1].operands
    ]

    @settings(max_examples=5, deadline=None, database=None)
    @given(
        sizes=st.fixed_dictionaries({name: st.integers(1, 5) for name in graph.symbols}),
        seed=st.integers(0, 999),
    )
    def check(sizes, seed):
        rng = np.random.default_rng(seed)
        arrays = [
            data_of(rng, x.dtype, [dim.evaluate(sizes) for dim in x.shape]) for x in graph.inputs
        ]
        for array, type in zip(evaluate(graph, arrays), results, strict=True):
            assert array.shape == tuple(dim.evaluate(sizes) for dim in type.shape)
            assert array.dtype == type.dtype.to_numpy()

    check()


def test_every_row_has_samples_and_a_line_of_text():
    assert [row.name for row in ROWS.values() if not row.samples] == []
    assert [row.name for row in ROWS.values() if not row.doc.splitlines()[0].endswith(".")] == []


def test_every_public_row_is_a_function_of_its_name():
    for row in ROWS.values():
        assert hasattr(ops, row.name) is row.public, row.name


@pytest.mark.parametrize("name", ["exp", "gelu", "softmax", "add", "mean"])
def test_low_precision_is_computed_in_float32_and_rounded(name):
    row = ROWS[name]
    rng = np.random.default_rng(0)
    attrs = row.samples[0].attrs
    wide = [rng.standard_normal((3, 4, 5)).astype(np.float32) for _ in row.operands.names]
    for dtype in (np.float16, ml_dtypes.bfloat16):
        low = [array.astype(dtype) for array in wide]
        result = row.reference(*low, **attrs)
        expected = row.reference(*(array.astype(np.float32) for array in low), **attrs)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, expected.astype(dtype))
