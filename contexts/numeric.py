"""Plain values as they are given: Python's and NumPy's; integers are no truth values."""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any


def is_whole(value: object) -> bool:
    """Whether `value` is an integer."""
    return type(value) is int or (hasattr(value, "__index__") and not isinstance(value, bool))


def is_number(value: object) -> bool:
    """Whether `value` is an integer or a fraction."""
    # The first two are told without an abstract class.
    return isinstance(value, (float, int, Real)) and not isinstance(value, bool)


def not_negative(name: str, value: Any) -> int:
    """`value` as an int.

    Raises:
        TypeError: It is no integer; `name` is whose argument it is.
        ValueError: It is negative.
    """
    number = whole(name, value)
    if number < 0:
        raise ValueError(f"{name}: wanted an integer of at least 0, got {number}")
    return number


def as_array(value: Any) -> Any:
    """A number, or a list of numbers or lists, as an array of NumPy; any array as it is."""
    import numpy as np

    is_array = hasattr(value, "dtype") and not isinstance(value, np.generic)
    return value if is_array else np.asarray(value)


def is_masked(array: object) -> bool:
    """Whether `array` is a masked one of NumPy, whose mask no context would look at.

    `heddle.runtime.masked` says the same; contexts are there without loading the runtime.
    """
    import numpy as np  # numbers alone need none

    # The first test spares the import of `numpy.ma`.
    return type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray)


def token_error(value: Any) -> Exception:
    """The error of a token that is no integer, is negative, or does not fit an int64."""
    try:
        return ValueError(
            f"token: wanted an integer from 0 to 2**63 - 1, got {operator.index(value)}"
        )
    except TypeError:
        return TypeError(f"token: wanted an integer, got {value!r}")


def text(name: str, value: Any) -> str:
    """`value`, a text.

    Raises:
        TypeError: It is none; `name` is whose argument it is.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name}: wanted a text, got {value!r}")
    return value


def whole(name: str, value: Any) -> int:
    """`value` as an int.

    Raises:
        TypeError: It is no integer; `name` is whose argument it is.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: wanted an integer, got {value!r}") from None
