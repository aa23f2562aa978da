"""The types of a model's inputs: what the file says, and what the caller adds."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from heddle.graph import Dim, TensorType
from heddle.graph.dim import DimLike
from heddle.graph.location import graph_error
from heddle.kernels.spec import Expr
from heddle.pipelines.onnx.file import has_no_shape
from heddle.pipelines.onnx.node import dtype_of
from heddle.runtime.errors import GraphError

if TYPE_CHECKING:
    import onnx

Dims: TypeAlias = "Mapping[str, DimLike | tuple[int, int]]"
"""What names of sizes mean: a size, another name, or a range of sizes."""

Shapes: TypeAlias = "Mapping[str, Sequence[DimLike]]"
"""The dims of inputs, instead of those in the file."""


def types(inputs: Sequence[onnx.ValueInfoProto], dims: Dims, shapes: Shapes) -> list[TensorType]:
    """The type of each input.

    A size without a name is called after the input and the axis, `ids_0`; a name that is no
    identifier loses what identifiers do not have.

    Raises:
        GraphError: An input is no tensor of a dtype that Heddle has, or its shape is not known; or
            `dims` or `shapes` name what the model does not have.
    """
    dtypes = [_dtype(row) for row in inputs]
    known = {row.name for row in inputs}
    for name in shapes:
        if name not in known:
            raise graph_error(f"shapes: wanted one of {', '.join(sorted(known))}, got {name!r}")
    named = {_read(dim.dim_param) for row in inputs for dim in row.type.tensor_type.shape.dim}
    texts = {row.name: _texts(row, shapes.get(row.name), named) for row in inputs}
    every = dict.fromkeys(text for row in texts.values() for text in row)
    whole = {text for text in every if _is_name(text)}
    dims_of: dict[str, Dim] = {}
    for text in (*whole, *every):
        dims_of.setdefault(text, _dim(text, whole, dims_of.values()))
    read = {name: [dims_of[text] for text in row] for name, row in texts.items()}
    names = {name for row in read.values() for dim in row for name in dim.names}
    for name in dims:
        if name not in names:
            listed = ", ".join(sorted(names)) or "none"
            raise graph_error(f"dims: wanted one of the model's ({listed}), got {name!r}")
    meant = {name: _meant(name, value) for name, value in dims.items()}
    return [
        TensorType(dtype, [_substituted(dim, meant) for dim in read[row.name]])
        for row, dtype in zip(inputs, dtypes, strict=True)
    ]


def _dtype(row: onnx.ValueInfoProto) -> Any:
    from onnx import TensorProto

    def refuse(what: str) -> None:
        raise graph_error(f"input {row.name!r}: {what}")

    def refuse_dtype(what: str) -> None:
        is_text = number == TensorProto.STRING
        refuse(what if is_text else f"{what}, which has to be known when the file is read")

    if row.type.WhichOneof("value") != "tensor_type":
        refuse(f"wanted a tensor, got {row.type.WhichOneof('value')}")
    number = row.type.tensor_type.elem_type
    return dtype_of(number, refuse_dtype)


def _texts(
    row: onnx.ValueInfoProto, given: Sequence[DimLike] | None, named: Collection[str]
) -> list[str]:
    """The sizes of an input, each as a text."""
    dims, shapeless = row.type.tensor_type.shape.dim, has_no_shape(row)
    if given is not None:
        if len(given) != len(dims) and not shapeless:
            raise graph_error(f"input {row.name!r}: wanted {len(dims)} dims, got {list(given)}")
        return [str(size) for size in given]
    if shapeless:
        raise graph_error(
            f"input {row.name!r}: wanted its shape, which the file does not tell; give it: "
            f"shapes={{{row.name!r}: [...]}}, or --shape {row.name}=..."
        )
    return [
        str(dim.dim_value)
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0
        else _read(dim.dim_param) or _free(f"{row.name}_{axis}", named)
        for axis, dim in enumerate(dims)
    ]


def _read(name: str | bytes) -> str:
    """A name of the file; protobuf gives bytes where it is no UTF-8."""
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def _free(name: str, taken: Collection[object]) -> str:
    """The name, with a line behind it where it is taken."""
    while name in taken:
        name += "_"
    return name


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _dim(text: str, whole: Collection[str], taken: Collection[Dim]) -> Dim:
    """The dim of a text: a size, a name, or what is computed of the names in `whole`.

    Another text gets a name that is not `taken`.
    """
    if _is_name(text):
        return Dim(text)
    try:
        dim = Dim(text)
    except GraphError:
        dim = None
    if dim is not None and dim.names <= set(whole) and (dim.static is None or dim.static >= 0):
        return dim
    name = re.sub(r"\W+", "_", text).strip("_")
    return Dim(_free(name if _is_name(name) else f"_{name}", taken))


def _meant(name: str, value: DimLike | tuple[int, int]) -> Dim:
    if isinstance(value, tuple):
        return Dim(name, *value)
    return Dim(value)


def _substituted(dim: Dim, meant: Mapping[str, Dim]) -> Dim:
    """The dim with what names mean in their place."""
    if dim.name is not None:
        return meant.get(dim.name, dim)

    def put(expr: Expr) -> Expr:
        if isinstance(expr, tuple):
            return (expr[0], put(expr[1]), put(expr[2]))
        return meant[expr].expr if isinstance(expr, str) and expr in meant else expr

    return Dim.from_expr(put(dim.expr)) if dim.names & meant.keys() else dim
