"""Builds a graph from an ONNX file, node by node.

What a node gives is known while the file is read, where its inputs are: sizes are dims and what is
computed of them, other numbers are computed as the model would, or by ONNX's own reference where
Heddle has no operator. The rest becomes ops. Only nodes that an output needs are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import heddle.pipelines.onnx.operators  # noqa: F401 - fills the table
from heddle.graph import Dim, DType, Graph, TensorValue, Weight, reference
from heddle.graph.location import graph_error, read_from
from heddle.pipelines.onnx import file, inputs
from heddle.pipelines.onnx.control import CONTROL, Body
from heddle.pipelines.onnx.definitions import definition
from heddle.pipelines.onnx.known import of_sizes
from heddle.pipelines.onnx.node import NarrowerError, Node
from heddle.pipelines.onnx.table import OPERATORS, Operator, Results
from heddle.pipelines.onnx.values import Value, constant, held_dtype
from heddle.runtime.errors import GraphError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

FEW = 1024
"""Elements that a constant has at most: more become a weight, and are not computed with here."""

SIMPLE = {
    *("Add", "And", "Cast", "Ceil", "Concat", "Div", "Equal", "Floor", "Gather", "Greater"),
    *("Identity", "Less", "Max", "Min", "Mul", "Neg", "Not", "Or", "Reshape", "Slice", "Sqrt"),
    *("Squeeze", "Sub", "Transpose", "Unsqueeze", "Where"),
}
"""What ONNX's reference computes as Heddle does, from opset 13 on, and in a 30th of the time."""

RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial"}
"""Nodes without inputs that still are not known."""


@dataclass(frozen=True)
class Imported:
    """What an ONNX file holds.

    Attributes:
        graph: The graph; inputs and outputs have the file's names.
        weights: The arrays of the graph's weights, by name.
    """

    graph: Graph
    weights: dict[str, NDArray[Any]]


def load(
    path: str | Path, *, dims: inputs.Dims | None = None, shapes: inputs.Shapes | None = None
) -> Imported:
    """The graph of an ONNX file (https://onnx.ai), and its weights.

        found = load("model.onnx", dims={"batch": (1, 64), "sequence": 128})
        artifact = compile(found.graph, weights=found.weights, embed_weights=True)

    Args:
        path: The file; weights beside it are found by the names that it has for them.
        dims: What names of sizes mean: a size, a range `(minimum, maximum)`, or another name. A
            size that the file has no name for is called after its input and axis, `ids_0`.
        shapes: The dims of inputs, in the place of those in the file.

    Raises:
        ArtifactError: The file or its weights are missing, or it is no ONNX model.
        GraphError: The model breaks ONNX's rules, or has an operator, a dtype or a size that only
            the data tells, which Heddle cannot build; the message names the node.
    """
    path = Path(path)
    return build(file.read(path), path.stem, path.name, dims or {}, shapes or {})


def build(
    model: onnx.ModelProto,
    name: str,
    where: str,
    dims: inputs.Dims | None = None,
    shapes: inputs.Shapes | None = None,
) -> Imported:
    """The graph called `name` of a model after `file.checked`; errors name it `where`."""
    dims = dict(dims or {})
    while True:
        try:
            with read_from(where, 0):
                return _built(model, name, where, dims, shapes or {})
        except NarrowerError as error:
            renamed = [name for name, meant in dims.items() if meant == error.name]
            dims |= dict.fromkeys(renamed, Dim(error.name, *error.range))
            if error.name in dims or not renamed:
                dims[error.name] = error.range


def _built(
    model: onnx.ModelProto, name: str, where: str, dims: inputs.Dims, shapes: inputs.Shapes
) -> Imported:
    held = {row.name for row in model.graph.initializer}
    given = [row for row in model.graph.input if row.name not in held]
    with Graph(name, inputs.types(given, dims, shapes), [row.name for row in given]) as graph:
        building = _Importer(graph, where, file.opsets(model))
        values = {row.name: Value(value) for row, value in zip(given, graph.inputs, strict=True)}
        names = [row.name for row in model.graph.output]
        results = building.results(model.graph, values, names)
        graph.output(*(value.tensor for value in results), names=names)
    return Imported(graph, building.weights)


