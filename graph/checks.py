"""What a graph asks of its inputs, names and constants."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from heddle.graph.dim import MAXIMUM, Dim, DimLike
from heddle.graph.dtype import DType
from heddle.graph.location import graph_error
from heddle.graph.ops.promotion import check_fits
from heddle.graph.rounding import held
from heddle.graph.types import TensorType
from heddle.runtime.errors import GraphError
from heddle.runtime.masked import is_masked

MOST_DIMS = 16
LARGEST_DIM = 1 << 40
LARGEST_TENSOR = 1 << 47


def is_name(value: Any) -> bool:
    """Whether it is a text that UTF-8 holds, as files do: no half of a surrogate pair."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def check_names(what: str, names: Sequence[str], count: int) -> None:
    """Raises GraphError unless there are `count` different names."""
    several = isinstance(names, Sequence) and not isinstance(names, str)
    if not several or not all(map(is_name, names)):
        raise graph_error(f"{what} names: wanted a list of names, got {names!r}")
    if len(names) != count:
        raise graph_error(f"{what} names: wanted {count}, got {len(names)}")
    for name in names:
        if list(names).count(name) > 1:
            raise graph_error(f"{what} names: wanted each once, got {name!r} twice")


def input_names(name: Any, types: Any, names: Sequence[str] | None) -> Sequence[str]:
    """The names of a graph's inputs; those without are `input0`, `input1`, ...

    Raises:
        GraphError: They are no names or not each once, `types` is no list of types, or `name` none.
    """
    if not is_name(name):
        raise graph_error(f"graph: wanted a name, got {name!r}")
    several = isinstance(types, Sequence) and not isinstance(types, str)
    for type in types if several else [types]:
        if not several or not isinstance(type, TensorType):
            kind = type.__class__.__name__
            raise graph_error(f"graph {name!r}: wanted a list of TensorTypes, got {kind}")
    if names is None:
        return [f"input{i}" for i in range(len(types))]
    check_names("input", names, len(types))
    return names


def ranges_of(types: Sequence[TensorType]) -> dict[str, tuple[int, int]]:
    """The range of each symbolic dim, from the input types.

    Raises:
        GraphError: A dim has two ranges, or no input has it by itself.
    """
    found: dict[str, tuple[int, int]] = {}
    given: dict[str, tuple[int, int]] = {}
    dims = [dim for type in types for dim in type.shape]
    for dim in dims:
        if dim.name is None:
            continue
        if dim.range is not None and given.setdefault(dim.name, dim.range) != dim.range:
            raise graph_error(f"dim {dim}: wanted one range, got {given[dim.name]} and {dim.range}")
        found[dim.name] = given.get(dim.name, (1, MAXIMUM))
    for dim in dims:
        for name in sorted(dim.names - found.keys()):
            raise graph_error(f"dim {dim}: wanted an input with the dim {name} by itself, got none")
    return found


def check_symbols(dims: Iterable[DimLike], symbols: Collection[str]) -> None:
    """Raises GraphError for a dim made of others than `symbols`, the dims of the inputs."""
    unknown = {name for dim in dims for name in Dim(dim).names}.difference(symbols)
    if unknown:
        raise graph_error(
            f"wanted dims of the graph's inputs ({', '.join(symbols) or 'none'}), got "
            f"{', '.join(sorted(unknown))}"
        )


def check_limits(type: TensorType) -> None:
    """Raises GraphError for a type that no tensor of an artifact can have (docs/artifact.md)."""
    if type.rank > MOST_DIMS:
        raise graph_error(f"wanted at most {MOST_DIMS} dims, got {type.rank}: {type}")
    if any((dim.static or 0) < 0 for dim in type.shape):
        raise graph_error(f"wanted dims of at least 0, got {type}")
    if any(_factor(dim) >= LARGEST_DIM for dim in type.shape):
        raise graph_error(f"wanted dims of less than 2^40, got {type}")
    if _factor(type.shape.elements) * type.dtype.size >= LARGEST_TENSOR:
        raise graph_error(f"wanted a tensor of less than 2^47 bytes, got {type}")


def _factor(size: Dim) -> int:
    """The largest number in the polynomial: the size itself where that is known."""
    return max((abs(factor) for _, factor in size.terms), default=0)


def constant_values(value: Any, dtype: DType | None) -> tuple[np.ndarray[Any, Any], DType]:
    """The elements of a constant and their dtype (see `Graph.constant`).

    Raises:
        GraphError: The values are no numbers, do not fit the dtype, or have a mask.
        TypeError: Heddle has no such dtype.
    """
    if is_masked(value):
        raise GraphError("wanted an array without a mask, got a MaskedArray (fill it: filled(0))")
    try:
        array = np.asarray(value)
    except TypeError:
        raise GraphError(f"wanted numbers, got {value!r}") from None
    except ValueError:
        raise GraphError(f"wanted lists of one length at each level, got {value!r}") from None
    if not array.dtype.isnative:
        array = array.astype(array.dtype.type)
    numbers = array.dtype.kind in "biuf" and array.dtype.isbuiltin == 1
    if not numbers and array.dtype.name not in DType.__members__:
        raise GraphError(f"wanted numbers, got {array.dtype.name}")
    if dtype is None:
        dtype = DType.from_numpy(array.dtype)
        if dtype is DType.float64 and not isinstance(value, (np.ndarray, np.generic)):
            dtype = DType.float32
    if not isinstance(dtype, DType):
        raise GraphError(f"wanted a DType, got {dtype!r}")
    if numbers:
        finite = np.isfinite(array)
        some = array[finite]
        ends = [some.min(), some.max()] if some.size else []
        for number in (*ends, *array[~finite][:1]):
            check_fits(number.item(), dtype)
    return held(array, dtype), dtype
