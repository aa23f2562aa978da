"""Products in AMX tiles that tests make: their specs, operands and results."""

import native
import numpy as np
from native import check, random
from reference import evaluate, shape

from heddle.kernels.registry import MACHINES
from heddle.kernels.spec import Operand, Spec, fold

ARCH = "sapphirerapids"
MACHINE = MACHINES[ARCH]
OPS = {"bfloat16": "matmul_packed", "uint8": "integer_matmul_packed"}


def product(dtype, m, k, n, leading=(), batched=False, epilogue=None):
    of_b, group, sums = ("bfloat16", 2, "bfloat16") if dtype == "bfloat16" else ("int8", 4, "int32")
    panels = (fold("ceildiv", n, 32), fold("ceildiv", k, group), 32, group)
    operands = (
        Operand(dtype, (*leading, m, k)),
        Operand(of_b, (*(leading if batched else ()), *panels)),
    )
    result = Operand(sums, (*leading, m, n))
    return Spec(OPS[dtype], operands, result, (result,), (), None, epilogue)


def numbers(spec, dims):
    """Integers, whose sums are exact in any order; b is zero beyond k."""
    rng = np.random.default_rng(0)
    extents = [shape(operand.shape, dims) for operand in spec.inputs]
    if spec.op == "integer_matmul_packed":
        arrays = [random(rng, size, o.dtype) for size, o in zip(extents, spec.inputs, strict=True)]
    else:
        arrays = [rng.integers(-8, 9, size) for size in extents]
    k, packed = extents[0][-1], arrays[1]
    along = np.arange(packed.shape[-3] * packed.shape[-1]).reshape(-1, 1, packed.shape[-1])
    arrays[1] = np.where(along < k, packed, 0)
    return [
        array.astype(native.numpy_dtype(operand.dtype))
        for array, operand in zip(arrays, spec.inputs, strict=True)
    ]


def exact(spec, dims=None, **options):
    """Bitwise what the reference gives, for any split of the tasks."""
    arrays = numbers(spec, dims or {})
    got = check(spec, dims, arrays, arch=ARCH, **options)
    for output, wanted in zip(got, evaluate(spec, dims or {}, arrays), strict=True):
        np.testing.assert_array_equal(output, wanted)
