"""What a graph asks for, of what a checkpoint holds."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from packers import AWQ, FP8, GPTQ, compressed, drawn, named

from heddle.pipelines.quantization import quantize
from heddle.pipelines.stored.product import Form
from heddle.pipelines.stored.selection import Stored, method_of
from heddle.runtime import Buffer
from heddle.runtime.errors import ArtifactError, ArtifactReason


def stored(arrays, settings=None):
    return Stored(Path("w"), arrays, None if settings is None else method_of(settings))


def in_groups(name, shape, bits, group=32, scales="float32", minimums=False):
    """What a graph wants of a product whose weight has this shape."""
    *rows, k = shape
    unsigned = bits == 4 or minimums
    wanted = {f"{name}.integers": ("uint8" if unsigned else "int8", (*rows, k * bits // 8))}
    sides = ("scales", "minimums") if minimums else ("scales",)
    return wanted | {f"{name}.{side}": (scales, (*rows, k // group)) for side in sides}


def test_scales_of_a_checkpoint_are_not_those_of_a_graph():
    """Though GPTQ calls them so: here they even have the same shape."""
    weight = drawn(n=32, k=1024, symmetric=True)
    found = stored(named("x", weight.gptq()), GPTQ).select(
        in_groups("x", (32, 1024), 4, scales="float16")
    )
    assert list(found) == ["x.integers", "x.scales"]
    np.testing.assert_array_equal(found["x.scales"], weight.scales)
    np.testing.assert_array_equal(found["x.integers"] & 15, weight.integers[:, 0::2])
    np.testing.assert_array_equal(found["x.integers"] >> 4, weight.integers[:, 1::2])
    assert found["x.integers"].flags.c_contiguous
    assert found["x.scales"].flags.c_contiguous


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_weight_in_floats(dtype):
    weight = drawn()
    (found,) = (
        stored(named("x", weight.awq()), AWQ).select({"x.weight": (dtype, (40, 96))}).values()
    )
    assert str(found.dtype) == dtype
    wanted = weight.floats.astype(getattr(ml_dtypes, dtype, dtype))
    np.testing.assert_array_equal(np.asarray(found), wanted)


def test_integers_of_4_bits_fit_8():
    weight = drawn(symmetric=True)
    found = stored(named("x", weight.gptq()), GPTQ).select(in_groups("x", (40, 96), 8))
    np.testing.assert_array_equal(found["x.integers"], weight.integers - 8)
    np.testing.assert_array_equal(found["x.scales"], weight.scales)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("scales", ["float32", "float16", "bfloat16"])
def test_integers_and_minimums(bits, scales):
    weight, kind = drawn(bits), getattr(ml_dtypes, scales, scales)
    wanted = in_groups("x", (40, 96), bits, scales=scales, minimums=True)
    found = stored(named("x", weight.packed()), compressed("pack-quantized")).select(wanted)
    assert list(found) == ["x.integers", "x.scales", "x.minimums"]
    integers = weight.integers.astype(np.uint8)
    packed = integers if bits == 8 else integers[:, 0::2] | integers[:, 1::2] << 4
    np.testing.assert_array_equal(found["x.integers"], packed)
    exact = weight.scales, -weight.zeros * weight.scales
    for side, values in zip(("scales", "minimums"), exact, strict=True):
        np.testing.assert_array_equal(np.asarray(found[f"x.{side}"]), values.astype(kind))


@pytest.mark.parametrize("bits", [4, 8])
def test_integers_with_a_sign_beside_minimums(bits):
    """As an artifact may want them that was made of another file."""
    weight = drawn(bits, symmetric=True)
    wanted = in_groups("x", (40, 96), bits, minimums=True)
    found = stored(named("x", {**weight.packed(True)}), compressed("pack-quantized")).select(wanted)
    integers = weight.integers.astype(np.uint8)
    packed = integers if bits == 8 else integers[:, 0::2] | integers[:, 1::2] << 4
    np.testing.assert_array_equal(found["x.integers"], packed)
    np.testing.assert_array_equal(found["x.minimums"], -(2 ** (bits - 1)) * weight.scales)


@pytest.mark.parametrize("bits", [4, 8])
def test_floats_beside_minimums_are_rounded(bits):
    floats = drawn().floats
    wanted = in_groups("x", (40, 96), bits, minimums=True)
    found = stored({"x.weight": floats}).select(wanted)
    for array, made in zip(found.values(), quantize(floats, bits, 32, signed=False), strict=True):
        np.testing.assert_array_equal(array, made)


def test_an_order_of_its_own():
    weight = drawn()
    weight.places = np.random.default_rng(1).permutation(weight.places)
    arrays = named("x", weight.gptq())
    wanted = in_groups("x", (40, 96), 4, minimums=True) | {"x.order": ("int64", (96,))}
    found = stored(arrays, GPTQ).select(wanted)
    order = found["x.order"]
    assert (weight.places[order] == np.arange(96) // 32).all()
    np.testing.assert_array_equal(found["x.integers"] & 15, weight.integers[:, order][:, 0::2])
    assert stored(arrays, GPTQ).serves(found, "x.g_idx")
    with pytest.raises(ArtifactError, match=r"x\.weight: wanted groups in an order of their own"):
        stored(named("x", drawn().gptq()), GPTQ).select(wanted)


@pytest.mark.parametrize("end", [".weight_scale", ".weight_zero_point"])
def test_scales_that_float16_does_not_have(end):
    parts = drawn(8).packed()
    if end == ".weight_scale":
        parts[end][3, 1] = 1e5
    else:
        parts[".weight_scale"][3, 1] = 4e4
    found = stored(named("x", parts), compressed("pack-quantized"))
    with pytest.raises(ArtifactError, match=r"x\.weight: wanted scales that float16 has, got larg"):
        found.select(in_groups("x", (40, 96), 8, scales="float16", minimums=True))
    assert found.select(in_groups("x", (40, 96), 8, scales="bfloat16", minimums=True))


@pytest.mark.parametrize("scales", ["float32", "float16", "bfloat16"])
def test_scales_that_are_no_numbers(scales):
    """Nor are those that the file has as infinite."""
    for value, message in ((np.nan, "are numbers, got nan$"), (np.inf, f"{scales} has, got larg")):
        parts = drawn(8).packed()
        parts[".weight_scale"][3, 1] = value
        found = stored(named("x", parts), compressed("pack-quantized"))
        with pytest.raises(ArtifactError, match=rf"x\.weight: wanted scales that {message}"):
            found.select(in_groups("x", (40, 96), 8, scales=scales, minimums=True))


@pytest.mark.parametrize(("bits", "group"), [(4, 32), (8, 96)])
def test_what_does_not_fit_is_rounded_anew(bits, group):
    weight = drawn()
    found = stored(named("x", weight.awq()), AWQ).select(in_groups("x", (40, 96), bits, group))
    for array, wanted in zip(found.values(), quantize(weight.floats, bits, group), strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_what_does_not_fit_floats_of_8_bits_is_refused():
    wanted = {"x.integers": ("float8_e4m3fn", (40, 96)), "x.scales": ("float32", (40, 3))}
    message = r"^w: x\.weight: wanted float8_e4m3fn in groups of 32, got uint4 in groups of 32$"
    with pytest.raises(ArtifactError, match=message) as error:
        stored(named("x", drawn().awq()), AWQ).select(wanted)
    assert error.value.reason is ArtifactReason.WEIGHTS


@pytest.mark.parametrize(
    "wanted", [{"x.weight": ("float32", (40, 64))}, in_groups("x", (40, 64), 8)]
)
def test_a_weight_of_another_shape(wanted):
    with pytest.raises(ArtifactError, match=r"^w: x\.weight: wanted \[40, 64\], got \[40, 96\]$"):
        stored(named("x", drawn().awq()), AWQ).select(wanted)


def test_integers_are_not_taken_for_floats():
    """Without a word on how they are stored."""
    arrays = {"x.weight": np.zeros((40, 96), np.int8)}
    assert not stored(arrays).select(in_groups("x", (40, 96), 8))


def test_a_part_that_is_itself_wanted_is_as_it_is():
    """A graph of somebody's own may scale the values itself."""
    values = np.ones((40, 96), ml_dtypes.float8_e4m3fn)
    arrays = {"x.weight": values, "x.weight_scale_inv": np.ones((1, 1), np.float32)}
    wanted = {
        "x.weight": ("float8_e4m3fn", (40, 96)),
        "x.weight_scale_inv": ("float32", (1, 1)),
    }
    found = stored(arrays, FP8).select(wanted)
    assert all(found[name] is arrays[name] for name in wanted)


