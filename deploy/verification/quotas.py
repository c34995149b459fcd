"""Whether registrations were rightly refused beyond the quotas of their tenant, and rightly taken: the documented rule (docs/concepts/tenants.md), by the topic of subscriptions.

The code is its own; it takes nothing from the topology but the settings.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from dskype.deploy.verification.inputs import Inputs, Record, header, where
from dskype.deploy.verification.report import Report
from dskype.spouts.settings import Settings

__all__ = ["OVER_QUOTA", "Letter", "Taken", "check_quotas", "judge_quotas"]

OVER_QUOTA = "over-quota"
"""The header ``code`` of the dead letter about a registration beyond a quota."""

_NO_ROOM = "no-room"


class Letter(NamedTuple):
    """What a dead letter says of a registration beyond a quota: the tenant, the quota's name, what it allows, and what was used."""

    tenant: str
    quota: str
    most: str
    used: str


class Taken(NamedTuple):
    """A registration or a removal, as its record says it.

    :ivar place: of the record.
    :ivar id: of the subscription.
    :ivar tenant: that it names; None: it names none.
    :ivar arrival_ms: when the broker got it.
    :ivar ends_ms: when its life ends; None: it does not.
    :ivar removes: whether it is a removal.
    """

    place: tuple[int, int]
    id: str
    tenant: str | None
    arrival_ms: int
    ends_ms: int | None
    removes: bool


class _Known:
    """What is known about one quota of a tenant: it may change when the topology is resumed, and only dead letters name what held.

    :ivar now: what it allows now; None: any number.
    """

    def __init__(self, now: int | None) -> None:
        self.now = now
        self._at: list[int] = []
        self._most: list[int] = []

    def add(self, index: int, most: int) -> None:
        """Note what a dead letter about the record of an index says, in order."""
        self._at.append(index)
        self._most.append(most)

    def at(self, index: int) -> int | None:
        """Return what the quota allowed when a record was handled, if those on both sides of it, or the last one and the configuration, agree; None: it is not known."""
        behind = bisect_left(self._at, index)
        before = self._most[behind - 1] if behind else None
        return before if before == (self._most[behind] if behind < len(self._most) else self.now) else None


