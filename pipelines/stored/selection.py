"""Those weights that a graph asks for, from what a checkpoint holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heddle.pipelines.quantization import array_of, bits_of, widened
from heddle.pipelines.stored.awq import Awq
from heddle.pipelines.stored.compressed_tensors import CompressedTensors
from heddle.pipelines.stored.fp8 import Fp8
from heddle.pipelines.stored.gptq import Gptq
from heddle.pipelines.stored.mxfp4 import Mxfp4
from heddle.pipelines.stored.parts import METHOD, Method, Parts, Settings
from heddle.pipelines.stored.product import (
    FLOATS,
    FLOATS_OF_8_BITS,
    Form,
    Made,
    Plain,
    Product,
    Stack,
    turned,
)
from heddle.runtime.errors import ArtifactError, ArtifactReason, GraphError

if TYPE_CHECKING:
    from heddle.pipelines.weights import Array

SETTINGS, OLDER = "quantization_config", "compression_config"
"""The key that says how weights are stored, and what compressed-tensors once called it."""

COMPRESSED_TENSORS = "compressed-tensors"

METHODS: dict[str, Callable[[Settings], Method]] = {
    "gptq": Gptq,
    "awq": Awq,
    COMPRESSED_TENSORS: CompressedTensors,
    "fp8": Fp8,
    "mxfp4": Mxfp4,
}
"""What reads a checkpoint, by the `quant_method` that it names."""

EXPERT = re.compile(r"(.*\.experts)\.(\d{1,9})\.(.*)")
"""The name of an expert's weight, or of a tensor that it is stored as."""

END = ".weight"
"""How the name of a weight ends, behind that of its product."""

SIDES = (".scales", ".minimums")
"""How those end that a graph has beside the integers of a product."""

ORDER = ".order"
"""How the order of their elements along k ends."""

MADE = (END, ".integers", *SIDES, ORDER)
"""How those end that a graph has of a product."""

TURNED = re.compile(r".*\.experts\.\w+_proj")
"""The name of experts' weights that are stored as one [experts, k, n], as gpt-oss has them.

Mistral Small 4 has them as [experts, n, k], which the sizes of both products of a layer say.
"""

OF_GPT2 = re.compile(r"((?:.*\.)?h\.\d{1,9})\.(?:attn\.c_(?:attn|proj)|mlp\.c_(?:fc|proj))")
"""The name of a layer's product as GPT-2 calls it, whose weights are [k, n]."""

Wanted = Mapping[str, tuple[str, tuple[int, ...]]]
"""Dtype and shape of weights by name."""


