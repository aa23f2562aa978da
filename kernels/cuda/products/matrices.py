"""A product as a batch of products of two matrices, for every kernel that computes one."""

from __future__ import annotations

from dataclasses import dataclass

from heddle.kernels import emit
from heddle.kernels.broadcast import join
from heddle.kernels.cuda import _frame
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Expr, Operand, Spec, product
from heddle.kernels.tuning import Parameter, Space


@dataclass(frozen=True)
class Problem:
    """The product as `batch` products of m x k and k x n."""

    batch: tuple[Expr, ...]
    m: Expr
    n: Expr
    k: Expr

    @property
    def work(self) -> Expr:
        """Elementary operations."""
        return product((*self.batch, self.m, self.n, self.k, 2))


def problem(spec: Spec) -> Problem:
    """What a spec asks for."""
    a, b, result = spec.operands[0].shape, spec.operands[1].shape, spec.result.shape
    if spec.op == "window_matmul":
        return Problem((), product(result[:-1]), result[-1], b[-1])
    if len(b) == 2:  # Rows of a whole batch meet the same matrix: one tall product.
        return Problem((), product(result[:-1]), result[-1], a[-1])
    return Problem(result[:-2], result[-2], result[-1], a[-1])


_LARGE = 4096  # What sizes that are not known are taken for, in estimates.


def known(size: Expr) -> int:
    """A size, or what it is taken for in an estimate where it is not known."""
    return size if isinstance(size, int) else _LARGE


def sizes(spec: Spec) -> dict[str, Expr]:
    """The named sizes of a spec, for its tuning."""
    found = problem(spec)
    return {"b": product(found.batch), "m": found.m, "n": found.n, "k": found.k}


SPACE = Space(
    (
        Parameter("square", (32, 64), 64, launch=True),
        Parameter("columns", (0, 128, 256), 0, launch=True),
    ),
    sizes,
)
"""`square`: rows and columns of a block without tensor cores. `columns`: of a tile of 128 rows on
tensor cores; 0: as the number of tiles suggests."""


def start(
    frame: _frame.Frame, batch: tuple[Expr, ...], operand: Operand, number: Size, size: Size
) -> Size:
    """Where the matrix of the batch's `number` starts in an operand that broadcasts to it."""
    if not batch:
        return emit.index(0)
    layout = join((*batch, 1), [Operand(operand.dtype, (*operand.shape[:-2], 1))], keep_last=True)
    (row,) = layout.row_starts(number, frame.shape(layout.shape))
    return row * size
