"""What the demo publishes: a few readable subscriptions, many random ones, and places as messages at a rate."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from dskype.deploy.demo.places import subscriptions

if TYPE_CHECKING:
    from dskype.deploy.client.pubsub import PubSub
    from dskype.deploy.demo.places import Places
    from dskype.deploy.demo.screen import Arrivals

__all__ = ["SHOWN", "Feeder", "Plan", "Shown", "subscriptions_of"]

_REGISTERING_S = 25.0
"""How long the registration of all subscriptions takes, if messages take twice as long or longer; otherwise half of their time."""
_STEP_S = 0.02


@dataclass(frozen=True)
class Shown:
    """A subscription whose results are shown in words.

    :ivar title: for example ``“lake park” near Chicago``.
    :ivar place: the name of its location.
    :ivar record: its JSON record.
    """

    id: str
    title: str
    place: str
    record: dict[str, Any]


def _near(id: str, text: str, place: str, lat: float, lon: float, alpha: float) -> Shown:
    return Shown(id, f"“{text}” near {place}", place, {"type": "topk", "text": text, "lat": lat, "lon": lon, "k": 10, "alpha": alpha})


SHOWN = (
    _near("saint-martin", "saint martin", "Paris", 48.85, 2.35, 0.9),
    _near("lake-park", "lake park", "Chicago", 41.88, -87.63, 0.85),
    _near("san-jose", "san jose", "Costa Rica", 9.93, -84.08, 0.9),
    _near("santa-maria", "santa maria", "São Paulo", -23.55, -46.63, 0.9),
    _near("new-york", "new york", "New York", 40.71, -74.0, 0.8),
    Shown(
        "saints",
        "saint or santa, and maria or martin, in Europe",
        "Europe",
        {"type": "boolean", "bbox": [-11, 35, 32, 60], "expression": "(saint OR santa OR sankt) AND (maria OR martin)"},
    ),
)
"""Readable subscriptions. The map shows the results of the first one."""


@dataclass(frozen=True)
class Plan:
    """What a run publishes.

    :ivar messages: how many places.
    :ivar subscriptions: how many random ones, besides those of :data:`SHOWN`.
    :ivar rate: messages per second.
    :ivar window: how many messages the window holds.
    :ivar seed: of everything random.
    """

    messages: int = 80_000
    subscriptions: int = 20_000
    rate: float = 1000.0
    window: int = 40_000
    seed: int = 1


class Feeder(threading.Thread):
    """Publishes messages at a rate, and registers subscriptions in the first seconds.

    One message and the subscriptions of :data:`SHOWN` are sent at once; everything else waits for :meth:`go`. So the processes of the topology,
    which start when there is something to do, run when the feeder begins.

    :param pubsub: the client to publish with.
    :param messages: what to publish; the message with sequence number *i* is row *i*.
    :param subscriptions: (id, record) of all subscriptions.
    :param total: how many subscriptions there are.
    :param arrivals: gets the messages' timestamps.
    :param done: how many messages and subscriptions an earlier run has published.
    :ivar limit: messages with this sequence number or a later one wait; the owner sets it.
    :ivar held: messages wait because of the limit.
    """

    def __init__(
        self,
        pubsub: PubSub,
        messages: Places,
        subscriptions: Iterator[tuple[str, bytes]],
        total: int,
        rate: float,
        arrivals: Arrivals,
        done: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(name="feeder", daemon=True)
        self._pubsub, self._messages, self._arrivals, self._rate = pubsub, messages, arrivals, rate
        self.published, self.registered = min(done[0], len(messages)), min(done[1], total)
        self._subscriptions, self._total = islice(subscriptions, self.registered, None), total
        self._over, self._go = threading.Event(), threading.Event()
        self._sent: list[tuple[int, Any]] = []
        self.limit: float = float("inf")
        self.held = self.finished = False
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Publish everything, or until :meth:`close`."""
        try:
            self._register(len(SHOWN))
            self._publish(min(len(self._messages), self.published + 1))
            self._pubsub.flush()
            self._go.wait()
            due, registered, then = float(self.published), float(self.registered), time.monotonic()
            registering_s = min(_REGISTERING_S, len(self._messages) / self._rate / 2)
            while not self._over.is_set() and (self.published < len(self._messages) or self.registered < self._total):
                now = time.monotonic()
                due, registered, then = due + (now - then) * self._rate, registered + (now - then) * self._total / registering_s, now
                self.held = due > self.limit
                due = min(due, max(self.limit, self.published))  # do not catch up after a wait
                self._register(min(self._total, int(registered)))
                self._publish(min(len(self._messages), int(due)))
                self._note_arrivals()
                self._over.wait(_STEP_S)
            self._pubsub.flush()
            self._note_arrivals()
            self.finished = not self._over.is_set()
        except Exception as error:
            if not self._over.is_set():
                self.failure = error

    def go(self) -> None:
        """Let the feeder begin."""
        self._go.set()

    def _register(self, until: int) -> None:
        for id, value in islice(self._subscriptions, max(0, until - self.registered)):
            self._pubsub.send_subscription(id.encode(), value)
            self.registered += 1

    def _publish(self, until: int) -> None:
        # Limit one step: after a sleep of the machine, or if it cannot keep up, many messages may be due.
        until = min(until, self.published + 2000)
        for seq, value in enumerate(self._messages.records(self.published, until), self.published):
            self._sent.append((seq, self._pubsub.send_message(value)))
        self.published = max(self.published, until)

    def _note_arrivals(self) -> None:
        """Note the timestamps of the messages that Kafka has by now."""
        there = 0
        for seq, sent in self._sent:
            if not sent.done():
                break
            there += 1
            if not sent.failed():
                self._arrivals.note(seq, sent.get().timestamp)
        del self._sent[:there]

    def close(self) -> None:
        """Stop publishing."""
        self._over.set()
        self._go.set()
        if self.is_alive():
            self.join(timeout=10)


def subscriptions_of(plan: Plan, messages: Places) -> Iterator[tuple[str, bytes]]:
    """Return (id, JSON record) of all subscriptions of a run, those of :data:`SHOWN` first."""
    shown = ((s.id, json.dumps(s.record, ensure_ascii=False).encode()) for s in SHOWN)
    return chain(shown, subscriptions(messages, plan.subscriptions, plan.seed))
