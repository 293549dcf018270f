"""The server under the service: uvicorn, with limits on what a connection may take before it is a request.

uvicorn lets a connection stay open that never sends a whole head. A few hundred of them would be all that it accepts.
"""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from msgspec import Struct
from uvicorn.protocols.http.h11_impl import H11Protocol


class Limits(Struct, frozen=True):
    """`connections`: open ones; a further one is answered with 503. `idle` and `head`: seconds that a connection stays
    open without a request, and until the head of one is there. `largest_head`: bytes of its line and headers."""

    connections: int = 256
    idle: int = 5
    head: float = 5.0
    largest_head: int = 16 << 10


def config(app: Any, limits: Limits, **more: Any) -> uvicorn.Config:
    """How the server runs an application. h11, since it bounds a request's head."""

    def protocol(*args: Any, **kwargs: Any) -> Guarded:
        return Guarded(limits.head, *args, **kwargs)

    return uvicorn.Config(
        app,
        limit_concurrency=limits.connections,
        timeout_keep_alive=limits.idle,
        h11_max_incomplete_event_size=limits.largest_head,
        http=protocol,
        ws="none",
        lifespan="off",
        server_header=False,
        access_log=False,
        log_level="warning",
        **more,
    )


class Guarded(H11Protocol):  # type: ignore[misc]
    """A connection that is closed where the head of a request does not come in time."""

    def __init__(self, seconds: float, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    @property
    def _between(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def _watch(self) -> None:
        if not self._between:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._seconds, self._late)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self._between and not self.transport.is_closing():
            self.transport.close()
