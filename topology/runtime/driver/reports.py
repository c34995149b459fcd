"""The driver's reports of errors, restarts and the topology's health, for readers of the metrics topic."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Literal

from kafka.errors import KafkaError

from dskype.topology.core.redaction import redact_text
from dskype.topology.core.stats import TopologyStats

__all__ = ["DRIVER_KEY", "DriverReports", "HealthState", "cause_of"]

log = logging.getLogger(__name__)

HealthState = Literal["starting", "running", "waiting", "stalled", "failed"]

DRIVER_KEY = b"driver"
"""Key of the driver's own record among the statistics."""

PARTS = ("broker", "clock", "commits", "failure", "janitor", "query", "topics", "watch")
"""The parts of the driver whose errors are counted."""

_MAX_ERRORS = 100
_REPEAT_S = 30.0

_EXCEPTION = re.compile(r"(Caused by: )?[A-Za-z_][\w.$]*(Error|Exception|Exit)\b")
_OF_JAVA = ("org.", "java.", "py4j.", "Caused by: ")


class DriverReports:
    """Collects the driver's reports and writes them to the metrics topic, as tasks do with their errors.

    If the brokers are away, reports are written when they are back. Thread-safe.

    :param topology_id: the topology's id.
    :param stats: gets the errors at once, for readers in this process.
    :param now_ms: the clock.
    :ivar announce: called with text for the user when the health changes, and by the driver itself.
    """

    def __init__(self, topology_id: str, stats: TopologyStats, now_ms: Callable[[], int], announce: Callable[[str], None]) -> None:
        self._topology_id, self._stats, self._now_ms, self.announce = topology_id, stats, now_ms, announce
        self._lock = threading.Lock()
        self._errors: deque[dict[str, Any]] = deque(maxlen=_MAX_ERRORS)
        self._state: HealthState = "starting"
        self._why: list[str] = []
        self._changed, self._written_s = True, 0.0
        self.restarts: Counter[str] = Counter()
        """Component -> how often its query was restarted after a failure."""
        self.problems: Counter[str] = Counter()
        """Part of the driver -> number of its errors."""

    def add_error(self, component: str, text: str, *, part: str = "query") -> None:
        """Report an error of a component's query, or of a part of the driver (``component`` is then ``__driver``)."""
        record = {"v": 1, "kind": "error", "component": component, "task": -1, "time_ms": self._now_ms(), "error": redact_text(text)}
        with self._lock:
            self.problems[part] += 1
            self._errors.append(record)
            self._changed = True
        self._stats.errors.append(record)

    def count_restart(self, component: str) -> None:
        """Count a restart of a component's query."""
        with self._lock:
            self.restarts[component] += 1
            self._changed = True

    def set_health(self, state: HealthState, why: list[str]) -> None:
        """Set the topology's health."""
        why = [redact_text(line) for line in why]
        with self._lock:
            if self._state == "failed" or (state == self._state and why == self._why):
                return
            announced = state != self._state or state in ("failed", "waiting") or (bool(why) and state != "stalled")
            self._state, self._why, self._changed = state, why, True
        if announced:
            level = logging.INFO if state in ("starting", "running") else logging.WARNING
            log.log(level, "topology %s is %s %s", self._topology_id, state, "; ".join(why))
            self.announce(f"topology {self._topology_id} is {state}" + "".join(f"\n  {line}" for line in why))

    def summary(self) -> dict[str, Any]:
        """Return ``{"state", "why", "restarts"}``."""
        with self._lock:
            return {"state": self._state, "why": list(self._why), "restarts": self.restarts.total()}

    def document(self) -> bytes:
        """Return the record of the driver's present health."""
        with self._lock:
            record = {
                "v": 1,
                "kind": "driver",
                "topology": self._topology_id,
                "time_ms": self._now_ms(),
                "state": self._state,
                "why": self._why,
                "restarts": dict(self.restarts),
                "problems": dict(self.problems),
            }
        return json.dumps(record).encode()

    def write(self, send: Callable[[bytes | None, bytes], None]) -> None:
        """Write new reports; write the health at regular intervals even if it has not changed.

        :param send: (key, value) -> writes a record to the metrics topic.
        :raises KafkaError: a record could not be written; the next call writes it and what follows.
        """
        now_s = time.monotonic()
        with self._lock:
            if not self._changed and now_s - self._written_s < _REPEAT_S:
                return
            errors, self._changed = list(self._errors), False
        try:
            for error in errors:
                send(None, json.dumps(error).encode())
                with self._lock:
                    if error in self._errors:
                        self._errors.remove(error)
            send(DRIVER_KEY, self.document())
        except KafkaError:
            self._changed = True
            raise
        self._written_s = now_s


def cause_of(text: str) -> str:
    """Return the line of an error of Spark that says most: that a program cannot be run, else the last exception of Python, else the last one of Java, else the first line."""
    lines = text.splitlines()
    programs = [line.strip() for line in lines if "Cannot run program" in line]
    exceptions = [line for line in lines if _EXCEPTION.match(line)]  # lines of source code are indented
    of_python = [line for line in exceptions if not line.startswith(_OF_JAVA)]
    return next((found[i] for found, i in ((programs, 0), (of_python, -1), (exceptions, -1), (lines, 0)) if found), text)
