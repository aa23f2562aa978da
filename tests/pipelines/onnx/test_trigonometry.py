"""Functions of angles, their inverses, and exponentials less one, over their whole range."""

import ml_dtypes
import numpy as np
import pytest
from onnx_texts import imported

from heddle.graph import compile
from heddle.runtime import InferenceSession

FUNCTIONS = {
    "Tan": np.tan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Atan": np.arctan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "Softplus": lambda x: np.logaddexp(x.dtype.type(0), x),
}

ULPS = 4

TYPES = {"float": np.float32, "double": np.float64}
"""By their names in ONNX."""


@pytest.fixture(scope="module", params=TYPES)
def functions(request):
    """The type, and a function: an array -> what each of `FUNCTIONS` is of it."""
    kind = request.param
    nodes = "\n".join(f"  y{name} = {name}(x)" for name in FUNCTIONS)
    results = ", ".join(f"{kind}[n] y{name}" for name in FUNCTIONS)
    graph = imported(f"m ({kind}[n] x) => ({results}) {{\n{nodes}\n}}").graph
    model = InferenceSession(threads=1).load(compile(graph, "cpu:native"))
    return kind, lambda x: dict(zip(FUNCTIONS, map(np.asarray, model.execute(x)), strict=True))


def test_errors_over_the_whole_range(functions):
    kind, computed = functions
    rng = np.random.default_rng(0)
    sizes = np.exp(np.concatenate([rng.uniform(-20, 4.4, 20_000), rng.uniform(-60, 60, 2000)]))
    beside = 1 + np.concatenate([sizes[:5000] * 1e-3, -sizes[:5000] * 1e-7])
    x = np.concatenate([sizes, beside, rng.uniform(-1, 1, 5000)])
    x = np.concatenate([x, -x]).astype(TYPES[kind])
    found = computed(x)
    for name, function in FUNCTIONS.items():
        with np.errstate(all="ignore"):
            wanted = function(x.astype(np.longdouble))
            near = wanted.astype(x.dtype)
            # Where the tangent is steep, its argument's last bit is worth more than a few of its.
            counts = (
                np.isfinite(near) & (np.abs(near) < 1e30) & ((name != "Tan") | (np.abs(x) < 1.5))
            )
            errors = np.abs(found[name] - wanted) / np.spacing(np.abs(near))
        assert errors[counts].max() <= ULPS, name
        np.testing.assert_array_equal(np.isnan(found[name]), np.isnan(near), name)


def test_ends_and_signs(functions):
    kind, computed = functions
    x = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-40, 3e38], TYPES[kind])
    found = computed(x)
    for name in ("Atan", "Asin", "Acos", "Asinh", "Acosh", "Atanh"):
        with np.errstate(all="ignore"):
            wanted = FUNCTIONS[name](x)
        np.testing.assert_allclose(found[name], wanted, rtol=1e-6, err_msg=name)
        if name not in ("Acos", "Acosh"):
            np.testing.assert_array_equal(np.signbit(found[name][:2]), [False, True], name)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rounded_once(dtype):
    name = np.dtype(dtype).name
    graph = imported(f"m ({name}[n] x) => ({name}[n] y) {{ y = Acosh(x) }}").graph
    model = InferenceSession(threads=1).load(compile(graph, "cpu:native"))
    x = (1 + np.arange(200) / 64).astype(dtype)
    (result,) = model.execute(x)
    wanted = np.arccosh(x.astype(np.float64)).astype(dtype)
    np.testing.assert_array_equal(result.to_numpy().view(dtype), wanted)
