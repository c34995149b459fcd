"""The web server of the UI: Storm's REST API below ``/api/v1/``, and the pages.

Everyone who reaches the server may read. What changes something has to be a POST with the token, in the header ``Authorization: Bearer ...`` or
``x-csrf-token``; other sites' pages can neither set these headers nor read answers, unless an origin is allowed. A request has to name the
server by one of its own names, so that a foreign name that leads here (DNS rebinding) reaches nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dskype.topology.core.redaction import redact_text
from dskype.topology.errors import IllegalArgumentException, NotAliveException, TopologyError, explain
from dskype.topology.nimbus.observing import Contact
from dskype.topology.ui import cluster_answers as cluster
from dskype.topology.ui import logs
from dskype.topology.ui import topology_answers as answers
from dskype.topology.ui.budget import BusyError, Gate, GoneError, RefusedTokens, Seldom, Usage, address_of, is_own_name, wanted_while
from dskype.topology.ui.events import EventStream
from dskype.topology.ui.extension import Answer, Extension, Picture, StreamAnswer
from dskype.topology.ui.view import BrokersAwayError, ClusterSource, TopologyView, find
from dskype.topology.ui.windows import ALL_TIME, WINDOWS, Window

__all__ = ["UiOptions", "make_app"]

log = logging.getLogger(__name__)

STATIC = Path(__file__).with_name("static")
_LOOK_S = 0.5
_PAGES = {"/": "index.html", "/index.html": "index.html", "/topology.html": "topology.html", "/component.html": "component.html", "/logs.html": "logs.html"}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
_CALLBACK = re.compile(r"[A-Za-z_$][\w$.]{0,99}")

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache, no-store",
}

_PICTURE_POLICY = b"default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""Of SVG pictures, which have their styles in them; opened alone, they run nothing."""


@dataclass(frozen=True)
class UiOptions:
    """What the server serves, and to whom.

    :param source: where topologies come from.
    :param token: what a POST has to show; never printed in logs.
    :param version: the version of this software.
    :param hosts: the names by which requests may name the server (header ``Host``, without a port); None: any.
    :param origin: the origin whose pages may read the answers (CORS), ``*`` for all, which also allows JSONP; None: only the server's own.
    :param extensions: what other parts of the product add.
    :param usage: what readers use, and may use.
    """

    source: ClusterSource
    token: str
    version: str
    hosts: frozenset[str] | None = frozenset({"127.0.0.1", "localhost", "[::1]"})
    origin: str | None = None
    extensions: tuple[Extension, ...] = ()
    usage: Usage = field(default_factory=Usage)

    def __repr__(self) -> str:
        return f"UiOptions(version={self.version!r}, hosts={self.hosts!r}, origin={self.origin!r})"


def make_app(options: UiOptions) -> ASGIApp:
    """Return the ASGI application."""
    api = _Api(options)
    routes = [Route(f"/api/v1/{path}", api.reading(answer), methods=["GET"]) for path, answer in api.readers().items()]
    routes += [Route(f"/api/v1/{path}", api.changing(answer), methods=["POST"]) for path, answer in api.changers().items()]
    routes += [Route(f"/api/ui/{path}", api.reading(answer), methods=["GET"]) for path, answer in api.own_readers().items()]
    routes += [Route("/api/ui/health", api.health, methods=["GET"])]
    routes += [Route("/api/ui/usage", api.usage, methods=["GET"])]
    routes += [Route("/api/ui/pages", api.reading(lambda r: _linked(options.extensions)), methods=["GET"])]
    for extension in options.extensions:
        routes += _extension_routes(api, extension)
    routes += [Route("/api/{rest:path}", api.unknown, methods=["GET", "POST"])]
    routes += [Route(path, _page(STATIC / name), methods=["GET"]) for path, name in _PAGES.items()]
    routes += [Route("/static/{name}", _files(STATIC), methods=["GET"])]
    app = Starlette(routes=routes, exception_handlers={HTTPException: api.refused, Exception: api.failed})
    return _Guard(app, options)


