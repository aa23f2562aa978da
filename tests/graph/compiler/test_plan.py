"""The memory of a lowered transformer, by the places that the plan has written into the module."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from heddle.graph import Dim, DType, Graph, TensorType, Weight, ops
from heddle.graph.compiler import assemble
from heddle.graph.compiler import module as m
from heddle.graph.compiler.constants import Constants
from heddle.graph.compiler.parts import parts_of
from heddle.graph.compiler.passes.plan import Place, byte_size, root_value, stage
from heddle.graph.compiler.pipeline import lower
from heddle.graph.compiler.sizes import evaluate
from heddle.graph.compiler.specs import request
from heddle.kernels import registry

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


def overwritten(step):
    """What may be written over: what a packed product's epilogue, or a norm, reads once."""
    spec, roots = request(parts_of(step)).spec, [root_value(value) for value in step.operands]
    first = {"matmul_packed": 2, "rms_norm": 0, "softmax": 0}.get(spec.op, len(roots))
    types = list(zip(roots, spec.inputs, strict=True))[first:]
    return [v for v, seen in types if seen == spec.outputs[0] and roots.count(v) == 1]


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def planned(request: pytest.FixtureRequest):
    """The total, and (first step, last step, offset, size) of each value in main's arena.

    What is overwritten by a result is one value with it.
    """
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
                for source in overwritten(step):
                    if source in values and values[source][1:3] == [number, place.offset]:
                        values[value][0] = values.pop(source)[0]
                        break
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


@pytest.mark.parametrize(
    ("compute", "over"),
    [
        (lambda h, y, w: ops.softmax(h + y @ w), True),
        (lambda h, y, w: ops.softmax(ops.tanh(h) * (y @ w)), True),
        (lambda h, y, w: h + ops.softmax(h + y @ w), False),  # it is read later
        (lambda h, y, w: ops.softmax(h + h @ w), False),  # it is multiplied
        (lambda h, y, w: ops.softmax(ops.sum(h, axis=0) + y @ w), False),  # it is broadcast
    ],
    ids=["added", "in a body", "read later", "multiplied", "broadcast"],
)
def test_a_product_lies_over_what_its_epilogue_alone_reads(compute, over):
    square = TensorType(DType.float32, (Dim("n", 1, 64), WIDTH))
    with Graph("over", [square, square]) as graph:
        w = graph.add_weight(Weight("w", DType.float32, (WIDTH, WIDTH)))
        h, y = (ops.softmax(value) for value in graph.inputs)
        graph.output(compute(h, y, w))
    module = lower(graph.module, "cpu")
    steps = [op for op in m.operations(module) if m.name(op) == "fused" and stage(op) == "main"]
    (product,) = (op for op in steps if request(parts_of(op)).spec.op == "matmul_packed")
    mine = product.attributes["places"][0].value
    read = {
        m.owner(root_value(value)).attributes["places"][0].value
        for value in product.operands
        if m.owner(root_value(value)) in steps
    }
    assert mine.startswith("arena")
    assert (mine in read) is over


def ask_for_scratch(monkeypatch, wanted):
    """Kernels of the ops `wanted` take so many bytes for each row."""
    find = registry.find

    def asking(op, target):
        row = find(op, target)
        if op not in wanted:
            return row

        def launch(spec):
            size = ("mul", spec.result.shape[0], wanted[op])
            return replace(row.launch(spec), workspace=size, counters=8)

        return replace(row, launch=launch)

    monkeypatch.setattr(registry, "find", asking)


def test_scratch_memory_lies_where_no_value_is_alive(monkeypatch):
    """Here one that was larger is gone by then."""
    ask_for_scratch(monkeypatch, {"layer_norm": 3000})
    with Graph("scratch", [TensorType(DType.float32, ("n", 1024))]) as graph:
        x = graph.inputs[0].tensor
        ones = ops.constant(np.ones(64, np.float32))
        narrow = ops.softmax(ops.softmax(x)[:, :64])
        graph.output(ops.layer_norm(narrow, ones, ones))
    arena = Dim(m.main(lower(graph.module, "cuda")).attributes["heddle.main_arena"].value).expr
    assert evaluate(arena, {"n": 100}) == 100 * (1024 + 64) * 4


def test_scratch_memory_is_arena_for_its_own_step(monkeypatch):
    """A kernel that asks for a workspace and counters gets them, and shares the arena's bytes."""
    wanted = {"softmax": 6000, "layer_norm": 100}
    ask_for_scratch(monkeypatch, wanted)
    with Graph("scratch", [TensorType(DType.float32, ("n", 64))]) as graph:
        x = graph.inputs[0].tensor
        weight, bias = (ops.constant(np.ones(64, np.float32)) for _ in range(2))
        graph.output(ops.softmax(ops.layer_norm(ops.softmax(x), weight, bias)))
    module = lower(graph.module, "cuda")
    program = assemble.program(
        module, "cuda", assemble.requests(module, "cuda"), lambda spec: (), [], Constants()
    )
    steps = program.main.instructions
    scratch = [[program.buffers[number] for number in step.buffers[-2:]] for step in steps]
    for (workspace, counters), name in zip(
        scratch, ("softmax", "layer_norm", "softmax"), strict=True
    ):
        assert (workspace.kind, counters.kind, counters.size) == ("arena", "counters", 32)
        for n in (1, 3, 100):
            size, start = (evaluate(expr, {"n": n}) for expr in (workspace.size, workspace.offset))
            assert size == n * wanted[name]
            assert start % 64 == 0
            assert start + size <= evaluate(program.main.arena, {"n": n})
    # The values between the steps are not in the way of the scratch memory.
    for before, after in itertools.pairwise(steps):
        shared = program.buffers[before.buffers[-3]]
        for step in (before, after):
            workspace = program.buffers[step.buffers[-2]]
            start, end = (evaluate(workspace.offset, {"n": 3}), evaluate(workspace.size, {"n": 3}))
            first, size = (evaluate(shared.offset, {"n": 3}), evaluate(shared.size, {"n": 3}))
            assert first + size <= start or start + end <= first
    assert evaluate(program.main.arena, {"n": 3}) < 3 * (2 * 6000 + 100)


@pytest.mark.parametrize(
    ("rows", "bits", "is_written"),
    [("n", 16, True), (8, 16, False), ("n", 8, True), (12, 8, False)],
)
def test_a_gate_takes_memory_where_a_kernel_of_its_own_writes_it(rows, bits, is_written):
    dtype = DType.bfloat16
    held = [dtype] * 2 if bits == 16 else [DType.int8, dtype]
    shapes = [(16, 64), (16, 2)][: 1 if bits == 16 else 2]
    with Graph("gated", [TensorType(dtype, (rows, 64))]) as graph:
        x, products = graph.inputs[0].tensor, []
        for name in ("gate", "up"):
            kinds = zip(("weight", "scales"), held, shapes, strict=False)
            weight, *scales = (
                graph.add_weight(Weight(f"{name}.{part}", *kind)) for part, *kind in kinds
            )
            if scales:
                products.append(ops.quantized_matmul(x, weight, *scales, group=32))
            else:
                products.append(x @ weight.T)
        graph.output(ops.silu(products[0]) * products[1])
    module = lower(graph.module, "cuda")
    (fused,) = (op for op in m.operations(module) if m.name(op) == "fused")
    assert len(fused.results) == 2
    arena = Dim(m.main(module).attributes["heddle.main_arena"].value).expr
    assert evaluate(arena, {"n": 64}) >= 2 * 16 * 64 * is_written
    assert is_written or arena == 0
