"""Several products of one left side as one kernel."""

import re
from dataclasses import replace
from itertools import cycle

import machine_code
import numpy as np
import pytest
from native import ARCHS, DOTS, check, random, run
from reference import shape
from test_integer_matmul_packed import product as integer_product
from test_matmul_packed import product
from test_quantized_matmul_packed import product as quantized_product

from heddle.graph.compiler.codegen.cpu import compile_cpu
from heddle.kernels.cpu import matmul_packed
from heddle.kernels.registry import MACHINES, find
from heddle.kernels.spec import Body, Operand, Spec, Step

WIDTHS = ((33, 33, 33), (64, 33, 33), (31, 100))
"""Columns of the products: all alike, some alike, none."""


def beside(first, *others):
    return replace(first, beside=others)


def with_bias(n):
    return Body((Operand("float32", (n,)),), (Step("add", (0, 1), "float32"),), (2,))


@pytest.mark.parametrize(
    ("widths", "arch"), [*zip(WIDTHS, cycle(ARCHS), strict=False), (WIDTHS[1], ARCHS[0])]
)
def test_each_product_has_its_own_epilogue(widths, arch):
    spec = beside(*(product("float32", (), "d0", 31, n, epilogue=with_bias(n)) for n in widths))
    for m in (0, 1, 25, 130):
        check(spec, {"d0": m}, arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", [DOTS[-1], "sapphirerapids"])
def test_pairs(arch):
    spec = beside(*(product("bfloat16", (), "d0", 70, n, pairs=True) for n in WIDTHS[1]))
    for m in (1, 70):
        check(spec, {"d0": m}, arch=arch, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", [DOTS[-1], "sapphirerapids"])
def test_integers(arch):
    spec = beside(*(integer_product((), "d0", 64, n) for n in WIDTHS[1]))
    for m in (5, 70):
        check(spec, {"d0": m}, arch=arch)


@pytest.mark.parametrize("arch", [ARCHS[0], DOTS[-1], "sapphirerapids"])
def test_weights_of_few_bits(arch):
    """Two products of int8 weights, and one of 4 bits behind them."""
    held = ("int8", "int8", "uint32")
    spec = beside(*(quantized_product(each, "d0", 64, 33, dtype="bfloat16") for each in held))
    rng = np.random.default_rng(0)
    for m in (3, 70):
        dims = {"d0": m}
        arrays = [random(rng, shape(o.shape, dims), o.dtype) for o in spec.inputs]
        check(spec, dims, arrays, arch=arch, rtol=1e-5, atol=5e-4)


def test_bits_are_those_of_each_product_alone():
    spec = beside(*(product("float32", (), "d0", 300, n) for n in WIDTHS[1]))
    rng, dims = np.random.default_rng(0), {"d0": 77}
    arrays = [random(rng, shape(o.shape, dims), o.dtype) for o in spec.inputs]
    together, _ = run(spec, arrays, dims)
    for one, b, found in zip(spec.each, arrays[1:], together, strict=True):
        (alone,), _ = run(one, [arrays[0], b], dims)
        assert alone.tobytes() == found.tobytes()


def test_products_that_are_alike_share_code():
    """Two kernels' worth of code for three products, of which two are alike."""
    sizes = [len(emitted(widths)) for widths in ((64,), (33, 33), (64, 33, 33))]
    assert sizes[2] < 1.2 * sum(sizes[:2])
    assert sizes[1] < 1.2 * len(emitted((33,)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_share_the_stack(dtype):
    """Rows of a and sums of one product lie where those of the one before were, be they more."""
    taken = []
    for widths in ((2048,), (2048, 512), (512, 2048)):
        products = (product(dtype, (), "d0", 4096, n, pairs=dtype == "bfloat16") for n in widths)
        text = machine_code.assembly(beside(*products), MACHINES["sapphirerapids"])
        taken.append(max(int(size) for size in re.findall(r"\tsubq\t\$(\d+), %rsp", text)))
    assert taken[0] < 1.6 * 2**20
    assert max(taken[1:]) < taken[0] + 2**14


def emitted(widths):
    spec = beside(*(product("float32", (), "d0", 64, n) for n in widths))
    return compile_cpu(spec, MACHINES[ARCHS[-1]]).data


def test_a_spec_says_what_is_beside_it():
    spec = beside(*(product("float32", (), "d0", 31, n, epilogue=with_bias(n)) for n in (64, 32)))
    assert Spec.from_json(spec.to_json()) == spec
    assert [operand.shape for operand in spec.inputs] == [
        ("d0", 31),
        (2, 31, 32),
        (64,),
        (1, 31, 32),
        (32,),
    ]
    assert [operand.shape for operand in spec.written] == [("d0", 64), ("d0", 32)]
    alone = [matmul_packed.KERNEL.launch(each) for each in spec.each]
    assert matmul_packed.KERNEL.launch(spec).grid[0] == ("add", *(each.grid[0] for each in alone))


def test_every_product_has_to_be_one_of_the_kernel():
    spec = beside(product("float32", (), 4, 8, 32), product("float16", (), 4, 8, 32))
    wrong = replace(spec.beside[0], operands=(Operand("float16", (4, 8)), spec.operands[1]))
    reason = find("matmul_packed", "cpu").supports(replace(spec, beside=(wrong,)))
    assert reason == "a: wanted float32, float64 or bfloat16, got float16"
