"""Every op that users call; docs/ops.md has the table."""

from heddle.graph.ops.attention import attention
from heddle.graph.ops.bits import (
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    left_shift,
    right_shift,
)
from heddle.graph.ops.convolution import conv
from heddle.graph.ops.elementwise import absolute as abs
from heddle.graph.ops.elementwise import (
    add,
    cast,
    ceil,
    clip,
    cos,
    div,
    erf,
    exp,
    floor,
    floor_divide,
    gelu,
    log,
    maximum,
    minimum,
    mod,
    mul,
    neg,
    relu,
    rsqrt,
    saturating_cast,
    sigmoid,
    silu,
    sin,
    sqrt,
    sub,
    tanh,
    where,
)
from heddle.graph.ops.elementwise import power as pow
from heddle.graph.ops.elementwise import round_even as round
from heddle.graph.ops.float8 import float8_matmul
from heddle.graph.ops.grouped import group_offsets, group_order, grouped_matmul
from heddle.graph.ops.indexing import flatten, slice_tensor, split, squeeze, transpose, unsqueeze
from heddle.graph.ops.integer import integer_matmul
from heddle.graph.ops.joining import band_part, chunk, pad, repeat_interleave, stack, tile
from heddle.graph.ops.linear import matmul
from heddle.graph.ops.logic import (
    equal,
    greater,
    greater_equal,
    isnan,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
)
from heddle.graph.ops.normalization import group_norm, layer_norm, rms_norm
from heddle.graph.ops.paged import paged_attention, paged_write
from heddle.graph.ops.pooling import avg_pool, max_pool
from heddle.graph.ops.quantization import quantized_matmul
from heddle.graph.ops.quantized_groups import quantized_grouped_matmul
from heddle.graph.ops.ragged import ragged_attention
from heddle.graph.ops.reductions import logsoftmax, max, mean, min, softmax, sum
from heddle.graph.ops.rotary import rope
from heddle.graph.ops.row import ROWS, OpRow
from heddle.graph.ops.sampling import (
    log_probability,
    penalize,
    random_uniform,
    sample,
    sample_tokens,
)
from heddle.graph.ops.scatter import scatter
from heddle.graph.ops.selection import argmax, argmin, take_along, top_k
from heddle.graph.ops.sequences import cumsum, range, size
from heddle.graph.ops.shaping import broadcast_to, concat, gather, permute, reshape
from heddle.graph.ops.source import constant

__all__ = [
    "ROWS",
    "OpRow",
    "abs",
    "add",
    "argmax",
    "argmin",
    "attention",
    "avg_pool",
    "band_part",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "broadcast_to",
    "cast",
    "ceil",
    "chunk",
    "clip",
    "concat",
    "constant",
    "conv",
    "cos",
    "cumsum",
    "div",
    "equal",
    "erf",
    "exp",
    "flatten",
    "float8_matmul",
    "floor",
    "floor_divide",
    "gather",
    "gelu",
    "greater",
    "greater_equal",
    "group_norm",
    "group_offsets",
    "group_order",
    "grouped_matmul",
    "integer_matmul",
    "isnan",
    "layer_norm",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "log_probability",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsoftmax",
    "matmul",
    "max",
    "max_pool",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mod",
    "mul",
    "neg",
    "not_equal",
    "pad",
    "paged_attention",
    "paged_write",
    "penalize",
    "permute",
    "pow",
    "quantized_grouped_matmul",
    "quantized_matmul",
    "ragged_attention",
    "random_uniform",
    "range",
    "relu",
    "repeat_interleave",
    "reshape",
    "right_shift",
    "rms_norm",
    "rope",
    "round",
    "rsqrt",
    "sample",
    "sample_tokens",
    "saturating_cast",
    "scatter",
    "sigmoid",
    "silu",
    "sin",
    "size",
    "slice_tensor",
    "softmax",
    "split",
    "sqrt",
    "squeeze",
    "stack",
    "sub",
    "sum",
    "take_along",
    "tanh",
    "tile",
    "top_k",
    "transpose",
    "unsqueeze",
    "where",
]
