"""Kernels whose result may lie over an input: the same bytes as with memory of its own."""

from dataclasses import replace

import native
import numpy as np
import pytest
import row_groups

from heddle.kernels.cpu import KERNELS
from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Operand, Spec, Step

COLUMNS, K = 96, 70

X = Operand("float32", ("d0", COLUMNS))
VECTOR = Operand("float32", (COLUMNS,))
ADDED = Body((X,), (Step("add", (0, 1), "float32"),), (2,))
SCALED = Body((X, X), (Step("mul", (0, 1), "float32"),), (2,))
EPSILON = (("epsilon", 1e-5),)
IMAGE = Operand("float32", ("d0", 5, 6, 8))
PIXELS = Operand("float32", ("d0", 5, 6, COLUMNS))
WINDOW = (
    ("dilations", (1, 1)),
    ("kernel", (3, 3)),
    ("padding", (1, 1, 1, 1)),
    ("strides", (1, 1)),
)

CASES = {
    "layer_norm": (Spec("layer_norm", (X, VECTOR, VECTOR), X, (X,), EPSILON), 0),
    "layer_norm of a sum": (
        Spec("layer_norm", (X, VECTOR, VECTOR), X, (X,), EPSILON, prologue=SCALED),
        1,
    ),
    "rms_norm": (Spec("rms_norm", (X, VECTOR), X, (X,), EPSILON, epilogue=ADDED), 0),
    "rms_norm, epilogue": (Spec("rms_norm", (X, VECTOR), X, (X,), EPSILON, epilogue=ADDED), 2),
    "softmax": (Spec("softmax", (X,), X, (X,)), 0),
    "matmul_packed": (
        Spec(
            "matmul_packed",
            (Operand("float32", ("d0", K)), Operand("float32", (COLUMNS // 32, K, 32))),
            X,
            (X,),
            epilogue=ADDED,
        ),
        2,
    ),
    "matmul_packed, bfloat16": (
        Spec(
            "matmul_packed",
            (
                Operand("bfloat16", ("d0", K)),
                Operand("bfloat16", (COLUMNS // 32, K // 2, 32, 2)),
            ),
            X,
            (X,),
            epilogue=ADDED,
        ),
        2,
    ),
    "integer_matmul_packed": (
        Spec(
            "integer_matmul_packed",
            (Operand("uint8", ("d0", 72)), Operand("int8", (COLUMNS // 32, 18, 32, 4))),
            Operand("int32", ("d0", COLUMNS)),
            (Operand("int32", ("d0", COLUMNS)),),
            epilogue=Body(
                (Operand("int32", ("d0", COLUMNS)),), (Step("add", (0, 1), "int32"),), (2,)
            ),
        ),
        2,
    ),
    "quantized_matmul_packed": (
        Spec(
            "quantized_matmul_packed",
            (
                Operand("float32", ("d0", 64)),
                Operand("int8", (COLUMNS // 32, 16, 32, 4)),
                Operand("float32", (COLUMNS // 32, 2, 32)),
            ),
            X,
            (X,),
            (("group", 32),),
            epilogue=ADDED,
        ),
        3,
    ),
    "rounded_matmul_packed": (
        Spec(
            "rounded_matmul_packed",
            (
                Operand("uint8", ("d0", 80)),
                Operand("int8", (COLUMNS // 32, 16, 32, 4)),
                Operand("float32", (COLUMNS // 32, 2, 32)),
            ),
            X,
            (X,),
            (("group", 32),),
            epilogue=ADDED,
        ),
        3,
    ),
    "matmul": (
        Spec(
            "matmul",
            (Operand("float32", (7, K)), Operand("float32", (K, COLUMNS))),
            Operand("float32", (7, COLUMNS)),
            (Operand("float32", (7, COLUMNS)),),
            (("transposed", False),),
            epilogue=replace(ADDED, inputs=(Operand("float32", (7, COLUMNS)),)),
        ),
        2,
    ),
    "grouped_matmul_packed": (
        Spec(
            "grouped_matmul_packed",
            (
                Operand("float32", ("d0", K)),
                Operand("float32", (2, COLUMNS // 32, K, 32)),
                Operand("int64", (3,)),
            ),
            X,
            (X,),
            epilogue=ADDED,
        ),
        3,
    ),
    **{
        op: (row_groups.scaling(op, "float32", "int8", 64, COLUMNS, "d0", 2, epilogue=ADDED), 4)
        for op in ("quantized_grouped_matmul_packed", "rounded_grouped_matmul_packed")
    },
    "window_matmul_packed": (
        Spec(
            "window_matmul_packed",
            (IMAGE, Operand("float32", (1, COLUMNS // 32, 9 * 8, 32))),
            PIXELS,
            (PIXELS,),
            WINDOW,
            epilogue=replace(ADDED, inputs=(PIXELS,)),
        ),
        2,
    ),
    "window_reduce": (
        Spec(
            "window_reduce",
            (IMAGE, Operand("float32", (9, 8))),
            IMAGE,
            (IMAGE,),
            (*WINDOW[:2], ("kind", "product"), *WINDOW[2:]),
            epilogue=replace(ADDED, inputs=(IMAGE,)),
        ),
        2,
    ),
}


@pytest.mark.parametrize("rows", [1, 2, 131])
@pytest.mark.parametrize("case", CASES)
def test_a_result_over_its_input(case, rows):
    spec, number = CASES[case]
    dims, rng = {"d0": rows}, np.random.default_rng(rows)
    arrays = [native.random(rng, native.shape(o.shape, dims), o.dtype) for o in spec.inputs]
    if "grouped" in spec.op:
        offsets = len(spec.operands) - 1
        arrays[offsets] = np.array([0, rows // 3, rows])  # Where the rows of each group begin.
    tiled = ["sapphirerapids"] if "matmul" in spec.op else []
    for arch in (*native.DOTS, *tiled):
        (apart,), _ = native.run(spec, arrays, dims, arch)
        (over,), _ = native.run(spec, arrays, dims, arch, cuts=(0.3, 0.7), over=number)
        assert over.tobytes() == apart.tobytes()


def test_every_kernel_that_overwrites_is_here():
    ops = {spec.op for spec, _ in CASES.values()}
    assert ops == {kernel.op for kernel in KERNELS if kernel.overwrites}
    for spec, number in CASES.values():
        after = len(spec.inputs) - (len(spec.epilogue.inputs) if spec.epilogue else 0)
        assert find(spec.op, "cpu").overwrites == "all" or number >= after
