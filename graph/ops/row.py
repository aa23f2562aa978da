"""What an op is, as data.

Everything else comes from its row: the function in `ops`, the dialect's op and its verifier, the
docs table, the generated test, constant folding.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from heddle.graph.dim import Dim, DimLike
from heddle.graph.dtype import DType
from heddle.graph.types import Shape, TensorType
from heddle.runtime.errors import GraphError

Array: TypeAlias = Any  # a NumPy array; most of NumPy's own signatures say Any
Attrs = dict[str, Any]
Types = Sequence[TensorType]
DTypeRule = Callable[[Types, Attrs], DType]
ShapeRule = Callable[[Types, Attrs], Sequence[DimLike]]

Promotion = Literal["none", "all", "values"]
"""Which operands are brought to one dtype: none, all, or all but the first (`where`)."""


@dataclass(frozen=True)
class Cost:
    """What an op needs at the least; a benchmark measures its kernel against this.

    Attributes:
        read: Bytes of the operands, each read once.
        written: Bytes of the result.
        operations: Additions, multiplications, comparisons; a fused multiply-add is two. `exp` and
            other functions count as `heddle.kernels.bodies.work` has them.
    """

    read: Dim
    written: Dim
    operations: Dim


CostRule = Callable[[Types, Attrs, TensorType], Cost]


@dataclass(frozen=True)
class Attr:
    """An attribute: its name, its kind (see `heddle.graph.attributes.KINDS`) and its default.

    Without a default, which is `inspect.Parameter.empty`, it must be given.
    """

    name: str
    kind: str
    default: Any

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True)
class Operands:
    """An op's operands: `names` in order, of which the last may be `variadic` or `optional`."""

    names: tuple[str, ...]
    variadic: bool = False
    optional: bool = False

    def check(self, count: int) -> None:
        """Raises GraphError unless an op can have `count` operands."""
        least = len(self.names) - (1 if self.optional else 0)
        if count < least or (count > len(self.names) and not self.variadic):
            more = (
                " or more" if self.variadic else f" to {len(self.names)}" if self.optional else ""
            )
            raise GraphError(
                f"wanted {least}{more} operands ({', '.join(self.names)}), got {count}"
            )


@dataclass(frozen=True)
class Sample:
    """Operands for the generated test.

    `operands` has one text for each, `"rows 3"`, or `"int64: rows 3"` where the dtype is not free;
    a name stands for any size. `attrs` are canonical.
    """

    operands: tuple[str, ...]
    attrs: Attrs

    def types(self, dtype: DType) -> list[TensorType]:
        """The operands' types, with `dtype` where it is free."""
        made = []
        for text in self.operands:
            fixed, _, dims = text.rpartition(":")
            sizes = [int(size) if size.isdecimal() else size for size in dims.split()]
            made.append(TensorType(DType[fixed] if fixed else dtype, sizes))
        return made


def sample(*operands: str, **attrs: Any) -> Sample:
    """See `Sample`."""
    return Sample(operands, attrs)


@dataclass(frozen=True, eq=False)
class OpRow:
    """One op.

    Attributes:
        name: Its name in `ops` and, after `heddle.`, in the dialect.
        doc: One line for people.
        operands: The operands.
        attrs: The attributes in order.
        dtype_rule: The result's dtype from the operands' types and the attributes; it raises
            GraphError for operands that the op does not take.
        shape_rule: The result's shape, likewise.
        compute: The NumPy function as declared; call `reference` instead.
        elementwise: It can be a step of a kernel's body.
        promotion: Which operands are brought to one dtype before.
        canonical: Completes the attributes that a user gave (negative axes, defaults that depend on
            the operands); the dialect holds canonical attributes only.
        samples: Cases for the generated test.
        public: Users call it; the other ops are made by compiler passes.
        cost: What it moves and computes, from the operands' types, the attributes and the
            result's type.
        follows_first: The result has the first operand's dtype, also where others have 16 bits.
        makes_sizes: Its shape rule computes sizes, or takes them from the user: none of them may
            be below 0, whatever sizes the inputs have.
    """

    name: str
    doc: str
    operands: Operands
    attrs: tuple[Attr, ...]
    dtype_rule: DTypeRule
    shape_rule: ShapeRule
    compute: Callable[..., Any]
    elementwise: bool
    promotion: Promotion
    canonical: Callable[[Types, Attrs], Attrs] | None
    samples: Sequence[Sample]
    public: bool
    cost: CostRule
    follows_first: bool = False
    makes_sizes: bool = False

    def infer(self, types: Types, attrs: Attrs) -> TensorType:
        """The result's type, for operand types and canonical attributes.

        Raises:
            GraphError: The op does not take them; the text says what was wanted, without a place.
        """
        self.operands.check(len(types))
        first = types[0].device
        for type in types:
            if type.device != first:
                raise GraphError(f"wanted operands on one device, got {first} and {type.device}")
        return TensorType(
            self.dtype_rule(types, attrs), Shape(self.shape_rule(types, attrs)), first
        )

    def reference(self, *arrays: Array, **attrs: Any) -> Array:
        """What the op computes: its specification.

        float16 operands (and the small floats of ml_dtypes) are widened to float32 and the result
        is rounded at the end to the dtype of those of 16 bits (`follows_first`: to that of the
        first operand). Attributes are canonical.
        """
        deciding = arrays[:1] if self.follows_first else arrays
        dtypes = [np.asarray(a).dtype for a in deciding]
        low = next((dtype for dtype in dtypes if _is_low(dtype) and dtype.itemsize > 1), None)
        wide = [a.astype(np.float32) if _is_low(np.asarray(a).dtype) else a for a in arrays]
        with np.errstate(all="ignore"):
            result = np.asarray(self.compute(*wide, **attrs))
            keeps = low is not None and result.dtype == np.float32 and "dtype" not in attrs
            return result.astype(low) if keeps else result


def _is_low(dtype: np.dtype[Any]) -> bool:
    return dtype.name in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


ROWS: dict[str, OpRow] = {}
"""Every op by name."""
