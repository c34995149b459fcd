"""The web server of the UI: Storm's REST API below ``/api/v1/``, the pages, and at ``/metrics`` what readers were refused and, for the operator, what extensions count.

Everyone who reaches the server may read, unless there are tokens of tenants: then every request for data needs one (:mod:`dskype.topology.ui.rights`). What changes
something has to be a POST with a token, in the header ``Authorization: Bearer ...`` or ``x-csrf-token``; other sites' pages can neither set these headers nor read answers, unless an origin is allowed. A request has to name the
server by one of its own names, so that a foreign name that leads here (DNS rebinding) reaches nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from dskype.topology.core.redaction import redact_text
from dskype.topology.errors import IllegalArgumentException, NotAliveException, TopologyError, explain
from dskype.topology.nimbus.observing import Contact
from dskype.topology.ui import cluster_answers as cluster
from dskype.topology.ui import logs
from dskype.topology.ui import topology_answers as answers
from dskype.topology.ui.budget import BusyError, Gate, GoneError, RefusedTokens, Seldom, TooLongError, Usage, wanted_while
from dskype.topology.ui.events import EventStream
from dskype.topology.ui.extension import Answer, Extension, StreamAnswer
from dskype.topology.ui.guard import Guard
from dskype.topology.ui.lanes import Lane, reader_of, until_gone
from dskype.topology.ui.progress import Progress
from dskype.topology.ui.reader_metrics import scrape
from dskype.topology.ui.replies import TYPES, as_json, refusal, response_of
from dskype.topology.ui.rights import Rights
from dskype.topology.ui.view import BrokersAwayError, ClusterSource, TopologyView, find
from dskype.topology.ui.windows import ALL_TIME, WINDOWS, Window

__all__ = ["UiOptions", "make_app"]

log = logging.getLogger(__name__)

STATIC = Path(__file__).with_name("static")
_LOOK_S = 0.5
_PAGES = {"/": "index.html", "/index.html": "index.html", "/topology.html": "topology.html", "/component.html": "component.html", "/logs.html": "logs.html"}
_CALLBACK = re.compile(r"[A-Za-z_$][\w$.]{0,99}")


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
    :param tenants: tenant -> its token; with any, reading needs a token, too.
    """

    source: ClusterSource
    token: str
    version: str
    hosts: frozenset[str] | None = frozenset({"127.0.0.1", "localhost", "[::1]"})
    origin: str | None = None
    extensions: tuple[Extension, ...] = ()
    usage: Usage = field(default_factory=Usage)
    tenants: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"UiOptions(version={self.version!r}, hosts={self.hosts!r}, origin={self.origin!r})"


def make_app(options: UiOptions) -> ASGIApp:
    """Return the ASGI application."""
    api, progress = _Api(options), Progress()
    routes = [Route(f"/api/v1/{path}", api.reading(answer), methods=["GET"]) for path, answer in api.readers().items()]
    routes += [Route(f"/api/v1/{path}", api.changing(answer), methods=["POST"]) for path, answer in api.changers().items()]
    routes += [Route(f"/api/ui/{path}", api.reading(answer), methods=["GET"]) for path, answer in api.own_readers().items()]
    routes += [Route("/api/ui/health", api.at_once(lambda request: as_json(cluster.health(options.source, progress))), methods=["GET"])]
    routes += [Route("/api/ui/usage", api.at_once(lambda request: as_json(options.usage.as_json())), methods=["GET"])]
    routes += [Route("/metrics", api.at_once(api.scraped), methods=["GET"])]
    routes += [Route("/api/ui/pages", api.at_once(lambda request: as_json(_linked(options.extensions))), methods=["GET"])]
    for extension in options.extensions:
        routes += _extension_routes(api, extension)
    routes += [Route("/api/{rest:path}", api.unknown, methods=["GET", "POST"])]
    routes += [Route(path, _page(STATIC / name), methods=["GET"]) for path, name in _PAGES.items()]
    routes += [Route("/static/{name:path}", _files(STATIC), methods=["GET"])]
    app = Starlette(routes=routes, exception_handlers={HTTPException: api.refused, Exception: api.failed})
    return Guard(app, options.hosts, options.origin, options.usage)


