"""What happened to a topology: found in its records and in the reports of its tasks, by comparing each with the one before."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from dskype.topology.core.redaction import redact_text

__all__ = ["Happening", "Timeline"]

_MOST = 200
"""Events that are kept."""
_SAME_MS = 60_000
"""What happens again so soon is the same event."""
_WHY_CHARS = 300
_DRIVER = ("host", "pid", "started")
_SIZES = {"num_workers": "workers", "num_executors": "executors"}


class Happening(NamedTuple):
    """An event.

    :ivar time_ms: when it was reported first, epoch ms; ``until_ms``: when it was reported last.
    :ivar kind: a word that events of a kind share.
    :ivar times: how often it happened until then.
    """

    time_ms: int
    until_ms: int
    kind: str
    component: str
    what: str
    why: str
    times: int

    def as_json(self) -> dict[str, Any]:
        """Return it as the answer ``events`` has it."""
        return {
            "timeMs": self.time_ms,
            "untilMs": self.until_ms,
            "kind": self.kind,
            "component": self.component,
            "what": self.what,
            "why": self.why,
            "times": self.times,
        }


class Timeline:
    """The newest events of one topology. What was not seen is not in it. For one writer and many readers.

    :ivar since_ms: the time of the first thing that was seen; None: nothing was.
    """

    def __init__(self) -> None:
        self.since_ms: int | None = None
        self._record: Mapping[str, Any] | None = None
        self._begin()

    def _begin(self) -> None:
        self._events: deque[Happening] = deque(maxlen=_MOST)
        self._topology: str | None = None
        self._processes: dict[tuple[str, Any], tuple[int, int, Any]] = {}  # executor -> term, time and process of its newest report
        self._term: int | None = None
        self._letters: dict[int, tuple[int, Mapping[str, int]]] = {}  # task -> most dead letters that it has reported, and by reason
        self._driver: Mapping[str, Any] | None = None
        self._reasons: dict[str, tuple[int, str]] = {}  # component, "" the topology -> when it had the last error, or was rebalanced, and that

    def add(self, time_ms: int, kind: str, what: str, *, component: str = "", why: str = "", times: int = 1) -> None:
        """Add an event, or count it to the last one of its kind if that was the same a moment ago."""
        why = redact_text(why)[:_WHY_CHARS]
        for i in range(len(self._events) - 1, -1, -1):
            before = self._events[i]
            if (before.kind, before.component) != (kind, component):
                continue
            if before.what == what and 0 <= time_ms - before.until_ms <= _SAME_MS:
                self._events[i] = before._replace(until_ms=time_ms, why=why or before.why, times=before.times + times)
                return
            break
        self._events.append(Happening(time_ms, time_ms, kind, component, what, why, times))

    def as_json(self) -> dict[str, Any]:
        """Return ``{"sinceMs", "events"}``, newest first."""
        return {"sinceMs": self.since_ms, "events": [event.as_json() for event in sorted(self._events.copy(), key=lambda e: -e.until_ms)]}

    # -- the record of the topology ---------------------------------------------------------------

    def see(self, record: Mapping[str, Any], time_ms: int) -> None:
        """Compare the topology's record in the nimbus topic with the one before.

        :param time_ms: when it was written.
        """
        before, self._record = self._record, record
        self.since_ms = time_ms if self.since_ms is None else self.since_ms
        if before is None:
            return
        old, new = before["summary"], record["summary"]
        if (status := new.get("status")) != old.get("status"):
            if status == "REBALANCING":
                self._reasons[""] = time_ms, "the topology was rebalanced"
            self.add(time_ms, "rebalance" if status == "REBALANCING" else "status", f"{status}, was {old.get('status')}")
        sizes = [f"{new[key]} {name}, were {old[key]}" for key, name in _SIZES.items() if key in new and key in old and new[key] != old[key]]
        if sizes:
            self.add(time_ms, "rebalance", "; ".join(sizes))
        if any(record["driver"].get(key) != before["driver"].get(key) for key in _DRIVER):
            was, now = (f"process {one['driver'].get('pid')} on {one['driver'].get('host')}" for one in (before, record))
            self.add(time_ms, "takeover", f"another driver runs it: {now}", why=f"before it was {was}")

    # -- the reports ------------------------------------------------------------------------------

    def feed(self, record: Mapping[str, Any]) -> None:
        """Compare a record of the metrics topic with those before; raise one of several errors if it is none."""
        kind, time_ms = record.get("kind"), record.get("time_ms")
        if not isinstance(time_ms, int):
            return
        if kind == "stats":
            if self._topology not in (None, record["topology"]):  # it was submitted again
                self._begin()
            self._topology = record["topology"]
            self.since_ms = time_ms if self.since_ms is None else self.since_ms
            self._note_process(record, time_ms)
            self._note_letters(record, time_ms)
        elif kind == "error":
            component, text = str(record.get("component", "")), str(record.get("error", ""))
            self._reasons[component] = time_ms, (cause := text.rstrip().rpartition("\n")[2])
            self.add(time_ms, "error", "error", component="" if component == "__driver" else component, why=cause)
        elif kind == "driver":
            self._note_driver(record, time_ms)

    def _reason(self, component: str, time_ms: int) -> str:
        """Return what had just happened to a component, or to the topology, before a time; "" if nothing had."""
        reasons = (self._reasons[about] for about in (component, "") if about in self._reasons)
        return max(((at, why) for at, why in reasons if abs(time_ms - at) <= _SAME_MS), default=(0, ""))[1]

    def _note_process(self, record: Mapping[str, Any], time_ms: int) -> None:
        component, term = str(record["component"]), int(record.get("term", 0))
        executor = component, record.get("executor")
        of_term, seen_ms, process = self._processes.get(executor, (term, 0, record.get("pid")))
        if (term, time_ms) < (of_term, seen_ms):
            return  # a process that has been replaced reports late
        self._processes[executor] = term, time_ms, record.get("pid")
        if term > (self._term if self._term is not None else term):
            self.add(time_ms, "start", f"its executors work for driver number {term}")
        elif term == of_term and process != record.get("pid"):
            self.add(time_ms, "restart", "new process of an executor", component=component, why=self._reason(component, time_ms))
        self._term = max(term, self._term or 0)

    def _note_letters(self, record: Mapping[str, Any], time_ms: int) -> None:
        for task in record["tasks"]:
            n, reasons = int(task.get("dead_letters", 0)), task.get("rejected") or {}
            most, before = self._letters.get(task["task"], (n, reasons))
            self._letters[task["task"]] = max(n, most), reasons if n >= most else before
            if n > most:
                risen = ", ".join(sorted(reason for reason, count in reasons.items() if count > before.get(reason, 0)))
                self.add(time_ms, "dead letters", "dead letters", component=str(record["component"]), why=risen, times=n - most)

    def _note_driver(self, record: Mapping[str, Any], time_ms: int) -> None:
        before, self._driver = self._driver, record
        if before is None or time_ms < before["time_ms"]:
            return
        for component, n in record["restarts"].items():
            again = n - before["restarts"].get(component, 0)
            if again > 0:
                self.add(time_ms, "restart", "its query was started again", component=component, why=self._reason(component, time_ms), times=again)
        if record["state"] != before["state"]:
            self.add(time_ms, "health", f"{record['state']}, was {before['state']}", why="; ".join(record["why"]))
