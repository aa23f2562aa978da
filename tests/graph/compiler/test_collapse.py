"""Merging axes: what may merge, what may not, and that attributes follow."""

import pytest

from heddle.graph.compiler.collapse import collapse
from heddle.kernels.spec import Body, Operand, Spec, Step


def f32(*shape):
    return Operand("float32", shape)


def elementwise(result, *inputs):
    steps = [Step("neg", (0,), "float32")]
    steps += [Step("add", (i, len(inputs) + i - 1), "float32") for i in range(1, len(inputs))]
    body = Body(inputs, tuple(steps), (len(inputs) + len(steps) - 1,))
    return Spec("map", (result,), result, (result,), (), body)


def shapes(operands):
    return [operand.shape for operand in operands]


@pytest.mark.parametrize(
    ("result", "inputs", "merged"),
    [
        (("a", "b", 4), [("a", "b", 4)], [(("mul", ("mul", "a", "b"), 4),)]),
        (("a", "b", 4), [("a", "b", 4), (4,)], [(("mul", "a", "b"), 4), (4,)]),
        (("a", "b", 4), [("a", "b", 4), ("a", 1, 1)], [("a", ("mul", "b", 4)), ("a", 1)]),
        (("a", "b", 4), [("a", "b", 4), ()], [(("mul", ("mul", "a", "b"), 4),), ()]),
        # A size of 1 joins anything, but does not join what is on both sides of it.
        ((3, 1, 5), [(3, 1, 5), (1, 1, 5)], [(3, 5), (5,)]),
        ((3, 1, 5), [(1, 1, 1)], [()]),
        (("a", 1), [("a", 1), ("a", 1)], [("a",), ("a",)]),
        (("a", "b"), [("a", 1), ("b",)], [("a", 1), ("b",)]),
    ],
)
def test_elementwise(result, inputs, merged):
    spec = collapse(elementwise(f32(*result), *(f32(*shape) for shape in inputs)))
    assert shapes(spec.prologue.inputs) == merged


def test_a_root_keeps_its_axis():
    x = f32("a", "b", 8)
    spec = collapse(Spec("softmax", (x,), x, (x,)))
    assert spec.operands[0].shape == spec.result.shape == (("mul", "a", "b"), 8)


@pytest.mark.parametrize(
    ("axis", "merged", "at"), [(0, ("a", "bc"), 0), (1, "abc", 1), (2, ("ab", "c"), 1)]
)
def test_a_reductions_axis_is_renumbered(axis, merged, at):
    names = {"ab": ("mul", "a", "b"), "bc": ("mul", "b", "c")}
    sizes = ["a", "b", "c"]
    result = f32(*(1 if i == axis else size for i, size in enumerate(sizes)))
    spec = Spec("reduce", (f32(*sizes),), result, (result,), (("axis", axis), ("kind", "sum")))
    spec = collapse(spec)
    assert spec.operands[0].shape == tuple(names.get(name, name) for name in merged)
    assert spec.attr("axis") == at


@pytest.mark.parametrize(
    ("shape", "axis", "merged", "at"),
    [
        (("a", "b", "c", "d"), 1, ("a", "b", ("mul", "c", "d")), 1),
        (("a", "b", 3, 1, 1), 2, (("mul", "a", "b"), 3), 1),
        (("a", "b", 1, 1), 2, (("mul", "a", "b"), 1), 1),
        (("a", 1, 5), 0, ("a", 5), 0),
    ],
)
def test_sums_are_of_the_last_axis_where_ones_are_behind(shape, axis, merged, at):
    x = f32(*shape)
    spec = collapse(Spec("cumsum", (x,), x, (x,), (("axis", axis),)))
    assert spec.operands[0].shape == spec.result.shape == merged
    assert spec.attr("axis") == at


def test_matmul_rows_merge_where_b_has_no_batch():
    a, result = f32("a", "b", 8), f32("a", "b", 6)
    plain = collapse(Spec("matmul", (a, f32(8, 6)), result, (result,), (("transposed", False),)))
    assert plain.operands[0].shape == (("mul", "a", "b"), 8)
    batched = Spec("matmul", (a, f32("a", 8, 6)), result, (result,), (("transposed", False),))
    assert collapse(batched) == batched


def test_epilogue_inputs_hold_axes_apart():
    a, result = f32("a", "b", 8), f32("a", "b", 64)
    epilogue = Body((f32("b", 1),), (Step("add", (0, 1), "float32"),), (2,))
    spec = Spec("matmul_packed", (a, f32(2, 8, 32)), result, (result,), (), None, epilogue)
    assert collapse(spec) == spec


def test_gather_merges_its_indices():
    table, indices, result = f32(100, 8), Operand("int32", ("a", "b")), f32("a", "b", 8)
    spec = collapse(Spec("gather", (table, indices), result, (result,), (("axis", 0),)))
    assert spec.operands[1].shape == (("mul", "a", "b"),)
    assert spec.result.shape == (("mul", "a", "b"), 8)
    assert spec.attr("axis") == 0


def test_an_op_without_a_rule_stays():
    x = f32("a", "b", "c", 8)
    spec = Spec("attention", (x, x, x), x, (x,), (("layout", "bhsd"),))
    assert collapse(spec) is spec
