"""What another part of the product adds to the web server of the UI: pages, answers and streams of events.

The server knows Storm's topologies only. A part that knows more mounts an :class:`Extension` named, say, ``dskype``. The extension's answers are
then below ``/api/dskype/``, its files below ``/static/dskype/``, and its pages at paths of its choice. The server adds headers, checks hosts and
tokens, and turns errors into JSON, for an extension as for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from starlette.requests import Request

from dskype.topology.ui.events import EventSource

__all__ = ["Answer", "Extension", "Lifecycle", "Page", "Picture", "StreamAnswer"]

Answer = Callable[[Request], Any]
"""Returns the JSON-able answer of a request, or a :class:`Picture`; called in a thread. Raises ``TopologyError`` with the reason if it cannot."""

StreamAnswer = Callable[[Request], EventSource]
"""Returns the events of a request; called in a thread. Raises ``TopologyError`` before the first event, never later."""


@dataclass(frozen=True)
class Picture:
    """An SVG picture as an answer. Pages show it as an image, where its scripts would not run.

    :ivar svg: the text of the picture.
    """

    svg: str


@dataclass(frozen=True)
class Page:
    """A page of an extension.

    :ivar path: where it is, for example ``/dskype/map.html``.
    :ivar file: its name in the extension's folder.
    :ivar title: what links to it say; None: no other page has a link to it.
    """

    path: str
    file: str
    title: str | None = None


class Lifecycle(Protocol):
    """Something that runs while the server does."""

    def close(self) -> None:
        """Stop, and close connections."""


@dataclass(frozen=True)
class Extension:
    """What another part of the product adds to the server.

    :ivar name: part of its paths: ``/api/<name>/...`` and ``/static/<name>/...``.
    :ivar folder: its static files; folders in it are served as well.
    :ivar pages: its pages.
    :ivar readers: path below ``/api/<name>/`` -> what answers a GET.
    :ivar reads_topics: those of the readers that may read whole topics: few of them run at the same time.
    :ivar changers: path -> what answers a POST, which needs the token. The body is ``request.state.body``.
    :ivar streams: path -> what answers a GET with server-sent events.
    :ivar for_tenants: methods and paths that tenants may ask for, too, for example ``GET subscriptions``; :func:`~dskype.topology.ui.rights.tenant_of` names the
        tenant, to whom the answer has to keep.
    :ivar metrics: collectors for prometheus_client, whose metrics the operator's token shows at ``/metrics``.
    :ivar running: closed with the server.
    """

    name: str
    folder: Path
    pages: tuple[Page, ...] = ()
    readers: Mapping[str, Answer] = field(default_factory=dict)
    reads_topics: frozenset[str] = frozenset()
    changers: Mapping[str, Answer] = field(default_factory=dict)
    streams: Mapping[str, StreamAnswer] = field(default_factory=dict)
    for_tenants: frozenset[str] = frozenset()
    metrics: tuple[Any, ...] = ()
    running: tuple[Lifecycle, ...] = ()
