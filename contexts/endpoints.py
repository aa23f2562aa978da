"""Where a request is routed to."""

from __future__ import annotations


def check_endpoint(endpoint: str | None) -> None:
    """Refuse an endpoint that is not None, `tcp://host:port` or `ipc://path`.

    Raises:
        ValueError: It is of another form.
    """
    if endpoint is None or (endpoint.startswith("ipc://") and len(endpoint) > len("ipc://")):
        return
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(endpoint)
        valid = parts.scheme == "tcp" and bool(parts.hostname) and parts.port is not None
    except ValueError:  # a port that is no number
        valid = False
    if not valid:
        raise ValueError(
            f"target_endpoint: wanted None, tcp://host:port or ipc://path, got {endpoint!r}"
        )
