"""What ``dskype webhooks`` reads from its file: receivers, and how they are to be treated."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from dskype.deploy.machine.addresses import is_loopback
from dskype.deploy.web.pace import Pace, parse_pace
from dskype.spouts.tenants import TENANT_LEGAL, is_tenant
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["Webhook", "parse_webhooks"]

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_PRINTABLE = re.compile(r"[!-~]+")
_KEY_BYTES = 16


@dataclass(frozen=True)
class Webhook:
    """One receiver of results.

    :ivar name: tells it from others; part of its Kafka group, so its place is kept under this name.
    :ivar url: where results are posted.
    :ivar keys: what they are signed with; several while a key is replaced.
    :ivar subscriptions: only results of these; None: of all.
    :ivar tenant: only results of this tenant's registrations, at its rate; None: of all.
    :ivar start: ``now`` or ``beginning``: where it begins when it has no place yet.
    :ivar batch: results of one request, at most.
    :ivar attempts: how often a request is tried before it becomes a dead letter.
    :ivar backoff_s: the pause after the first failure; it doubles with each further one.
    :ivar backoff_max_s: the longest pause.
    :ivar timeout_s: how long a request may take in all, after the connection is there.
    :ivar pace: how often it hears of a subscription; None: every result is sent at once.
    :ivar paces: subscription -> its own pace, in place of ``pace``.
    """

    name: str
    url: str
    keys: tuple[bytes, ...] = field(repr=False)
    subscriptions: frozenset[str] | None = None
    start: str = "now"
    batch: int = 100
    attempts: int = 8
    backoff_s: float = 1.0
    backoff_max_s: float = 300.0
    timeout_s: float = 10.0
    pace: Pace | None = None
    paces: Mapping[str, Pace | None] = field(default_factory=dict)
    tenant: str | None = None

    @property
    def is_paced(self) -> bool:
        """Whether results may have to wait."""
        return self.pace is not None or any(pace is not None for pace in self.paces.values())

    def pace_of(self, subscription: str) -> Pace | None:
        """Return how often it hears of a subscription."""
        return self.paces.get(subscription, self.pace)


_NUMBERS: dict[str, tuple[type, float, float]] = {
    "batch": (int, 1, 1000),
    "attempts": (int, 1, 100),
    "backoff_s": (float, 0, 86_400),
    "backoff_max_s": (float, 0, 86_400),
    "timeout_s": (float, 0.1, 600),
}
_FIELDS = {"name", "url", "secret", "subscriptions", "tenant", "start", "allow_http", "timezone", "pace", "pace_of", *_NUMBERS}


def parse_webhooks(data: Any) -> tuple[str, list[Webhook]]:
    """Return the name of the topology and the receivers that a file describes.

    :param data: ``{"topology": name, "webhooks": [{...}, ...]}``, as YAML has it.
    :raises IllegalArgumentException: something is missing, unknown or of a wrong kind; the text never quotes a secret.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("webhooks"), list) or not data["webhooks"] or data.keys() - {"topology", "webhooks"}:
        given = sorted(map(str, data)) if isinstance(data, Mapping) else type(data).__name__
        raise IllegalArgumentException("The file does not describe webhooks.", given=given, legal="topology: NAME, webhooks: a list of receivers")
    topology = data.get("topology", "dskype")
    if not isinstance(topology, str):
        raise IllegalArgumentException("The name of the topology must be a text.", given=topology, legal="for example topology: dskype")
    found = [_webhook(row) for row in data["webhooks"]]
    names = [webhook.name for webhook in found]
    if len(set(names)) < len(names):
        raise IllegalArgumentException(
            "Two webhooks have the same name.", given=sorted(names), legal="a name for each: its place in the topics is kept under it"
        )
    return topology, found


