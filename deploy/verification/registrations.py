"""The registrations, and the events that the topology published about them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dskype.deploy.verification.inputs import Inputs, Record, in_order, where
from dskype.deploy.verification.replay import Place, Unregistered
from dskype.deploy.verification.report import Report
from dskype.spouts.subscriptions import Subscription, TopkSubscription

__all__ = ["Registration", "Registry", "decode"]

_FAR = 1 << 62
_KEY_BEGINS = {"limited": b"\xff"}
_EXPECTED = {
    "state": ("subscription", "registration", "watermark", "topk"),
    "delta": ("subscription", "watermark", "op", "message"),
    "event": ("subscription", "registration", "event", "watermark"),
}


@dataclass(slots=True, eq=False)
class Registration:
    """A record of the subscriptions topic, and the events about it.

    :ivar number: its index among all registrations that are compared.
    :ivar arrival_ms: Kafka's timestamp.
    :ivar active, removed: watermarks of its events; None: no such event (yet).
    :ivar goes_on: an update: the registration before it, which was active until then; its results go on from there.
    :ivar adopted: an update of a registration whose record has been compacted away.
    :ivar bequeathed: another registration goes on from this one.
    :ivar current: no later record replaces or unregisters the subscription.
    :ivar meta: the ``meta`` that its results must have; None: none.
    :ivar meta_tail: how the JSON of a result with this ``meta`` usually ends.
    :ivar key: its id in UTF-8.
    """

    number: int
    name: str
    place: Place
    subscription: Subscription
    arrival_ms: int
    active: int | None = None
    removed: int | None = None
    current: bool = False
    meta: Any = None
    meta_tail: bytes = b""
    key: bytes = b""
    goes_on: Registration | None = None
    adopted: bool = False
    bequeathed: bool = False

    @property
    def begun(self) -> int | None:
        """The watermark at which it, or the first registration that it goes on from, became active; None: it did not."""
        return self.active if self.goes_on is None else self.goes_on.begun

    @property
    def is_topk(self) -> bool:
        """Whether it is a top-k subscription; otherwise it is one with matches, boolean or with a threshold."""
        return isinstance(self.subscription, TopkSubscription)

    @property
    def expires_ms(self) -> int | None:
        """A boolean or threshold subscription matches messages that arrive before this time, and a top-k one ends with the first one that does not; None: it does not end."""
        ttl_s = self.subscription.ttl_s
        return None if ttl_s is None else self.arrival_ms + round(ttl_s * 1000)


def decode(record: Record, kind: str, topic: str, report: Report) -> dict[str, Any] | None:
    """Return a published record as a dict; report a malformed one and return None."""
    try:
        value = json.loads(record.value or b"")
        if (
            value["v"] == 1
            and type(value["watermark"]) is int
            and all(name in value for name in _EXPECTED[kind])
            and (record.key or b"").removeprefix(_KEY_BEGINS.get(value.get("event"), b"")).decode() == value["subscription"]
        ):
            return value
        strange = (record.key or b"").decode(errors="replace") != value.get("subscription")
        text = "its key is not its subscription" if strange else "a field is missing or wrong"
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        text = f"{type(error).__name__}: {error}"
    report.differ("format", f"a record of {topic} cannot be used: {text}", where=where(topic, record), details=(f"{record.value!r:.300}",))
    return None


class Registry:
    """The registrations, by name ``<partition>-<offset>``.

    :param parsed: see :func:`~dskype.deploy.verification.replay.parse_subscriptions`.
    :param wanted: ids to compare; None: all.
    """

    def __init__(self, inputs: Inputs, parsed: Mapping[Place, Any], report: Report, wanted: Collection[str] | None) -> None:
        self._inputs, self._parsed, self._report, self._wanted = inputs, parsed, report, wanted
        self.by_name: dict[str, Registration] = {}
        self.all: list[Registration] = []
        self.last: dict[str, Registration | None] = {}
        """Subscription -> its current registration; None: it is unregistered."""
        self.partitions: dict[str, set[int]] = {}
        self._ends = dict(parsed.keys())  # keys are (partition, offset), so this keeps the last offset of each partition
        self._gone: set[str] = set()
        self._by_subscription: dict[str, list[Registration]] = {}
        self._only: tuple[Any, np.ndarray] | None = None
        for record in inputs.subscriptions:
            self._add(record)

    def _add(self, record: Record) -> None:
        place = record.partition, record.offset
        found = self._parsed[place]
        if isinstance(found, str) or (self._wanted is not None and found.id not in self._wanted):
            return
        self.partitions.setdefault(found.id, set()).add(record.partition)
        before = self.last.get(found.id)
        if before is not None:
            before.current = False
        if isinstance(found, Unregistered):
            self.last[found.id] = None
            return
        registration = Registration(
            len(self.all),
            f"{place[0]}-{place[1]}",
            place,
            found,
            record.timestamp_ms,
            current=True,
            meta=None if found.meta is None else json.loads(found.meta),
            meta_tail=b"" if found.meta is None else f',"meta":{found.meta}}}'.encode(errors="replace"),
            key=found.id.encode(),
        )
        self.all.append(registration)
        self.by_name[registration.name] = self.last[found.id] = registration
        self._by_subscription.setdefault(found.id, []).append(registration)

    @property
    def selective(self) -> bool:
        """Whether some subscriptions are not compared."""
        return self._wanted is not None

    def skips(self, record: Record) -> bool:
        """Tell whether a published record is of a subscription that is not compared."""
        return self._wanted is not None and (record.key or b"").decode(errors="replace") not in self._wanted

    def skips_id(self, id: str) -> bool:
        """Tell whether a subscription is not looked at."""
        return self._wanted is not None and id not in self._wanted

    @property
    def compacted(self) -> bool:
        """Records of subscriptions have been dropped."""
        known: Counter[int] = Counter(partition for partition, _ in self._parsed)
        return any(count <= self._ends[partition] for partition, count in known.items())

    def only_boolean(self, subscriptions: Any) -> np.ndarray:
        """Return the number of the only boolean registration of each subscription, int64[n]; -1: it has none, or several.

        :param subscriptions: ids, a pyarrow string array.
        """
        if self._only is None:
            found = [(id, [r.number for r in registrations if not r.is_topk]) for id, registrations in self._by_subscription.items()]
            once = [(id, numbers[0]) for id, numbers in found if len(numbers) == 1]
            self._only = pa.array([id for id, _ in once], pa.string()), np.array([number for _, number in once] + [-1], np.int64)
        ids, numbers = self._only
        return numbers[pc.index_in(subscriptions, ids).fill_null(len(ids)).to_numpy()]

    def boolean_at(self, subscription: str, watermarks: np.ndarray) -> np.ndarray:
        """Return the numbers of a boolean subscription's registrations that were active at watermarks, int64[n]; -1: it has never been registered.

        Where none was, one that has no event yet is meant, or else the first one.
        """
        found = [r for r in self._by_subscription.get(subscription, ()) if not r.is_topk]
        if not found:
            return np.full(len(watermarks), -1, np.int64)
        numbers = np.full(len(watermarks), next((r.number for r in found if r.active is None and r.removed is None), found[0].number), np.int64)
        for r in found:
            if r.active is not None:
                numbers[(watermarks > r.active) & (watermarks <= (r.removed if r.removed is not None else _FAR))] = r.number
        return numbers

    def find(self, name: Any, subscription: str, kind: str, topic: str, record: Record) -> Registration | None:
        """Return the registration that a published record names; report why and return None if it cannot be compared.

        :param kind: the expected kind: ``topk`` | ``boolean`` | ``any``.
        """
        found = self.by_name.get(name)
        if found is not None:
            if found.subscription.id == subscription and (kind == "any" or found.is_topk == (kind == "topk")):
                return found
            text = (
                f"is of registration {name}, which is {found.subscription.id!r}"
                if found.subscription.id != subscription
                else f"is of registration {name}, which is not a {'top-k' if kind == 'topk' else kind} subscription"
            )
        else:
            try:
                place = tuple(map(int, name.split("-")))
                if len(place) == 2 and place not in self._parsed and place[1] <= self._ends.get(place[0], -1):
                    self._gone.add(name)
                    self._report.unchecked["results of registrations whose record has been compacted away"] += 1
                    return None
            except (ValueError, AttributeError):
                pass
            text = f"names {name!r}, which is not a registration"
        self._report.differ("format", f"a record of {topic} {text}", where=where(topic, record), subscription=subscription, details=(f"{record.value!r:.300}",))
        return None

    # -- events ---------------------------------------------------------------------------------------------------------

    def read_events(self) -> None:
        """Read the events; check that each registration has each of them at most once, in order."""
        topic, report, known = self._inputs.topics.registrations, self._report, set()
        for record in in_order(self._inputs.registrations):
            if self.skips(record) or (value := decode(record, "event", topic, report)) is None:
                continue
            found = self.find(value["registration"], value["subscription"], "any", topic, record)
            if found is None:
                continue
            event, watermark = value["event"], value["watermark"]
            if event == "limited":
                report.notes["events that a limit has cut in"] += 1
                continue
            identity = (found.name, event, watermark)
            if identity in known:
                report.notes["repeated registration events"] += 1
                continue
            known.add(identity)
            report.compared["registration events"] += 1
            self._add_event(found, event, watermark, where(topic, record))

    def _add_event(self, found: Registration, event: str, watermark: int, place: str) -> None:
        about = {"where": place, "subscription": found.subscription.id, "registration": found.name, "watermark": watermark}
        name = f"registration {found.name} of {found.subscription.id!r}"
        if event not in ("active", "updated", "removed"):
            self._report.differ("registration", f"{name} has an unknown event {event!r}", **about)
            return
        if event == "updated":
            self._go_on(found, watermark, about)
            event = "active"
        if getattr(found, event) is not None:
            self._report.differ("registration", f"{name} became {event} twice: at watermark {getattr(found, event)} and at {watermark}", **about)
        elif event == "active":
            if found.removed is not None:
                self._report.differ("registration", f"{name} became active (at watermark {watermark}) after it was removed (at {found.removed})", **about)
            found.active = watermark
        else:
            found.removed = watermark
            if found.active is not None and watermark < found.active:
                self._report.differ("registration", f"{name} was removed at watermark {watermark}, before it became active at {found.active}", **about)

    def _go_on(self, found: Registration, watermark: int, about: dict[str, Any]) -> None:
        """Let an update take over from the registration before it, which ends there."""
        earlier = self._by_subscription[found.subscription.id]
        before = next((r for r in reversed(earlier[: earlier.index(found)]) if r.active is not None), None)
        if before is None and self.compacted:
            found.adopted = True
        elif before is None or before.removed is not None or before.is_topk != found.is_topk or not found.subscription.update:
            self._report.differ("registration", f"registration {found.name} of {found.subscription.id!r} is no update of one that is active", **about)
        else:
            before.removed, before.bequeathed, found.goes_on = watermark, True, before

    def check_order(self, final: bool, newest: int, now_ms: int | None, must: bool) -> None:
        """Check that a registration ends before the next one of its subscription begins.

        :param final: the topology is at rest: current registrations must be active, all others must have been removed.
        :param newest: position of the newest message.
        :param now_ms: arrival of the newest message; a ttl may have ended by then.
        :param must: every current registration must have an event.
        """
        for id, registrations in self._by_subscription.items():
            if len(self.partitions[id]) > 1:
                self._report.unchecked["subscriptions with records in several partitions, whose order is not known"] += 1
                continue
            before: Registration | None = None
            for found in registrations:
                if before is not None and found.active is not None:
                    if before.removed is None:
                        self.wrong(found, f"became active at watermark {found.active}, but the earlier {before.name} was not removed")
                    elif before.removed > found.active:
                        self.wrong(found, f"became active at watermark {found.active}, but the earlier {before.name} was only removed at {before.removed}")
                before = found if found.active is not None or found.removed is not None else before
                for event, watermark in (("active", found.active), ("removed", found.removed)):
                    if watermark is not None and watermark > newest:
                        self.wrong(found, f"became {event} at watermark {watermark}, but the newest message is at {newest}")
                ended = not found.current
                if found.active is None and found.removed is not None and (ended or self._expired(found, now_ms)):
                    self._report.notes["registrations that ended before they became active"] += 1
                elif final and ended and found.active is not None and found.removed is None:
                    self.wrong(found, "was replaced or unregistered, but never removed")
                elif not ended and found.removed is not None and not self._expired(found, now_ms):
                    self.wrong(found, f"was removed at watermark {found.removed}, but not unregistered")
                elif final and must and not ended and found.active is None and not self._expired(found, now_ms):
                    self.wrong(found, "never became active")
                elif not ended and found.active is None:
                    self._report.unchecked["subscriptions are not active yet"] += 1

    @staticmethod
    def _expired(found: Registration, now_ms: int | None) -> bool:
        return found.expires_ms is not None and now_ms is not None and found.expires_ms <= now_ms

    def wrong(self, found: Registration, text: str) -> None:
        """Report a difference about a registration."""
        self._report.differ(
            "registration", f"registration {found.name} of {found.subscription.id!r} {text}", subscription=found.subscription.id, registration=found.name
        )
