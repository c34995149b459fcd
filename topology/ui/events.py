"""Server-sent events: what a page or a program follows over one long answer (the HTML standard, section "Server-sent events")."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

__all__ = ["Event", "EventSource", "EventStream", "last_event_id"]

_BEGIN = b"retry: 1000\n\n"
"""A client that is cut off comes back after a second."""
_NO_EVENT = b":\n\n"
"""A comment: shows that the connection lives."""
_PART_BYTES = 64 << 10
"""How much is handed to the connection at once."""


@dataclass(frozen=True)
class Event:
    """One event.

    :ivar name: its type, which listeners choose by; a word.
    :ivar data: JSON-able. None: no event, only its id is noted.
    :ivar id: where to resume after it: a client that reconnects sends it in the header ``Last-Event-ID``. Without line breaks.
    """

    name: str = ""
    data: Any = None
    id: str = ""

    def encode(self) -> bytes:
        r"""Return the lines of the event.

        >>> Event("result", {"rank": 1}, "r0:7").encode()
        b'id: r0:7\nevent: result\ndata: {"rank": 1}\n\n'
        """
        lines = [f"id: {self.id}"] if self.id else []
        if self.data is not None:
            lines += [f"event: {self.name}"] if self.name else []
            # JSON has no line breaks outside of strings, and none as such within them.
            lines.append(f"data: {json.dumps(self.data, ensure_ascii=False, default=str)}")
        return ("\n".join(lines) + "\n\n").encode(errors="replace") if lines else _NO_EVENT


class EventSource(Protocol):
    """The events of one client."""

    async def next(self) -> Sequence[Event] | None:
        """Wait for events and return them; [] after some seconds without any, None at the end. What it returns is bounded in size."""

    def close(self) -> None:
        """End; called once, when the client has gone or the server stops. It does not block."""


class EventStream(StreamingResponse):
    """The answer with the events of a source. It asks for more only when the client has taken what was sent.

    :param ended: called once, after the source was closed.
    """

    media_type = "text/event-stream"

    def __init__(self, source: EventSource, ended: Callable[[], object] = lambda: None) -> None:
        self._source, self._ended = source, ended
        super().__init__(self._chunks(), headers={"X-Accel-Buffering": "no"})

    async def _chunks(self) -> AsyncIterator[bytes]:
        yield _BEGIN  # headers reach the client at once
        while (events := await self._source.next()) is not None:
            part, size = [], 0
            for event in events:
                part.append(event.encode())
                size += len(part[-1])
                if size >= _PART_BYTES:
                    yield b"".join(part)
                    part, size = [], 0
                    await asyncio.sleep(0)  # where the client takes everything at once, nothing else would let others have their turn
            if part or not events:
                yield b"".join(part) or _NO_EVENT
            await asyncio.sleep(0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client goes or the source ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._source.close()
            self._ended()


def last_event_id(headers: Any, query: Any) -> str:
    """Return what a client has seen last: the header ``Last-Event-ID``, or the parameter ``last_event_id`` of its first request; "" if nothing.

    The header wins: a browser keeps the address, and adds the header, when it reconnects.
    """
    return str(headers.get("last-event-id") or query.get("last_event_id") or "")
