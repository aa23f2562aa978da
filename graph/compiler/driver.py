"""`compile`: a graph in, an artifact out."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any, overload

import numpy as np

from heddle.graph import types
from heddle.graph.compiler import assemble, cache
from heddle.graph.compiler.codegen.build import Progress, build
from heddle.graph.compiler.codegen.pool import Job
from heddle.graph.compiler.constants import Constants, settled_weights
from heddle.graph.compiler.module import label
from heddle.graph.compiler.pipeline import lower
from heddle.graph.compiler.tuned import described, own_tables
from heddle.graph.graph import Graph
from heddle.graph.targets import Target, Targets, TargetWarning, listed
from heddle.kernels import tuning
from heddle.kernels.registry import find
from heddle.kernels.spec import Spec
from heddle.runtime import Artifact, artifact_writer, config
from heddle.runtime.artifact import ArtifactRecord, Code, Deferred, Program, Weight
from heddle.runtime.errors import CompileError
from heddle.runtime.masked import is_masked


@overload
def compile(
    graph: Graph,
    targets: Targets = ...,
    *,
    weights: Mapping[str, Any] | None = ...,
    embed_weights: bool = ...,
    output: str | os.PathLike[str] | None = ...,
    stop_after: None = ...,
    progress: Progress | None = ...,
) -> Artifact: ...


@overload
def compile(graph: Graph, targets: Targets = ..., *, stop_after: str) -> str: ...


def compile(
    graph: Graph,
    targets: Targets = ("cpu",),
    *,
    weights: Mapping[str, Any] | None = None,
    embed_weights: bool = False,
    output: str | os.PathLike[str] | None = None,
    stop_after: str | None = None,
    progress: Progress | None = None,
) -> Artifact | str:
    """Compiles `graph` for `targets` into one artifact; no device is needed.

    Args:
        graph: A finished graph.
        targets: See `Target.parse`.
        weights: Arrays by weight name; the artifact records their sha256, which loading does not
            read: `heddle verify --weights` checks other weights against it.
        embed_weights: Put the weights themselves into the artifact; for one kind of target, as its
            kernels read them.
        output: The file to write the artifact to, as `Artifact.save` does; embedded weights go
            into it one at a time, and the result is mapped from it. None: the result is in memory.
        stop_after: The name of a pass: the result is the module's text after it instead, for each
            target in turn.
        progress: Called with what is being done, how much of it is done, and how much there is.

    Raises:
        GraphError: The graph is not finished.
        CompileError: No graph, an unknown target, a weight that is missing or of another type, or
            a pass or a kernel that failed; the message names it, the op and the user's line.
        DeviceError: The target is `"cpu:native"`, and this machine has no level for it.
        ArtifactError: `output` cannot be written.
    """
    if not isinstance(graph, Graph):
        raise CompileError(f"compile: wanted a Graph, got {graph!r}")
    graph.check_finished()
    named = listed(targets)
    chosen = Target.merge(named)
    if stop_after is not None:
        texts = (lower(graph.module, target.kind, stop_after=stop_after) for target in chosen)
        return "\n".join(map(str, texts))
    config.number("HEDDLE_JOBS", CompileError)  # a warm cache starts no children
    records = _weights(graph, weights, embed_weights)
    if any(target.kind == "cuda" for target in chosen) and not cache.assembler():
        message = "cuda: no PTX assembler (the extra 'cuda', or ptxas on PATH): there is PTX alone"
        warnings.warn(message, TargetWarning, stacklevel=2)
    tables = own_tables(native="cpu:native" in named)
    origin = (*_provenance(chosen), *described(tables))
    with tuning.using(tables):
        record = _record(graph, chosen, records, origin, progress)
    return artifact_writer.write(record, output)


def _record(
    graph: Graph,
    chosen: Sequence[Target],
    weights: tuple[Weight, ...],
    provenance: tuple[tuple[str, str], ...],
    progress: Progress | None,
) -> ArtifactRecord:
    """What the artifact holds, by the tuning tables in force."""
    alone = len(chosen) == 1 and any(weight.data is not None for weight in weights)
    modules = {target: lower(graph.module, target.kind, embedded=alone) for target in chosen}
    asked = {target: assemble.requests(module, target.kind) for target, module in modules.items()}
    jobs: dict[Job, str] = {}
    for target, requests in asked.items():
        for operation, wanted in requests:
            for job in _jobs(wanted.spec, target):
                jobs.setdefault(job, label(operation))
    codes = build(jobs, cache.KernelCache(config.cache_folder()), progress)
    constants = Constants()

    def program(target: Target) -> Program:
        def code(spec: Spec) -> tuple[Code, ...]:
            return tuple(c for job in _jobs(spec, target) for c in codes[job])

        return assemble.program(
            modules[target], target.kind, asked[target], code, weights, constants
        )

    programs = tuple(map(program, chosen))
    settled = {name for module in modules.values() for name in settled_weights(module)}
    symbols, inputs, outputs = assemble.signature(graph.module)
    return ArtifactRecord(
        name=graph.name,
        symbols=symbols,
        inputs=inputs,
        outputs=outputs,
        weights=tuple(
            replace(weight, data=None, settled=True) if weight.name in settled else weight
            for weight in weights
        ),
        constants=tuple(constants.records),
        programs=programs,
        provenance=provenance,
    )


def _jobs(spec: Spec, target: Target) -> list[Job]:
    """One for each machine whose code would not be that of one before it."""
    row = find(spec.op, target.kind)
    assert row is not None, "select has checked this"
    jobs: dict[Any, Job] = {}
    for machine in target.machines:
        values = tuple(row.space.values(spec, machine).items()) if row.space else ()
        level = machine.vector_bytes if target.kind == "cpu" else machine.arch
        key = level, values, *(getattr(machine, name) for name in row.depends(spec))
        jobs.setdefault(key, Job(spec, machine.arch, values))
    return list(jobs.values())


def _weights(graph: Graph, arrays: Mapping[str, Any] | None, embed: bool) -> tuple[Weight, ...]:
    """The weights of the graph, with hashes and data as far as they are known and wanted."""
    if embed and arrays is None:
        raise CompileError("embed_weights: wanted weights, got none")
    unknown = sorted(set(arrays or ()) - set(graph.weights))
    if unknown:
        raise CompileError(f"weights: wanted names of the graph, got {unknown[0]!r}")
    records = []
    for name, weight in graph.weights.items():
        shape = tuple(int(dim) for dim in weight.shape)
        digest, data = b"", None
        if arrays is not None:
            if name not in arrays:
                missing = len(graph.weights.keys() - arrays.keys())
                raise CompileError(
                    f"weight {name!r}: wanted an array, got none; {missing} of the graph's "
                    f"{len(graph.weights)} weights are missing from weights="
                )
            array = _checked(weight, shape, arrays[name])
            digest = hashlib.sha256(_bytes(array)).digest()
            data = Deferred(array.nbytes, partial(_bytes, array))
        records.append(Weight(name, weight.dtype.name, shape, digest, data if embed else None))
    return tuple(records)


def _checked(weight: types.Weight, shape: tuple[int, ...], value: Any) -> np.ndarray[Any, Any]:
    """The array for `weight`; what NumPy lacks comes as ml_dtypes' or as bits."""
    if is_masked(value):
        raise CompileError(f"weight {weight.name!r}: wanted an array without a mask, got one with")
    array = np.asarray(value)
    if array.shape != shape or array.dtype.name not in (weight.dtype.name, weight.dtype.to_bits()):
        raise CompileError(
            f"weight {weight.name!r}: wanted {weight.dtype}{list(shape)}, "
            f"got {array.dtype}{list(array.shape)}"
        )
    if not array.dtype.isnative:
        raise CompileError(
            f"weight {weight.name!r}: wanted an array in native byte order, got {array.dtype.str} "
            "(swap it: array.astype(array.dtype.newbyteorder('=')))"
        )
    return array


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """The bytes of an array: its memory, or a copy where that is not dense."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _provenance(targets: Sequence[Target]) -> tuple[tuple[str, str], ...]:
    """What made the artifact: the same on every machine."""
    names = [f"{target.kind}:{machine.arch}" for target in targets for machine in target.machines]
    return (
        ("compiler", f"heddle {version('heddle')}"),
        ("sources", ", ".join(f"{t.kind} {cache.fingerprint(t.kind)[:16]}" for t in targets)),
        ("targets", ", ".join(names)),
    )
