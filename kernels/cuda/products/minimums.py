"""What the minimums of groups add to sums: each one times the sum of its group of x.

Tensor cores do both. A fragment of x times columns of ones, of which each group has its own, gives
the sums of groups; they lie where the fragment of a next product by mma.sync wants them, whose
other side are the minimums. That one is of TF32: a minimum of 16 bits is exact there, a sum is two
terms, the upper 11 bits and what they leave, together 22 bits of it. Their places along k are those
of four groups, and of the same four again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heddle.kernels import emit
from heddle.kernels.cuda import _block
from heddle.kernels.cuda._halves import HALVES
from heddle.kernels.cuda.products import mma
from heddle.kernels.sizes import Size
from heddle.kernels.spec import Spec

GROUPS = 4
"""Groups whose sums and minimums are multiplied at once."""

_UPPER = 0xFFFFE000  # Of a float's bits those that TF32 has.
_OPERANDS = {"quantized_matmul": 3, "quantized_grouped_matmul": 4}  # In front of the minimums.


def number(spec: Spec) -> int | None:
    """Which operand they are; None where weights have none."""
    found = _OPERANDS[spec.op]
    return found if len(spec.operands) > found else None


def own_group(count: int) -> Size:
    """The group, of so many at most, whose minimums and sums a lane has."""
    return emit.minimum(_block.thread() % GROUPS, count - 1)


class GroupSums:
    """The sums of the groups of rows of x, which is multiplied as `kind`.

    A lane has those of rows `lane // 4` and, eight on, of group `lane % 4`.
    """

    def __init__(self, kind: mma.Kind) -> None:
        self._kind = kind
        self._ones = emit.constant(emit.integer(32), HALVES[kind.a].power(0))
        self._column = _block.thread() % _block.WARP // 4

    def zeros(self) -> list[Any]:
        """The four sums of 16 rows in a lane, of which two are of use."""
        return [emit.constant(emit.register_type(self._kind.sums), 0)] * 4

    def add(self, a: Sequence[Any], group: int, sums: Sequence[Any]) -> list[Any]:
        """`sums` and those of a fragment of 16 rows of x, which is of that group of four.

        A lane's first sum of a row is in column `lane % 4 * 2`, so that columns are even.
        """
        mine = emit.compare("equal", self._column, 2 * group)
        side = emit.select(mine, self._ones, 0)
        return mma.multiply(self._kind, a, [side, side], sums)


def terms(total: Any) -> tuple[Any, Any]:
    """A sum as two words of TF32."""
    bits = emit.bitcast(total, emit.integer(32))
    upper = bits & _UPPER
    return upper, emit.bitcast(total - emit.bitcast(upper, total.type), emit.integer(32))


def word(minimum: Any, kind: mma.Kind) -> Any:
    """A minimum as a word of TF32, times the power of two that weights come times."""
    return emit.bitcast(minimum * 2.0 ** HALVES[kind.a].place, emit.integer(32))


def add_to_columns(
    totals: Sequence[Any], minimums: Sequence[Any], sums: Sequence[Any]
) -> list[Any]:
    """The `totals` of 16 rows and of 8 columns for each of `minimums`, and what those add.

    Minimums are those of columns `lane // 4`, and of every eighth behind it; `sums` of two rows.
    """
    (upper, lower), (upper_8, lower_8) = map(terms, sums)
    a, found = [upper, upper_8, lower, lower_8], []
    for i, minimum in enumerate(minimums):
        found += mma.multiply(mma.TF32, a, [minimum, minimum], totals[4 * i : 4 * i + 4])
    return found


def add_to_rows(totals: Sequence[Any], minimums: Sequence[Any], total: Any) -> list[Any]:
    """The same where columns are the 16 lines, as many as `minimums`, and eight rows the others."""
    b, found = terms(total), []
    for i in range(0, len(minimums), 2):
        a = [*minimums[i : i + 2]] * 2
        found += mma.multiply(mma.TF32, a, b, totals[2 * i : 2 * i + 4])
    return found
