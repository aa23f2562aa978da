"""Rows and products of weights that are held in integers."""

import numpy as np

from heddle.graph import DeviceRef, Dim, DType, Graph, TensorType, compile
from heddle.pipelines.models.products import Products, Quantization
from heddle.pipelines.quantization import quantize
from heddle.runtime import InferenceSession

ROWS, SIZE = 40, 96

HELD = {
    "int4": Quantization(4, 32),
    "int8": Quantization(8, 96),
    "uint4": Quantization(4, 32, minimums=True),
    "uint8": Quantization(8, 32, minimums=True, scales=DType.float16),
    "in order": Quantization(4, 32, minimums=True, ordered=True),
}


def test_rows_that_are_looked_up_and_products_with_the_same_weights():
    tokens = TensorType(DType.int64, (Dim("tokens", 1, 8),), DeviceRef.CPU())
    with Graph("rows", input_types=[tokens], input_names=["tokens"]) as graph:
        products = Products(graph, DType.float32, held=HELD, unstored=DType.float16)
        places = graph.inputs[0].tensor
        table = products.lookup("floats", places, ROWS, SIZE)
        found = [products.lookup(name, places, ROWS, SIZE) for name in HELD if name != "in order"]
        graph.output(table, *found, *(products.product(name, table, ROWS) for name in HELD))
    assert graph.weights["uint8.minimums"].dtype == DType.float16
    rng = np.random.default_rng(0)
    weights = {"floats.weight": rng.standard_normal((ROWS, SIZE)).astype(np.float16)}
    wanted = {}
    for name, held in HELD.items():
        order = rng.permutation(SIZE) if held.ordered else np.arange(SIZE)
        weight = rng.standard_normal((ROWS, SIZE)).astype(np.float32)
        scales = "float16" if held.scales else "float32"
        integers, *sides = quantize(
            weight[:, order], held.bits, held.group, scales, signed=not held.minimums
        )
        own = dict(zip(("integers", "scales", "minimums"), (integers, *sides), strict=False))
        weights |= {f"{name}.{end}": array for end, array in own.items()}
        if held.ordered:
            weights[f"{name}.order"] = order
        if held.bits == 4:
            halves = np.stack([integers & 15, integers >> 4], axis=-1).reshape(ROWS, SIZE)
            integers = halves.astype(np.int8) - np.int8(0 if held.minimums else 8)
        each = [np.repeat(side.astype(np.float32), held.group, axis=1) for side in sides]
        values = integers * each[0] + sum(each[1:])
        wanted[name] = values[:, np.argsort(order)]
        assert np.abs(wanted[name] - weight).max() < 0.3
    chosen = np.array([3, 39, 3])
    model = InferenceSession().load(compile(graph, "cpu:native"), weights)
    floats, *given = (result.to_numpy() for result in model.execute(chosen))
    np.testing.assert_array_equal(floats, weights["floats.weight"][chosen])
    rows = [array[chosen] for name, array in wanted.items() if name != "in order"]
    multiplied = [floats @ array.T for array in wanted.values()]
    for result, values in zip(given, [*rows, *multiplied], strict=True):
        np.testing.assert_allclose(result, values, rtol=0, atol=2e-5 * np.abs(values).max())
