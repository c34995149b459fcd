"""Limits on what readers may use of the web server of the UI and of the endpoint of the metrics.

Nobody has to log in to read, so a reader must not be able to choose what an answer costs. All limits are in one table, :class:`Budget`. A
:class:`Usage` counts against it: who does not fit is refused with :class:`BusyError`, which becomes a 429 (this address uses too much) or a 503
(all together do) with ``Retry-After``. Work in a thread asks :func:`check_wanted` now and then, and ends when its client has gone.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Any

from dskype.topology.errors import IllegalArgumentException, TopologyError, explain

__all__ = [
    "Budget",
    "BusyError",
    "Gate",
    "GoneError",
    "RefusedTokens",
    "Seldom",
    "TooLongError",
    "Usage",
    "address_of",
    "check_wanted",
    "holding",
    "is_own_name",
    "wanted_while",
]

RULES = ("foreign_name", "foreign_page", "wrong_token")
"""Reasons other than limits for which readers are refused: another name of the server, a page of another site, and tokens, with the pauses after them."""
ENVIRONMENT = "DSKYPE_LIMITS"
"""The environment variable with limits, each ``name=number``, with blanks between them."""
_LOOK_S = 0.1


def _limit(default: int, what: str) -> Any:
    return field(default=default, metadata={"what": what})


@dataclass(frozen=True)
class Budget:
    """What readers may use. ``--limit NAME=NUMBER`` changes one, with ``-`` for ``_``; SECURITY.md has the same table."""

    connections: int = _limit(1000, "connections at the same time")
    connections_per_address: int = _limit(300, "connections of one address")
    head_bytes: int = _limit(64 << 10, "bytes of a request's address and headers together")
    head_s: int = _limit(10, "seconds until a connection has sent a whole request, and until a request's body is there")
    body_bytes: int = _limit(64 << 10, "bytes of a request's body")
    stall_s: int = _limit(60, "seconds after which a connection whose client takes nothing is dropped")
    requests: int = _limit(200, "requests that are answered, or wait, at the same time")
    requests_per_address: int = _limit(100, "requests of one address at the same time")
    threads: int = _limit(16, "answers that wait for the brokers at the same time; as many that are computed, changes, and clients that begin to follow")
    topic_reads: int = _limit(2, "answers that read whole topics at the same time")
    topic_reads_waiting: int = _limit(16, "further ones that wait for these")
    topic_read_wait_s: int = _limit(10, "seconds that they wait")
    draft_ms: int = _limit(250, "milliseconds in which the newest messages are looked at for a subscription that is being written")
    streams: int = _limit(500, "clients that follow events at the same time")
    streams_per_address: int = _limit(100, "clients of one address that follow events")
    last_id_bytes: int = _limit(16 << 10, "bytes of Last-Event-ID")
    past_readers: int = _limit(8, "Kafka consumers that read the past for all clients that follow events")
    scrape_connections: int = _limit(32, "connections to the metrics; the one that has been silent for longest makes room for another")
    queued_mb: int = _limit(64, "megabytes of results that wait for the clients of a topology")

    def __post_init__(self) -> None:
        for limit in fields(self):
            if getattr(self, limit.name) < 1:
                raise IllegalArgumentException("A limit must be positive.", given=f"{limit.name}={getattr(self, limit.name)}", legal="an integer >= 1")

    @classmethod
    def given(cls, limits: Iterable[str] = ()) -> Budget:
        """Return the limits that a process is given: of :data:`ENVIRONMENT`, and further ones, which count more.

        :param limits: each ``name=number``.
        :raises IllegalArgumentException: there is no such limit, or the number is none.
        """
        names = {limit.name.replace("_", "-"): limit.name for limit in fields(cls)}
        found = {}
        for text in (*os.environ.get(ENVIRONMENT, "").split(), *limits):
            name, _, number = text.partition("=")
            if name not in names or not re.fullmatch(r"[1-9]\d{0,8}", number):
                raise IllegalArgumentException("This is not a limit.", given=text, legal=f"NAME=NUMBER, where NAME is one of {', '.join(names)}")
            found[names[name]] = int(number)
        return cls(**found)


class BusyError(TopologyError):
    """A reader would use more than a limit allows.

    :ivar limit: the name of the limit.
    :ivar status: 429 if the limit is that of the reader's address, 503 if it is that of all together.
    :ivar retry_after_s: when to try again.
    """

    retriable = True

    def __init__(self, limit: str, words: str, legal: int, *, status: int = 503, retry_after_s: int = 5) -> None:
        hint = f"try again in {retry_after_s} s; --limit {limit.replace('_', '-')}=N of the server changes it"
        super().__init__(explain(words, legal=f"up to {legal}", hint=hint))
        self.limit, self.status, self.retry_after_s = limit, status, retry_after_s


class TooLongError(IllegalArgumentException):
    """A part of a request is longer than a limit allows.

    :ivar limit: the name of the limit.
    """

    def __init__(self, limit: str, words: str, given: int, legal: int) -> None:
        super().__init__(explain(words, given=given, legal=f"up to {legal} bytes"))
        self.limit = limit


class GoneError(TopologyError):
    """The client has gone, so nobody waits for the answer."""


class Gate:
    """Places of which each address may have some, and all together not more than there are. Threads may share it.

    :param budget: has the numbers.
    :param name: of the limit in :class:`Budget`.
    :param words: what a refused reader is told.
    :param per_address: whether there is a limit for each address, ``<name>_per_address``.
    """

    def __init__(self, budget: Budget, name: str, words: str, *, per_address: bool = True) -> None:
        self.name, self._words = name, words
        self._most: int = getattr(budget, name)
        self._most_each: int | None = getattr(budget, f"{name}_per_address") if per_address else None
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()
        self.taken = self.highest = 0

    def enter(self, address: str = "", *, shared: bool = False) -> None:
        """Take a place.

        :param address: whose; see :func:`address_of`.
        :param shared: whether many readers share the address, so that only the limit of all counts.
        :raises BusyError: there is none.
        """
        with self._lock:
            if self.taken >= self._most:
                raise BusyError(self.name, self._words, self._most)
            if not shared:
                self.check_address(address)
            self._taken[address] += 1
            self.taken += 1
            self.highest = max(self.highest, self.taken)

    def check_address(self, address: str) -> None:
        """Check that an address has not as many places as it may have.

        :raises BusyError: it has.
        """
        if self._most_each is not None and self._taken.get(address, 0) >= self._most_each:
            raise BusyError(f"{self.name}_per_address", self._words, self._most_each, status=429)

    def leave(self, address: str = "") -> None:
        """Give a place back."""
        with self._lock:
            self.taken -= 1
            self._taken[address] -= 1
            if not self._taken[address]:
                del self._taken[address]

    @contextmanager
    def place(self, address: str = "") -> Iterator[None]:
        """Hold a place.

        :raises BusyError: there is none.
        """
        self.enter(address)
        try:
            yield
        finally:
            self.leave(address)


class Usage:
    """What the readers of one server use.

    :ivar refused: name of a limit, or one of :data:`RULES` -> how often a reader was refused or cut off because of it.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget or Budget()
        self.refused: Counter[str] = Counter()
        self.connections = Gate(self.budget, "connections", "Too many connections.")
        self.requests = Gate(self.budget, "requests", "Too many requests wait for their answers.")
        self.streams = Gate(self.budget, "streams", "Too many clients follow events.")

    def note(self, limit: str) -> None:
        """Count that a limit, or one of :data:`RULES`, has refused or cut off a reader."""
        self.refused[limit] += 1

    def refusals(self) -> dict[str, int]:
        """Return the refusals by limit and rule, with ``-`` for ``_``, from 0 on: where a counter begins with 1, Prometheus sees no increase."""
        return {name.replace("_", "-"): self.refused[name] for name in (*(limit.name for limit in fields(self.budget)), *RULES)}

    def as_json(self) -> dict[str, Any]:
        """Return the limits, the places that are taken and were taken at most, and the refusals by name of the limit."""
        gates = (self.connections, self.requests, self.streams)
        return {
            "limits": {limit.name: getattr(self.budget, limit.name) for limit in fields(self.budget)},
            "taken": {gate.name: gate.taken for gate in gates},
            "highest": {gate.name: gate.highest for gate in gates},
            "refused": dict(self.refused),
        }