def experts(make, count=3):
    """The tensors of so many experts, and each one's weight."""
    drawn_ones = [drawn(seed=number, symmetric=True) for number in range(count)]
    arrays = {}
    for number, weight in enumerate(drawn_ones):
        arrays |= named(f"m.experts.{number}.up_proj", make(weight))
    return arrays, np.stack([weight.floats for weight in drawn_ones])


UP = "m.experts.up_proj"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_experts_side_by_side(dtype):
    kind = getattr(ml_dtypes, dtype, dtype)

    def make(weight):
        array = weight.floats.astype(kind)
        return {".weight": Buffer.from_numpy(array) if dtype == "bfloat16" else array}

    arrays, wanted = experts(make)
    assert stored(arrays).products[UP].kind == dtype
    (found,) = stored(arrays).select({f"{UP}.weight": (dtype, (3, 40, 96))}).values()
    assert str(found.dtype) == dtype
    np.testing.assert_array_equal(np.asarray(found), wanted.astype(kind))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_experts_that_are_stored_turned(dtype):
    _, floats = experts(lambda weight: {".weight": weight.floats})
    turned = np.ascontiguousarray(floats.swapaxes(1, 2)).astype(getattr(ml_dtypes, dtype, dtype))
    array = Buffer.from_numpy(turned) if dtype == "bfloat16" else turned
    found = stored({UP: array})
    assert found.serves([f"{UP}.weight"], UP)
    assert found.products[UP].kind == dtype
    weight = found.select({f"{UP}.weight": (dtype, (3, 40, 96))})[f"{UP}.weight"]
    np.testing.assert_array_equal(np.asarray(weight), turned.swapaxes(1, 2))
    integers, scales = found.products[UP].quantized(Form("int8", 32, "float32"))
    wanted = quantize(turned[2].T.astype(np.float32), 8, 32)
    np.testing.assert_array_equal(integers[2], wanted[0])
    np.testing.assert_array_equal(scales[2], wanted[1])