def _extension_routes(api: _Api, extension: Extension) -> list[Route]:
    base, shared = f"/api/{extension.name}/", extension.for_tenants
    routes = [
        Route(base + path, api.reading(answer, waits=True, reads_topics=path in extension.reads_topics, shared=f"GET {path}" in shared), methods=["GET"])
        for path, answer in extension.readers.items()
    ]
    routes += [Route(base + path, api.changing(answer, shared=f"POST {path}" in shared), methods=["POST"]) for path, answer in extension.changers.items()]
    routes += [Route(base + path, api.following(answer, shared=f"GET {path}" in shared), methods=["GET"]) for path, answer in extension.streams.items()]
    routes += [Route(page.path, _page(extension.folder / page.file), methods=["GET"]) for page in extension.pages]
    return [*routes, Route(f"/static/{extension.name}/{{name:path}}", _files(extension.folder), methods=["GET"])]


def _linked(extensions: tuple[Extension, ...]) -> dict[str, Any]:
    return {"pages": [{"title": page.title, "path": page.path} for extension in extensions for page in extension.pages if page.title is not None]}


def _page(path: Path) -> Callable[[Request], Awaitable[Response]]:
    async def page(request: Request) -> Response:
        return FileResponse(path, media_type=TYPES[".html"])

    return page


def _files(folder: Path) -> Callable[[Request], Awaitable[Response]]:
    async def file(request: Request) -> Response:
        path = folder / request.path_params["name"]
        try:  # a name may be too long for a file, or none
            # Only files that lie there are served: neither ".." nor a link leads out of the folder.
            found = path.suffix in TYPES and path.is_file() and path.resolve().is_relative_to(folder.resolve())
        except (OSError, ValueError):
            found = False
        if not found:
            raise HTTPException(404)
        return FileResponse(path, media_type=TYPES[path.suffix])

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
        raise IllegalArgumentException("No such window.", given=key, legal=", ".join(WINDOWS)) from None


def _number(request: Request, name: str, default: Any) -> Any:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,15}", text):
        raise IllegalArgumentException(f"{name} must be a number.", given=text, legal="an integer >= 0")
    return int(text)


def _token(request: Request) -> str:
    """Return the token that a request shows, or ""."""
    return request.headers.get("x-csrf-token") or re.sub(r"(?i)^bearer ", "", request.headers.get("authorization", ""))


def _wait_secs(request: Request) -> int:
    text = request.path_params["wait"]
    if not re.fullmatch(r"\d{1,9}", text):
        raise IllegalArgumentException("The wait must be a number of seconds.", given=text, legal="an integer >= 0")
    return int(text)