def _extension_routes(api: _Api, extension: Extension) -> list[Route]:
    base = f"/api/{extension.name}/"
    routes = [
        Route(base + path, api.reading(answer, waits=True, reads_topics=path in extension.reads_topics), methods=["GET"])
        for path, answer in extension.readers.items()
    ]
    routes += [Route(base + path, api.changing(answer), methods=["POST"]) for path, answer in extension.changers.items()]
    routes += [Route(base + path, api.following(answer), methods=["GET"]) for path, answer in extension.streams.items()]
    routes += [Route(page.path, _page(extension.folder / page.file), methods=["GET"]) for page in extension.pages]
    return [*routes, Route(f"/static/{extension.name}/{{name:path}}", _files(extension.folder), methods=["GET"])]


def _linked(extensions: tuple[Extension, ...]) -> dict[str, Any]:
    return {"pages": [{"title": page.title, "path": page.path} for extension in extensions for page in extension.pages if page.title is not None]}


class _Guard:
    """Adds the headers of every answer, and refuses requests that are too long, to foreign names, or from pages of other sites."""

    def __init__(self, app: ASGIApp, options: UiOptions) -> None:
        self._app, self._hosts, self._usage, self._foreign_pages = app, options.hosts, options.usage, options.origin is not None
        headers = dict(_HEADERS)
        if options.origin is None:
            headers["Cross-Origin-Resource-Policy"] = "same-origin"
        else:
            headers |= {"Access-Control-Allow-Origin": options.origin, "Vary": "Origin"}
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self._picture_headers = [(name, _PICTURE_POLICY if name == b"content-security-policy" else value) for name, value in self._headers]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in self._headers}
                own = [pair for pair in message.get("headers", ()) if pair[0].lower() not in given]
                picture = any(name.lower() == b"content-type" and value.startswith(b"image/svg+xml") for name, value in own)
                message["headers"] = own + (self._picture_headers if picture else self._headers)
            await send(message)

        refusal = self._refusal(scope)
        try:
            await (self._app if refusal is None else refusal)(scope, receive, send_with_headers)
        except Exception:
            if refusal is not None:
                raise
            # It has been answered and logged (:meth:`_Api.failed`).

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is not looked at any further; None if it is."""
        headers, most = dict(scope["headers"]), self._usage.budget.head_bytes
        size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(name) + len(value) for name, value in scope["headers"])
        if size > most:
            self._usage.note("head_bytes")
            return _error(431, explain("Address and headers are too long.", given=size, legal=f"up to {most} bytes"))
        host = headers.get(b"host", b"").decode("latin-1")
        if not is_own_name(host, self._hosts):
            legal = ", ".join(sorted(self._hosts or ()))
            return _error(400, explain("The server does not go by this name.", given=host, legal=legal, hint="--allow-host adds one"))
        site = headers.get(b"sec-fetch-site", b"none")
        opened = headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"
        if site not in (b"none", b"same-origin") and not opened and not self._foreign_pages:
            return _error(
                403, explain("A page of another site asks for this.", given=site.decode("latin-1"), hint="--allow-origin lets its pages read the answers")
            )
        return None


def _json(data: Any, status: int = 200) -> Response:
    return Response(json.dumps(data, ensure_ascii=False, allow_nan=False, default=str), status, media_type="application/json; charset=utf-8")


_STATUS = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Server Error",
    503: "Service Unavailable",
}


def _error(status: int, text: str, *, gone: bool = False, retry_after_s: int | None = None) -> Response:
    response = _json({"error": f"{status} {_STATUS.get(status, 'Error')}", "errorMessage": text, **({"notAlive": True} if gone else {})}, status)
    if retry_after_s is not None:
        response.headers["Retry-After"] = str(retry_after_s)
    return response


def _page(path: Path) -> Callable[[Request], Awaitable[Response]]:
    async def page(request: Request) -> Response:
        return FileResponse(path, media_type=_TYPES[".html"])

    return page


def _files(folder: Path) -> Callable[[Request], Awaitable[Response]]:
    async def file(request: Request) -> Response:
        path = folder / request.path_params["name"]
        try:  # a name may be too long for a file, or none
            # Only files that lie there are served: neither ".." nor a link leads out of the folder.
            found = path.suffix in _TYPES and path.is_file() and path.resolve().is_relative_to(folder.resolve())
        except (OSError, ValueError):
            found = False
        if not found:
            raise HTTPException(404)
        return FileResponse(path, media_type=_TYPES[path.suffix])

    return file


# --- parameters -------------------------------------------------------------------------------------------------------


def _system(request: Request) -> bool:
    """Return whether system components are wanted: Storm's pages send true and false, its documentation says 1 and 0."""
    return request.query_params.get("sys", "").lower() in ("true", "1")


