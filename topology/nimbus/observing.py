"""What an observer may say of a topology: what its driver has told, as long as the observer hears the brokers and the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["BROKERS_SILENT_AFTER_S", "GONE", "Contact", "ContactWatch", "seen_health", "started_ms"]

BROKERS_SILENT_AFTER_S = 6.0
"""An observer that asks every second says that the brokers do not answer if it has had no answer for so long."""
GONE = "the process that ran it is gone"
"""Why a topology has failed whose driver is not there any more."""


class Contact(NamedTuple):
    """Whether the brokers answer an observer.

    :ivar answer: True: they answered a moment ago. False: they do not. None: the observer has just begun to ask.
    :ivar heard_ms: when they answered last, epoch ms; None: never.
    :ivar silent_s: seconds since then, or since the observer began to ask.
    :ivar why: the last error of the client; empty without one.
    """

    answer: bool | None
    heard_ms: int | None
    silent_s: float
    why: str = ""

    def as_text(self) -> str:
        """Return a sentence that says for how long the brokers have not answered."""
        silent = f"the brokers have not answered for {self.silent_s:.0f} s"
        return silent if self.heard_ms is not None else f"{silent}, since they were first asked"


class ContactWatch:
    """Notes when the brokers answer one observer. Thread-safe.

    :param clock: a clock that never goes back, in seconds.
    """

    def __init__(self, clock=time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._heard_s, self._why = clock(), ""
        self._heard_ms: int | None = None

    def note_answer(self) -> bool:
        """Note that the brokers have just answered; return whether they had not before."""
        with self._lock:
            back = self._contact().answer is False
            self._heard_s, self._heard_ms, self._why = self._clock(), time.time_ns() // 1_000_000, ""
            return back

    def note_error(self, error: BaseException) -> None:
        """Note why a request has failed."""
        with self._lock:
            self._why = str(error) or type(error).__name__

    def contact(self) -> Contact:
        """Return whether the brokers answer now."""
        with self._lock:
            return self._contact()

    def _contact(self) -> Contact:
        silent_s = self._clock() - self._heard_s
        answer = False if silent_s >= BROKERS_SILENT_AFTER_S else None if self._heard_ms is None else True
        return Contact(answer, self._heard_ms, silent_s, self._why)


def seen_health(told: Mapping[str, Any] | None, alive: bool | None, silent_s: float | None = None, contact: Contact | None = None) -> dict[str, Any]:
    """Return the health of a topology as an observer may show it: ``{"state", "why", "restarts"}``.

    What the driver has told counts only while the observer hears from it. Otherwise the state is ``unknown`` (the brokers do not answer, or the
    record says nothing), ``failed`` (the process is gone) or ``silent`` (the process is there, and writes nothing).

    :param told: the health in the record of the topology.
    :param alive: whether its driver is alive; None: not known yet.
    :param silent_s: what :meth:`~dskype.topology.runtime.nimbus.liveness.HeartbeatWatch.silent_s` returns.
    :param contact: whether the brokers answer; None: they have just answered.
    """
    told = {"state": "unknown", "why": [], "restarts": 0, **(told or {})}
    if contact is not None and contact.answer is not True:
        return {**told, "state": "unknown", "why": [f"{contact.as_text()}; the last that is known: {told['state']}"]}
    if alive is False:
        return {**told, "state": "failed", "why": [GONE, *told["why"]]}
    if silent_s is not None:
        why = f"its process has written nothing for {silent_s:.0f} s, although the brokers answer; the last that it said: {told['state']}"
        return {**told, "state": "silent", "why": [why, "its log says more; if that goes on, end the process and submit the topology again, which resumes it"]}
    return told


def started_ms(record: Mapping[str, Any]) -> int:
    """Return when the process that runs a topology started it, epoch ms; in records of earlier versions, when it was submitted."""
    started = record["summary"].get("started_ms")
    return started if isinstance(started, int) else int(record["state"]["submitted_ms"])
