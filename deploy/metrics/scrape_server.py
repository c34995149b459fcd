"""The web server of the metrics: one thread for a few connections, and two for what they ask.

It runs inside the process of a topology, so whoever connects to it must not be able to take that process's threads, handles or time.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from dskype.deploy.machine.addresses import is_loopback, own_names, url_host
from dskype.deploy.metrics.ui_server import TOKEN_LENGTH
from dskype.topology.errors import TopologyError, explain
from dskype.topology.ui.budget import Budget, Usage, is_own_name
from dskype.topology.ui.reader_metrics import scrape

__all__ = ["TOKEN", "ScrapeServer", "cannot_be_served", "serve_collectors", "token_given"]

TOKEN = "DSKYPE_METRICS_TOKEN"
"""The environment variable with the token of those who may read metrics; without it everyone who reaches the server may."""

_HEAD_BYTES, _TAKE_S, _CLOSE_S = 8 << 10, 10.0, 5.0
_THREADS = 2


_STEPS_TO_END = 16
"""Steps of the loop until connections are there that were accepted just before the end, and are closed."""


class ScrapeServer:
    """Serves what a WSGI application answers to a GET, for example that of prometheus_client.

    :param application: is called in one of two threads.
    :param address: host and port to listen on; port 0: a free one.
    :param names: by which requests may name the server; None: any.
    :param usage: what readers use, and may use.
    :param token: what every request has to show; None: nothing.
    :ivar address: host and port on which it listens.
    :raises OSError: the port is taken, or the address is not one of this machine.
    """

    def __init__(
        self, application: Callable[..., Iterable[bytes]], address: tuple[str, int], names: frozenset[str] | None, usage: Usage, token: str | None = None
    ) -> None:
        self._application, self._names, self._usage = application, names, usage
        self._shown = None if token is None else f"Bearer {token}".encode()
        self._open: dict[asyncio.StreamWriter, bool] = {}  # connection -> whether it has sent a whole request; oldest first
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="scrape")
        self._socket = socket.create_server(address, family=socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(ready)), name="metrics", daemon=True)
        self._thread.start()
        ready.wait()

    def close(self) -> None:
        """Stop serving."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(_CLOSE_S)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._serve, sock=self._socket, limit=_HEAD_BYTES)
        ready.set()
        await self._stopped.wait()
        self._loop.remove_reader(self._socket)  # a server that is closed would drop what it has accepted and not yet begun to read, and leave it open
        for _ in range(_STEPS_TO_END):
            for writer in list(self._open):
                writer.transport.abort()
            await asyncio.sleep(0)
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._has_room():
            writer.transport.abort()
            return
        self._open[writer] = False
        try:
            status, headers, body = await self._answer(reader, writer)
            lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers), f"Content-Length: {len(body)}", "Connection: close"]
            writer.write("\r\n".join((*lines, "", "")).encode("latin-1", "replace") + body)
            async with asyncio.timeout(_TAKE_S):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError):  # cancelled: the server ends
            writer.transport.abort()
        finally:
            self._open.pop(writer, None)

    def _has_room(self) -> bool:
        """Make room for one more connection if there is none: the one that has been silent for longest goes. Return whether there is some."""
        if len(self._open) < self._usage.budget.scrape_connections:
            return True
        self._usage.note("scrape_connections")
        silent = next((writer for writer, asked in self._open.items() if not asked), None)
        if silent is None:
            return False
        del self._open[silent]
        silent.transport.abort()
        return True

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, list[tuple[str, str]], bytes]:
        try:
            async with asyncio.timeout(self._usage.budget.head_s):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except TimeoutError:
            self._usage.note("head_s")
            raise
        except asyncio.LimitOverrunError:
            self._usage.note("head_bytes")
            return _refused("431 Request Header Fields Too Large", f"Address and headers are too long; legal: up to {_HEAD_BYTES} bytes")
        if writer in self._open:
            self._open[writer] = True
        first, *rest = head.split("\r\n")
        method, _, target = first.partition(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        if not is_own_name(headers.get("host", ""), self._names):
            self._usage.note("foreign_name")
            legal = ", ".join(sorted(self._names or ()))
            return _refused(
                "400 Bad Request", explain("The server does not go by this name.", given=headers.get("host", ""), legal=legal, hint="--allow-host adds one")
            )
        if self._shown is not None and not hmac.compare_digest(headers.get("authorization", "").encode(), self._shown):
            if "authorization" in headers:
                self._usage.note("wrong_token")
            return _refused("401 Unauthorized", explain("The metrics need a token.", hint=f"Authorization: Bearer TOKEN, with the one of {TOKEN}"))
        if method != "GET":
            return _refused("405 Method Not Allowed", explain("The metrics can be read only.", given=method[:20], legal="GET"))
        path, _, query = target.partition(" ")[0].partition("?")
        environ = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "HTTP_ACCEPT": headers.get("accept", ""),
            "HTTP_ACCEPT_ENCODING": headers.get("accept-encoding", ""),
        }
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._call, environ)

    def _call(self, environ: dict[str, str]) -> tuple[str, list[tuple[str, str]], bytes]:
        started: list[Any] = []
        body = b"".join(self._application(environ, lambda *start: started.extend(start)))
        return started[0], started[1], body


def _refused(status: str, text: str) -> tuple[str, list[tuple[str, str]], bytes]:
    return status, [("Content-Type", "text/plain; charset=utf-8")], f"{text}\n".encode()


def token_given() -> str | None:
    """Return the token of :data:`TOKEN`; None: there is none.

    :raises TopologyError: it is too short.
    """
    token = os.environ.get(TOKEN) or None
    if token is not None and len(token) < TOKEN_LENGTH:
        raise TopologyError(f"The token of {TOKEN} is too short.", given=f"{len(token)} characters", legal=f"at least {TOKEN_LENGTH}")
    return token


def cannot_be_served(error: OSError, host: str, port: int) -> TopologyError:
    """Return what is said when the port is taken, or the address is not one of this machine."""
    return TopologyError(f"The metrics cannot be served ({error.strerror or error}).", given=f"{host}:{port}", hint="0 takes a free port")


def serve_collectors(collectors: Iterable[Any], host: str, port: int, say: Callable[[str], None]) -> ScrapeServer:
    """Serve what collectors for prometheus_client count, and print the address.

    :param host: an address of this machine; one that other machines can reach needs a token.
    :raises TopologyError: there is none, the port is taken, or the address is not one of this machine.
    """
    usage, own, token = Usage(Budget.given()), tuple(collectors), token_given()
    if token is None and not is_loopback(host):
        raise TopologyError("These metrics name tenants, so other machines need a token.", given=host, hint=f"{TOKEN} has it; or listen on 127.0.0.1")

    def application(environ: Any, start: Callable[..., Any]) -> list[bytes]:
        start("200 OK", [("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)])
        return [scrape(usage, own)]

    try:
        server = ScrapeServer(application, (host, port), own_names(host), usage, token)
    except OSError as error:
        raise cannot_be_served(error, host, port) from None
    say(f"metrics: http://{url_host(host)}:{server.address[1]}/metrics")
    return server
