"""Errors of the API, in OpenAI's form: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import logging
import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

LOG = logging.getLogger("heddle.serving")

KINDS = {429: "rate_limit_error", 500: "server_error", 503: "server_error"}
"""The `type` of an error by its status; that of others is `invalid_request_error`."""

UNKNOWN = "extra_forbidden"
"""What pydantic calls a name that a record does not have."""


class ApiError(Exception):
    """An answer that is an error.

    Args:
        status: That of HTTP.
        message: One sentence.
        param: The name in the request that it is about.
        code: A word for programs.
        headers: Of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.headers = headers

    def body(self) -> dict[str, Any]:
        """What the client reads."""
        kind = KINDS.get(self.status, "invalid_request_error")
        fields = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": fields}


class QueueFullError(ApiError):
    """More requests at once than the server takes; the client may come again."""

    def __init__(self, most: int) -> None:
        super().__init__(
            429,
            f"server: wanted at most {most} texts at once, got one more; try again later",
            code="queue_full",
            headers={"Retry-After": "1"},
        )


class GoneError(ApiError):
    """A client that has gone before its answer came; nobody reads it."""

    def __init__(self) -> None:
        super().__init__(499, "client: wanted it to wait for the answer, it has gone")


class LostError(ApiError):
    """A model that failed, and answers no more."""

    def __init__(self, model: str, error: Exception) -> None:
        super().__init__(500, f"model {model!r} is lost: {error}", code="model_lost")


def failure(error: Exception) -> ApiError:
    """What the client is told of an error; one that nobody has foreseen is logged, too."""
    if isinstance(error, ApiError):
        return error
    LOG.error("server: a request failed", exc_info=error)
    return ApiError(500, f"server: {type(error).__name__}: {error}")


def refused(error: ValueError) -> ApiError:
    """What Heddle refuses as a bad request, in its own words."""
    message = str(error)
    name, dot, rest = message.partition(".")
    if name != "SamplingParams" or not dot:
        return ApiError(400, message)
    return ApiError(400, rest, param=rest.partition(":")[0])


def no_request(place: str, error: Any) -> ApiError:
    """What the framework refuses by itself: a place that is none, or a body that is no JSON."""
    if error.status_code in (404, 405):
        message = f"{place}: wanted an endpoint of this server: {error.detail}"
    else:
        message = f"body: wanted JSON, got an error: {error.__cause__ or error.detail}"
    return ApiError(error.status_code, message, headers=error.headers)


def invalid(errors: Sequence[Any]) -> ApiError:
    """What pydantic found wrong in a body, by the first place where something is."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return ApiError(400, f"body: wanted JSON, got an error: {first['ctx']['error']}")
    if isinstance(first.get("input"), bytes):  # which the framework takes for no JSON
        return ApiError(400, "Content-Type: wanted application/json, got another type or none")
    place = first["loc"][1:]
    if first["type"] == UNKNOWN:
        name = ".".join(map(str, place))
        message = f"body: wanted names that this endpoint knows, got {name!r}"
        return ApiError(400, message, name, "unknown_parameter")
    name = str(place[0]) if place else "body"
    got = "nothing" if first["type"] == "missing" else reprlib.repr(first["input"])
    return ApiError(400, f"{name}: wanted {_wanted(first['msg'])}, got {got}", name)


def _wanted(message: str) -> str:
    """What pydantic says, as what was wanted."""
    if message == "Field required":
        return "a value"
    return re.sub(r"^\w+ should (be |(?=have ))", "", message).replace("have ", "to have ", 1)
