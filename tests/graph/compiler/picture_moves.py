"""What networks of pictures move without computing, and convolutions to put around it."""

import numpy as np

from heddle.graph import DType, Weight, ops

F32 = DType.float32


class Convolutions:
    """Of single pixels with channels first, by weights of their own, which it keeps by name."""

    def __init__(self, graph):
        self.graph, self.weights = graph, {}

    def __call__(self, x, channels, groups=1):
        size, name = int(x.shape[1]) // groups, f"w{len(self.weights)}"
        rng = np.random.default_rng(len(self.weights))
        drawn = rng.standard_normal((channels, size, 1, 1), np.float32)
        self.weights[name] = drawn / np.float32(size**0.5)
        weight = self.graph.add_weight(Weight(name, F32, drawn.shape))
        return ops.conv(x, weight, groups=groups, layout="channels_first")


def shuffled(x, split, order, shape):
    return ops.reshape(ops.permute(ops.reshape(x, split), order), shape)


def groups_change_places(x, groups=2):
    """ShuffleNet's shuffle."""
    n, c, h, w = x.shape
    return shuffled(x, [n, groups, c // groups, h, w], [0, 2, 1, 3, 4], x.shape)


def channels_become_pixels(x):
    """Super-resolution: four channels are four pixels."""
    n, c, h, w = x.shape
    return shuffled(x, [n, c // 4, 2, 2, h, w], [0, 1, 4, 2, 5, 3], [n, c // 4, h * 2, w * 2])


def pixels_become_channels(x):
    n, c, h, w = x.shape
    order = [0, 1, 3, 5, 2, 4]
    return shuffled(x, [n, c, h // 2, 2, w // 2, 2], order, [n, c * 4, h // 2, w // 2])


def windows(x):
    """MaxViT: four windows of pixels as rows of their own, and back."""
    n, c, h, w = x.shape
    rows = shuffled(x, [n, c, 2, h // 2, 2, w // 2], [0, 2, 4, 3, 5, 1], [n, 4, h * w // 4, c])
    rows = ops.softmax(rows, axis=-1)
    return shuffled(rows, [n, 2, 2, h // 2, w // 2, c], [0, 5, 1, 3, 2, 4], x.shape)


def tokens(x):
    """SegFormer: pixels are rows of channels, and become a picture again."""
    n, c, h, w = x.shape
    rows = ops.softmax(ops.permute(ops.reshape(x, [n, c, h * w]), [0, 2, 1]), axis=-1)
    return ops.reshape(ops.permute(rows, [0, 2, 1]), x.shape)
