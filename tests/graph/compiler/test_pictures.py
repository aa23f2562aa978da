"""Pictures that are computed, shuffled, cut and joined in any order are those of the reference."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.graph import DType, Graph, TensorType, Weight, compile, ops
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession

F32 = DType.float32
HEIGHT, WIDTH = 4, 6


def shuffled(x, pixels, order, shape):
    return ops.reshape(ops.permute(ops.reshape(x, pixels), order), shape)


def groups_change_places(x):
    n, c, h, w = x.shape
    return shuffled(x, [n, 2, c // 2, h, w], [0, 2, 1, 3, 4], x.shape)


def channels_become_pixels(x):
    n, c, h, w = x.shape
    return shuffled(x, [n, c // 4, 2, 2, h, w], [0, 1, 4, 2, 5, 3], [n, c // 4, h * 2, w * 2])


def pixels_become_channels(x):
    n, c, h, w = x.shape
    order = [0, 1, 3, 5, 2, 4]
    return shuffled(x, [n, c, h // 2, 2, w // 2, 2], order, [n, c * 4, h // 2, w // 2])


def windows(x):
    n, c, h, w = x.shape
    rows = shuffled(x, [n, c, 2, h // 2, 2, w // 2], [0, 2, 4, 3, 5, 1], [n, 4, h * w // 4, c])
    rows = ops.softmax(rows, axis=-1)
    return shuffled(rows, [n, 2, 2, h // 2, w // 2, c], [0, 5, 1, 3, 2, 4], x.shape)


def tokens(x):
    n, c, h, w = x.shape
    rows = ops.softmax(ops.permute(ops.reshape(x, [n, c, h * w]), [0, 2, 1]), axis=-1)
    return ops.reshape(ops.permute(rows, [0, 2, 1]), x.shape)


def chosen(x):
    return ops.gather(x, np.array([1, 0, 0, 1]), axis=2)


STEPS = {
    "relu": ops.relu,
    "leaky relu": lambda x: ops.where(x < 0.0, x * 0.1, x),
    "scaled": lambda x: x * 2.0,
    "less the mean": lambda x: x - ops.mean(x, axis=1),
    "half the channels": lambda x: x[:, int(x.shape[1]) // 2 :],
    "backwards": lambda x: x[:, :, ::-1, 1::2],
    "chosen rows": chosen,
    "rounded": lambda x: ops.cast(ops.cast(x, DType.float16), F32),
    "groups": groups_change_places,
    "pixels": channels_become_pixels,
    "channels": pixels_become_channels,
    "windows": windows,
    "tokens": tokens,
}

NEEDS = {"groups": (2, 1), "pixels": (4, 1), "channels": (1, 2), "windows": (1, 2)}
"""What channels, and both sides, have to be multiples of."""


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_order(data):
    weights: dict[str, np.ndarray] = {}
    with Graph("net", [TensorType(F32, ("n", 8, HEIGHT, WIDTH))]) as graph:

        def conv(x):
            channels, size = data.draw(st.sampled_from([4, 8, 16])), int(x.shape[1])
            name, shape = f"w{len(weights)}", (channels, size, 1, 1)
            drawn = np.random.default_rng(len(weights)).standard_normal(shape, np.float32)
            weights[name] = drawn / np.float32(size**0.5)
            own = graph.add_weight(Weight(name, F32, shape))
            return ops.conv(x, own, layout="channels_first")

        made = [conv(graph.inputs[0])]
        for _ in range(data.draw(st.integers(2, 7))):
            x = data.draw(st.sampled_from(made[-2:]))
            c, h, w = map(int, x.shape[1:])
            alike = [y for y in made if y.shape[2:] == x.shape[2:]]
            known = [
                name
                for name in STEPS
                if c % NEEDS.get(name, (2, 1))[0] == 0
                and not any(side % NEEDS.get(name, (1, 1))[1] for side in (h, w))
                and min(h, w) > 1
                and c * h * w < 4096
            ]
            step = data.draw(st.sampled_from([*known, "conv", "conv", "joined"]))
            if step == "conv":
                made.append(conv(x))
            elif step == "joined":
                other = data.draw(st.sampled_from(alike))
                made.append(x + other if other.shape == x.shape else ops.concat([x, other], 1))
            else:
                made.append(STEPS[step](x))
        graph.output(made[-1], data.draw(st.sampled_from(made)))
    model = InferenceSession(threads=1).load(compile(graph, "cpu:native"), weights)
    x = np.random.default_rng(1).standard_normal((3, 8, HEIGHT, WIDTH), np.float32)
    for found, wanted in zip(model.execute(x), evaluate(graph, [x], weights), strict=True):
        np.testing.assert_allclose(found.to_numpy(), wanted, rtol=3e-3, atol=3e-3)
