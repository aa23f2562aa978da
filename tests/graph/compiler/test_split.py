"""Products whose rows are known when they run: kernels for few of them, for some and for more."""

import pytest

from heddle.graph import DType, Graph, TensorType, Weight, ops
from heddle.graph.compiler import assemble
from heddle.graph.compiler.constants import Constants
from heddle.graph.compiler.pipeline import lower
from heddle.graph.compiler.sizes import evaluate
from heddle.kernels.registry import MACHINES, find
from heddle.runtime import artifact


def asked(rows, dtype=DType.bfloat16, kind="cuda", widths=(128,)):
    """The dispatches of x @ w.T for weights of such widths, with their kernels."""
    weights = [Weight(f"w{i}", dtype, (n, 64)) for i, n in enumerate(widths)]
    with Graph("products", [TensorType(dtype, (rows, 64))]) as graph:
        x = graph.inputs[0].tensor
        graph.output(*(ops.matmul(x, graph.add_weight(weight).T) for weight in weights))
    module = lower(graph.module, kind)
    wanted = assemble.requests(module, kind)
    program = assemble.program(
        module,
        kind,
        wanted,
        lambda spec: (),
        [artifact.Weight(f"w{i}", dtype.name, (n, 64)) for i, n in enumerate(widths)],
        Constants(),
    )
    return wanted, program.main.instructions


@pytest.mark.parametrize("rows", [0, 1, 16, 17, 64, 65, 66, 1000, 16384])
def test_one_of_the_kernels_is_started(rows):
    wanted, steps = asked("n")
    assert len(steps) == len(wanted) == 3
    started = [{evaluate(blocks, {"n": rows}) > 0 for blocks, *_ in step.grids} for step in steps]
    assert started == [{rows <= 16}, {16 < rows <= 64}, {rows > 64}]
    assert steps[0].buffers[:3] == steps[1].buffers[:3] == steps[2].buffers[:3]
    assert len({step.kernel for step in steps}) == 3


@pytest.mark.parametrize("rows", [0, 1, 16, 17, 64, 65, 1000])
def test_products_of_few_rows_are_one_kernel_and_of_more_one_each(rows):
    wanted, steps = asked("n", widths=(128, 64, 64))
    assert len(steps) == len(wanted) == 5
    started = [evaluate(step.grids[1][0], {"n": rows}) > 0 for step in steps]
    assert started == [rows <= 16, 16 < rows <= 64, *[rows > 64] * 3]
    few, some, *alone = (
        [step.buffers[i] for i in range(n)] for step, n in zip(steps, (7, 7, 3, 3, 3), strict=True)
    )
    assert few == some
    assert alone == [[few[0], few[1 + i], few[4 + i]] for i in range(3)]
    assert steps[3].kernel == steps[4].kernel


def test_few_rows_are_for_strips_on_each_architecture():
    wanted, _ = asked("n")
    few, some, more = (request.spec for _, request in wanted)
    row, hopper = find("matmul", "cuda"), MACHINES["sm_90a"]
    assert not row.launch_on(few, hopper).tensor_maps
    assert all(row.launch_on(spec, hopper).tensor_maps for spec in (some, more))
    assert row.launch_on(some, MACHINES["sm_80"]).block == row.launch_on(few, hopper).block


@pytest.mark.parametrize(
    ("rows", "dtype", "kind"),
    [(8, DType.bfloat16, "cuda"), ("n", DType.float32, "cuda"), ("n", DType.bfloat16, "cpu")],
)
def test_what_needs_one_kernel_has_one(rows, dtype, kind):
    wanted, steps = asked(rows, dtype, kind)
    assert len(steps) == 1
    assert all(request.condition == 1 for _, request in wanted)
