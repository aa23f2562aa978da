"""Opens an ONNX file, checks it, and leaves only operators that are known or have no body.

Format: https://onnx.ai/onnx/repo-docs/IR.html. Operators: https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heddle.pipelines.onnx.table import DOMAINS, OPERATORS, canonical, declared
from heddle.runtime.errors import ArtifactError, ArtifactReason, GraphError

if TYPE_CHECKING:
    import onnx

OLDEST = 7
"""The first opset whose operators broadcast as NumPy does; of older ones, what it kept is built."""


def read(path: Path) -> onnx.ModelProto:
    """The model in the file `path`, with the weights that lie beside it.

    Raises:
        ArtifactError: No such file, or it is no ONNX model, or its weights are not beside it.
        ModuleNotFoundError: The package onnx is not installed.
        GraphError: It breaks ONNX's rules, or has an operator that opset 7 has changed.
    """
    onnx = _library()
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file", ArtifactReason.NOT_FOUND)
    try:
        model = onnx.load(path)
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: {error}", ArtifactReason.NOT_FOUND) from None
    except Exception as error:  # protobuf's own kinds, by its implementation
        raise ArtifactError(
            f"{path}: wanted an ONNX model: {error}", ArtifactReason.MALFORMED
        ) from None
    if not model.graph.output:
        raise ArtifactError(
            f"{path}: wanted an ONNX model, found no graph with outputs", ArtifactReason.MALFORMED
        )
    return checked(model, str(path), path)


def checked(model: onnx.ModelProto, name: str, path: Path | None = None) -> onnx.ModelProto:
    """The model after ONNX's own checks, its functions inlined.

    Raises:
        GraphError: It breaks ONNX's rules, or has an operator that opset 7 has changed.
    """
    onnx = _library()
    try:
        _check(model, path)
    except Exception as error:  # also what its C++ code says in texts that are no UTF-8
        raise GraphError(f"{name}: wanted a valid ONNX model: {_first(error)}") from None
    opset = opsets(model).get("", OLDEST)
    if opset < OLDEST:
        own = (node.op_type for node in nodes(model.graph) if not canonical(node.domain))
        for kind in dict.fromkeys(own):
            if _since(kind, opset) != _since(kind, OLDEST):
                raise GraphError(f"{name}: {kind}: wanted opset {OLDEST} or newer, got {opset}")
    try:
        return _without_functions(model)
    except (RuntimeError, onnx.checker.ValidationError) as error:
        raise GraphError(f"{name}: wanted functions that fit their calls: {error}") from None


def _check(model: onnx.ModelProto, path: Path | None) -> None:
    """ONNX's own checks, for which what has no shape is a scalar.

    Some exporters leave out the shapes of outputs, which are known from what makes them, or of
    inputs, which the caller can say.
    """
    import onnx.checker
    from google.protobuf.message import EncodeError

    rows = filter(has_no_shape, (*model.graph.input, *model.graph.output))
    shapeless = [row.type.tensor_type for row in rows]
    if not shapeless:
        # A path is read again, so that a model beyond protobuf's 2 GB is checked, too.
        onnx.checker.check_model(path or model)
        return
    for tensor in shapeless:
        tensor.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    except EncodeError:  # beyond them
        return
    finally:
        for tensor in shapeless:
            tensor.ClearField("shape")


def has_no_shape(row: onnx.ValueInfoProto) -> bool:
    """Whether it is a tensor of which the file tells no shape, which is not that of a scalar."""
    is_tensor = row.type.WhichOneof("value") == "tensor_type"
    return is_tensor and not row.type.tensor_type.HasField("shape")


def _since(kind: str, opset: int) -> int:
    """The opset that has last changed what an operator does, as of `opset`; 0: it is not known."""
    schema = declared(kind, opset)
    return 0 if schema is None else int(schema.since_version)


def opsets(model: onnx.ModelProto) -> dict[str, int]:
    """The version of each domain's operators; that of ONNX itself is the domain `""`."""
    return {canonical(row.domain): row.version for row in model.opset_import}


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Every node, those of inner graphs included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from nodes(inner)


def _without_functions(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the bodies of functions in the place of calls, where no operator is known."""
    from onnx import inliner

    local = {(canonical(row.domain), row.name) for row in model.functions}
    if local:
        model = inliner.inline_local_functions(model, convert_version=True)
    versions = opsets(model)
    done: set[tuple[str, str]] = set()
    while True:
        found = {
            (node.domain, node.op_type)
            for node in nodes(model.graph)
            if (canonical(node.domain), node.op_type) not in OPERATORS
            and _has_body(canonical(node.domain), node.op_type, versions)
        } - done
        if not found:
            return model
        done |= found
        try:
            model = inliner.inline_selected_functions(
                model, sorted(found), exclude=False, inline_schema_functions=True
            )
        except RuntimeError:  # a body that depends on types which the file does not tell
            return model


def _has_body(domain: str, name: str, versions: dict[str, int]) -> bool:
    """Whether ONNX itself says what an operator is made of."""
    schema = declared(name, versions.get(domain, 1), domain) if domain in DOMAINS else None
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _first(error: Exception) -> str:
    """The first paragraph as one line: some sentences go on behind the name of a node."""
    return " ".join(str(error).strip().partition("\n\n")[0].split())


def _library() -> Any:
    try:
        import onnx
        import onnx.checker
    except ImportError:
        raise ModuleNotFoundError(
            "wanted the package onnx, which is not installed; pip install 'heddle[onnx]'"
        ) from None
    return onnx
