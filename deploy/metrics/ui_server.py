"""Serves the UI of a cluster: its topologies, followed from the brokers, behind the web server of ``topology/ui``."""

from __future__ import annotations

import importlib
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dskype.deploy.machine.addresses import ALL_ADDRESSES, is_loopback, own_names, url_host
from dskype.deploy.machine.versions import own_version
from dskype.deploy.metrics.following import Following
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.errors import TopologyError
from dskype.topology.nimbus.observing import Contact
from dskype.topology.runtime.nimbus.liveness import machine_id
from dskype.topology.runtime.nimbus.nimbus_topic import ClusterClient
from dskype.topology.runtime.stores.control_files import MANIFEST
from dskype.topology.ui.budget import Budget, Seldom, Usage
from dskype.topology.ui.logs import check_folder
from dskype.topology.ui.view import BrokersAwayError, Reports, TopologyView

__all__ = ["FollowedCluster", "UiServer", "UiSettings", "require_web_server", "serve"]

TOKEN_LENGTH = 16
"""Characters of a token, at least: a shorter one could be found by trying."""
_START_S = 10


def _logs(record: Mapping[str, Any]) -> Path | None:
    """Return the folder with the logs of a topology, if its driver is on this machine."""
    return check_folder(record.get("logs"), MANIFEST) if record["driver"].get("machine") == machine_id() else None


class FollowedCluster:
    """The topologies of a cluster, as the UI asks for them; a :class:`~dskype.topology.ui.view.ClusterSource`.

    :param kafka: how to reach the brokers.
    :param make_reports: makes what receives the metrics of a topology, from its record in the nimbus topic.
    :ivar lock: held while reports are fed; hold it to read them as of one moment.
    """

    def __init__(self, kafka: Any, make_reports: Callable[[Mapping[str, Any]], Reports] = lambda record: Reports()) -> None:
        self._kafka = kafka
        self._following: Following[Reports] = Following(kafka, make_reports, tell=lambda reports, record, time_ms: reports.timeline.see(record, time_ms))
        self.lock = self._following.lock
        self._client = ClusterClient(kafka)

    def topologies(self) -> Sequence[TopologyView]:
        """Return all topologies, sorted by name, as they were when the brokers answered last.

        :raises BrokersAwayError: they have never answered.
        """
        contact = self.contact()
        if contact.heard_ms is None:
            raise BrokersAwayError.after(contact, self._kafka.bootstrap_servers)
        return [TopologyView(f.record, f.sink, f.alive, now_ms(), f.ends, _logs(f.record), f.silent_s, contact) for f in self._following.known()]

    def contact(self) -> Contact:
        """Return whether the brokers answer."""
        return self._following.contact()

    def brokers(self) -> Sequence[tuple[str, int]]:
        """Return host and port of the brokers."""
        pairs = (server.rpartition(":") for server in self._kafka.bootstrap_servers.split(","))
        return [(host.strip("[]"), int(port)) for host, _, port in pairs if port.isdecimal()]

    def send(self, command: Mapping[str, Any]) -> None:
        """Send a command to the process that runs a topology, and wait for its answer."""
        self._client.send(command)

    def start(self) -> None:
        """Start to follow."""
        self._following.start()

    def close(self) -> None:
        """Stop following."""
        self._following.close()


