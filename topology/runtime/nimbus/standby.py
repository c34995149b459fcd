"""A standby waits beside a running topology, until its driver is lost.

What counts is the order of records in the nimbus topic, and no clock of any host. A standby writes a *beat* of its own there, one at a time, about every
second, and reads it back. If the driver's heartbeat has not changed while so many beats went through the same partition, the driver is lost. While the
brokers are away neither of them gets anything through, and nothing is concluded.

A driver that is taken for lost may be alive. That costs a change of drivers and no result: the standby takes the next *term*, and what processes of
lower terms write is refused (:mod:`dskype.topology.core.snapshots`).

Of several standbys, each waits for longer the more others there are whose tokens come before its own; so one is first.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

from kafka.errors import KafkaError

from dskype.topology.errors import TopologyError
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.nimbus import nimbus_topic
from dskype.topology.runtime.nimbus.liveness import alive_on_this_machine, describe_driver
from dskype.topology.runtime.nimbus.nimbus_topic import read_record, read_standby

__all__ = ["LOST_AFTER_BEATS", "LossWatch", "TopologyKilledError", "await_loss"]

log = logging.getLogger(__name__)

BEAT_S = 1.0
_POLL_MS = 200
LOST_AFTER_BEATS = 6
"""A driver is lost if its heartbeat, of two seconds, stays as it is while this many beats of a standby go through the topic."""
LOOK_AROUND_BEATS = 2
"""Beats after which a standby knows which others there are."""
RANK_BEATS = 4
"""How many beats longer a standby waits for each other one that comes before it."""


class TopologyKilledError(TopologyError):
    """The topology for which a standby waited was killed."""


class LossWatch:
    """Decides, from records of the nimbus topic in their order, when a standby has to take over.

    :param token: tells the standby from others, and decides which one is first.
    :param alive_here: tells whether a driver on this machine is alive; None if it is on another one.
    """

    def __init__(self, name: str, token: str, alive_here: Callable[[dict[str, Any]], bool | None] = alive_on_this_machine) -> None:
        self._name, self._token, self._alive_here = name, token, alive_here
        self.driver: dict[str, Any] | None = None
        """The driver that the newest record of the topology names; None without a record."""
        self.killed = False
        """Whether the topology was removed while this standby waited."""
        self.beats = 0
        """Own beats that have been read back."""
        self._heartbeat: Any = None
        self._silent = 0  # own beats since the driver's last change
        self._others: dict[str, int] = {}  # token of another standby -> own beats when it was last seen

    def feed(self, record: Any) -> None:
        """Take in the next record of the topic."""
        name, token, there = read_standby(record)
        if name == self._name and token == self._token:
            self.beats, self._silent = self.beats + there, self._silent + there
        elif name == self._name and there:
            self._others[token] = self.beats
        elif name == self._name:
            self._others.pop(token, None)
        name, document = read_record(record)
        if name != self._name:
            return
        beat = None if document is None else (document["driver"], document.get("heartbeat"))
        self.killed = document is None and self.beats > 0
        self.driver = None if document is None else document["driver"]
        if beat != self._heartbeat:
            self._heartbeat, self._silent = beat, 0

    def is_lost(self) -> bool:
        """Tell whether to take over now."""
        rank = sum(token < self._token for token, seen in self._others.items() if self.beats - seen <= LOST_AFTER_BEATS)
        here = None if self.driver is None else self._alive_here(self.driver)
        if here is True:
            return False
        silent = LOST_AFTER_BEATS if self.driver is not None and here is None else 0
        return self.beats >= LOOK_AROUND_BEATS + RANK_BEATS * rank and self._silent >= silent + RANK_BEATS * rank


def await_loss(kafka: KafkaSettings, name: str, notice: Callable[[str], None]) -> dict[str, Any] | None:
    """Wait until no driver runs a topology.

    :param notice: gets a line of text when the wait begins and when it ends.
    :returns: the driver that was lost; None if there was none.
    :raises TopologyKilledError: the topology was killed meanwhile.
    """
    token, me = secrets.token_hex(8), describe_driver()
    watch, due, expected, sent, told = LossWatch(name, token), time.monotonic(), 0, None, False
    with closing(kafka.producer()) as producer, closing(nimbus_topic.follow(kafka)) as consumer:
        try:
            while not watch.is_lost():
                if watch.killed:
                    raise TopologyKilledError(f"topology {name!r} was killed while this process stood by for it")
                try:
                    # The next beat only when the one before has come back: after an outage they must not come all at once.
                    if time.monotonic() >= due and (sent is None or sent.failed() or watch.beats >= expected):
                        due, expected = time.monotonic() + BEAT_S, watch.beats + 1
                        sent = nimbus_topic.write_standby(producer, name, token, {"v": 1, "driver": me, "beat": expected})
                    for records in consumer.poll(timeout_ms=_POLL_MS).values():
                        for record in records:
                            watch.feed(record)
                except KafkaError as error:
                    log.warning("a standby cannot reach the brokers: %s; trying again", error)
                    time.sleep(BEAT_S)
                if not told and watch.beats and watch.driver is not None:
                    told = True
                    notice(f"standing by for topology {name}, which runs on {watch.driver['host']} (process {watch.driver['pid']})")
        finally:
            with suppress(KafkaError):  # it is there as the driver from now on, or not at all
                nimbus_topic.write_standby(producer, name, token, None).get(timeout=5)
    if watch.driver is not None:
        notice(f"the driver of topology {name} on {watch.driver['host']} (process {watch.driver['pid']}) is lost; taking over")
    return watch.driver
