"""Products of groups by weights of 8 and 4 bits, of rows of floats and of rows in 8 bits."""

import ctypes
import mmap
from itertools import pairwise

import amx_emulation
import native
import numpy as np
import pytest
import row_groups
from native import DOTS, check, run
from row_groups import SPLITS, scaling

from heddle.kernels.registry import find
from heddle.kernels.spec import Body, Spec

FLOATS, INTEGERS = "quantized_grouped_matmul_packed", "rounded_grouped_matmul_packed"
KINDS = [
    *((FLOATS, held) for held in ("int8", "uint32", "float8_e4m3fn", "float8_e5m2")),
    *((INTEGERS, held) for held in ("int8", "uint32")),
]
NEAR = {"rtol": 1e-5, "atol": 1e-4}


@pytest.mark.parametrize("arch", DOTS)
@pytest.mark.parametrize(("op", "held"), KINDS)
def test_splits(op, held, arch):
    spec = scaling(op, "bfloat16" if arch == DOTS[-1] else "float32", held, 96, 40)
    for offsets in SPLITS.values():
        check(spec, {}, row_groups.arrays(spec, {}, offsets), arch, **NEAR)


@pytest.mark.parametrize("held", ["int8", "uint32"])
@pytest.mark.parametrize("op", [FLOATS, INTEGERS])
def test_sizes_of_run_time_and_an_epilogue(op, held):
    body = row_groups.gated("bfloat16", "d0", "d1")
    spec = scaling(op, "bfloat16", held, 64, "d1", "d0", "d2", offsets="int32", epilogue=body)
    for rows, offsets in ((90, [5, 5, 80, 84]), (1, [0, 0, 1, 1]), (0, [0, 0, 0, 0])):
        dims = {"d0": rows, "d1": 70, "d2": 3}
        check(spec, dims, row_groups.arrays(spec, dims, offsets), DOTS[-1], **NEAR)


@pytest.mark.parametrize("held", ["int8", "uint32", "float8_e4m3fn"])
def test_in_tiles(held):
    """Groups of one row, of few and of many, and rows of no group."""
    spec = scaling(FLOATS, "bfloat16", held, 64, 70, "d0", 4)
    for offsets in ([1, 2, 2, 12, 100], [0, 0, 70, 71, 120]):
        arrays = row_groups.arrays(spec, {"d0": 120}, offsets)
        check(spec, {"d0": 120}, arrays, "sapphirerapids", **NEAR)
        run(spec, arrays, {"d0": 120}, "sapphirerapids")
        assert amx_emulation.products


def alone(spec: Spec) -> Spec:
    """The product of one group's rows, `d0` of them, by its weights."""
    a, weights, scales, _ = spec.operands
    one = [type(x)(x.dtype, x.shape[1:]) for x in (weights, scales)]
    a, result = (type(x)(x.dtype, ("d0", x.shape[1])) for x in (a, spec.result))
    op = spec.op.replace("_grouped", "")
    return Spec(op, (a, *one), result, (result,), spec.attrs)


@pytest.mark.parametrize("arch", [*native.HERE, "sapphirerapids"])
@pytest.mark.parametrize(("op", "held"), [KINDS[0], KINDS[1], *KINDS[4:]])
def test_a_group_has_the_bits_of_its_product_alone(op, held, arch):
    spec = scaling(op, "bfloat16", held, 160, 40, 40, 3)
    offsets = [2, 3, 18, 40]
    arrays = row_groups.arrays(spec, {}, offsets)
    (whole,), _ = run(spec, arrays, arch=arch)
    assert not whole[:2].any()
    for group, (start, stop) in enumerate(pairwise(offsets)):
        own = [arrays[0][start:stop], arrays[1][group], arrays[2][group]]
        (part,), _ = run(alone(spec), own, {"d0": stop - start}, arch)
        assert part.tobytes() == whole[start:stop].tobytes()