class _Importer:
    """The graph under construction, and the weights that were found so far."""

    def __init__(self, graph: Graph, where: str, versions: Mapping[str, int]) -> None:
        self.graph, self.where, self.versions = graph, where, versions
        self.weights: dict[str, NDArray[Any]] = {}
        self._count = 0

    def results(
        self, proto: onnx.GraphProto, values: Mapping[str, Value], names: Sequence[str]
    ) -> list[Value]:
        """The values `names` of a graph, which sees `values`."""
        return self._values(proto, {**values, **self._initializers(proto)}, names)

    def _values(
        self, proto: onnx.GraphProto, found: dict[str, Value], names: Sequence[str]
    ) -> list[Value]:
        """The values `names`, by nodes that are `found` their inputs."""
        for node in needed(proto, names):
            found |= self._node(node, found)
        return [_of(found, name) for name in names]

    def _initializers(self, proto: onnx.GraphProto) -> dict[str, Value]:
        """The numbers that a graph brings."""
        from onnx import numpy_helper

        found = {}
        for row in proto.initializer:
            try:
                array = numpy_helper.to_array(row)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                wanted = f"wanted {list(row.dims)} elements of a dtype"
                raise graph_error(f"initializer {row.name!r}: {wanted}: {error}") from None
            found[row.name] = self._held(row.name, array, 1)
        if proto.sparse_initializer:
            raise GraphError(f"{self.where}: wanted dense weights, got sparse ones")
        return found

    def _held(self, name: str, array: NDArray[Any], most: int) -> Value:
        """Numbers of the file: a weight where they are more than `most` floats or 8-bit integers.

        Others are a constant: sizes, places, masks.
        """
        whole = array.dtype == bool or (array.dtype.kind in "iu" and array.dtype.itemsize > 1)
        if array.size <= most or whole or name in self.weights:
            return Value(known=array)

        def weight() -> TensorValue:
            if name in self.weights:  # of another branch
                return constant(array)
            dtype = held_dtype(array)
            self.weights[name] = array
            return self.graph.add_weight(Weight(name, dtype, array.shape))

        return Value(weight, array)

    def _node(self, proto: onnx.NodeProto, found: Mapping[str, Value]) -> dict[str, Value]:
        """The outputs of a node by their names."""
        self._count += 1
        node = Node(proto, [], self.versions, self._count)
        try:
            with read_from(self.where, node.line):
                node.values = [_of(found, name) if name else None for name in proto.input]
                results = self._computed(node, found)
        except (GraphError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            text, place = str(error), f"{self.where}:{node.line}: "
            if text.startswith(f"{self.where}:") and not text.startswith(place):
                raise  # of a node in a branch
            raise GraphError(f"{place}{node}: {text.removeprefix(place)}") from error
        pairs = zip(node.outputs, results, strict=False)
        return {name: value for name, value in pairs if name and value is not None}

    def _computed(self, node: Node, found: Mapping[str, Value]) -> Sequence[Value | None]:
        if node.kind in CONTROL and not node.domain:
            return CONTROL[node.kind](node, lambda proto: self._body(proto, found))
        computed = of_sizes(node)
        if computed is not None:
            return computed
        build = OPERATORS.get((node.domain, node.kind))
        if self._is_folded(node, build):
            with np.errstate(all="ignore"):  # infinities are results like others
                results = self._folded(node, build)
            if results is not None:
                return [self._held(*pair, FEW) for pair in zip(node.outputs, results, strict=False)]
        if build is None:
            return self._defined(node)
        return [None if value is None else Value(value) for value in _listed(build(node))]

    def _defined(self, node: Node) -> list[Value]:
        """The outputs of a node as ONNX defines it by others."""
        function = definition(node)
        if function is None:
            node.refuse("Heddle cannot build this operator")
        inner = _Importer(self.graph, self.where, file.opsets(function))
        inner.weights, inner._count = self.weights, self._count
        given: dict[str, Any] = dict.fromkeys(function.input)
        given.update(zip(function.input, node.values, strict=False))
        results = inner._values(function, given, function.output[: len(node.outputs)])
        self._count = inner._count
        return results

    def _is_folded(self, node: Node, build: Operator | None) -> bool:
        """Whether to compute the node now: all is known, and little, or nothing else can do it."""
        given = [value for value in node.values if value is not None]
        known = [value.known for value in given if value.known is not None]
        if not _is_of_onnx(node) or node.kind in RANDOM or len(known) < len(given):
            return False
        if any(value.has_dims for value in given):
            return False
        return build is None or _is_foreign(known) or sum(array.size for array in known) <= FEW

    def _folded(self, node: Node, build: Operator | None) -> list[NDArray[Any]] | None:
        """The outputs, as the model would compute them; None where they are many.

        What is simple, or Heddle cannot build, is computed by ONNX's reference; so is what has a
        dtype that Heddle lacks.
        """
        given = {
            name: value.known
            for name, value in zip(node.proto.input, node.values, strict=True)
            if value is not None and value.known is not None
        }
        is_foreign = _is_foreign(given.values())
        is_simple = node.kind in SIMPLE and node.version >= 13
        if build is not None and not is_foreign and not is_simple:
            try:
                return self._by_itself(node, build)
            except GraphError:
                pass
        try:
            results = [np.asarray(array) for array in _evaluator(node).run(None, given)]
        except Exception as error:  # the reference raises whatever its NumPy code does
            node.refuse(f"ONNX's reference cannot compute it: {error}")
        is_large = sum(array.size for array in results) > FEW
        return None if build is not None and not is_foreign and is_large else results

    def _by_itself(self, node: Node, build: Operator) -> list[NDArray[Any]] | None:
        """The outputs of a graph of this node alone; None where they are many."""
        values = [None if value is None else Value(known=value.known) for value in node.values]
        with Graph("known", []) as graph:
            alone = Node(node.proto, values, self.versions, node.line)
            results = [value for value in _listed(build(alone)) if value is not None]
            graph.output(*results)
        sizes = [value.shape.elements.static for value in results]
        if any(size is None or size > FEW for size in sizes):
            return None
        # The package onnx brings those dtypes that NumPy lacks.
        dtypes = [np.dtype(value.dtype.value) for value in results]
        arrays = reference.evaluate(graph, [])
        return [array.astype(dtype) for array, dtype in zip(arrays, dtypes, strict=True)]

    def _body(self, proto: onnx.GraphProto, found: Mapping[str, Value]) -> Body:
        """A graph inside of a node, which sees what is `found` around it."""
        names, around = [row.name for row in proto.output], {**found, **self._initializers(proto)}
        return lambda given: self._values(proto, {**around, **given}, names)


def _of(found: Mapping[str, Value], name: str) -> Value:
    if name not in found:
        raise graph_error(f"wanted {name!r}, an output that Heddle does not build")
    return found[name]


def _is_foreign(arrays: Iterable[NDArray[Any]]) -> bool:
    """Whether some have a dtype that Heddle lacks, such as numbers of 4 bits."""
    return any(array.dtype.name not in DType.__members__ for array in arrays)


def _is_of_onnx(node: Node) -> bool:
    """Whether it is an operator of ONNX, be it under the domain of ONNX Runtime."""
    build = OPERATORS.get((node.domain, node.kind))
    return not node.domain or (build is not None and build is OPERATORS.get(("", node.kind)))


def _evaluator(node: Node) -> Any:
    """ONNX's reference of a node; ONNX Runtime's nodes are as of the first opset with 4 bits."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    proto = onnx.NodeProto()
    proto.CopyFrom(node.proto)
    proto.domain = ""
    return ReferenceEvaluator(proto, opsets={"": 21 if node.domain else node.version})


def _listed(results: Results) -> Sequence[TensorValue | None]:
    return [results] if isinstance(results, TensorValue) else results


def needed(proto: onnx.GraphProto, names: Sequence[str]) -> list[onnx.NodeProto]:
    """The nodes that the values `names` are made of, in their order."""
    wanted, kept = set(names), []
    for node in reversed(proto.node):
        if wanted.isdisjoint(node.output):
            continue
        kept.append(node)
        wanted.update(node.input)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                wanted.update(name for row in file.nodes(inner) for name in row.input)
                wanted.update(row.name for row in inner.output)
    return kept[::-1]
