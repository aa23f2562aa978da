"""One node of an ONNX file, as the functions that build operators read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from heddle.graph import Dim, DType, TensorValue
from heddle.pipelines.onnx.table import canonical, declared
from heddle.pipelines.onnx.values import Known, Value, sizes
from heddle.runtime.errors import GraphError

if TYPE_CHECKING:
    import onnx


class NarrowerError(Exception):
    """The graph can be built where the size `name` has no more than a smaller `range`.

    Beyond it the file's own model does not run: it adds a table of 512 positions, say.
    """

    def __init__(self, name: str, range: tuple[int, int]) -> None:
        super().__init__(name, range)
        self.name, self.range = name, range


class Node:
    """A node with its inputs and attributes.

    Attributes:
        kind: The operator's name.
        domain: The operator's domain, `""` for ONNX's own.
        version: The opset that says what the operator does.
        values: The inputs; None for one that is left out.
        outputs: The names of the outputs; `""` for one that nobody reads.
        line: The node's place among those that are built, from 1: what errors say as a line.
    """

    def __init__(
        self,
        proto: onnx.NodeProto,
        values: Sequence[Value | None],
        versions: Mapping[str, int],
        line: int,
    ) -> None:
        self.proto, self.line = proto, line
        self.kind, self.domain = proto.op_type, canonical(proto.domain)
        self.version = versions.get(self.domain, 1)
        self.values = list(values)
        self.outputs = list(proto.output)
        self._given = {row.name: row for row in proto.attribute}

    def __getitem__(self, name: str) -> Any:
        """The attribute `name`; where the file says nothing, the operator's default, or None."""
        row = self._given.get(name) or _defaults(self.kind, self.version, self.domain).get(name)
        return None if row is None else _plain(row)

    def has(self, number: int) -> bool:
        """Whether there is an input `number`."""
        return number < len(self.values) and self.values[number] is not None

    def __call__(self, number: int) -> TensorValue:
        """The input `number` as a tensor of the graph.

        Raises:
            GraphError: It is left out.
        """
        return self._value(number).tensor

    def optional(self, number: int) -> TensorValue | None:
        """The input `number` as a tensor, or None where it is left out."""
        return self(number) if self.has(number) else None

    def tensors(self) -> list[TensorValue]:
        """All inputs."""
        return [self(number) for number in range(len(self.values))]

    def known(self, number: int, what: str) -> Known:
        """The numbers of the input `number`, which has to be known while the file is read.

        Raises:
            GraphError: The model computes it when it runs, or it has sizes that are not known.
        """
        value = self._value(number)
        if value.known is None or value.has_dims:
            self.refuse(f"wanted {what} known when the file is read, got what the model computes")
        return value.known

    def ints(self, number: int, what: str, otherwise: Any = None) -> Any:
        """A list of ints: the input `number`, or `otherwise` where it is left out."""
        if not self.has(number):
            return otherwise
        return [int(item) for item in np.ravel(self.known(number, what))]

    def sizes(self, number: int, what: str) -> list[int | Dim]:
        """The ints and dims of the input `number`.

        Raises:
            GraphError: The model computes it when it runs.
        """
        value = self._value(number)
        if value.known is None:
            self.refuse(f"wanted {what} made of sizes, got what the model computes from its data")
        found: list[int | Dim] = sizes(value.known).ravel().tolist()
        return found

    def number(self, number: int, what: str, otherwise: Any = None) -> Any:
        """A Python number: the input `number`, or `otherwise` where it is left out.

        Raises:
            GraphError: It is not known, or more than one number.
        """
        if not self.has(number):
            return otherwise
        found = self.known(number, what)
        if found.size != 1:
            self.refuse(f"wanted {what} as one number, got shape {list(found.shape)}")
        return found.reshape(())[()].item()

    def setting(self, name: str) -> Any:
        """Ints that older opsets have as the attribute `name`, newer ones as the second input."""
        given = self[name]
        if given is not None:
            return list(given) if isinstance(given, (list, tuple)) else [given]
        return self.ints(1, name)

    def axis(self, rank: int, name: str = "axis") -> int:
        """The attribute `name` as an axis counted from the front.

        Raises:
            GraphError: It is no axis of a tensor of this rank.
        """
        return self.axes([self[name]], rank)[0]

    def axes(self, given: Sequence[int], rank: int) -> list[int]:
        """Axes counted from the front.

        Raises:
            GraphError: One is no axis of a tensor of this rank.
        """
        for axis in given:
            if not -rank <= axis < rank:
                self.refuse(f"wanted an axis from {-rank} to {rank - 1}, got {axis}")
        return [axis % rank for axis in given]

    def dtype(self, name: str) -> DType:
        """The attribute `name`, a number of ONNX's, as a dtype."""
        return dtype_of(self[name], self.refuse)

    def refuse(self, what: str) -> NoReturn:
        """Raises GraphError: what this node asks for cannot be built.

        Raises:
            GraphError: Always.
        """
        raise GraphError(what)

    def refuse_set(self, *names: str) -> None:
        """Raises GraphError where one of these attributes is anything but 0.

        Raises:
            GraphError: One is.
        """
        for name in names:
            if self[name]:
                self.refuse(f"wanted {name} of 0, got {self[name]}")

    def refuse_inputs(self, **numbers: int) -> None:
        """Raises GraphError where one of these inputs, a name and its number, is there.

        Raises:
            GraphError: One is.
        """
        for name, number in numbers.items():
            if self.has(number):
                self.refuse(f"wanted no input {name}, got {self(number).shape}")

    def _value(self, number: int) -> Value:
        value = self.values[number] if number < len(self.values) else None
        if value is None:
            self.refuse(f"wanted an input {number}, got none")
        return value

    def __str__(self) -> str:
        domain = f"{self.domain}." if self.domain else ""
        return f"{domain}{self.kind} {self.proto.name or self.outputs[0]!r}"


def dtype_of(number: int, refuse: Any) -> DType:
    """The dtype that ONNX gives `number` (TensorProto.DataType)."""
    import onnx

    if number not in onnx.TensorProto.DataType.values():
        refuse(f"wanted a dtype of {', '.join(DType.__members__)}, got the number {number}")
    name = onnx.TensorProto.DataType.Name(number).lower()
    name = {"float": "float32", "double": "float64", "float8e4m3fn": "float8_e4m3fn"}.get(
        name, name.replace("float8e5m2", "float8_e5m2")
    )
    if name not in DType.__members__:
        refuse(f"wanted a dtype of {', '.join(DType.__members__)}, got {name}")
    return DType[name]


@lru_cache(maxsize=512)
def _defaults(kind: str, version: int, domain: str) -> dict[str, Any]:
    """What the operator's declaration says of attributes that are left out."""
    schema = declared(kind, version, domain)
    if schema is None:
        return {}
    rows = {name: row.default_value for name, row in schema.attributes.items()}
    return {name: row for name, row in rows.items() if row.type}


def _plain(row: Any) -> Any:
    """The Python value of an attribute."""
    from onnx import helper

    value = helper.get_attribute_value(row)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float):
        # Held in 32 bits: what was meant is the shortest number that is rounded to it, but for the
        # largest one, above which that is.
        meant = float(str(np.float32(value)))
        return value if abs(meant) > float(np.finfo(np.float32).max) else meant
    if isinstance(value, (list, tuple)):
        return [item.decode() if isinstance(item, bytes) else item for item in value]
    return value
