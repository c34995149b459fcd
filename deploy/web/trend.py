"""What a topology did over time: throughput, communication, replication, and the loads of its subscription tasks.

All of it is computed from the metrics topic by :func:`~dskype.deploy.metrics.meter.measure`, so the pages have the numbers of ``dskype stats``.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from dskype.deploy.metrics.meter import Meter, measure
from dskype.deploy.web.plan_events import PlanEvents
from dskype.spouts import streams
from dskype.topology.ui.view import Reports

__all__ = ["Earlier", "Trend", "WatchedReports"]

STEP_MS = 5000
"""One row for so much time."""
ROWS = 720
"""Rows that are kept: an hour."""
_GAP_MS = 4 * STEP_MS
"""Rows that are farther apart have a gap between them, in which nothing was reported."""
_WINDOW_S = 60.0
EARLIER_MS = 300_000
"""Measurements are kept once in so much time."""
EARLIER = 300
"""How many of them are kept: those of 25 hours."""


class _Step(NamedTuple):
    """What a row of the charts is about: the counts before and at its time, as far as they are known, and the seconds between them."""

    time_ms: int
    a: dict[str, Any] | None
    b: dict[str, Any] | None
    secs: float


class Trend:
    """Rows of counts, one for each five seconds in which tasks reported.

    :param conf: of the topology.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self._conf = conf
        self._rows: deque[dict[str, Any]] = deque(maxlen=ROWS)
        self._next_ms = 0
        self._made: tuple[int, dict[str, Any]] = (-1, {})  # columns, and the time of the newest row in them

    def note(self, meter: Meter, time_ms: int) -> None:
        """Add a row if its time has come.

        :param time_ms: when the newest report was made.
        """
        if time_ms < self._next_ms:
            return
        self._next_ms = time_ms - time_ms % STEP_MS + STEP_MS
        found = measure(meter, {"conf": self._conf}, now_ms=time_ms)
        roles = meter.distribution()
        if roles is None or found["messages"] is None:
            return
        source, target = roles
        latency: Mapping[str, Any] = next((row for row in found["latency"] if row["component"] == target), {})
        self._rows.append(
            {
                "time_ms": time_ms,
                "messages": found["messages"]["processed"],
                "tuples": found["communication"]["tuples"],
                "bytes": found["communication"]["bytes"],
                "replication": found["replication"]["ratio"],
                "balance": found["balance"]["busy"],
                "p50_ms": latency.get("p50_ms"),
                "p99_ms": latency.get("p99_ms"),
                "tasks": {
                    id: (task["executed"].get(f"{source}/{streams.Matching.name}", 0), task["busy_ns"] / 1e9) for id, task in meter.tasks(target).items()
                },
            }
        )

    def columns(self) -> dict[str, Any]:
        """Return times and rates as columns of equal lengths, for charts; a row is about the time since the row before.

        ``time_s``, ``messages_per_second``, ``tuples_per_second``, ``bytes_per_second``, ``tuples_per_message``, ``replication``, ``balance`` (busiest
        task through mean), ``p50_ms``, ``p99_ms``; and ``tasks``: id -> share of the time for which the task was ``busy``, and its
        ``messages_per_second``. Unknown values are None. Where nothing was reported for some time there is a row without values, and rates begin anew
        behind it. They are made once for each new row, for all who ask.
        """
        rows = list(self._rows)
        newest_ms, made = self._made
        if not rows or rows[-1]["time_ms"] != newest_ms:
            made = self._columns_of(rows)
            self._made = (rows[-1]["time_ms"] if rows else -1, made)
        return made

    @staticmethod
    def _columns_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
        steps: list[_Step] = []
        for a, b in pairwise(rows):
            if b["time_ms"] - a["time_ms"] > _GAP_MS:
                steps += [_Step(a["time_ms"] + STEP_MS, None, None, 0), _Step(b["time_ms"], None, b, 0)]
            elif b["time_ms"] > a["time_ms"]:
                steps.append(_Step(b["time_ms"], a, b, (b["time_ms"] - a["time_ms"]) / 1000))

        def rates(name: str) -> list[float | None]:
            return [None if s.a is None or s.b is None else round(max(0, s.b[name] - s.a[name]) / s.secs, 3) for s in steps]

        def values(name: str) -> list[float | None]:
            return [None if s.b is None else s.b[name] for s in steps]

        def per_message() -> list[float | None]:
            grown = [None if s.a is None or s.b is None else (s.b["tuples"] - s.a["tuples"], s.b["messages"] - s.a["messages"]) for s in steps]
            return [None if pair is None or pair[1] <= 0 else round(pair[0] / pair[1], 4) for pair in grown]

        def task_rates(id: int, place: int) -> list[float | None]:
            pairs = [(s.a["tasks"].get(id), s.b["tasks"].get(id), s.secs) if s.a is not None and s.b is not None else (None, None, 0) for s in steps]
            return [None if a is None or b is None else round(max(0.0, b[place] - a[place]) / secs, 4) for a, b, secs in pairs]

        ids = sorted({id for s in steps if s.b is not None for id in s.b["tasks"]})
        return {
            "time_s": [s.time_ms / 1000 for s in steps],
            "messages_per_second": rates("messages"),
            "tuples_per_second": rates("tuples"),
            "bytes_per_second": rates("bytes"),
            "tuples_per_message": per_message(),
            **{name: values(name) for name in ("replication", "balance", "p50_ms", "p99_ms")},
            "tasks": [{"task": id, "messages_per_second": task_rates(id, 0), "busy": task_rates(id, 1)} for id in ids],
        }


