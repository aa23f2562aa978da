"""The server's socket and its life: until SIGINT or SIGTERM, and what runs then for a while."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from heddle.runtime.errors import InputError


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes one that is free.

    Raises:
        InputError: The address is not here, or not free.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while ")[0]  # it says the address again
        raise InputError(f"{host}:{port}: wanted an address to listen at, got: {why}") from None


def address(listener: socket.socket) -> str:
    """Where clients find it."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Serves an application.

    Args:
        app: The application.
        grace: Seconds that what runs gets at a signal.
        ready: Called once requests are answered.
    """

    def __init__(self, app: FastAPI, grace: int, ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=grace,
                lifespan="on",
            )
        )
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's; then says so."""
        await super().startup(sockets)
        self._ready()


def serve(app: FastAPI, listener: socket.socket, grace: int, ready: Callable[[], None]) -> None:
    """Serves `app` until SIGINT or SIGTERM; what runs then has `grace` seconds, a second one none.

    `ready` is called once requests are answered.
    """
    # uvicorn raises the signal again at its end, for who has handled it before.
    signal.signal(signal.SIGTERM, lambda *_: None)
    with suppress(KeyboardInterrupt):
        Server(app, grace, ready).run(sockets=[listener])