def address_of(host: str) -> str:
    """Return what stands for the reader with an IP address: the address; of IPv6 its network of 64 bits, which one reader usually has for himself."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(getattr(address, "ipv4_mapped", None) or address)


def is_own_name(host: str, names: frozenset[str] | None) -> bool:
    """Tell whether the header ``Host`` names the server.

    :param names: by which requests may name it, without a port; None: any.
    """
    return names is None or re.sub(r":\d+$", "", host).lower() in names


# --- whether somebody still waits for an answer -----------------------------------------------------------------------

_gone: ContextVar[threading.Event | None] = ContextVar("gone", default=None)


@contextmanager
def wanted_while(gone: threading.Event) -> Iterator[None]:
    """Let :func:`check_wanted` raise an error, here and in threads that are started with this context, as soon as ``gone`` is set."""
    token = _gone.set(gone)
    try:
        yield
    finally:
        _gone.reset(token)


def check_wanted() -> None:
    """Give up if nobody waits for the answer any more. Call it between steps of work that may take long.

    :raises GoneError: the client has gone.
    """
    gone = _gone.get()
    if gone is not None and gone.is_set():
        raise GoneError("the client has gone")


@contextmanager
def holding(lock: Any, timeout_s: float) -> Iterator[None]:
    """Hold a lock, unless the client goes while it waits for it.

    :raises BusyError: others have held it for ``timeout_s``.
    :raises GoneError: the client has gone.
    """
    left_s = timeout_s
    while not lock.acquire(timeout=min(_LOOK_S, left_s)):
        check_wanted()
        left_s -= _LOOK_S
        if left_s <= 0:
            raise BusyError("topic_read_wait_s", "Others have read this topology's topics for too long.", int(timeout_s))
    try:
        yield
    finally:
        lock.release()


# --- what repeats -----------------------------------------------------------------------------------------------------


class RefusedTokens:
    """Addresses from which wrong tokens came: after some of them an address has to pause, each time for twice as long."""

    _FREE, _LONGEST_S, _FORGET_S, _ADDRESSES = 20, 16, 600.0, 1024

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def note(self, address: str) -> None:
        """Count a wrong token."""
        count, _ = self._known.pop(address, (0, 0.0))
        self._known[address] = count + 1, time.monotonic()
        if len(self._known) > self._ADDRESSES:
            self._known.popitem(last=False)

    def pause_s(self, address: str) -> int:
        """Return for how many seconds an address still has to pause."""
        count, at_s = self._known.get(address, (0, 0.0))
        since_s = time.monotonic() - at_s
        if count < self._FREE or since_s > self._FORGET_S:
            return 0
        return max(0, math.ceil(min(1 << (count - self._FREE), self._LONGEST_S) - since_s))

    def forget(self, address: str) -> None:
        """Note that the right token came from an address."""
        self._known.pop(address, None)


class Seldom:
    """Says whether something that repeats is worth another line in the log: once a minute.

    :param every_s: how often.
    """

    _KEPT = 256

    def __init__(self, every_s: float = 60.0) -> None:
        self._every_s = every_s
        self._told_s: OrderedDict[str, float] = OrderedDict()

    def is_due(self, what: str) -> bool:
        """Tell whether it has not been told for so long, and note that it is told now."""
        now_s = time.monotonic()
        if now_s - self._told_s.get(what, -math.inf) < self._every_s:
            return False
        self._told_s[what] = now_s
        self._told_s.move_to_end(what)
        if len(self._told_s) > self._KEPT:
            self._told_s.popitem(last=False)
        return True
