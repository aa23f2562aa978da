"""How an op is declared: by decorating its NumPy reference.

    @row(dtype=rules.numeric, shape=rules.broadcast, elementwise=True)
    def add(x, y):
        \"\"\"`x + y`.\"\"\"
        return x + y

The positional parameters are operands (`*xs`: any number; with default None: optional), the
keyword-only ones attributes, whose annotation is their kind. The decorated name becomes the op
that users call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from heddle.graph.ops import costs
from heddle.graph.ops.build import build
from heddle.graph.ops.row import (
    ROWS,
    Attr,
    Attrs,
    CostRule,
    DTypeRule,
    Operands,
    OpRow,
    Promotion,
    Sample,
    ShapeRule,
    Types,
)
from heddle.graph.value import TensorValue


class Op:
    """What users call: builds the op of `row` in the graph that its operands belong to."""

    def __init__(self, row: OpRow) -> None:
        self.row = row
        self.__name__ = row.name
        self.__doc__ = row.doc
        self.__signature__ = inspect.signature(row.compute)

    def __call__(self, *args: Any, **kwargs: Any) -> TensorValue:
        """Adds the op to its operands' graph; raises GraphError with the user's line."""
        return build(self.row, args, kwargs)

    def __repr__(self) -> str:
        return f"<op {self.row.name}{self.__signature__}>"


def row(
    *,
    dtype: DTypeRule,
    shape: ShapeRule,
    samples: Sequence[Sample],
    elementwise: bool = False,
    promotion: Promotion = "all",
    canonical: Callable[[Types, Attrs], Attrs] | None = None,
    public: bool = True,
    name: str | None = None,
    cost: CostRule | None = None,
    follows_first: bool = False,
    makes_sizes: bool = False,
) -> Callable[[Callable[..., Any]], Op]:
    """Declares the decorated NumPy function as an op (see the module's text).

    `name` is given where the function cannot have the op's (`max` would hide Python's), `cost`
    where the op is neither elementwise nor moves all that it is given; for `follows_first`
    and `makes_sizes` see `OpRow`.
    """

    def declare(compute: Callable[..., Any]) -> Op:
        parameters = inspect.signature(compute).parameters.values()
        operands = [p for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        last = operands[-1]
        title = name or compute.__name__
        made = OpRow(
            name=title,
            doc=inspect.getdoc(compute) or "",
            operands=Operands(
                tuple(p.name for p in operands),
                variadic=last.kind is inspect.Parameter.VAR_POSITIONAL,
                optional=last.default is None,
            ),
            attrs=tuple(
                Attr(p.name, str(p.annotation), p.default)
                for p in parameters
                if p.kind is inspect.Parameter.KEYWORD_ONLY
            ),
            dtype_rule=dtype,
            shape_rule=shape,
            compute=compute,
            elementwise=elementwise,
            promotion=promotion,
            canonical=canonical,
            samples=samples,
            public=public,
            cost=cost or (costs.elementwise(title) if elementwise else costs.moved),
            follows_first=follows_first,
            makes_sizes=makes_sizes,
        )
        ROWS[made.name] = made
        return Op(made)

    return declare