@pytest.mark.parametrize("bits", [4, 8])
def test_experts_are_rounded_one_by_one(bits):
    arrays, floats = experts(lambda weight: {".weight": weight.floats})
    found = stored(arrays).select(in_groups(UP, (3, 40, 96), bits, scales="bfloat16"))
    assert found[f"{UP}.scales"].dtype == "bfloat16"
    for number in range(3):
        integers, scales = quantize(floats[number], bits, 32, "bfloat16")
        np.testing.assert_array_equal(found[f"{UP}.integers"][number], integers)
        own = found[f"{UP}.scales"].to_numpy()[number]
        np.testing.assert_array_equal(own.view(np.uint16), scales)


def test_experts_that_are_quantized():
    arrays, floats = experts(lambda weight: weight.packed(symmetric=True))
    product = stored(arrays, compressed("pack-quantized")).products[UP]
    assert (product.shape, product.kind, product.group_held) == ((3, 40, 96), "int4", 32)
    np.testing.assert_array_equal(product.floats("float32"), floats)
    integers, scales = product.quantized(Form("int8", 32, "float32"))
    np.testing.assert_array_equal(integers * np.repeat(scales, 32, -1), floats)


@pytest.mark.parametrize(
    ("last", "kind", "held"),
    [
        (drawn(seed=9), "uint4", 32),
        (drawn(8, seed=9, symmetric=True), "int8", 32),
        (drawn(8, seed=9), "uint8", 32),
        (None, "float32", 0),
    ],
)
def test_experts_of_several_kinds(last, kind, held):
    arrays, floats = experts(lambda weight: weight.packed(symmetric=True))
    more = last.packed() if last else {".weight": floats[0]}
    arrays |= named("m.experts.3.up_proj", more)
    product = stored(arrays, compressed("pack-quantized")).products[UP]
    assert (product.kind, product.group_held) == (kind, held)
    wanted = last.floats if last else floats[0]
    np.testing.assert_array_equal(product.floats("float32"), np.stack([*floats, wanted]))
    if held:
        integers, *sides = product.quantized(Form(kind, held, "float32"))
        if kind == "uint4":
            integers = np.stack([integers & 15, integers >> 4], axis=-1).reshape(4, 40, 96)
        scales, *minimums = (np.repeat(side, held, axis=-1) for side in sides)
        np.testing.assert_array_equal(integers * scales + sum(minimums), [*floats, wanted])


def test_experts_that_are_missing_or_of_another_shape():
    arrays, _ = experts(lambda weight: {".weight": weight.floats})
    other = arrays | {"m.experts.1.up_proj.weight": np.zeros((40, 64), np.float32)}
    message = r"up_proj: wanted \[40, 96\], as expert 0, got \[40, 64\], expert 1$"
    with pytest.raises(ArtifactError, match=message):
        stored(other)
    del arrays["m.experts.1.up_proj.weight"]
    with pytest.raises(ArtifactError, match=r"up_proj: wanted all experts up to 2, got no 1$"):
        stored(arrays)


def test_what_a_graph_has_a_use_for():
    arrays, _ = experts(lambda weight: weight.gptq())
    found = stored({**arrays, "x.bias": np.ones(3), "y.weight": np.ones((2, 2))}, GPTQ)
    asked = {f"{UP}.integers", f"{UP}.scales", "x.bias"}
    assert found.serves(asked, "m.experts.2.up_proj.qzeros")
    assert found.serves(asked, "x.bias")
    assert not found.serves(asked, "y.weight")
    assert not found.serves({"x.bias"}, "m.experts.2.up_proj.qzeros")
