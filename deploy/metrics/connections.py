"""Connections of the web server: how many there may be, how long one may take to ask, and how long it may take nothing."""

from __future__ import annotations

import asyncio
import json
import socket
from functools import partial
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from dskype.topology.ui.budget import BusyError, Usage, address_of

__all__ = ["protocol"]

_HIGH_BYTES, _LOW_BYTES, _KERNEL_BYTES = 64 << 10, 16 << 10, 128 << 10
"""What may wait in the process for a client until the server writes nothing more, when it goes on, and what may wait in the system."""
_LOOK_S = 1.0
_LINGER_S, _LINGERING = 0.5, 64
"""How long a refused client may take to read why, and how many may at the same time."""


def protocol(usage: Usage, proxies: frozenset[str]) -> Any:
    """Return what makes the protocol of a connection, for uvicorn.

    :param usage: what readers use, and may use.
    :param proxies: addresses from which many readers come: the limit per address does not count for them.
    """
    return partial(_Connection, usage=usage, proxies=proxies, lingering=set())


class _Connection(H11Protocol):
    def __init__(self, *arguments: Any, usage: Usage, proxies: frozenset[str], lingering: set[Any], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._usage, self._proxies, self._lingering = usage, proxies, lingering
        self._entered = False
        self._address = ""
        self._timer: asyncio.TimerHandle | None = None
        self._asked_s = self._taken_s = self.loop.time()
        self._unsent = 0

    def connection_made(self, transport: Any) -> None:
        """Take a place, or say that there is none."""
        super().connection_made(transport)
        host = self.client[0] if self.client else ""
        self._address = address_of(host)
        try:
            self._usage.connections.enter(self._address, shared=host in self._proxies)
        except BusyError as error:
            self._refuse(error)
            return
        self._entered = True
        transport.set_write_buffer_limits(_HIGH_BYTES, _LOW_BYTES)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL_BYTES)
        self._look()

    def _refuse(self, error: BusyError) -> None:
        self._usage.note(error.limit)
        if len(self._lingering) >= _LINGERING:
            self.transport.abort()
            return
        body = json.dumps({"error": f"{error.status} Busy", "errorMessage": str(error)}).encode()
        head = f"HTTP/1.1 {error.status} Busy\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nRetry-After: {error.retry_after_s}\r\n"
        self.transport.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        # Closed at once, with the request unread, the client's system would throw the answer away.
        self._lingering.add(self)
        self._timer = self.loop.call_later(_LINGER_S, self.transport.close)

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request; those of a refused connection are thrown away."""
        if self._entered:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._lingering.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._entered:
            self._entered = False
            self._usage.connections.leave(self._address)
        super().connection_lost(exc)

    def _look(self) -> None:
        """Drop the connection if its client has not asked for so long, or has taken nothing for so long."""
        now_s, unsent, budget = self.loop.time(), self.transport.get_write_buffer_size(), self._usage.budget
        if self.cycle is not None and not self.cycle.response_complete:
            self._asked_s = now_s
        if not self.flow.write_paused or unsent != self._unsent:
            self._taken_s, self._unsent = now_s, unsent
        for limit, since_s in (("head_s", self._asked_s), ("stall_s", self._taken_s)):
            if now_s - since_s > getattr(budget, limit):
                self._usage.note(limit)
                self.transport.abort()
                return
        self._timer = self.loop.call_later(_LOOK_S, self._look)
