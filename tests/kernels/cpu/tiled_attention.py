"""What attention in AMX tiles has to do in bfloat16 and in parts of float32 alike.

The checks take the `close` of a test module, which knows how exact its kernel is.
"""

import native
import numpy as np
from attention_specs import sizes
from reference import shape

from heddle.graph.compiler.codegen import cpu
from heddle.graph.compiler.codegen.image import flatten
from heddle.kernels.registry import MACHINES
from heddle.kernels.spec import Operand

ARCH = "sapphirerapids"

MASKS = {
    "window": {"causal": True, "window": 30},
    "bool": {"mask": Operand("bool", ("d0", "d1"))},
    "float32": {"mask": Operand("float32", ("d1",))},
}
"""Options of a spec, for which a cap has to come before the mask."""


def numbers(spec, queries, keys):
    rng, dims = np.random.default_rng(0), sizes(queries, keys)
    return [native.random(rng, shape(o.shape, dims), o.dtype) for o in spec.inputs]


def check_capped(spec, close):
    """Scores are so far apart that a cap changes them."""
    query, *others = numbers(spec, 40, 70)
    close(spec, 40, 70, [query * query.dtype.type(4), *others])


def check_a_query_without_keys(spec, keys, close):
    """The mask hides all of them from one query, which gives zeros."""
    arrays = numbers(spec, 20, keys)
    arrays[3] = np.ones((20, keys), bool)
    arrays[3][3] = False
    (got,) = close(spec, 20, keys, arrays)
    assert not got[0, 0, 3].any()
    assert got[0, 0, 4].all()


POISON = """
define void @kernel(ptr %dims, ptr %buffers, i64 %first, i64 %last) #0 {
  %stack = alloca [600000 x i8]
  br label %next
next:
  %i = phi i64 [ 0, %0 ], [ %following, %next ]
  %place = getelementptr i8, ptr %stack, i64 %i
  store volatile i8 -1, ptr %place
  %following = add i64 %i, 1
  %more = icmp ult i64 %following, 600000
  br i1 %more, label %next, label %end
end:
  ret void
}
attributes #0 = { "no-builtins" }
"""


def stands_poison(spec, queries, keys):
    """Whether the answer is the same, and finite, where NaN lie on the stack."""
    arrays, dims = numbers(spec, queries, keys), sizes(queries, keys)
    (wanted,), _ = native.run(spec, arrays, dims, ARCH)
    poison, _memory = native.place(
        flatten(cpu.to_object(POISON, MACHINES["x86-64-v3"]), cpu.SYMBOL)
    )
    poison(None, None, 0, 0)
    (found,), _ = native.run(spec, arrays, dims, ARCH)
    return found.tobytes() == wanted.tobytes() and np.isfinite(found.astype(np.float32)).all()
