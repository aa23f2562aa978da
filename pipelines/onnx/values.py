"""What a name in an ONNX file stands for while it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from heddle.graph import Dim, DType, TensorValue, ops
from heddle.graph.location import graph_error

if TYPE_CHECKING:
    from numpy.typing import NDArray

Known: TypeAlias = "NDArray[Any]"
"""Numbers, or objects that are ints and dims: sizes, and what is computed of them."""


class Value:
    """A tensor of the graph, or what is known while the file is read, or one as the other.

    Attributes:
        known: The numbers, or None where the model computes them when it runs.
    """

    def __init__(
        self,
        tensor: TensorValue | Callable[[], TensorValue] | None = None,
        known: Any = None,
        dtype: DType = DType.int64,
    ) -> None:
        """`dtype` is that of dims among what is known."""
        self._tensor, self._dtype = tensor, dtype
        self.known: Known | None = known if known is None else np.asarray(known)

    @property
    def tensor(self) -> TensorValue:
        """The value in the graph; known numbers become a constant there once they are asked for."""
        if self._tensor is None:
            assert self.known is not None
            self._tensor = constant(self.known, self._dtype)
        elif not isinstance(self._tensor, TensorValue):
            self._tensor = self._tensor()
        return self._tensor

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        if self.known is None:
            return self.tensor.dtype
        return self._dtype if self.has_dims else held_dtype(self.known)

    @property
    def has_dims(self) -> bool:
        """Whether it is known, but with sizes that have a number only when the model runs."""
        return self.known is not None and self.known.dtype == object


def sizes(items: Any, shape: tuple[int, ...] | None = None) -> Known:
    """Ints and dims as one array: int64 where all of them are numbers."""
    flat = [_plain(item) for item in np.asarray(items, dtype=object).ravel()]
    if shape is None:
        shape = np.asarray(items, dtype=object).shape
    if all(isinstance(item, int) for item in flat):
        return np.array(flat, np.int64).reshape(shape)
    array = np.empty(len(flat), dtype=object)
    array[:] = flat
    return array.reshape(shape)


def constant(known: Known, dtype: DType = DType.int64) -> TensorValue:
    """Known numbers in the graph; a dim is a number of the run there, of the `dtype`.

    Raises:
        GraphError: Heddle has no such dtype.
    """
    if known.dtype != object:
        return ops.constant(known, held_dtype(known))
    scalars = [
        ops.size(item, dtype) if isinstance(item, Dim) else ops.constant(item, dtype)
        for item in known.ravel()
    ]
    if not known.ndim:
        return scalars[0]
    row = ops.stack(scalars) if len(scalars) > 1 else ops.reshape(scalars[0], (1,))
    value: TensorValue = ops.reshape(row, known.shape)
    return value


def held_dtype(known: Known) -> DType:
    """The dtype of numbers that the model holds.

    Raises:
        GraphError: Heddle lacks it.
    """
    try:
        return DType.from_numpy(known.dtype)
    except TypeError as error:
        raise graph_error(str(error)) from None


def _plain(item: Any) -> int | Dim:
    """A number where the size is known."""
    if isinstance(item, Dim):
        return item if item.static is None else item.static
    return int(item)