class _Api:
    """The answers by path."""

    def __init__(self, options: UiOptions) -> None:
        self._options, self._source, self._version = options, options.source, options.version
        self._usage = options.usage
        budget = self._usage.budget
        self._computed, self._waits = Lane(budget.threads), Lane(budget.threads, waits=True)
        self._begins, self._changes = Lane(budget.threads, waits=True), Lane(budget.threads, waits=True)  # of those who follow; of those with the token
        queue = Gate(budget, "topic_reads_waiting", "Too many answers that read whole topics are asked for.", per_address=False)
        self._topic_reads = Lane(budget.topic_reads, waits=True, queue=queue, patience_s=budget.topic_read_wait_s)
        self._refused_tokens, self._told = RefusedTokens(), Seldom()
        self._rights = Rights(options.token, options.tenants)

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
            "topology/{id}/events": lambda r: self._view(r).reports.timeline.as_json(),
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
            raise IllegalArgumentException("Debugging is switched on or off.", given=action, legal="enable, disable")
        try:
            percent = float(request.path_params["percent"]) if action == "enable" else 0.0
        except ValueError:
            raise IllegalArgumentException("The percentage of tuples must be a number.", given=request.path_params["percent"], legal="0..100") from None
        return self._command(request, f"debug/{action}", "DEBUG", percent=percent, component=component)

    # -- requests ---------------------------------------------------------------------------------

    def at_once(self, answer: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a GET that is answered without a thread, so that nothing else can hold it up: not even requests of other addresses."""

        async def endpoint(request: Request) -> Response:
            try:
                self._usage.requests.check_address(reader_of(request))
            except BusyError as error:
                return self._problem(request, error)
            return answer(request)

        return endpoint

    def scraped(self, request: Request) -> Response:
        """Return what Prometheus reads. Refusals are for everyone, so that a probe needs no token; what extensions count names tenants, and is for the operator alone."""
        own: list[Any] = []
        if _token(request):
            if (refused := self._without_right(request, shared=False)) is not None:
                return refused
            own = [collector for extension in self._options.extensions for collector in extension.metrics]
        return Response(scrape(self._usage, own), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    def reading(self, answer: Answer, *, waits: bool = False, reads_topics: bool = False, shared: bool = False) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a GET.

        :param waits: whether the answer may have to wait for the brokers.
        :param reads_topics: whether it may read whole topics.
        :param shared: whether tenants may ask for it, too.
        """

        async def endpoint(request: Request) -> Response:
            if self._rights.guarded and (refused := self._without_right(request, shared)) is not None:
                return refused
            response = await self._answer(answer, request, self._topic_reads if reads_topics else self._waits if waits else self._computed)
            callback = request.query_params.get("callback")
            if callback is None:
                return response
            if self._options.origin != "*" or not _CALLBACK.fullmatch(callback):
                return refusal(400, explain("JSONP is off.", given=callback, hint="--allow-origin '*' lets any page of any site read the answers"))
            return Response(b"".join((callback.encode(), b"(", bytes(response.body), b");")), response.status_code, media_type=TYPES[".js"])

        return endpoint

    def changing(self, answer: Answer, *, shared: bool = False) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a POST, which needs a token.

        :param shared: whether that of a tenant is enough.
        """

        async def endpoint(request: Request) -> Response:
            if (refused := self._without_right(request, shared)) is not None:
                return refused
            most, body = self._usage.budget.body_bytes, bytearray()
            try:
                async with asyncio.timeout(self._usage.budget.head_s):
                    async for part in request.stream():
                        body += part
                        if len(body) > most:
                            self._usage.note("body_bytes")
                            return refusal(413, explain("The body is too long.", legal=f"at most {most} bytes"))
            except TimeoutError:
                self._usage.note("head_s")
                return refusal(408, explain("The body has not come.", legal=f"within {self._usage.budget.head_s} s"))
            request.state.body = bytes(body)
            return await self._answer(answer, request, self._changes)

        return endpoint

    def _without_right(self, request: Request, shared: bool) -> Response | None:
        """Return the refusal of a request without a right token; None if it has one, whose tenant is noted.

        :param shared: whether that of a tenant is enough.
        """
        address = reader_of(request)
        if (pause_s := self._refused_tokens.pause_s(address)) > 0:
            self._usage.note("wrong_token")
            text = explain("Too many wrong tokens came from this address.", hint=f"try again in {pause_s} s")
            return refusal(429, text, retry_after_s=pause_s)
        given = _token(request)
        right, request.state.tenant = self._rights.of(given)
        if right:
            self._refused_tokens.forget(address)
            if request.state.tenant is None or shared:
                return None
            return refusal(403, explain("This is for the operator alone.", given=f"the token of the tenant {request.state.tenant}"))
        if given:  # a program that does not know that it needs one is no danger
            self._refused_tokens.note(address)
            self._usage.note("wrong_token")
        return refusal(401, self._rights.words(request.method == "POST"))

    def following(self, answer: StreamAnswer, *, shared: bool = False) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a GET that is answered with events.

        :param shared: whether tenants may follow it, too.
        """

        async def endpoint(request: Request) -> Response:
            if self._rights.guarded and (refused := self._without_right(request, shared)) is not None:
                return refused
            streams, address = self._usage.streams, reader_of(request)
            try:
                streams.enter(address)
            except BusyError as error:
                return self._problem(request, error)
            try:
                source = await self._work(answer, request, self._begins, drop=lambda late: late.close())
            except BaseException as error:
                streams.leave(address)
                if isinstance(error, TopologyError):
                    return self._problem(request, error)
                raise
            return EventStream(source, lambda: streams.leave(address))

        return endpoint

    async def _work(self, answer: Callable[[Request], Any], request: Request, lane: Lane, drop: Callable[[Any], object] = lambda late: None) -> Any:
        """Return an answer that is made in a thread, or refuse as soon as it is clear that it will not come, or that nobody waits for it any more.

        The thread goes on, but the request does not; there are never more such threads than its lane has.

        :param drop: is given an answer that came after the refusal.
        :raises BrokersAwayError: the answer needs them, and they do not answer.
        :raises BusyError: the lane is full.
        :raises GoneError: the client has gone.
        """
        gone, task = threading.Event(), None
        leaving = asyncio.create_task(until_gone(request))
        try:
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

    async def _contact(self) -> Contact:
        """Return whether the brokers answer, as soon as that is known: just after its start the server cannot say."""
        while (contact := self._source.contact()).answer is None:
            await asyncio.sleep(_LOOK_S / 5)
        return contact

    async def _answer(self, answer: Answer, request: Request, lane: Lane) -> Response:
        started = time.monotonic()
        try:
            if request.url.path.startswith("/api/v1/"):
                await self._contact()
            with self._usage.requests.place(reader_of(request)):
                return await self._work(lambda request: response_of(answer(request)), request, lane)
        except TopologyError as error:
            return self._problem(request, error)
        finally:
            log.debug("%s %s: %.0f ms", request.method, request.url.path, (time.monotonic() - started) * 1000)

    def _problem(self, request: Request, error: TopologyError) -> Response:
        """Answer after a refusal. Storm's API has one status for all of them; that of an extension says whose fault it is."""
        if isinstance(error, BusyError):
            self._usage.note(error.limit)
            return refusal(error.status, str(error), retry_after_s=error.retry_after_s)
        if isinstance(error, TooLongError):
            self._usage.note(error.limit)
        storms = request.url.path.startswith("/api/v1/")
        kinds = ((IllegalArgumentException, 400), (NotAliveException, 404))
        status = 500 if storms else next((status for kind, status in kinds if isinstance(error, kind)), 503 if getattr(error, "retriable", False) else 500)
        return refusal(status, redact_text(str(error)), gone=isinstance(error, NotAliveException) and request.url.path.startswith(("/api/v1/", "/api/ui/")))

    async def unknown(self, request: Request) -> Response:
        """Answer a path of the API that does not exist, or not with this method."""
        return refusal(404, explain("The API has no such path.", given=f"{request.method} {request.url.path}"))

    async def refused(self, request: Request, error: Exception) -> Response:
        """Answer what the server itself refuses."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        return refusal(status, f"{request.method} {request.url.path}")

    async def failed(self, request: Request, error: Exception) -> Response:
        """Answer after an error of this program; the log has the details."""
        if self._told.is_due(f"{type(error).__name__} {request.scope.get('endpoint')}"):
            log.error("%s %s failed; the same error is told once a minute", request.method, request.url.path, exc_info=error)
        return refusal(500, "an internal error; the log of the UI says more")


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
        raise IllegalArgumentException("The body cannot be used.", given=request.state.body[:200], legal=legal) from None
    return {"workers": workers, "executors": executors}