def pages_there(address: int, count: int) -> np.ndarray:
    """For each page from an address on, whether it is in memory."""
    found = np.zeros(count, np.uint8)
    size = ctypes.c_size_t(count * mmap.PAGESIZE)
    where = ctypes.c_void_p(found.ctypes.data)
    assert native._LIBC.mincore(ctypes.c_void_p(address), size, where) == 0
    return found & 1


@pytest.mark.parametrize("arch", native.HERE)
@pytest.mark.parametrize(
    ("op", "dtype", "held"),
    [
        ("grouped_matmul_packed", "bfloat16", ""),
        (FLOATS, "bfloat16", "int8"),
        (FLOATS, "float32", "uint32"),
        (INTEGERS, "bfloat16", "int8"),
    ],
)
def test_weights_of_groups_without_rows_are_not_touched(op, dtype, held, arch):
    """Memory that nobody has touched has no pages yet; what is only asked for gets none."""
    if op == "grouped_matmul_packed":
        spec = row_groups.multiplying(op, dtype, 256, 64, 8, 6)
    else:
        spec = scaling(op, dtype, held, 1024, 64, 8, 6)
    arrays = row_groups.arrays(spec, {}, [0, 0, 1, 1, 8, 8, 8])
    weights, kernel = arrays[1], find(op, "cpu")
    memory = mmap.mmap(-1, weights.nbytes + mmap.PAGESIZE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    there = np.frombuffer(memory, np.uint8, weights.nbytes).view(weights.dtype)
    there = there.reshape(weights.shape)
    for group in (1, 3):
        there[group] = weights[group]
    each = weights[0].nbytes // mmap.PAGESIZE
    assert each * mmap.PAGESIZE == weights[0].nbytes
    before = pages_there(there.ctypes.data, 6 * each).reshape(6, each).any(axis=1)
    assert before.tolist() == [False, True, False, True, False, False]
    result = np.zeros(native.shape(spec.result.shape, {}), native.numpy_dtype(dtype))
    status = np.zeros(4, np.int64)
    given = [arrays[0], there, *arrays[2:], result, status]
    pointers = (ctypes.c_void_p * len(given))(*(array.ctypes.data for array in given))
    function, _memory = native.load(spec, arch)
    tasks = native.size(kernel.launch_on(spec, native.MACHINES[arch]).grid[0], {})
    function(0, ctypes.addressof(pointers), 0, tasks)
    after = pages_there(there.ctypes.data, 6 * each).reshape(6, each).any(axis=1)
    assert after.tolist() == before.tolist()
    assert result.any()


@pytest.mark.parametrize("op", [FLOATS, INTEGERS])
def test_wrong_offsets_are_reported(op):
    spec = scaling(op, "float32", "int8", 32, 8)
    _, found = run(spec, row_groups.arrays(spec, {}, [0, 9, 4, 20, 30]))
    assert list(found) == [2, 4, 150, 9]


def test_packing_of_several_matrices():
    for groups, n, length in ((3, 33, 16), ("d0", 64, 12)):
        given = row_groups.Operand("uint8", (groups, n, length))
        packed = row_groups.Operand("uint32", (groups, -(-n // 32), length // 4, 32))
        check(Spec("pack_int4", (given,), packed, (packed,)), {"d0": 2})


def test_refusals():
    supports = find(FLOATS, "cpu").supports
    spec = scaling(FLOATS, "float32", "int8", 32, 8, offsets="uint8")
    assert supports(spec) == "offsets: wanted int32 or int64, got uint8"
    spec = scaling(FLOATS, "float32", "int16", 32, 8)
    assert supports(spec).endswith("got float32 by int16")
    spec = scaling(INTEGERS, "float32", "int8", 32, 8)
    before = Body(spec.operands[:1], (), (0,))
    wrong = Spec(spec.op, spec.operands, spec.result, spec.outputs, spec.attrs, before)
    assert find(INTEGERS, "cpu").supports(wrong) == "it takes no prologue"