def _webhook(row: Any) -> Webhook:
    if not isinstance(row, Mapping) or not {"name", "url", "secret"} <= row.keys() or row.keys() - _FIELDS:
        given = sorted(map(str, row)) if isinstance(row, Mapping) else type(row).__name__
        raise IllegalArgumentException(
            "A webhook needs name, url and secret, and has no other fields than these.", given=given, legal=", ".join(sorted(_FIELDS))
        )
    name = row["name"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise IllegalArgumentException("The name of a webhook cannot be used.", given=name, legal="a-z, 0-9 and -, up to 63 of them")
    wanted = row.get("subscriptions", "all")
    if wanted != "all" and not (isinstance(wanted, list) and wanted and all(isinstance(id, str) for id in wanted)):
        raise IllegalArgumentException(f"The subscriptions of webhook {name} cannot be used.", given=wanted, legal="all, or a list of ids")
    if row.get("start", "now") not in ("now", "beginning"):
        raise IllegalArgumentException(f"Webhook {name} cannot start there.", given=row["start"], legal="now | beginning")
    if "tenant" in row and not is_tenant(row["tenant"]):
        raise IllegalArgumentException(f"The tenant of webhook {name} can be none.", given=row["tenant"], legal=TENANT_LEGAL)
    numbers = {key: _number(name, key, row[key]) for key in _NUMBERS if key in row}
    secrets = row["secret"] if isinstance(row["secret"], list) else [row["secret"]]
    if not secrets:
        raise IllegalArgumentException(f"Webhook {name} needs a secret.", given="[]", legal="a secret, or a list of them while one is replaced")
    paces = row.get("pace_of", {})
    if not isinstance(paces, Mapping) or not all(isinstance(id, str) for id in paces):
        given = sorted(map(str, paces)) if isinstance(paces, Mapping) else paces
        raise IllegalArgumentException(f"pace_of of webhook {name} cannot be used.", given=given, legal="{subscription: pace, ...}; ids are texts")
    zone = row.get("timezone", "UTC")
    return Webhook(
        name,
        _url(name, row["url"], row.get("allow_http", False)),
        tuple(_key(name, secret) for secret in secrets),
        None if wanted == "all" else frozenset(wanted),
        row.get("start", "now"),
        **numbers,
        pace=parse_pace(f"pace of webhook {name}", row.get("pace"), zone),
        paces={id: parse_pace(f"pace_of.{id} of webhook {name}", pace, zone) for id, pace in paces.items()},
        tenant=row.get("tenant"),
    )


def _number(name: str, key: str, value: Any) -> Any:
    kind, least, most = _NUMBERS[key]
    if isinstance(value, bool) or not isinstance(value, (int, kind)) or not least <= value <= most:
        raise IllegalArgumentException(f"{key} of webhook {name} cannot be used.", given=value, legal=f"{kind.__name__} from {least:g} to {most:g}")
    return kind(value)


def _url(name: str, url: Any, allow_http: Any) -> str:
    # The text does not quote the URL, which may have a password in it.
    problem = explain(f"The URL of webhook {name} cannot be used.", legal="https://host[:port]/path, without user and password; in ASCII, without spaces")
    if not isinstance(url, str) or not _PRINTABLE.fullmatch(url):
        raise IllegalArgumentException(problem)
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:
        raise IllegalArgumentException(problem) from None
    if parts.scheme not in ("http", "https") or not host or parts.username is not None or port == 0:
        raise IllegalArgumentException(problem)
    if parts.scheme == "http" and not is_loopback(host) and allow_http is not True:
        raise IllegalArgumentException(
            f"Webhook {name} would send results in the clear.", given=f"http://{host}", legal="https, or http to this machine", hint="allow_http: true"
        )
    return url


def _key(name: str, secret: Any) -> bytes:
    """Return the bytes of a secret: base64 after ``whsec_``, as Standard Webhooks writes it, otherwise UTF-8."""
    problem = explain(f"The secret of webhook {name} cannot be used.", legal=f"whsec_ and base64, or a text; {_KEY_BYTES} bytes or more", hint='"${ENV-NAME}"')
    if not isinstance(secret, str):
        raise IllegalArgumentException(problem)
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True) if secret.startswith("whsec_") else secret.encode()
    except (binascii.Error, ValueError):
        raise IllegalArgumentException(problem) from None
    if len(key) < _KEY_BYTES:
        raise IllegalArgumentException(problem)
    return key
