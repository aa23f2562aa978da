"""Pictures that are computed, shuffled, cut and joined in any order are those of the reference."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from picture_moves import (
    F32,
    Convolutions,
    channels_become_pixels,
    groups_change_places,
    pixels_become_channels,
    tokens,
    windows,
)

from heddle.graph import DType, Graph, TensorType, compile, ops
from heddle.graph.reference import evaluate
from heddle.runtime import InferenceSession

HEIGHT, WIDTH = 4, 6


STEPS = {
    "relu": ops.relu,
    "leaky relu": lambda x: ops.where(x < 0.0, x * 0.1, x),
    "scaled": lambda x: x * 2.0,
    "less the mean": lambda x: x - ops.mean(x, axis=1),
    "half the channels": lambda x: x[:, int(x.shape[1]) // 2 :],
    "backwards": lambda x: x[:, :, ::-1, 1::2],
    "chosen rows": lambda x: ops.gather(x, np.array([1, 0, 0, 1]), axis=2),
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
    counts = st.sampled_from([4, 8, 16])
    with Graph("net", [TensorType(F32, ("n", 8, HEIGHT, WIDTH))]) as graph:
        conv = Convolutions(graph)
        made = [conv(graph.inputs[0], data.draw(counts))]
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
                made.append(conv(x, data.draw(counts)))
            elif step == "joined":
                other = data.draw(st.sampled_from(alike))
                made.append(x + other if other.shape == x.shape else ops.concat([x, other], 1))
            else:
                made.append(STEPS[step](x))
        graph.output(made[-1], data.draw(st.sampled_from(made)))
    model = InferenceSession(threads=1).load(compile(graph, "cpu:native"), conv.weights)
    x = np.random.default_rng(1).standard_normal((3, 8, HEIGHT, WIDTH), np.float32)
    for found, wanted in zip(model.execute(x), evaluate(graph, [x], conv.weights), strict=True):
        np.testing.assert_allclose(found.to_numpy(), wanted, rtol=3e-3, atol=3e-3)