@dataclass(frozen=True)
class UiSettings:
    """How the UI is served.

    :param host: an address of this machine.
    :param port: 0: a free one.
    :param token: what changes have to show, at least :data:`TOKEN_LENGTH` characters; None: a new random one, which is printed.
    :param names: further names by which requests may name the server; with none, a server on all addresses goes by any name.
    :param origin: the origin whose pages may read the answers, ``*`` for all; None: only the server's own.
    :param allow_remote: allow an address that other machines can reach.
    :param proxies: addresses of proxies in front of the server, which say where a request comes from (``X-Forwarded-For``).
    :param budget: what readers may use.
    :param tenants: tenant -> its token, at least as long; with any, reading needs a token, too.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = field(default=None, repr=False)
    names: tuple[str, ...] = ()
    origin: str | None = None
    allow_remote: bool = False
    proxies: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)
    tenants: Mapping[str, str] = field(default_factory=dict, repr=False)


def check_tokens(token: str | None, tenants: Mapping[str, str]) -> None:
    """Check that tokens of tenants are long enough, and all different.

    :param token: the operator's.
    :raises TopologyError: they are not; the text quotes none.
    """
    for tenant, own in tenants.items():
        if len(own) < TOKEN_LENGTH:
            raise TopologyError(f"The token of the tenant {tenant} is too short.", given=f"{len(own)} characters", legal=f"at least {TOKEN_LENGTH}")
    if len({*tenants.values(), token}) <= len(tenants):
        raise TopologyError("Two tokens are the same.", given="a token of several tenants, or the operator's as a tenant's", legal="another token for each")


def require_web_server() -> None:
    """Check that the libraries of the web server, an extra, are installed.

    :raises TopologyError: they are not.
    """
    try:
        for name in ("starlette", "uvicorn"):
            importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise TopologyError("The UI needs a web server.", given=f"no module {error.name}", hint="pip install '/path/to/dskype[ui]'") from None


_told = Seldom()


def _seldom(record: logging.LogRecord) -> bool:
    """Let a line of uvicorn through once a minute: clients cause them, as often as they like."""
    return _told.is_due(str(record.msg))


class UiServer:
    """The web server, in a thread of its own.

    :param source: the topologies; started and closed with the server if it has ``start`` and ``close``.
    :param settings: how it is served.
    :param extensions: what is mounted in it, each an :class:`~dskype.topology.ui.extension.Extension`; closed with the server.
    :ivar url: the address of the first page.
    :ivar usage: what readers use.
    :raises TopologyError: the libraries of the web server are not installed.
    :raises OSError: the port is taken, or the address is not one of this machine.
    """

    def __init__(self, source: Any, settings: UiSettings, extensions: Sequence[Any] = ()) -> None:
        require_web_server()
        import uvicorn

        from dskype.deploy.metrics.connections import protocol
        from dskype.topology.ui.server import UiOptions, make_app

        self._source, self._extensions, self.token = source, tuple(extensions), settings.token or secrets.token_urlsafe(24)
        self.usage = Usage(settings.budget)
        self._socket = socket.create_server((settings.host, settings.port), family=socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
        host = url_host(ALL_ADDRESSES.get(settings.host, settings.host))
        self.url = f"http://{host}:{self._socket.getsockname()[1]}/"
        options = UiOptions(
            source, self.token, own_version(), own_names(settings.host, settings.names), settings.origin, self._extensions, self.usage, settings.tenants
        )
        config = uvicorn.Config(
            make_app(options),
            http=protocol(self.usage, frozenset(settings.proxies)),
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=settings.budget.head_bytes,
            proxy_headers=bool(settings.proxies),
            forwarded_allow_ips=list(settings.proxies),
        )
        logging.getLogger("uvicorn.error").addFilter(_seldom)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, name="ui", daemon=True)

    def __enter__(self) -> UiServer:
        if hasattr(self._source, "start"):
            self._source.start()
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        for extension in self._extensions:  # first: open streams end, so the server need not cut them
            for running in extension.running:
                running.close()
        self._server.should_exit = True
        self._thread.join(timeout=_START_S)
        self._socket.close()
        if hasattr(self._source, "close"):
            self._source.close()


def serve(source: Any, settings: UiSettings, say: Callable[[str], None], extensions: Sequence[Any] = ()) -> UiServer:
    """Make the server of a cluster's UI, and print how to use it; the caller enters it.

    :param source: the topologies, for example a :class:`FollowedCluster`.
    :param extensions: what is mounted in the server.
    :raises TopologyError: the port is taken, the address is not one of this machine, or other machines can reach it; or the token is too short.
    """
    if settings.token is not None and len(settings.token) < TOKEN_LENGTH:
        hint = "leave it out, and one is made and printed; or make one: openssl rand -base64 24"
        raise TopologyError("The token is too short.", given=f"{len(settings.token)} characters", legal=f"at least {TOKEN_LENGTH}", hint=hint)
    check_tokens(settings.token, settings.tenants)
    if not is_loopback(settings.host) and not settings.allow_remote:
        raise TopologyError(
            "The UI is served without a password, so only to this machine.",
            given=settings.host,
            legal="127.0.0.1, ::1, localhost",
            hint="--allow-remote serves everyone who can reach that address; changes need the token in any case",
        )
    try:
        server = UiServer(source, settings, extensions)
    except OSError as ex:
        raise TopologyError(
            f"The UI cannot be served ({ex.strerror or ex}).", given=f"{settings.host}:{settings.port}", hint="--port 0 takes a free port"
        ) from None
    if settings.token is None:
        say(f"UI: {server.url}#token={server.token}")
        say(f"changes by other programs need the header 'Authorization: Bearer {server.token}'")
    else:  # whoever gave it has it; what is printed is kept in journals and logs
        say(f"UI: {server.url}")
        say("changes need the token that the server was given: #token=TOKEN in the address, or the header 'Authorization: Bearer TOKEN'")
    if settings.tenants:
        say(f"reading needs a token, too: the operator's, or that of one of {len(settings.tenants)} tenants")
    if not is_loopback(settings.host):
        open_to_all = f"everyone who can reach {settings.host} can read the pages: there is no password, and no encryption"
        say("warning: " + (f"tokens and answers reach {settings.host} without encryption" if settings.tenants else open_to_all))
    return server
