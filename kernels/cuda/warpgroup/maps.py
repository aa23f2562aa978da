"""What TMA copies of the operands of a product by wgmma: boxes of matrices, in whole chunks."""

from __future__ import annotations

from heddle.kernels import emit
from heddle.kernels.cuda.products import mma, staging
from heddle.kernels.spec import Expr, Spec, TensorMap, fold, product


def tensor_map(
    spec: Spec,
    buffer: int,
    shape: tuple[Expr, ...],
    box: tuple[int, int],
    swizzle: int = staging.LINE,
    keeps: bool = False,
) -> TensorMap:
    """Boxes of the matrices of a buffer; of all its rows together, unless it `keeps` a batch."""
    *batch, rows, columns = shape
    if not keeps:
        batch, rows = [], product((*batch, rows))
    item = emit.ITEM_SIZE[spec.buffers[buffer].dtype]
    line = fold("mul", columns, item)
    shape = product(tuple(batch)), rows, columns
    return TensorMap(buffer, shape, (fold("mul", rows, line), line), (1, *box), swizzle)


def brings(spec: Spec) -> bool:
    """Whether lines of a and b can divide into chunks of 16 bytes, as TMA wants them."""
    for operand in spec.operands[:2]:
        length, each = operand.shape[-1], mma.CHUNK // emit.ITEM_SIZE[operand.dtype]
        if isinstance(length, int) and (not length or length % each):
            return False
    return True