def _window(request: Request) -> Window:
    key = request.query_params.get("window", ALL_TIME.key)
    try:
        return WINDOWS[key]
    except KeyError:
        raise IllegalArgumentException(explain("No such window.", given=key, legal=", ".join(WINDOWS))) from None


def _number(request: Request, name: str, default: Any) -> Any:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,15}", text):
        raise IllegalArgumentException(explain(f"{name} must be a number.", given=text, legal="an integer >= 0"))
    return int(text)


def _wait_secs(request: Request) -> int:
    text = request.path_params["wait"]
    if not re.fullmatch(r"\d{1,9}", text):
        raise IllegalArgumentException(explain("The wait must be a number of seconds.", given=text, legal="an integer >= 0"))
    return int(text)


def _address(request: Request) -> str:
    return address_of(request.client.host) if request.client is not None else ""


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@dataclass(frozen=True)
class _Encoded:
    body: bytes
    media_type: str


def _encoded(found: Any) -> _Encoded:
    """Return an answer as bytes; called in the thread that has computed it, because it may be long."""
    if isinstance(found, Picture):
        return _Encoded(found.svg.encode(), _TYPES[".svg"])
    response = _json(found)
    return _Encoded(bytes(response.body), str(response.media_type))


class _Lane:
    """Runs answers in threads, so many at a time; further ones wait for these.

    :param threads: how many.
    :param waits: whether the answers may have to wait for the brokers.
    :param queue: how many may wait; None: as many as there are requests.
    :param patience_s: how long they wait; None: without an end.
    """

    def __init__(self, threads: int, *, waits: bool = False, queue: Gate | None = None, patience_s: float | None = None) -> None:
        self.waits, self._queue, self._patience_s = waits, queue, patience_s
        self._free = asyncio.Semaphore(threads)
        self._begun: set[asyncio.Task[Any] | None] = set()

    async def run(self, answer: Callable[[Request], Any], request: Request, gone: threading.Event) -> Any:
        """Return the answer.

        :raises BusyError: too many wait, or this one has waited too long.
        """
        task = asyncio.current_task()
        async with self._turn():
            if gone.is_set():
                return None
            self._begun.add(task)
            try:
                return await to_thread.run_sync(answer, request, limiter=CapacityLimiter(1))  # the lane is the limit
            finally:
                self._begun.discard(task)

    def give_up(self, task: asyncio.Task[Any]) -> None:
        """End a task that nobody waits for, unless it has a thread: that cannot be stopped, and keeps its place until it ends."""
        if task not in self._begun:
            task.cancel()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        if self._queue is None or not self._free.locked():
            await self._free.acquire()
        else:
            self._queue.enter()
            try:
                async with asyncio.timeout(self._patience_s):
                    await self._free.acquire()
            except TimeoutError:
                raise BusyError("topic_read_wait_s", "Other answers have read whole topics for too long.", int(self._patience_s or 0)) from None
            finally:
                self._queue.leave()
        try:
            yield
        finally:
            self._free.release()