class Earlier:
    """All measurements of a topology as they were, for comparisons; compressed, for they are many numbers.

    :param conf: of the topology.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self._conf = conf
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=EARLIER)
        self._next_ms = self._since_ms = self._heard_ms = 0

    def note(self, meter: Meter, time_ms: int) -> None:
        """Keep what is measured now if its time has come.

        :param time_ms: when the newest report was made.
        """
        if time_ms - self._heard_ms > _GAP_MS:
            self._since_ms = time_ms
        self._heard_ms = max(self._heard_ms, time_ms)
        if time_ms < self._next_ms or time_ms - self._since_ms < _WINDOW_S * 1000 or meter.distribution() is None:  # rates need a minute
            return
        self._next_ms = time_ms - time_ms % EARLIER_MS + EARLIER_MS
        self._kept.append((time_ms, zlib.compress(json.dumps(measure(meter, {"conf": self._conf}, now_ms=time_ms)).encode())))

    def at(self, time_ms: int, until_ms: int) -> dict[str, Any] | None:
        """Return what was measured next to a time; None if nothing was that is so old.

        Where nothing was measured then, it is what was measured before or after, whichever is nearer; of a time before everything that is kept, the oldest.

        :param until_ms: not later than this.
        """
        kept = [one for one in list(self._kept) if one[0] <= until_ms]
        if not kept:
            return None
        found: dict[str, Any] = json.loads(zlib.decompress(min(kept, key=lambda one: abs(one[0] - time_ms))[1]))
        return found


class WatchedReports(Reports):
    """What the tasks of a topology have reported: for Storm's pages, and for DSkype's.

    :param record: of the topology in the nimbus topic.
    :ivar meter: measures the last minute.
    :ivar trend: what was measured over the last hour.
    :ivar earlier: what was measured over the last day.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        super().__init__()
        self._conf = record["state"].get("conf") or {}
        self.meter, self.trend, self.earlier = Meter(_WINDOW_S), Trend(self._conf), Earlier(self._conf)
        self._plan_events = PlanEvents(self.timeline)

    def feed_record(self, record: dict[str, Any]) -> None:
        """Add a parsed record of the metrics topic; raise one of several errors if it is none."""
        super().feed_record(record)
        before = self.meter.stats
        self.meter.feed_record(record)
        if self.meter.stats is not before:  # another topology of the same name
            self.trend, self.earlier = Trend(self._conf), Earlier(self._conf)
            self._plan_events = PlanEvents(self.timeline)
        if record.get("kind") == "stats" and not record["component"].startswith("__"):
            self._plan_events.note(record)
            self.trend.note(self.meter, record["time_ms"])
            self.earlier.note(self.meter, record["time_ms"])