class _Tenant:
    """What one tenant uses."""

    def __init__(self, quota: Mapping[str, int | None]) -> None:
        self.known = {name: _Known(most) for name, most in quota.items()}
        self.subscriptions: set[str] = set()
        self._second, self._registered = -1, 0

    def used(self, now_ms: int) -> dict[str, int]:
        """Return how much of each quota is used."""
        return {"max_subscriptions": len(self.subscriptions), "max_registrations_per_s": self._registered if self._second == now_ms // 1000 else 0}

    def register(self, id: str, now_ms: int) -> None:
        """Count a registration."""
        self._registered = self.used(now_ms)["max_registrations_per_s"] + 1
        self._second = now_ms // 1000
        self.subscriptions.add(id)


def check_quotas(inputs: Inputs, settings: Settings, read: Mapping[tuple[int, int], Any], letters: Mapping[tuple[int, int], Record], report: Report) -> None:
    """Check that exactly the registrations beyond the quotas of tenants were refused.

    :param read: place -> what the record says, for all that have been handled; text: it cannot be used.
    :param letters: the dead letters about subscriptions, by place.
    """
    records = {(r.partition, r.offset): r for r in inputs.subscriptions}
    if len({partition for partition, _ in records}) > 1:
        report.unchecked["quotas of tenants: the topic of subscriptions has several partitions, whose order is not known"] += 1
        return
    if any(len(records) <= offset for _, offset in records) or inputs.cut("dead_letters"):
        report.unchecked["quotas of tenants: records of subscriptions or dead letters are gone"] += 1
        return
    refused, taken = {}, []
    for place, found in sorted(read.items()):
        letter, record = letters.get(place), records[place]
        code = None if letter is None else header(letter, "code")
        if letter is not None and code == OVER_QUOTA:
            refused[place] = Letter(*(header(letter, name) or "" for name in Letter._fields))
        elif code == _NO_ROOM and settings.distributor != "hashing":
            continue  # the task that counts has refused it
        if isinstance(found, str):
            continue
        removes = record.value is None
        ttl_s = None if removes else found.ttl_s
        ends_ms = None if ttl_s is None else record.timestamp_ms + round(ttl_s * 1000)
        taken.append(Taken(place, found.id, None if removes else found.tenant, record.timestamp_ms, ends_ms, removes))
    wrong, unknown = judge_quotas(taken, refused, settings)
    report.compared["registrations with quotas"] += len(taken)
    if unknown:
        report.unchecked["registrations above a quota that holds now, and that an earlier one may have allowed"] += unknown
    for place, reason in wrong.items():
        report.differ("dead-letter", reason, where=where(inputs.topics.subscriptions, records[place]))


def judge_quotas(records: Sequence[Taken], letters: Mapping[tuple[int, int], Letter], settings: Settings) -> tuple[dict[tuple[int, int], str], int]:
    """Compare what was refused and taken with the rule.

    :param records: all good ones of the topic's only partition, in order.
    :param letters: those about registrations beyond a quota, by place.
    :returns: place -> what is wrong, and how many were taken above a quota that holds now, where an earlier one may have allowed them.
    """
    tenants = {name: _Tenant(quota._asdict()) for name, quota in settings.tenants.items()}
    owners = [tenants[record.tenant if record.tenant in tenants else "default"] for record in records]
    names = {id(tenant): name for name, tenant in tenants.items()}
    for index, (record, tenant) in enumerate(zip(records, owners)):
        letter = letters.get(record.place)
        if letter is not None and letter.quota in tenant.known and letter.most.isdigit():
            tenant.known[letter.quota].add(index, int(letter.most))
    wrong: dict[tuple[int, int], str] = {}
    life = _Life()
    now_ms = unknown = 0
    for index, (record, tenant) in enumerate(zip(records, owners)):
        if record.removes:
            life.end(record.id)
            continue
        now_ms = max(now_ms, record.arrival_ms)
        life.advance(now_ms)
        used, replaces = tenant.used(now_ms), record.id in tenant.subscriptions
        letter = letters.get(record.place)
        if letter is not None:
            if reason := _wrong_letter(letter, names[id(tenant)], used, replaces):
                wrong[record.place] = reason
            continue
        for quota, amount in used.items():
            if quota == "max_subscriptions" and replaces:
                continue
            known = tenant.known[quota]
            most = known.at(index)
            if most is not None and amount >= most:
                wrong[record.place] = f"a registration of the tenant {names[id(tenant)]!r} was taken, which uses {amount} of {most} ({quota})"
            elif most is None and known.now is not None and amount >= known.now:
                unknown += 1
        life.end(record.id)
        tenant.register(record.id, now_ms)
        life.begin(record, tenant)
    return wrong, unknown


def _wrong_letter(letter: Letter, tenant: str, used: Mapping[str, int], replaces: bool) -> str | None:
    """Return what is wrong with a dead letter; None: nothing."""
    if letter.tenant != tenant or letter.used != str(used.get(letter.quota)):
        return f"a dead letter says {letter}, but the tenant {tenant!r} uses {dict(used)}"
    if not letter.most.isdigit() or int(letter.used) < int(letter.most):
        return f"a registration within the quota was refused: {letter}"
    return f"a registration that replaces one of its tenant was refused: {letter}" if replaces and letter.quota == "max_subscriptions" else None


class _Life:
    """Which subscriptions live, and whose they are."""

    def __init__(self) -> None:
        self._owners: dict[str, tuple[_Tenant, tuple[int, int]]] = {}
        self._ends: list[tuple[int, str, tuple[int, int]]] = []  # a heap; those of replaced registrations stay in it

    def begin(self, record: Taken, tenant: _Tenant) -> None:
        """Begin one; it is its tenant's already."""
        self._owners[record.id] = tenant, record.place
        if record.ends_ms is not None:
            heappush(self._ends, (record.ends_ms, record.id, record.place))

    def end(self, id: str) -> None:
        """End one; an unknown one is no error."""
        if id in self._owners:
            self._owners.pop(id)[0].subscriptions.discard(id)

    def advance(self, now_ms: int) -> None:
        """End those whose time is over."""
        while self._ends and self._ends[0][0] <= now_ms:
            _, id, place = heappop(self._ends)
            if id in self._owners and self._owners[id][1] == place:
                self.end(id)
