"""The graph that a user builds: one MLIR module of the `heddle` dialect."""

from __future__ import annotations

import io
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from heddle.graph import attributes, checks, dialect
from heddle.graph.checks import check_limits, check_names, check_symbols, constant_values, ranges_of
from heddle.graph.dtype import DType
from heddle.graph.location import caller, graph_error
from heddle.graph.ops.row import OpRow
from heddle.graph.types import DeviceRef, TensorType, Weight
from heddle.graph.value import TensorValue, open_graphs
from heddle.kernels import mlir
from heddle.kernels.mlir import ir
from heddle.runtime.errors import GraphError

func = mlir.dialect("func")


class Graph:
    """A model's computation, built by calling ops on the values of its inputs and weights.

        with Graph("mlp", [TensorType(DType.float32, ("batch", 384))]) as graph:
            (x,) = graph.inputs
            w = graph.add_weight(Weight("w", DType.float32, (1536, 384)))
            graph.output(ops.gelu(x @ w.T))

    The symbolic dims of the input types are those of the graph; each of them must be the whole
    size of some input's dim, so that the runtime can read it there.

    Attributes:
        name: The model's name.
        module: The MLIR module: all that the graph is.
        inputs: The values of the inputs.
        symbols: Each symbolic dim's inclusive range.
        weights: The weights by name.
    """

    def __init__(
        self,
        name: str,
        input_types: Sequence[TensorType] = (),
        input_names: Sequence[str] | None = None,
    ) -> None:
        """Starts a graph; inputs without names are `input0`, `input1`, ...

        Raises:
            GraphError: Duplicate names, a symbolic dim with two ranges, or one that no input binds;
                or arguments of other types.
        """
        names = checks.input_names(name, input_types, input_names)
        self.name = name
        self.symbols = ranges_of(input_types)
        self.weights: dict[str, Weight] = {}
        self._context = dialect.context()
        self._start({})
        with self._context, ir.Location.unknown():
            self.module = ir.Module.create()
            self.module.operation.attributes["sym_name"] = ir.StringAttr.get(name)
            types = [self._mlir_type(type) for type in input_types]
            with ir.InsertionPoint(self.module.body):
                self._main = func.FuncOp("main", ir.FunctionType.get(types, []), loc=self._here())
            self._main.attributes["heddle.symbols"] = attributes.symbols_attr(self.symbols)
            self._main.arg_attrs = [
                ir.DictAttr.get({"heddle.name": ir.StringAttr.get(text)}) for text in names
            ]
            block = self._main.add_entry_block([self._here()] * len(types))
            self._point = ir.InsertionPoint(block)
        self.inputs = tuple(TensorValue(self, argument) for argument in block.arguments)

    def _start(self, types: dict[Any, TensorType]) -> None:
        self._types = types  # what each MLIR type means: reading one takes microseconds
        self._mlir_types: dict[TensorType, Any] = {}
        self._finished = False

    @staticmethod
    def from_text(text: str) -> Graph:
        """A finished graph from its printed form.

        Raises:
            GraphError: The text does not parse or does not verify; the message is MLIR's.
        """
        return Graph._parsed(text)

    @staticmethod
    def from_bytecode(data: bytes) -> Graph:
        """A finished graph from MLIR bytecode (see `to_bytecode`).

        Raises:
            GraphError: The data is damaged or does not verify; the message is MLIR's.
        """
        return Graph._parsed(data)

    @staticmethod
    def _parsed(source: str | bytes) -> Graph:
        graph = object.__new__(Graph)
        graph._context = dialect.context()
        graph._start({})
        with graph._context:
            try:
                graph.module = ir.Module.parse(source)
            except ir.MLIRError as error:
                raise graph_error(f"graph: wanted a valid module, got {error}") from None
        graph._read()
        graph._finished = True
        return graph

    def _read(self) -> None:
        """Takes name, inputs, symbols and weights from the module."""
        mains = [op for op in self.module.body.operations if isinstance(op, func.FuncOp)]
        if len(mains) != 1 or "heddle.symbols" not in mains[0].attributes:
            raise graph_error("graph: wanted one func.func @main with heddle.symbols")
        self._main = mains[0]
        name = self.module.operation.attributes
        self.name = name["sym_name"].value if "sym_name" in name else ""
        self.symbols = attributes.read_symbols(self._main.attributes["heddle.symbols"])
        block = self._main.entry_block
        self.inputs = tuple(TensorValue(self, argument) for argument in block.arguments)
        self.weights = {}
        for view in block.operations:
            op = view.operation
            if op.name == "heddle.weight":
                type = self.type_of(op.results[0])
                weight = Weight(op.attributes["name"].value, type.dtype, type.shape, type.device)
                self.weights[weight.name] = weight

    def __enter__(self) -> Graph:
        open_graphs.set((*open_graphs.get(), self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        open_graphs.set(open_graphs.get()[:-1])
        if kind is None:
            self.check_finished()

    def add_weight(self, weight: Weight) -> TensorValue:
        """The value of a new weight.

        Raises:
            GraphError: The name is taken, or the shape is not static.
        """
        if not isinstance(weight, Weight):
            raise graph_error(f"add_weight: wanted a Weight, got {weight.__class__.__name__}")
        type = weight.type
        if not checks.is_name(weight.name):
            raise graph_error(f"weight: wanted a name, got {weight.name!r}")
        if weight.name in self.weights:
            raise graph_error(f"weight: wanted a new name, got {weight.name!r} twice")
        if type.shape.static is None:
            raise graph_error(f"weight {weight.name!r}: wanted a static shape, got {type.shape}")
        value = self._emit("heddle.weight", [], {"name": ("str", weight.name)}, type)
        self.weights[weight.name] = weight
        return value

    def constant(
        self,
        value: Any,
        dtype: DType | None = None,
        device: DeviceRef | None = None,
    ) -> TensorValue:
        """The value of a constant: a Python number, nested lists, or a NumPy array.

        Without a dtype, an array keeps its own; Python values are float32, int64 or bool.

        Raises:
            GraphError: The values do not fit the dtype, or Heddle has no such dtype.
        """
        try:
            array, dtype = constant_values(value, dtype)
        except (GraphError, TypeError) as error:
            raise graph_error(f"constant: {error}") from None
        self._check_open()
        with self._context:
            attr = attributes.constant_attr(array, dtype)
        type = TensorType(dtype, array.shape, device)
        return self._insert("heddle.constant", [], {"value": attr}, type)

    def output(self, *values: TensorValue, names: Sequence[str] | None = None) -> None:
        """Ends the graph with its results, named `output0`, `output1`, ... unless given.

        Raises:
            GraphError: It was called before, or a value is not one of this graph.
        """
        self._check_open()
        names = [f"output{i}" for i in range(len(values))] if names is None else names
        check_names("output", names, len(values))
        for index, value in enumerate(values):
            if not isinstance(value, TensorValue):
                raise graph_error(
                    f"output {index}: wanted a tensor value, got {type(value).__name__}"
                )
            if value.graph is not self:
                raise graph_error(
                    f"output {index}: wanted a value of {self.name!r}, got one of "
                    f"{value.graph.name!r}"
                )
        with self._context, self._here(), self._point:
            results = [value.mlir for value in values]
            func.ReturnOp(results)
            arguments = [argument.type for argument in self._main.arguments]
            function = ir.FunctionType.get(arguments, [result.type for result in results])
            self._main.attributes["function_type"] = ir.TypeAttr.get(function)
            texts = [ir.StringAttr.get(text) for text in names]
            self._main.attributes["heddle.outputs"] = ir.ArrayAttr.get(texts)
        self._finished = True

    def check_finished(self) -> None:
        """Refuses a graph without `output`.

        Raises:
            GraphError: `output` was not called.
        """
        if not self._finished:
            raise graph_error(f"graph {self.name!r}: wanted a call of output, got none")

    def verify(self) -> None:
        """Checks the whole module: every op's invariants, and that values are defined before use.

        Raises:
            GraphError: The message is MLIR's.
        """
        try:
            self.module.operation.verify()
        except ir.MLIRError as error:
            raise GraphError(f"graph {self.name!r}: {error}") from None

    def to_bytecode(self) -> bytes:
        """The module as MLIR bytecode, with the user's locations."""
        stream = io.BytesIO()
        self.module.operation.write_bytecode(stream)
        return stream.getvalue()

    def __str__(self) -> str:
        return str(self.module)

    def __repr__(self) -> str:
        inputs = ", ".join(str(value.type) for value in self.inputs)
        return f"<Graph {self.name!r} of {inputs or 'no inputs'}>"

    def __heddle_artifact__(self) -> Any:
        """Compiles the graph: how `InferenceSession.load` takes a graph."""
        from heddle.graph.compiler import compile

        return compile(self)

    def type_of(self, mlir_value: Any) -> TensorType:
        """The type of an MLIR value of this graph."""
        mlir_type = mlir_value.type
        type = self._types.get(mlir_type)
        if type is None:
            type = self._types[mlir_type] = TensorType.from_mlir(mlir_type)
        return type

    def emit(
        self, row: OpRow, values: Sequence[TensorValue], attrs: dict[str, Any], type: TensorType
    ) -> TensorValue:
        """Adds an op that was checked; `type` is what its row infers."""
        encoded = {attr.name: (attr.kind, attrs[attr.name]) for attr in row.attrs}
        for kind, value in encoded.values():
            if kind in ("Dim", "Shape"):
                check_symbols([value] if kind == "Dim" else value, self.symbols)
        return self._emit(f"heddle.{row.name}", values, encoded, type)

    def _emit(
        self,
        name: str,
        values: Sequence[TensorValue],
        attrs: dict[str, tuple[str, Any]],
        type: TensorType,
    ) -> TensorValue:
        self._check_open()
        encoded = {}
        if attrs:
            with self._context:
                encoded = {
                    key: attributes.encode(kind, value) for key, (kind, value) in attrs.items()
                }
        return self._insert(name, values, encoded, type)

    def _insert(
        self, name: str, values: Sequence[TensorValue], attrs: dict[str, Any], type: TensorType
    ) -> TensorValue:
        op = dialect.create(
            name,
            results=[self._mlir_type(type)],
            operands=[value.mlir for value in values],
            attributes=attrs,
            loc=self._here(),
            ip=self._point,
        )
        return TensorValue(self, op.results[0])

    def _mlir_type(self, type: TensorType) -> Any:
        found = self._mlir_types.get(type)
        if found is None:
            check_symbols(type.shape, self.symbols)
            check_limits(type)
            with self._context:
                found = self._mlir_types[type] = type.to_mlir()
        return found

    def _check_open(self) -> None:
        if self._finished:
            raise graph_error(f"graph {self.name!r}: wanted no op after output, got one")

    def _here(self) -> Any:
        file, line = caller()
        return ir.Location.file(file, line, 0, context=self._context)
