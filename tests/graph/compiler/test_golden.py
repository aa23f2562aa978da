"""Compiled for the CPU and run, everything equals its NumPy reference, at several sizes.

All samples of all op rows are outputs of one graph, and so of one artifact.
"""

from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from heddle.graph import DType, Graph, compile
from heddle.graph.ops.build import build
from heddle.graph.ops.row import ROWS
from heddle.graph.reference import evaluate
from heddle.graph.rounding import held
from heddle.graph.targets import Target, native_level
from heddle.runtime import InferenceSession
from heddle.runtime.errors import GraphError

LEVELS = [machine.arch for machine in Target.parse("cpu").machines]
RUNNABLE = LEVELS[: LEVELS.index(native_level()) + 1]
DTYPES = [DType[n] for n in ("float32", "bool", "uint8", "int32", "int64", "float16", "bfloat16")]
DTYPES.append(DType.float8_e4m3fn)
TOLERANCE = {"float64": 1e-6, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
SIZES = ({"k": 4, "m": 5, "n": 6}, {"k": 7, "m": 33, "n": 129}, {"k": 16, "m": 4, "n": 32})
OTHERS = {"b": 2, "c": 3, "h": 4, "s": 19, "t": 21}
ELSEWHERE = (
    "ragged_attention",
    "paged_attention",
    "paged_write",
    "grouped_matmul",
    "grouped_matmul_packed",
    "quantized_grouped_matmul",
    "quantized_grouped_matmul_packed",
    "rounded_grouped_matmul_packed",
)
"""Their offsets and tables have to go together: test_paged.py, test_grouped.py and
test_quantized_groups.py make some."""


@dataclass
class Cases:
    graph: Graph
    names: list
    casts: list  # for each input, whether a cast reads it
    weights: list  # for each input, whether bytes are weights, which use all of their bits


def every_sample(dtypes):
    """Each row's first sample in `dtypes`, the others in the first of them that the row takes."""
    made = []
    for row in (row for name, row in ROWS.items() if name not in ELSEWHERE):
        for number, sample in enumerate(row.samples):
            # Kernels of attention are made for one head size.
            sample = replace(sample, operands=tuple(t.replace("d", "16") for t in sample.operands))
            for dtype in dtypes:
                try:
                    row.infer(sample.types(dtype), sample.attrs)
                except GraphError:
                    continue
                made.append((row, sample, sample.types(dtype), f"{row.name}-{number}-{dtype}"))
                if number:
                    break
    with Graph("samples", [type for _, _, types, _ in made for type in types]) as graph:
        free = iter(graph.inputs)
        results = [build(r, [next(free) for _ in types], dict(s.attrs)) for r, s, types, _ in made]
        graph.output(*results)
    casts = [row.name == "cast" for row, _, types, _ in made for _ in types]
    weights = ["bits" in dict(sample.attrs) for _, sample, types, _ in made for _ in types]
    return Cases(graph, [name for *_, name in made], casts, weights)


def arrays_for(types, sizes, rng, weights=()):
    """Inputs as the reference holds them; integers that index any axis, or are `weights`."""
    for type, of_weights in zip_longest(types, weights, fillvalue=False):
        shape = [dim.evaluate(sizes) for dim in type.shape]
        if type.dtype.is_float:
            values = rng.standard_normal(shape).astype(np.float32)
            yield held(values, type.dtype)
        else:
            top = 2 if type.dtype is DType.bool else 4
            top = 256 if of_weights and type.dtype is DType.uint8 else top
            yield rng.integers(0, top, shape).astype(type.dtype.value)


def given_to_the_model(array, type):
    return array if type.dtype.in_numpy else array.astype(type.dtype.value)


def assert_close(found, wanted, name):
    dtype = found.dtype.name
    found = found.astype(DType[dtype].to_numpy())
    assert found.dtype == wanted.dtype, name
    if dtype not in TOLERANCE:
        np.testing.assert_array_equal(found, wanted, err_msg=name)
        return
    tolerance = TOLERANCE[dtype]
    finite = np.abs(wanted[np.isfinite(wanted)].astype(np.float64))
    scale = max(1.0, finite.max(initial=0.0))
    np.testing.assert_allclose(
        found.astype(np.float64),
        wanted.astype(np.float64),
        rtol=tolerance,
        atol=tolerance * scale,
        err_msg=name,
    )


@pytest.fixture(scope="module", params=RUNNABLE)
def samples(request):
    """The cases and their model, for one level; all dtypes on the best level alone."""
    cases = every_sample(DTYPES if request.param == RUNNABLE[-1] else DTYPES[:1])
    artifact = compile(cases.graph, f"cpu:{request.param}")
    return cases, InferenceSession(threads=2).load(artifact)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_op(samples, sizes):
    cases, model = samples
    types = [value.type for value in cases.graph.inputs]
    sizes, rng = {**OTHERS, **sizes}, np.random.default_rng(0)
    arrays = list(arrays_for(types, sizes, rng, cases.weights))
    # What a negative float is as an unsigned integer is not defined.
    arrays = [np.abs(a) if cast else a for a, cast in zip(arrays, cases.casts, strict=True)]
    wanted = evaluate(cases.graph, arrays)
    found = model.execute(*map(given_to_the_model, arrays, types))
    for result, reference, name in zip(found, wanted, cases.names, strict=True):
        assert_close(result.to_numpy(), reference, name)


@settings(
    max_examples=12,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],  # shrinking would compile for minutes
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_random_graphs(random_graphs, data):
    """With weights that are given, and with the same bits with those that are embedded."""
    case, session = data.draw(random_graphs), InferenceSession(threads=2)
    level = f"cpu:{RUNNABLE[-1]}"
    model = session.load(compile(case.graph, level), case.weights)
    inside = session.load(compile(case.graph, level, weights=case.weights, embed_weights=True))
    for rows in (case.inputs[0].shape[0], 1, 17):
        rng = np.random.default_rng(rows)
        types = [value.type for value in case.graph.inputs]
        arrays = list(arrays_for(types, {"rows": rows}, rng))
        wanted = evaluate(case.graph, arrays, case.weights)
        again = inside.execute(*arrays)
        for result, other, reference in zip(model.execute(*arrays), again, wanted, strict=True):
            assert_close(result.to_numpy(), reference, str(case.graph))
            assert other.to_numpy().tobytes() == result.to_numpy().tobytes()
