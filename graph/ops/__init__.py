"""Every op that users call; docs/ops.md has the table."""

from heddle.graph.ops.elementwise import absolute as abs
from heddle.graph.ops.elementwise import (
    add,
    cast,
    div,
    equal,
    erf,
    exp,
    gelu,
    greater,
    greater_equal,
    less,
    less_equal,
    log,
    maximum,
    minimum,
    mul,
    neg,
    not_equal,
    relu,
    rsqrt,
    sigmoid,
    silu,
    sqrt,
    sub,
    tanh,
    where,
)
from heddle.graph.ops.row import ROWS, OpRow