class _Api:
    """The answers by path."""

    def __init__(self, options: UiOptions) -> None:
        self._options, self._source, self._version = options, options.source, options.version
        self._usage = options.usage
        budget = self._usage.budget
        self._computed, self._waits = _Lane(budget.threads), _Lane(budget.threads, waits=True)
        queue = Gate(budget, "topic_reads_waiting", "Too many answers that read whole topics are asked for.", per_address=False)
        self._topic_reads = _Lane(budget.topic_reads, waits=True, queue=queue, patience_s=budget.topic_read_wait_s)
        self._refused_tokens, self._told = RefusedTokens(), Seldom()

    def _view(self, request: Request) -> TopologyView:
        return find(self._source, request.path_params["id"])

    def readers(self) -> Mapping[str, Answer]:
        """Return path -> what answers a GET."""
        source, version = self._source, self._version
        return {
            "cluster/configuration": lambda r: cluster.cluster_configuration(),
            "cluster/summary": lambda r: cluster.cluster_summary(source, version),
            "nimbus/summary": lambda r: cluster.nimbus_summary(source, version),
            "topology/summary": lambda r: cluster.topology_summary(source, version),
            "supervisor/summary": lambda r: cluster.supervisor_summary(source, version),
            "supervisor": self._supervisor,
            "owner-resources": lambda r: cluster.owner_resources(source, None, version),
            "owner-resources/{owner}": lambda r: cluster.owner_resources(source, r.path_params["owner"], version),
            "history/summary": lambda r: cluster.history_summary(source),
            "topology-workers/{id}": lambda r: cluster.topology_workers(self._view(r)),
            "topology/{id}": lambda r: answers.topology_page(self._view(r), _window(r), version, system=_system(r)),
            "topology/{id}/component/{component}": lambda r: answers.component_page(self._view(r), r.path_params["component"], _window(r), system=_system(r)),
            "topology/{id}/visualization": lambda r: answers.visualization(self._view(r), system=_system(r)),
            "topology/{id}/visualization-init": lambda r: answers.visualization(self._view(r), system=_system(r)),
            "topology/{id}/lag": lambda r: answers.lag(self._view(r)),
            "topology/{id}/metrics": lambda r: answers.metrics(self._view(r), _window(r), system=_system(r)),
            "topology/{id}/logconfig": lambda r: {"namedLoggerLevels": {}} if self._view(r) else {},
        }

    def own_readers(self) -> Mapping[str, Answer]:
        """Return path below ``/api/ui/`` -> what answers a GET: what these pages need and Storm's API does not have."""
        return {
            "topology/{id}/logs": lambda r: logs.log_files(self._view(r).logs),
            "topology/{id}/log": lambda r: logs.log_part(
                self._view(r).logs, r.query_params.get("file", ""), _number(r, "end", None), _number(r, "bytes", logs.PART_BYTES)
            ),
        }

    def _supervisor(self, request: Request) -> Any:
        host = request.query_params.get("id") or request.query_params.get("host") or ""
        return cluster.supervisor(self._source, self._version, host, system=_system(request))

    def changers(self) -> Mapping[str, Answer]:
        """Return path -> what answers a POST."""
        return {
            "topology/{id}/activate": lambda r: self._command(r, "activate", "ACTIVATE"),
            "topology/{id}/deactivate": lambda r: self._command(r, "deactivate", "INACTIVATE"),
            "topology/{id}/rebalance/{wait}": lambda r: self._command(r, "rebalance", "REBALANCE", wait_secs=_wait_secs(r), **_rebalance_options(r)),
            "topology/{id}/kill/{wait}": lambda r: self._command(r, "kill", "KILL", wait_secs=_wait_secs(r)),
            "topology/{id}/debug/{action}/{percent}": self._debug,
            "topology/{id}/component/{component}/debug/{action}/{percent}": self._debug,
            "topology/{id}/logconfig": lambda r: _not_here("log levels of a running topology cannot be changed"),
            "topology/{id}/profiling/{rest:path}": lambda r: _not_here("workers are not profiled"),
        }

    def _command(self, request: Request, operation: str, event: str, **more: Any) -> Any:
        view = self._view(request)
        self._source.send({"name": view.name, "event": event, **more})
        return {"topologyOperation": operation, "topologyId": view.id, "status": "success"}

    def _debug(self, request: Request) -> Any:
        action, component = request.path_params["action"], request.path_params.get("component")
        if action not in ("enable", "disable"):
            raise IllegalArgumentException(explain("Debugging is switched on or off.", given=action, legal="enable, disable"))
        try:
            percent = float(request.path_params["percent"]) if action == "enable" else 0.0
        except ValueError:
            raise IllegalArgumentException(
                explain("The percentage of tuples must be a number.", given=request.path_params["percent"], legal="0..100")
            ) from None
        return self._command(request, f"debug/{action}", "DEBUG", percent=percent, component=component)

    # -- requests ---------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        """Answer how the server, the brokers and the topologies are: without a thread, so that nothing else can hold it up."""
        return _json(cluster.health(self._source))

    async def usage(self, request: Request) -> Response:
        """Answer what readers may use, use, and were refused."""
        return _json(self._usage.as_json())

    def reading(self, answer: Answer, *, waits: bool = False, reads_topics: bool = False) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a GET.

        :param waits: whether the answer may have to wait for the brokers.
        :param reads_topics: whether it may read whole topics.
        """

        async def endpoint(request: Request) -> Response:
            response = await self._answer(answer, request, self._topic_reads if reads_topics else self._waits if waits else self._computed)
            callback = request.query_params.get("callback")
            if callback is None:
                return response
            if self._options.origin != "*" or not _CALLBACK.fullmatch(callback):
                return _error(400, explain("JSONP is off.", given=callback, hint="--allow-origin '*' lets any page of any site read the answers"))
            return Response(b"".join((callback.encode(), b"(", bytes(response.body), b");")), response.status_code, media_type=_TYPES[".js"])

        return endpoint

    def changing(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a POST, which needs the token."""

        async def endpoint(request: Request) -> Response:
            if (refusal := self._without_token(request)) is not None:
                return refusal
            most, body = self._usage.budget.body_bytes, bytearray()
            try:
                async with asyncio.timeout(self._usage.budget.head_s):
                    async for part in request.stream():
                        body += part
                        if len(body) > most:
                            self._usage.note("body_bytes")
                            return _error(413, explain("The body is too long.", legal=f"at most {most} bytes"))
            except TimeoutError:
                self._usage.note("head_s")
                return _error(408, explain("The body has not come.", legal=f"within {self._usage.budget.head_s} s"))
            request.state.body = bytes(body)
            return await self._answer(answer, request, self._waits)

        return endpoint

    def _without_token(self, request: Request) -> Response | None:
        """Return the refusal of a change without the token; None if it has it."""
        address = _address(request)
        if (pause_s := self._refused_tokens.pause_s(address)) > 0:
            text = explain("Too many wrong tokens came from this address.", hint=f"try again in {pause_s} s")
            return _error(429, text, retry_after_s=pause_s)
        given = request.headers.get("x-csrf-token") or re.sub(r"(?i)^bearer ", "", request.headers.get("authorization", ""))
        if hmac.compare_digest(given.encode(), self._options.token.encode()):
            self._refused_tokens.forget(address)
            return None
        if given:  # a program that does not know that it needs one is no danger
            self._refused_tokens.note(address)
        return _error(401, "A change needs the token that was printed when the UI started, or given to it: Authorization: Bearer TOKEN")

    def following(self, answer: StreamAnswer) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a GET that is answered with events."""

        async def endpoint(request: Request) -> Response:
            streams, address = self._usage.streams, _address(request)
            try:
                streams.enter(address)
            except BusyError as error:
                return self._problem(request, error)
            try:
                source = await self._work(answer, request, self._waits, drop=lambda late: late.close())
            except BaseException as error:
                streams.leave(address)
                if isinstance(error, TopologyError):
                    return self._problem(request, error)
                raise
            return EventStream(source, lambda: streams.leave(address))

        return endpoint

    async def _work(self, answer: Callable[[Request], Any], request: Request, lane: _Lane, drop: Callable[[Any], object] = lambda late: None) -> Any:
        """Return an answer that is made in a thread, or refuse as soon as it is clear that it will not come, or that nobody waits for it any more.

        The thread goes on, but the request does not; there are never more such threads than its lane has.

        :param drop: is given an answer that came after the refusal.
        :raises BrokersAwayError: the answer needs them, and they do not answer.
        :raises BusyError: there are too many requests.
        :raises GoneError: the client has gone.
        """
        gone, address, task = threading.Event(), _address(request), None
        self._usage.requests.enter(address)
        try:
            leaving = asyncio.create_task(_until_gone(request))
            contact = await self._contact() if lane.waits else None
            with wanted_while(gone):
                while contact is None or contact.answer:
                    if task is None:
                        task = asyncio.create_task(lane.run(answer, request, gone))
                    await asyncio.wait({task, leaving}, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                    if task.done():
                        return task.result()
                    if leaving.done():
                        raise GoneError("the client has gone")
                    contact = self._source.contact() if lane.waits else None
            raise BrokersAwayError.after(contact, ", ".join(f"{host}:{port}" for host, port in self._source.brokers()))
        finally:
            leaving.cancel()
            if task is not None and not task.done():
                task.add_done_callback(lambda ended: None if ended.cancelled() or ended.exception() or ended.result() is None else drop(ended.result()))
                gone.set()
                lane.give_up(task)
            self._usage.requests.leave(address)

    async def _contact(self) -> Contact:
        """Return whether the brokers answer, as soon as that is known: just after its start the server cannot say."""
        while (contact := self._source.contact()).answer is None:
            await asyncio.sleep(_LOOK_S / 5)
        return contact

    async def _answer(self, answer: Answer, request: Request, lane: _Lane) -> Response:
        started = time.monotonic()
        try:
            if request.url.path.startswith("/api/v1/"):
                await self._contact()
            found = await self._work(lambda request: _encoded(answer(request)), request, lane)
            return Response(found.body, media_type=found.media_type)
        except TopologyError as error:
            return self._problem(request, error)
        finally:
            log.debug("%s %s: %.0f ms", request.method, request.url.path, (time.monotonic() - started) * 1000)

    def _problem(self, request: Request, error: TopologyError) -> Response:
        """Answer after a refusal. Storm's API has one status for all of them; that of an extension says whose fault it is."""
        if isinstance(error, BusyError):
            self._usage.note(error.limit)
            return _error(error.status, str(error), retry_after_s=error.retry_after_s)
        storms = request.url.path.startswith("/api/v1/")
        kinds = ((IllegalArgumentException, 400), (NotAliveException, 404))
        status = 500 if storms else next((status for kind, status in kinds if isinstance(error, kind)), 503 if getattr(error, "retriable", False) else 500)
        return _error(status, redact_text(str(error)), gone=isinstance(error, NotAliveException) and request.url.path.startswith(("/api/v1/", "/api/ui/")))

    async def unknown(self, request: Request) -> Response:
        """Answer a path of the API that does not exist, or not with this method."""
        return _error(404, explain("The API has no such path.", given=f"{request.method} {request.url.path}"))

    async def refused(self, request: Request, error: Exception) -> Response:
        """Answer what the server itself refuses."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        return _error(status, f"{request.method} {request.url.path}")

    async def failed(self, request: Request, error: Exception) -> Response:
        """Answer after an error of this program; the log has the details."""
        if self._told.is_due(f"{type(error).__name__} {request.scope.get('endpoint')}"):
            log.error("%s %s failed; the same error is told once a minute", request.method, request.url.path, exc_info=error)
        return _error(500, "an internal error; the log of the UI says more")


def _not_here(reason: str) -> Any:
    raise TopologyError(f"This is not part of the emulator: {reason}.")


def _rebalance_options(request: Request) -> dict[str, Any]:
    """Return workers and executors of ``{"rebalanceOptions": {"numWorkers", "executors": {component: number}}}``; the body may be empty."""
    if not request.state.body.strip():
        return {"workers": None, "executors": {}}
    legal = '{"rebalanceOptions": {"numWorkers": 2, "executors": {"component": 3}}}'
    try:
        given = json.loads(request.state.body)
        options = given.get("rebalanceOptions") or {}
        workers, executors = options.get("numWorkers"), options.get("executors") or {}
        if not (isinstance(executors, dict) and all(type(n) is int for n in executors.values()) and (workers is None or type(workers) is int)):
            raise TypeError
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise IllegalArgumentException(explain("The body cannot be used.", given=request.state.body[:200], legal=legal)) from None
    return {"workers": workers, "executors": executors}
