"""The values of a model's JSON files, each checked as it is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from heddle.pipelines.json_files import read_object
from heddle.pipelines.models import config_checks
from heddle.runtime.errors import GraphError


class Values:
    """A JSON object's values by their keys.

    Each method takes the keys that a value may have, of which the first one that is there counts;
    null is as if it were not. Without a `default` there must be one. Errors begin with `before`.
    """

    def __init__(self, values: Mapping[str, Any], before: str = "") -> None:
        self._values = values
        self._before = before

    @staticmethod
    def read(path: Path) -> Values:
        """Those of the file `path`.

        Raises:
            GraphError: It is missing, or no JSON object.
        """
        return Values(read_object(path), f"{path}: ")

    @staticmethod
    def read_if_there(path: Path) -> Values:
        """As `read`; no values where there is no such file."""
        return Values.read(path) if path.is_file() else Values({}, f"{path}: ")

    def error(self, name: str, wanted: str, got: Any) -> GraphError:
        """That the value `name` is another one than is wanted."""
        return GraphError(f"{self._before}{name}: wanted {wanted}, got {got!r}")

    def all(self) -> Mapping[str, Any]:
        """The whole object."""
        return self._values

    def get(self, *names: str, default: Any = None) -> Any:
        """A value of any kind."""
        return self._found(names, default)[1]

    def count(self, *names: str, least: int = 1, default: int | None = None) -> int:
        """An integer of at least `least`."""
        name, value = self._found(names, default)
        config_checks.check_count(self._before + name, value, least)
        return int(value)

    def positive(self, *names: str, default: float | None = None) -> float:
        """A finite number above 0."""
        name, value = self._found(names, default)
        config_checks.check_positive(self._before + name, value)
        return float(value)

    def flag(self, *names: str, default: bool | None = None) -> bool:
        """True or false."""
        name, value = self._found(names, default)
        config_checks.check_flag(self._before + name, value)
        return bool(value)

    def text(self, *names: str, default: str | None = None) -> str:
        """A string."""
        name, value = self._found(names, default)
        if not isinstance(value, str):
            raise self.error(name, "a text", value)
        return value

    def choice(self, *names: str, among: Collection[str], default: str | None = None) -> str:
        """One of the strings `among`."""
        name, value = self._found(names, default)
        return config_checks.check_choice(self._before + name, value, among)

    def object(self, name: str) -> Values:
        """Another object, or an empty one where there is none."""
        value = self.get(name, default={})
        if not isinstance(value, dict):
            raise self.error(name, "a JSON object", value)
        return Values(value, f"{self._before}{name}: ")

    def refuse(self, **wanted: Any) -> None:
        """Refuses what is there with another value than the one that the model is computed with."""
        for name, value in wanted.items():
            config_checks.refuse({self._before + name: self.get(name)}, self._before + name, value)

    def _found(self, names: tuple[str, ...], default: Any) -> tuple[str, Any]:
        for name in names:
            if self._values.get(name) is not None:
                return name, self._values[name]
        return names[0], default
