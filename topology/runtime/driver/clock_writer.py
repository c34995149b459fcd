"""Writes the topology's clock, and the commands of users, to the inboxes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from kafka.errors import KafkaError

from dskype.topology.core.clock import ClockRecord, TopologyClock
from dskype.topology.core.snapshots import FencedError
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.planning.plan import inbox_topic
from dskype.topology.runtime.driver.state import DriverState

__all__ = ["ClockWriter"]

log = logging.getLogger(__name__)

_STEP_S, _MOST_S = 0.01, 0.5
_WRITE_TIMEOUT_S, _CONTROL_TIMEOUT_S = 30.0, 5.0


class ClockWriter:
    """Writes pulses, ticks and commands.

    A command to all spouts is written at once, or by the clock's thread when the brokers are back; only the last one counts::

        nothing due ---- control() ----> due ---- it is written ----> nothing due
    """

    def __init__(self, state: DriverState) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._due: str | None = None
        self.begin()

    def begin(self) -> None:
        """Let the clock start now, and not when the driver was made."""
        self._clock = TopologyClock(self._state.plan, self._state.stats, now_ms(), self._state.plan.component_ids)

    def step(self) -> float:
        """Write what is due; return the seconds until more is."""
        if self._state.failure is not None:
            return _MOST_S
        with self._lock:
            self._write_control()
        self._write(self._clock.due(now_ms(), active=self._state.active))
        return min(_MOST_S, max(_STEP_S, (self._clock.next_due_ms(active=self._state.active) - now_ms()) / 1000))

    def control(self, command: str) -> None:
        """Send a command to all spouts; if the brokers are away, the clock's thread sends it when they are back."""
        with self._lock:
            self._due = command
            try:
                self._write_control()
            except KafkaError as error:
                log.warning("the spouts of topology %s cannot get the command %s now: %s; trying again", self._state.plan.name, command, error)

    def _write_control(self) -> None:
        if self._due is not None:
            self._write(self._clock.control(self._due, now_ms()), _CONTROL_TIMEOUT_S)
            self._due = None

    def debug(self, percents: Mapping[str, float]) -> None:
        """Set which percentages of the tuples go to the event loggers."""
        self._write(self._clock.debug(percents, now_ms()))

    def request_snapshots(self) -> dict[int, int]:
        """Ask every bolt task for a snapshot; return task -> version behind the request."""
        plan = self._state.plan
        sent = {(topic, partition): self._state.send(topic, value, partition=partition) for topic, partition, value in self._clock.snapshot_requests(now_ms())}
        return {
            task: sent[inbox_topic(plan.name, c), plan.task_index(task)].get().offset + 1
            for c in plan.component_ids
            if not plan.spec(c).is_spout
            for task in plan.component_tasks(c)
        }

    def waiting(self) -> dict[int, int]:
        """Return task -> number of tuples, or of a spout's pulses, that wait for it."""
        return self._state.stats.undelivered_by_task() | (self._clock.unseen_pulses() if self._state.active else {})

    def _write(self, records: list[ClockRecord], timeout_s: float = _WRITE_TIMEOUT_S) -> None:
        if not records:
            return
        if self._state.tenure.is_over():
            raise FencedError(f"topology {self._state.plan.name!r} ends here: another driver has taken it over")
        deadline = time.monotonic() + timeout_s
        for sent in [self._state.send(record.topic, record.value, partition=record.partition) for record in records]:
            sent.get(max(0.0, deadline - time.monotonic()))
        self._state.brokers_away = False
