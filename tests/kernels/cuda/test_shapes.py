"""CUDA kernels on the emulator for shapes that nobody chose: odd, of size 1, empty."""

import cuda_cases as cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_kernels import check

from heddle.kernels.spec import Operand, Spec

SIZES = st.integers(0, 9) | st.sampled_from([16, 33, 64])
OPS = (
    "attention",
    "concat",
    "gather",
    "matmul",
    "reduce",
    "rms_norm",
    "slice",
    "softmax",
    "transpose",
)


@st.composite
def specs(draw) -> Spec:
    """A spec of a float32 kernel with small static sizes."""
    op = draw(st.sampled_from(OPS))
    shape = draw(st.lists(SIZES, min_size=1, max_size=4).filter(lambda s: _count(s) <= 4096))
    axis = draw(st.integers(0, len(shape) - 1))
    x = _tensor(shape)
    if op == "transpose":
        order = draw(st.permutations(range(len(shape))))
        result = _tensor([shape[i] for i in order])
        return cases.plain(op, [x], result, permutation=tuple(order))
    if op == "concat":
        sizes = [shape[axis], *draw(st.lists(st.integers(0, 9), min_size=1, max_size=2))]
        parts = [_tensor(_with(shape, axis, size)) for size in sizes]
        return cases.plain(op, parts, _tensor(_with(shape, axis, sum(sizes))), axis=axis)
    if op == "slice":
        chosen = [range(size)[draw(st.slices(size))] for size in shape]
        starts = tuple(r.start if len(r) else 0 for r in chosen)
        result = _tensor([len(r) for r in chosen])
        return cases.plain(op, [x], result, starts=starts, steps=tuple(r.step for r in chosen))
    if op == "gather":
        table = _tensor(_with(shape, axis, max(1, shape[axis])))
        count = draw(st.integers(0, 5))
        result = _tensor([*shape[:axis], 2, count, *shape[axis + 1 :]])
        return cases.plain(op, [table, cases.tensor("int64", 2, count)], result, axis=axis)
    if op == "reduce":
        kind = draw(st.sampled_from(["sum", "max"]))
        x = _tensor(_with(shape, axis, max(1, shape[axis])))
        return cases.plain(op, [x], _tensor(_with(shape, axis, 1)), axis=axis, kind=kind)
    if op in ("softmax", "rms_norm"):
        x = _tensor([*shape[:-1], max(1, shape[-1])])
        more = {"epsilon": 1e-3} if op == "rms_norm" else {}
        return cases.plain(op, [x, _tensor(x.shape[-1:])][: 1 + len(more)], x, **more)
    m, n, k = (draw(SIZES) for _ in range(3))
    if op == "matmul":
        transposed = draw(st.booleans())
        b = _tensor([n, k] if transposed else [k, n])
        return cases.plain(op, [_tensor([m, k]), b], _tensor([m, n]), transposed=transposed)
    q, keys = _tensor([1, 2, m, max(1, k)]), _tensor([1, 1, n, max(1, k)])
    options = {"causal": draw(st.booleans()), "layout": "bhsd", "masked": False, "scale": 0.5}
    return cases.plain(op, [q, keys, keys], q, **options)


def _tensor(shape) -> Operand:
    return cases.tensor("float32", *shape)


def _with(shape, axis: int, size: int) -> list[int]:
    return [*shape[:axis], size, *shape[axis + 1 :]]


def _count(shape) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
@given(specs(), st.booleans())
def test_any_shape(spec, aligned):
    check(spec, {}, shift=0 if aligned else 1)
