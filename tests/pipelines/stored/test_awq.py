"""AWQ: integers along n, in an order of their own."""

import numpy as np
import pytest
from packers import AWQ, drawn
from products import product, same

from heddle.runtime.errors import ArtifactError, GraphError


@pytest.mark.parametrize(("symmetric", "kind"), [(True, "int4"), (False, "uint4")])
@pytest.mark.parametrize(("group", "k", "held"), [(32, 96, 32), (128, 256, 128), (-1, 256, 128)])
def test_integers_stay_as_they_are(symmetric, kind, group, k, held):
    weight = drawn(k=k, group=k if group < 0 else group, symmetric=symmetric)
    found = product(weight.awq(), {**AWQ, "group_size": group})
    assert found.kind == kind
    same(found, weight.floats, held)


@pytest.mark.parametrize("end", [".qzeros", ".scales"])
def test_parts_that_are_missing(end):
    parts = drawn().awq()
    del parts[end]
    with pytest.raises(ArtifactError, match=rf"w: x\{end}: wanted .*, got none$"):
        product(parts, AWQ)


def test_words_of_another_width():
    parts = drawn().awq() | {".qzeros": np.zeros((3, 4), np.int32)}
    with pytest.raises(ArtifactError, match=r"wanted int32 \[3, 5\], got int32 \[3, 4\]$"):
        product(parts, AWQ)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits": 8}, "quantization_config of awq: bits: wanted 4, got 8$"),
        ({"version": "gemv"}, "version: wanted 'gemm' or 'GEMM', got 'gemv'$"),
        ({"version": None, "format": "gemv"}, "format: wanted 'gemm' or 'GEMM', got 'gemv'$"),
    ],
)
def test_variants_that_are_not_read(change, message):
    with pytest.raises(GraphError, match=message):
        product(drawn().awq(), AWQ | change)


def test_the_version_in_capitals():
    weight = drawn()
    same(product(weight.awq(), {**AWQ, "version": "GEMM", "format": "gemm"}), weight.floats, 32)


def test_products_with_groups_of_their_own():
    settings = {**AWQ, "dynamic": {"down": {"group_size": 64}}}
    for name, group in (("down", 64), ("up", 32)):
        weight = drawn(k=128, group=group)
        same(product(weight.awq(), settings, name), weight.floats, group)
    with pytest.raises(GraphError, match=r"quantization_config of awq: bits: wanted 4, got 8$"):
        product(weight.awq(), {**AWQ, "dynamic": {"down": {"bits": 8}}})
