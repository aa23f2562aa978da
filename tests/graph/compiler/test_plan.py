"""The memory of a lowered transformer, by the places that the plan has written into the module."""

import itertools

import pytest

from heddle.graph import Dim, DType, Graph, TensorType, Weight, ops
from heddle.graph.compiler import module as m
from heddle.graph.compiler.passes.plan import Place, byte_size, root_value, stage
from heddle.graph.compiler.pipeline import lower
from heddle.graph.compiler.sizes import evaluate

WIDTH, HEADS, LAYERS = 48, 4, 3
POINTS = [(1, 1), (1, 7), (3, 5), (8, 64), (2, 61), (7, 1)]


def transformer():
    """Pre-norm blocks with attention and a gated MLP; batch and sequence are symbolic."""
    sizes = (Dim("batch", 1, 8), Dim("sequence", 1, 64), WIDTH)
    with Graph("transformer", [TensorType(DType.float32, sizes)]) as graph:
        count = itertools.count()

        def weight(*shape):
            return graph.add_weight(Weight(f"w{next(count)}", DType.float32, shape))

        (x,) = graph.inputs
        for _ in range(LAYERS):
            y = ops.rms_norm(x, weight(WIDTH))
            split = ("batch", "sequence", HEADS, WIDTH // HEADS)
            parts = [ops.reshape(y @ weight(WIDTH, WIDTH), split) for _ in range(3)]
            mixed = ops.attention(*parts, causal=True, layout="bshd")
            x = x + ops.reshape(mixed, x.shape) @ weight(WIDTH, WIDTH)
            y = ops.rms_norm(x, weight(WIDTH))
            x = x + (ops.silu(y @ weight(WIDTH, 96)) * (y @ weight(WIDTH, 96))) @ weight(96, WIDTH)
        graph.output(x)
    return graph


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def planned(request):
    """The total, and (first step, last step, offset, size) of each value in main's arena."""
    module = lower(transformer().module, request.param)
    steps = [op for op in m.operations(module) if m.name(op) == "fused" and stage(op) == "main"]
    values = {}
    for number, step in enumerate(steps):
        for operand in step.operands:
            root = root_value(operand)
            if root in values:
                values[root][1] = number
        for value, text in zip(step.results, step.attributes["places"], strict=True):
            place = Place.parse(text.value)
            if place.kind == "arena":
                values[value] = [number, number, place.offset, byte_size(value)]
    total = Dim(m.main(module).attributes["heddle.main_arena"].value).expr
    return total, list(values.values())


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_live_values_never_overlap_and_little_is_wasted(planned, point):
    total, values = planned
    sizes = dict(zip(("batch", "sequence"), point, strict=True))
    spans = [(*v[:2], evaluate(v[2], sizes), evaluate(v[3], sizes)) for v in values]
    for (a0, a1, a, a_size), (b0, b1, b, b_size) in itertools.combinations(spans, 2):
        if a0 <= b1 and b0 <= a1:
            assert a + a_size <= b or b + b_size <= a
    bytes_planned = evaluate(total, sizes)
    assert max(start + size for *_, start, size in spans) <= bytes_planned
    steps = range(max(last for _, last, *_ in spans) + 1)
    live = max(sum(s for a, b, _, s in spans if a <= step <= b) for step in steps)
    rounding = 64 * len(spans)
    assert live <= bytes_planned <= 1.4 * live + rounding
    assert bytes_planned <= 0.5 * sum(size for *_, size in spans) + rounding


def test_places_read_back():
    for place in (
        Place("output", 3),
        Place("arena", offset=("mul", 64, ("ceildiv", "n", 64))),
        Place("state", offset=128),
    ):
        again = Place.parse(str(place))
        assert (again.kind, again.index) == (place.kind, place.index)
        assert [evaluate(again.offset, {"n": n}) for n in (1, 64, 65)] == [
            evaluate(place.offset, {"n": n}) for n in (1, 64, 65)
        ]
