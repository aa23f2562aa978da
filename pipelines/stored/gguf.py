"""Weights in the blocks of GGML, as GGUF files have them.

A block is a few elements along k with what they share. `ggml` has those whose integers a graph
holds. Those of the other types have scales for fewer elements or tables of another kind: such a
weight becomes floats, or integers that are rounded anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.pipelines.quantization import CHUNK, array_of
from heddle.pipelines.stored.ggml import GROUP, TYPES
from heddle.pipelines.stored.parts import Parts
from heddle.pipelines.stored.product import Made, Plain, Product, Stack
from heddle.pipelines.stored.scaled import Scaled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from heddle.pipelines.weights import Array

    Bytes = NDArray[np.uint8]

KEYS, VALUES = ".keys", ".values"
"""The ends of what makes keys and values of a latent, where they are two tensors."""

DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""The dtypes of the types that are floats."""


def floats_of(kind: str, rows: Bytes) -> Array:
    """The rows of a type that is floats, as they lie in memory."""
    dtype = DTYPES[kind]
    return array_of(rows.view("u2" if dtype == "bfloat16" else dtype), dtype)


def in_halves(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of queries or keys whose neighbours turn together, as those half a head apart do.

    llama.cpp's converter puts them the other way for some models.
    """
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


@dataclass(frozen=True)
class Gguf:
    """How such a file stores the weights of products: each is a tensor whose end is its type.

    What makes keys and values of latents may be two, of [heads, size, columns] and [heads, columns,
    size], where a checkpoint has one [heads * both columns, size].

    Attributes:
        kinds: The types that it has.
        paired: The heads of those products whose rows are put in pairs, by how their names end.
    """

    kinds: Iterable[str]
    paired: Mapping[str, int]

    @property
    def marks(self) -> tuple[str, ...]:
        """The types, each with a dot, and those of keys and values."""
        return tuple(f"{part}.{kind}" for part in (KEYS, VALUES, "") for kind in self.kinds)

    @property
    def parts(self) -> tuple[str, ...]:
        """The same."""
        return self.marks

    def product(self, parts: Parts) -> Product:
        """The weight with this part, or those of keys and values."""
        if any(end.startswith((KEYS, VALUES)) for end in parts.found):
            return self._of_latents(parts)
        ((end, array),) = parts.found.items()
        rows, kind = np.asarray(array), end[1:]
        if kind not in DTYPES and kind not in TYPES:
            try:
                _dequantized(kind, rows.reshape(-1, rows.shape[-1])[:1])
            except NotImplementedError:
                raise parts.error(end, "a type that the package gguf reads", kind) from None
        if rows.ndim == 3:
            return Stack([_product(kind, each, 0) for each in rows])
        return _product(kind, rows, self.paired.get(parts.name.rpartition(".")[2], 0))

    def _of_latents(self, parts: Parts) -> Product:
        """The weight of keys and values, whose rows are those of each head in turn."""
        both: list[Product] = []
        for part in (KEYS, VALUES):
            found = {
                end.removeprefix(part): array
                for end, array in parts.found.items()
                if end.startswith(part)
            }
            if len(found) != 1:
                raise parts.error(part, "one tensor [heads, any, any]", f"{len(found)}")
            both.append(self.product(Parts(parts.path, parts.name + part, found)))
        keys, values = both
        if len(keys.shape) != 3 or (keys.shape[0], keys.shape[1]) != values.shape[::2]:
            raise parts.error(
                VALUES, f"[heads, any, size] beside {list(keys.shape)}", f"{list(values.shape)}"
            )
        heads, size, columns = keys.shape

        def made() -> Array:
            turned = np.swapaxes(np.asarray(keys.floats("float32")), 1, 2)
            each = np.concatenate([turned, np.asarray(values.floats("float32"))], axis=1)
            return each.reshape(-1, size)

        kind = keys.kind if keys.kind == values.kind else f"{keys.kind} and {values.kind}"
        return Made((heads * (columns + values.shape[1]), size), kind, made)


def _product(kind: str, rows: Bytes, heads: int) -> Product:
    """The weight of rows of bytes; `heads` whose rows are in pairs, 0: none are."""

    def ordered() -> Bytes:
        return in_halves(rows, heads) if heads else rows

    if kind in DTYPES:
        plain = floats_of(kind, rows)
        if not heads:
            return Plain(plain)
        return Made(tuple(plain.shape), DTYPES[kind], lambda: floats_of(kind, ordered()))
    elements, size = _block(kind)
    shape = (len(rows), rows.shape[1] // size * elements)
    if kind not in TYPES:
        return Made(shape, kind, lambda: _dequantized(kind, ordered()))
    held = TYPES[kind]

    def blocks() -> Bytes:
        return ordered().reshape(len(rows), -1, size)

    def of_groups(make: Callable[[Bytes], NDArray[np.float32]]) -> NDArray[np.float32]:
        return make(blocks()).reshape(len(rows), -1)

    minimums = held.minimums
    return Scaled(
        shape,
        held.kind,
        GROUP,
        lambda: held.values(blocks()).reshape(shape),
        lambda: of_groups(held.scales),
        None if minimums is None else lambda: of_groups(minimums),
        scales_in=held.scales_in,
    )


def _block(kind: str) -> tuple[int, int]:
    """The elements of a block, and its bytes."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    return GGML_QUANT_SIZES[GGMLQuantizationType[kind]]


def _dequantized(kind: str, rows: Bytes) -> NDArray[np.float32]:
    """The values of rows of any type, as the package `gguf` computes them."""
    from gguf import GGMLQuantizationType, dequantize

    elements, size = _block(kind)
    found = np.empty((len(rows), rows.shape[1] // size * elements), np.float32)
    some = max(1, CHUNK // found.shape[1])
    for start in range(0, len(rows), some):
        part = slice(start, start + some)
        found[part] = dequantize(rows[part], GGMLQuantizationType[kind])
    return found
