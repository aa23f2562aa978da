"""The tensors that a product's weight is stored as, and what the configuration says of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from heddle.pipelines.quantization import bits_of, widened
from heddle.pipelines.stored.product import FLOATS, Product
from heddle.runtime.errors import ArtifactError, ArtifactReason, GraphError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from heddle.pipelines.weights import Array

Settings = Mapping[str, Any]
"""The `quantization_config` of a checkpoint's `config.json`, or a part of it."""

Form = TypeVar("Form")

METHOD = "quant_method"
"""The key of the method's name."""

DYNAMIC, WITH, WITHOUT = "dynamic", "+:", "-:"
"""The key for products that have settings of their own, and what stands before their names."""


@dataclass(frozen=True)
class Parts:
    """The tensors of the product `name` in the file or index `path`, by the ends of their names."""

    path: Path
    name: str
    found: Mapping[str, Array]

    def __contains__(self, end: str) -> bool:
        return end in self.found

    def dtype(self, end: str) -> str:
        """The dtype of the tensor with this end; that of none is empty."""
        return str(self.found[end].dtype) if end in self else ""

    def bits(self, end: str, dtypes: Sequence[str], shape: Sequence[int | None]) -> NDArray[Any]:
        """The tensor with this end, as `bits_of` gives it; None stands for any size but 0.

        Raises:
            ArtifactError: There is none, or it has another dtype or shape.
        """
        sizes = ", ".join("any" if size is None else str(size) for size in shape)
        wanted = f"{' or '.join(dtypes)} [{sizes}]"
        array = self.found.get(end)
        if array is None:
            raise self.error(end, wanted, "none")
        given = tuple(array.shape)
        right = len(given) == len(shape) and all(
            own > 0 and size in (None, own) for size, own in zip(shape, given, strict=True)
        )
        if str(array.dtype) not in dtypes or not right:
            raise self.error(end, wanted, f"{array.dtype} {list(given)}")
        return bits_of(array)

    def floats(self, end: str, shape: Sequence[int | None] | None = None) -> NDArray[np.float32]:
        """As `bits`, of floats, which come in float32; of any shape, if none is given."""
        own = self.found[end].shape if end in self else ()
        return widened(self.bits(end, FLOATS, own if shape is None else shape))

    def error(self, end: str, wanted: str, got: str) -> ArtifactError:
        """What is wrong with the tensor that has this end."""
        message = f"{self.path}: {self.name}{end}: wanted {wanted}, got {got}"
        return ArtifactError(message, ArtifactReason.WEIGHTS)


class Method(Protocol):
    """A way to store the weights of products."""

    @property
    def marks(self) -> tuple[str, ...]:
        """The ends of names by one of which such a product is known."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The ends of all tensors that belong to it."""

    def product(self, parts: Parts) -> Product:
        """The weight with these parts.

        Raises:
            ArtifactError: One is missing, or has another dtype or shape.
        """


def choice(settings: Settings, key: str, wanted: Sequence[Any], default: Any = None) -> Any:
    """The value of `key`, or the default where it says nothing, which is one of `wanted`.

    Raises:
        GraphError: It is another one.
    """
    value = settings.get(key)
    value = default if value is None else value
    if type(value) is not type(wanted[0]) or value not in wanted:
        raise wrong(settings, key, " or ".join(map(repr, wanted)), value)
    return value


def variant(settings: Settings, older: str, wanted: Sequence[str]) -> str:
    """Which of the variants `wanted` it is, in small letters: by default the first one.

    `format` says so, and by an `older` name of that key.

    Raises:
        GraphError: It is another one, or both keys are there and differ.
    """
    keys = [key for key in (older, "format") if settings.get(key) is not None]
    said = [choice(settings, key, wanted).lower() for key in keys]
    if len(set(said)) > 1:
        raise wrong(settings, "format", f"{said[0]!r}, as {older} says", said[1])
    return next(iter(said), wanted[0])


def group_size(settings: Settings) -> int:
    """The elements along k with one scale; 0: the whole row has one.

    Raises:
        GraphError: It is no size.
    """
    value = settings.get("group_size")
    if type(value) is not int or (value < 1 and value != -1):
        raise wrong(settings, "group_size", "-1 or an integer of at least 1", value)
    return max(value, 0)


def block_size(settings: Settings, key: str) -> tuple[int, int] | None:
    """Rows and elements along k with one scale; None: it does not say.

    Raises:
        GraphError: They are no sizes.
    """
    value = settings.get(key)
    if value is None:
        return None
    sizes = value if isinstance(value, list) else []
    if len(sizes) != 2 or not all(type(size) is int and size > 0 for size in sizes):
        raise wrong(settings, key, "two integers of at least 1", value)
    return sizes[0], sizes[1]


def of_each(settings: Settings, read: Callable[[Settings], Form]) -> Callable[[Parts], Form]:
    """What gives what `read` makes of the settings of a product.

    `dynamic` has those of some products, as GPTQModel writes it: by regular expressions of how
    their names begin, behind `+:` or nothing, what they have otherwise; behind `-:` which ones are
    not quantized. The first expression that fits counts.

    Raises:
        GraphError: A key or a value is none that can be.
    """
    own = section(settings, DYNAMIC)
    others: list[tuple[str, re.Pattern[str], Form | None]] = []
    for key in own:
        if key != METHOD:
            try:
                pattern = re.compile(key.removeprefix(WITHOUT).removeprefix(WITH))
            except re.error as error:
                raise wrong(settings, DYNAMIC, "regular expressions", f"{key}: {error}") from None
            changes = section(own, key)
            form = None if key.startswith(WITHOUT) else read({**settings, **changes})
            others.append((key, pattern, form))
    default = read(settings)

    def found(parts: Parts) -> Form:
        for key, pattern, form in others:
            if pattern.match(parts.name):
                if form is None:
                    end = next(iter(parts.found))
                    raise parts.error(end, f"none, as {DYNAMIC} says by {key!r}", parts.dtype(end))
                return form
        return default

    return found


def section(settings: Settings, key: str) -> Settings:
    """The JSON object that is the value of `key`, with the method in it; empty if there is none.

    Raises:
        GraphError: It is no JSON object.
    """
    value = settings.get(key)
    if not isinstance(value, (dict, type(None))):
        raise wrong(settings, key, "a JSON object", value)
    return {**(value or {}), METHOD: settings.get(METHOD)}


def wrong(settings: Settings, key: str, wanted: str, got: Any) -> GraphError:
    """What is wrong with a value of the configuration."""
    return GraphError(
        f"quantization_config of {settings.get(METHOD)}: {key}: wanted {wanted}, got {got!r}"
    )