class Stored:
    """The weights of a checkpoint, by the names that a graph has for them.

    Args:
        path: The file or index that they were read from.
        arrays: All of its tensors.
        method: How the weights of products are stored; None: in floats.

    Raises:
        ArtifactError: Tensors of a product are missing, or have other dtypes or shapes.

    Attributes:
        arrays: All of its tensors.
        products: The weights of products by their names; those of experts also side by side.
    """

    def __init__(
        self, path: Path, arrays: Mapping[str, Array], method: Method | None = None
    ) -> None:
        self.path, self.arrays = path, arrays
        self.products: dict[str, Product] = {}
        self._owners: dict[str, str] = {}
        if method is not None:
            self._read(method)
        for name, array in arrays.items():
            kind = str(array.dtype)
            if name in self._owners or kind not in FLOATS:
                continue
            if name.endswith(END) and len(array.shape) == 3 and array.shape[0]:
                each = [Plain(array_of(bits, kind)) for bits in bits_of(array)]
                self._add(name.removesuffix(END), Stack(each), [END])
            elif name.endswith(END):
                stem = name.removesuffix(END)
                self._add(stem, self._of_gpt2(stem, array) or Plain(array), [END])
            elif TURNED.fullmatch(name) and len(array.shape) == 3 and array.shape[0]:
                lies_turned = self._lies_turned(name.rpartition(".")[0])
                experts: list[Product] = [
                    turned(bits, kind) if lies_turned else Plain(array_of(bits, kind))
                    for bits in bits_of(array)
                ]
                self._add(name, Stack(experts), [""])
        self._stacks: dict[str, str] = {}
        for name, numbered in self._experts().items():
            self.products[name] = self._stacked(name, numbered)

    def _read(self, method: Method) -> None:
        """Adds the products that are stored so."""
        for name in self.arrays:
            for mark in method.marks:
                if name.endswith(mark) and name not in self._owners:
                    stem = name.removesuffix(mark)
                    ends = [end for end in method.parts if stem + end in self.arrays]
                    parts = Parts(self.path, stem, {end: self.arrays[stem + end] for end in ends})
                    self._add(stem, method.product(parts), ends)

    def _of_gpt2(self, stem: str, array: Array) -> Product | None:
        """The weight [n, k] that is stored as [k, n], which the sizes of its layer say."""
        match = OF_GPT2.fullmatch(stem)
        joined = self.arrays.get(f"{match[1]}.attn.c_attn{END}") if match else None
        if joined is None or len(array.shape) != 2 or len(joined.shape) != 2:
            return None
        k, n = joined.shape
        return turned(bits_of(array), str(array.dtype)) if n == 3 * k else None

    def _lies_turned(self, at: str) -> bool:
        """Whether the experts `at` are stored as [experts, k, n]."""
        both = [self.arrays.get(f"{at}.{name}_proj") for name in ("gate_up", "down")]
        sizes = [tuple(array.shape[1:]) for array in both if array is not None]
        if [len(size) for size in sizes] != [2, 2]:
            return True
        (rows, columns), (outer, inner) = sizes
        return (rows, columns) != (2 * inner, outer)

    def _add(self, name: str, product: Product, ends: Iterable[str]) -> None:
        self.products[name] = product
        self._owners |= {name + end: name for end in ends}

    def _experts(self) -> dict[str, dict[int, Product]]:
        """The products of experts by the name of their stack and their number."""
        found: dict[str, dict[int, Product]] = {}
        for name, product in self.products.items():
            if match := EXPERT.fullmatch(name):
                before, number, rest = match.groups()
                self._stacks[name] = stack = f"{before}.{rest}"
                found.setdefault(stack, {})[int(number)] = product
        return found

    def _stacked(self, name: str, experts: Mapping[int, Product]) -> Stack:
        numbers = range(len(experts))
        lost = next((number for number in numbers if number not in experts), None)
        if lost is not None:
            raise self._bad(f"{name}: wanted all experts up to {max(experts)}, got no {lost}")
        for number in numbers:
            wanted, got = (list(experts[place].shape) for place in (0, number))
            if wanted != got:
                raise self._bad(f"{name}: wanted {wanted}, as expert 0, got {got}, expert {number}")
        return Stack([experts[number] for number in numbers])

    def serves(self, weights: Container[str], name: str) -> bool:
        """Whether the tensor `name`, or what it is a part of, is one of a graph's `weights`."""
        owner = self._owners.get(name, name)
        stems = (owner, self._stacks.get(owner, owner))
        return name in weights or any(stem + end in weights for stem in stems for end in MADE)

    def select(self, wanted: Wanted) -> dict[str, Array]:
        """The weights `wanted`, but for those that it lacks: loading says what is missing.

        `X.weight` is a tensor as it is, or made of a product's values and scales; `X.integers`,
        `X.scales`, `X.minimums` and `X.order` are those of the product, or rounded, in dtypes and
        groups that shapes say.

        Raises:
            ArtifactError: A weight has another shape, does not fit floats of 8 bits, has another
                order, or its scales are larger than their dtype has them.
        """
        found: dict[str, Array] = {}
        for name, (dtype, shape) in wanted.items():
            stem, _, end = name.rpartition(".")
            product = self.products.get(stem)
            if product and end == "integers" and f"{stem}.scales" in wanted:
                found |= self._quantized(stem, product, wanted)
            elif name in found:
                pass
            elif name in self.arrays and self._is_itself(name, dtype, shape):
                found[name] = self.arrays[name]
            elif product and end == "weight":
                self._check(stem, product, shape)
                found[name] = product.floats(dtype)
        return found

    def _quantized(self, stem: str, product: Product, wanted: Wanted) -> dict[str, Array]:
        """What a graph has of a product in integers, or in floats of 8 bits."""
        names = [f"{stem}{end}" for end in (".integers", *SIDES) if f"{stem}{end}" in wanted]
        dtype, shape = wanted[names[0]]
        scales, (*_, groups) = wanted[names[1]]
        k, counted = product.shape[-1], len(names) > 2
        halves = dtype == "uint8" and not (counted and shape[-1] == k)
        self._check(stem, product, (*shape[:-1], shape[-1] * (1 + halves)))
        kind = f"{'u' * counted}int4" if halves else dtype
        form = Form(kind, k // groups, scales, f"{stem}{ORDER}" in wanted)
        got = f"{product.kind} in groups of {product.group}"
        if kind in FLOATS_OF_8_BITS and not product.fits(form):
            raise self._bad(f"{stem}{END}: wanted {kind} in groups of {form.group}, got {got}")
        if form.ordered and product.order is None:
            raise self._bad(f"{stem}{END}: wanted groups in an order of their own, got {got}")
        made = product.quantized(form)
        for side in made[1:]:
            kept = widened(bits_of(side))
            if np.isnan(kept).any():
                raise self._bad(f"{stem}{END}: wanted scales that are numbers, got nan")
            if np.isinf(kept).any():
                raise self._bad(
                    f"{stem}{END}: wanted scales that {scales} has, got larger ones: take "
                    "--quantize float"
                )
        order = {} if product.order is None else {f"{stem}{ORDER}": product.order}
        return dict(zip(names, made, strict=True)) | (order if form.ordered else {})

    def _is_itself(self, name: str, dtype: str, shape: tuple[int, ...]) -> bool:
        """Whether a tensor is no part of a product, or the part itself is wanted."""
        array, owner = self.arrays[name], self._owners.get(name)
        if owner is None or isinstance(self.products[owner], Plain):
            return True
        same = (str(array.dtype), tuple(array.shape)) == (dtype, shape)
        # One that is stored turned may have the very shape of the weight.
        return same and not isinstance(self.products[owner], Made)

    def _check(self, stem: str, product: Product, wanted: tuple[int, ...]) -> None:
        if product.shape != wanted:
            raise self._bad(f"{stem}{END}: wanted {list(wanted)}, got {list(product.shape)}")

    def _bad(self, what: str) -> ArtifactError:
        return ArtifactError(f"{self.path}: {what}", ArtifactReason.WEIGHTS)


def method_in(values: Mapping[str, Any]) -> Method | None:
    """What reads a checkpoint whose `config.json` has these keys and values; None: it is in floats.

    Models of images, too, may have the settings in `text_config`. Older checkpoints of
    compressed-tensors call them `compression_config`, and need not name the method.

    Raises:
        GraphError: As `method_of`; or two places say different things.
    """
    text = values.get("text_config")
    older = values.get(OLDER)
    if isinstance(older, dict):
        older = {METHOD: COMPRESSED_TENSORS, **older}
    places = {
        SETTINGS: values.get(SETTINGS),
        f"text_config: {SETTINGS}": text.get(SETTINGS) if isinstance(text, dict) else None,
        OLDER: older,
    }
    (first, settings), *others = [
        (place, found) for place, found in places.items() if found is not None
    ] or [("", None)]
    for place, found in others:
        if found != settings:
            raise GraphError(f"{place}: wanted the same as in {first}, got other settings")
    return None if settings is None else method_of(settings)


def method_of(settings: Settings) -> Method:
    """What reads a checkpoint of these settings.

    Raises:
        GraphError: It is a method, or a variant of one, that Heddle does not read.
    """
    if not isinstance(settings, dict):
        raise GraphError(f"{SETTINGS}: wanted a JSON object, got {settings!r}")
    name = settings.get(METHOD)
    if not isinstance(name, str) or name not in METHODS:
        known = ", ".join(METHODS)
        raise GraphError(
            f"{SETTINGS}: {METHOD}: wanted one of {known}, got {name!r}; take the "
            "model's checkpoint in floats, which --quantize makes smaller"
        )
    return METHODS[name](settings)
