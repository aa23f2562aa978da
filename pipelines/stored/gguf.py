"""Weights in the blocks of GGML, as GGUF files have them (ggml-quants.c of the ggml project).

A block is a few elements along k with what they share. That of Q8_0, Q5_0 and Q4_0 is 32 integers
and a scale in float16, which a graph holds as they are. Those of the other types, the K-quants
among them, have offsets, scales for fewer elements or a table of values: such a weight becomes
floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.pipelines.quantization import CHUNK, array_of
from heddle.pipelines.stored.parts import Parts
from heddle.pipelines.stored.product import Made, Plain, Product, Scaled, Stack

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from heddle.pipelines.weights import Array

    Bytes = NDArray[np.uint8]

DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""The dtypes of the types that are floats."""

SCALE = 2
"""Bytes of their scale, the first ones."""


def _of_8_bits(blocks: Bytes) -> NDArray[np.int8]:
    return np.ascontiguousarray(blocks).view(np.int8)


def _of_4_bits(blocks: Bytes) -> NDArray[np.int8]:
    """The lower halves of all bytes come first, each integer plus 8."""
    return np.subtract(_halves(blocks), 8, dtype=np.int8, casting="unsafe")


def _of_5_bits(blocks: Bytes) -> NDArray[np.int8]:
    """Four bytes have the highest bits; each integer plus 16."""
    highest = np.unpackbits(blocks[..., :4], axis=-1, bitorder="little")
    raised = highest << np.uint8(4) | _halves(blocks[..., 4:])
    found: NDArray[np.int8] = np.subtract(raised, 16, dtype=np.int8, casting="unsafe")
    return found


def _halves(found: Bytes) -> Bytes:
    return np.concatenate([found & 15, found >> 4], axis=-1)


INTEGERS: dict[str, tuple[str, Callable[[Bytes], NDArray[np.int8]]]] = {
    "Q8_0": ("int8", _of_8_bits),
    "Q5_0": ("int8", _of_5_bits),
    "Q4_0": ("int4", _of_4_bits),
}
"""What the integers of a type are, and what makes them of blocks without their scale."""


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

    Attributes:
        kinds: The types that it has.
        paired: The heads of those products whose rows are put in pairs, by how their names end.
    """

    kinds: Iterable[str]
    paired: Mapping[str, int]

    @property
    def marks(self) -> tuple[str, ...]:
        """The types, each with a dot."""
        return tuple(f".{kind}" for kind in self.kinds)

    @property
    def parts(self) -> tuple[str, ...]:
        """The same."""
        return self.marks

    def product(self, parts: Parts) -> Product:
        """The weight with this part."""
        ((end, array),) = parts.found.items()
        rows, kind = np.asarray(array), end[1:]
        if kind not in DTYPES and kind not in INTEGERS:
            try:
                _dequantized(kind, rows.reshape(-1, rows.shape[-1])[:1])
            except NotImplementedError:
                raise parts.error(end, "a type that the package gguf reads", kind) from None
        if rows.ndim == 3:
            return Stack([_product(kind, each, 0) for each in rows])
        return _product(kind, rows, self.paired.get(parts.name.rpartition(".")[2], 0))


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
    if kind not in INTEGERS:
        return Made(shape, kind, lambda: _dequantized(kind, ordered()))
    held, integers = INTEGERS[kind]

    def blocks() -> Bytes:
        return ordered().reshape(len(rows), -1, size)

    def scales() -> NDArray[np.float32]:
        given = np.ascontiguousarray(blocks()[..., :SCALE]).view(np.float16)
        return given[..., 0].astype(np.float32)

    return Scaled(
        shape, held, elements, lambda: integers(blocks()[..., SCALE:]).reshape(shape), scales
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
