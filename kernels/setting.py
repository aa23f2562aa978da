"""What is in force while something is emitted, and is not handed from function to function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

T = TypeVar("T")


class Setting(Generic[T]):
    """A value that holds within a `with`, in one thread: `start` outside of all."""

    def __init__(self, name: str, start: T) -> None:
        self._variable: ContextVar[T] = ContextVar(name, default=start)

    def get(self) -> T:
        """The value in force."""
        return self._variable.get()

    @contextmanager
    def to(self, value: T) -> Iterator[None]:
        """Within this, the setting is `value`."""
        token = self._variable.set(value)
        try:
            yield
        finally:
            self._variable.reset(token)
