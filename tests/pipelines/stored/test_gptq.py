"""GPTQ: integers along k, zeros less one, groups in order or not."""

import numpy as np
import pytest
from packers import GPTQ, drawn
from products import held, product, same

from heddle.pipelines.stored.product import Form
from heddle.runtime.errors import ArtifactError, GraphError


@pytest.mark.parametrize(
    ("bits", "symmetric", "kind", "group"),
    [
        (4, True, "int4", 32),
        (4, False, "uint4", 32),
        (8, True, "int8", 32),
        (8, False, "uint8", 32),
    ],
)
def test_integers_stay_as_they_are(bits, symmetric, kind, group):
    weight = drawn(bits, symmetric=symmetric)
    found = product(weight.gptq(), {**GPTQ, "bits": bits})
    assert found.kind == kind
    same(found, weight.floats, group)


def test_the_least_and_the_largest_of_4_bits_fit():
    weight = drawn()
    weight.integers[:2] = [[0], [15]]
    weight.zeros[:2] = [[16], [1]]
    found = product(weight.gptq(), GPTQ)
    same(found, weight.floats, 32)
    assert (found.values()[:2] == [[0], [15]]).all()


@pytest.mark.parametrize(("k", "held"), [(96, 32), (256, 128), (384, 128), (40, 0)])
def test_one_group_for_a_row_is_said_more_than_once(k, held):
    weight = drawn(k=k, group=k, symmetric=True)
    found = product(weight.gptq(), {**GPTQ, "group_size": -1})
    same(found, weight.floats, held)


@pytest.mark.parametrize(("group", "k", "held"), [(64, 96, 32), (128, 256, 128), (256, 512, 128)])
def test_the_last_group_may_have_fewer_and_large_ones_are_split(group, k, held):
    weight = drawn(k=k, group=group)
    same(product(weight.gptq(), {**GPTQ, "group_size": group}), weight.floats, held)


def test_a_group_of_more_than_a_row_has_takes_no_more_memory():
    weight = drawn(k=96, group=96)
    same(product(weight.gptq(), {**GPTQ, "group_size": 1 << 40}), weight.floats, 32)


@pytest.mark.parametrize(
    "keys", [["checkpoint_format"], ["format"], ["checkpoint_format", "format"]]
)
def test_zeros_of_the_second_version_are_not_less_one(keys):
    weight = drawn()
    settings = {**GPTQ, **dict.fromkeys(keys, "gptq_v2")}
    same(product(weight.gptq(lag=0), settings), weight.floats, 32)


@pytest.mark.parametrize("symmetric", [True, False])
def test_groups_that_are_not_side_by_side_are_in_an_order_of_their_own(symmetric):
    weight = drawn(symmetric=symmetric)
    weight.places = np.random.default_rng(1).permutation(weight.places)
    found = product(weight.gptq(), GPTQ)
    assert sorted(found.order) == list(range(96))
    assert (weight.places[found.order] == np.arange(96) // 32).all()
    same(found, weight.floats, 32)
    assert not found.fits(Form(found.kind, 32, "float32"))
    anew = held(found, "int4", 32)
    assert np.linalg.norm(anew - weight.floats) < 0.1 * np.linalg.norm(weight.floats)


@pytest.mark.parametrize("symmetric", [True, False])
def test_groups_of_several_sizes_are_in_no_order(symmetric):
    weight = drawn(symmetric=symmetric)
    weight.places = np.random.default_rng(1).integers(0, 3, 96)
    found = product(weight.gptq(), GPTQ)
    assert found.order is None
    same(found, weight.floats, 0)


def test_groups_that_are_not_said_are_side_by_side():
    weight = drawn()
    parts = weight.gptq()
    del parts[".g_idx"]
    same(product(parts, GPTQ), weight.floats, 32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({".scales": None}, r"w: x\.scales: wanted float32 or .* \[3, 40\], got none$"),
        ({".qzeros": None}, r"w: x\.qzeros: wanted int32 \[3, 5\], got none$"),
        (
            {".qweight": np.zeros((3, 40, 2), np.int32)},
            r"x\.qweight: wanted int32 \[any, any\], got int32 \[3, 40, 2\]$",
        ),
        (
            {".qweight": np.zeros((12, 40), np.uint8)},
            r"x\.qweight: wanted int32 \[any, any\], got uint8 \[12, 40\]$",
        ),
        ({".scales": np.zeros((2, 40), np.float16)}, r"\[3, 40\], got float16 \[2, 40\]$"),
        ({".g_idx": np.full(96, 3, np.int32)}, r"x\.g_idx: wanted groups from 0 to 2, got 3$"),
        ({".g_idx": np.full(96, -2, np.int32)}, r"x\.g_idx: wanted groups from 0 to 2, got -2$"),
    ],
)
def test_parts_that_are_missing_or_of_another_shape(change, message):
    parts = {k: v for k, v in (drawn().gptq() | change).items() if v is not None}
    with pytest.raises(ArtifactError, match=message):
        product(parts, GPTQ)


OTHERS = {"-:up": {}, "+:down": {"bits": 8}, ".*gate": {"group_size": 64}, "do": {"bits": 3}}


@pytest.mark.parametrize(
    ("name", "bits", "group"),
    [("other", 4, 32), ("down", 8, 32), ("a.gate", 4, 64), ("x.do", 4, 32)],
)
def test_products_with_settings_of_their_own(name, bits, group):
    """By how their names begin; the first pattern that fits counts."""
    settings = {**GPTQ, "dynamic": {**OTHERS, "do": {}}}
    weight = drawn(bits, k=128, group=group)
    same(product(weight.gptq(), settings, name), weight.floats, group)


def test_patterns_and_settings_that_are_none():
    weight = drawn().gptq()
    with pytest.raises(
        ArtifactError, match=r"w: up\.q\w+: wanted none, as dynamic says by '-:up',"
    ):
        product(weight, {**GPTQ, "dynamic": {"-:up": {}}}, "up")
    for dynamic, message in (
        (OTHERS, "quantization_config of gptq: bits: wanted 4 or 8, got 3$"),
        ({"+:(": {}}, r"dynamic: wanted regular expressions, got '\+:\(: missing \), "),
        ({"up": 8}, "gptq: up: wanted a JSON object, got 8$"),
        ([], r"gptq: dynamic: wanted a JSON object, got \[\]$"),
    ):
        with pytest.raises(GraphError, match=message):
            product(weight, {**GPTQ, "dynamic": dynamic})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits": 3}, "quantization_config of gptq: bits: wanted 4 or 8, got 3$"),
        ({"bits": True}, "bits: wanted 4 or 8, got True$"),
        ({"group_size": 0}, "group_size: wanted -1 or an integer of at least 1, got 0$"),
        ({"group_size": None}, "group_size: wanted -1 or an integer of at least 1, got None$"),
        (
            {"checkpoint_format": "marlin"},
            "checkpoint_format: wanted 'gptq' or 'gptq_v2', got 'marlin'$",
        ),
        ({"format": "marlin"}, "gptq: format: wanted 'gptq' or 'gptq_v2', got 'marlin'$"),
        (
            {"format": "gptq_v2", "checkpoint_format": "gptq"},
            "format: wanted 'gptq', as checkpoint_format says, got 'gptq_v2'$",
        ),
    ],
)
def test_variants_that_are_not_read(change, message):
    with pytest.raises(GraphError, match=message):
        product(drawn().gptq(), GPTQ | change)
