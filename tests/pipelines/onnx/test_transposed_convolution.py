"""ConvTranspose beside its definition: strides, dilations, pads, groups, sizes known late."""

import itertools

import numpy as np
import pytest
from onnx_texts import computed, imported

from heddle.graph import compile
from heddle.pipelines.onnx.operators.transposed_convolution import Phases

RNG = np.random.default_rng(7)

CASES = [
    # groups, kernel, strides, dilations, pads, output_padding
    (1, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), (0, 0)),
    (1, (4, 4), (2, 2), (1, 1), (1, 1, 1, 1), (0, 0)),
    (1, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), (1, 1)),
    (2, (3, 2), (3, 1), (1, 2), (0, 1, 2, 1), (2, 0)),
    (3, (5, 1), (2, 4), (2, 1), (3, 0, 5, 0), (1, 3)),
    (1, (1, 3), (3, 2), (1, 3), (0, 6, 0, 2), (0, 1)),
    (1, (3, 3), (1, 1), (2, 1), (1, 1, 0, 1), (0, 0)),
    (2, (16,), (8,), (1,), (4, 4), (0,)),
    (1, (3,), (5,), (1,), (1, 0), (4,)),
    (1, (2, 3, 2), (2, 1, 2), (1, 1, 1), (0, 1, 1, 0, 1, 0), (0, 0, 1)),
]


def text(case, x, weights, sizes):
    groups, kernel, strides, dilations, pads, more = case
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "output_padding": more}
    listed = ", ".join(f"{name} = {list(value)}" for name, value in attributes.items())
    names = ["p", "q", "r"][: len(kernel)]
    return f"""m (float[{", ".join(map(str, sizes))}] x, float[{weights.shape[1] * groups}] b)
    => (float[{", ".join(["n", "c", *names])}] y)
    <float{list(weights.shape)} w = {{{", ".join(map(str, weights.ravel().tolist()))}}}>
    {{ y = ConvTranspose <group = {groups}, {listed}> (x, w, b) }}"""


def defined(case, x, weights, bias):
    """Each element of x times all taps, added where they belong; pads cut off, or zeros added."""
    groups, kernel, strides, dilations, pads, more = case
    rank, each, inner = len(kernel), weights.shape[1], x.shape[1] // groups
    reaches = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    full = [s * (n - 1) + r for s, n, r in zip(strides, x.shape[2:], reaches, strict=True)]
    room = [size + extra for size, extra in zip(full, more, strict=True)]
    y = np.zeros((len(x), groups * each, *room))
    for tap in itertools.product(*map(range, kernel)):
        places = tuple(
            slice(t * d, t * d + s * (n - 1) + 1, s)
            for t, d, s, n in zip(tap, dilations, strides, x.shape[2:], strict=True)
        )
        for group in range(groups):
            own = slice(group * inner, (group + 1) * inner)
            added = np.einsum("bc...,cn->bn...", x[:, own], weights[(own, slice(None), *tap)])
            y[(slice(None), slice(group * each, (group + 1) * each), *places)] += added
    kept = tuple(
        slice(start, size - end)
        for start, end, size in zip(pads[:rank], pads[rank:], room, strict=True)
    )
    return y[(..., *kept)] + bias.reshape(-1, *[1] * rank)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("known", [True, False])
def test_definition(case, known):
    groups, kernel = case[:2]
    x = RNG.standard_normal((2, 2 * groups, *(4, 5, 3)[: len(kernel)]), np.float32)
    weights = RNG.standard_normal((2 * groups, 3, *kernel), np.float32)
    bias = RNG.standard_normal(3 * groups, np.float32)
    sizes = x.shape if known else ("n", 2 * groups, *("h", "w", "d")[: len(kernel)])
    (found,) = computed(text(case, x, weights, sizes), x, bias)
    np.testing.assert_allclose(found, defined(case, x, weights, bias), rtol=1e-4, atol=1e-4)


def test_no_zeros_are_multiplied_where_the_stride_divides_the_kernel():
    """As many multiplications as the definition has, but for the edges."""
    for stride, kernel, pads in ((2, 2, 0), (2, 4, 1), (8, 16, 4), (3, 3, 0)):
        phases = Phases.of(stride, 1, kernel, pads)
        assert {len(taps) for taps in phases.taps} == {kernel // stride}
        assert sorted(tap for taps in phases.taps for tap in taps) == list(range(kernel))


def test_pixels_come_from_one_product():
    """A U-Net's: a product with four times the channels, and one transpose behind it."""
    case = (1, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), (0, 0))
    weights = RNG.standard_normal((8, 16, 2, 2), np.float32)
    shape = (1, 8, 4, 4)
    found = imported(text(case, np.zeros(shape), weights, shape))
    lowered = compile(found.graph, "cpu", stop_after="fuse")
    assert lowered.count("window_matmul") + lowered.count("concat") + lowered.count("slice") == 0
    assert lowered.count("heddle.matmul") == 1
