"""Product of 8-bit floats: on sm_90a by wgmma; by mma.sync in float16, where all of them are exact.

The tensor cores of sm_90 add up fewer bits of such products than of others (DeepSeek-V3 Technical
Report, arXiv:2412.19437, section 3.5.2, saw 14).
"""

from __future__ import annotations

from heddle.kernels import bodies
from heddle.kernels.convert import FLOAT8
from heddle.kernels.cuda import matmul
from heddle.kernels.cuda.products import beside, by_rows, matrices, tensor_cores
from heddle.kernels.registry import Kernel
from heddle.kernels.spec import Spec


def supports(spec: Spec) -> str | None:
    """Both 8-bit floats, and every body."""
    a, b = (operand.dtype for operand in spec.operands)
    if a not in FLOAT8 or b not in FLOAT8:
        return f"float8_matmul of {a} by {b}"
    return bodies.unsupported_in(spec)


KERNEL = Kernel(
    "float8_matmul",
    "cuda",
    matmul.emit_matmul,
    matmul.launch,
    beside.supports_each(supports, tensor_cores.joins),
    space=matrices.SPACE,
    own_launch=matmul.own_launch,
    split=by_rows.split,
    late=matmul.late,
    ahead=matmul.ahead,
)
