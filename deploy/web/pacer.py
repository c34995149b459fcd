"""Hold results back as their pace asks, in a database that survives the process.

A result belongs to the period that the time of its Kafka record is in. A period that has been closed stays closed: what comes later for it counts for the next
one. So what a summary says depends on the records alone, and not on when the process ran. Quiet hours are those of the clock.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from dskype.deploy.web.findings import Found
from dskype.deploy.web.pace import Pace

__all__ = ["SCHEMA", "Digest", "LeftOut", "Pacer", "Released"]

_QUIET_MOST = 1000

SCHEMA = """
CREATE TABLE IF NOT EXISTS period (
    subscription TEXT, kind TEXT, until_ms INTEGER, since_ms INTEGER, due_ms INTEGER, results INTEGER, left_out INTEGER,
    PRIMARY KEY (subscription, kind, until_ms)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS period_due ON period (due_ms);
CREATE TABLE IF NOT EXISTS held (
    subscription TEXT, kind TEXT, until_ms INTEGER, one TEXT, score REAL, time_ms INTEGER, topic TEXT, partition INTEGER, offset INTEGER, result TEXT,
    PRIMARY KEY (subscription, kind, until_ms, one)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS closed (number INTEGER PRIMARY KEY CHECK (number = 0), until_ms INTEGER);
"""
"""``period``: what is open, with the results that have come and those that nobody will see. ``held``: results for later, ``one`` being the group or the result itself."""


class Released(NamedTuple):
    """A result that may be sent now."""

    result: dict[str, Any]


class Digest(NamedTuple):
    """The summary of a period: how many results there were, and the best of them."""

    subscription: str
    since_ms: int
    until_ms: int
    total: int
    results: list[dict[str, Any]]


class LeftOut(NamedTuple):
    """How many results of a period are not sent."""

    subscription: str
    since_ms: int
    until_ms: int
    results: int


class Pacer:
    """Decides which results are sent now, later, or not at all.

    Every method belongs to a transaction of the caller's; nothing is kept beside the database.

    :param database: with the tables of :data:`SCHEMA`.
    :param pace_of: returns how a subscription is to be treated; None: everything is sent at once.
    :param quiet_most: results of a subscription that quiet hours hold, at most; the others are counted.
    """

    def __init__(self, database: sqlite3.Connection, pace_of: Callable[[str], Pace | None], quiet_most: int = _QUIET_MOST) -> None:
        self._database, self._pace_of, self._quiet_most = database, pace_of, quiet_most

    def take(self, one: Found, time_ms: int, at: tuple[str, int, int], now_ms: int) -> bool:
        """Take a result; tell whether it is to be sent now.

        With a pace, only what tells of a message that came counts; a message that leaves a top-k list is no news.

        :param time_ms: of its record.
        :param at: its topic, partition and offset.
        :param now_ms: the time now.
        """
        pace = self._pace_of(one.subscription)
        if pace is None:
            return True
        if one.data.get("op") in ("remove", "score"):
            return False
        time_ms = max(time_ms, self.closed_ms())
        group = self._group(pace, one)
        if pace.kind == "digest":
            self._gather(pace, one, group, time_ms, at)
            return False
        if pace.kind == "throttle" and not self._allowed(pace, one, group, time_ms):
            return False
        if pace.quiet is None:
            return True
        # What quiet hours hold goes first, so nothing overtakes it.
        until_ms = self._one("SELECT max(until_ms) FROM period WHERE subscription = ? AND kind = 'quiet'", one.subscription) or pace.quiet.until(now_ms)
        if until_ms is None:
            return True
        self._open(one.subscription, "quiet", time_ms, until_ms)
        held = self._results(one.subscription, "quiet", until_ms) < self._quiet_most
        self._count(one.subscription, "quiet", until_ms, int(held), int(not held))
        if held:
            self._hold(one, "quiet", until_ms, one.identity, time_ms, at)
        return False

    def due_ms(self) -> int | None:
        """Return when the next period is over; None: none is open."""
        return self._one("SELECT min(due_ms) FROM period")

    def release(self, over_ms: int, now_ms: int) -> Iterator[Released | Digest | LeftOut]:
        """Close the periods that are over, and yield what is to be sent of them; in quiet hours, they stay open for whoever asks later.

        :param over_ms: all records up to this time have been taken.
        :param now_ms: the time now, not before that.
        """
        over = self._database.execute(
            "SELECT subscription, kind, until_ms, since_ms, results, left_out FROM period WHERE due_ms <= ? ORDER BY due_ms, subscription, kind", (over_ms,)
        ).fetchall()
        for subscription, kind, until_ms, since_ms, results, left_out in over:
            order = "time_ms, partition, offset" if kind == "quiet" else "score DESC, time_ms DESC, offset DESC"
            which = (subscription, kind, until_ms)
            pace = self._pace_of(subscription)
            quiet_ms = None if pace is None or pace.quiet is None else pace.quiet.until(now_ms)
            if quiet_ms is not None:
                self._database.execute("UPDATE period SET due_ms = ? WHERE subscription = ? AND kind = ? AND until_ms = ?", (quiet_ms, *which))
                continue
            rows = self._database.execute(
                f"SELECT result FROM held WHERE subscription = ? AND kind = ? AND until_ms = ? AND result IS NOT NULL ORDER BY {order}", which
            )
            found = [json.loads(text) for (text,) in rows]
            if kind == "digest":
                yield Digest(subscription, since_ms, until_ms, results, found)
            else:
                yield from map(Released, found)
                if left_out:
                    yield LeftOut(subscription, since_ms, until_ms, left_out)
            self._database.execute("DELETE FROM held WHERE subscription = ? AND kind = ? AND until_ms = ?", which)
            self._database.execute("DELETE FROM period WHERE subscription = ? AND kind = ? AND until_ms = ?", which)
        if over:
            self._database.execute(
                "INSERT INTO closed VALUES (0, ?) ON CONFLICT (number) DO UPDATE SET until_ms = max(until_ms, excluded.until_ms)", (over_ms,)
            )

    def closed_ms(self) -> int:
        """Return up to when periods are closed."""
        return self._one("SELECT until_ms FROM closed") or 0

    def held_from(self) -> dict[tuple[str, int], int]:
        """Return (topic, partition) -> the first offset of which a result is held."""
        rows = self._database.execute("SELECT topic, partition, min(offset) FROM held WHERE result IS NOT NULL GROUP BY topic, partition")
        return {(topic, partition): offset for topic, partition, offset in rows}

    def _group(self, pace: Pace, one: Found) -> str:
        """Return the group of a result; a result without that field is its own."""
        value = (one.data.get("fields") or {}).get(pace.group_by) if pace.group_by is not None else None
        return one.identity if value is None else json.dumps(value, sort_keys=True)

    def _gather(self, pace: Pace, one: Found, group: str, time_ms: int, at: tuple[str, int, int]) -> None:
        assert pace.periods is not None
        until_ms = pace.periods.end_after(time_ms)
        self._open(one.subscription, "digest", time_ms, until_ms)
        self._count(one.subscription, "digest", until_ms, 1, 0)
        self._hold(one, "digest", until_ms, group, time_ms, at)
        self._database.execute(
            "DELETE FROM held WHERE subscription = ?1 AND kind = 'digest' AND until_ms = ?2 AND one IN (SELECT one FROM held "
            "WHERE subscription = ?1 AND kind = 'digest' AND until_ms = ?2 ORDER BY score DESC, time_ms DESC, offset DESC LIMIT -1 OFFSET ?3)",
            (one.subscription, until_ms, pace.best),
        )

    def _allowed(self, pace: Pace, one: Found, group: str, time_ms: int) -> bool:
        """Count a result; tell whether it is one of the first of its period, and the first of its group."""
        assert pace.periods is not None and pace.most is not None
        until_ms = pace.periods.end_after(time_ms)
        self._open(one.subscription, "throttle", time_ms, until_ms)
        allowed = self._results(one.subscription, "throttle", until_ms) < pace.most
        if allowed and pace.group_by is not None:
            met = self._database.execute(
                "INSERT OR IGNORE INTO held (subscription, kind, until_ms, one) VALUES (?, 'throttle', ?, ?)", (one.subscription, until_ms, group)
            )
            allowed = met.rowcount == 1
        self._count(one.subscription, "throttle", until_ms, int(allowed), int(not allowed))
        return allowed

    def _open(self, subscription: str, kind: str, since_ms: int, until_ms: int) -> None:
        self._database.execute("INSERT OR IGNORE INTO period VALUES (?, ?, ?, ?, ?, 0, 0)", (subscription, kind, until_ms, since_ms, until_ms))

    def _count(self, subscription: str, kind: str, until_ms: int, results: int, left_out: int) -> None:
        self._database.execute(
            "UPDATE period SET results = results + ?, left_out = left_out + ? WHERE subscription = ? AND kind = ? AND until_ms = ?",
            (results, left_out, subscription, kind, until_ms),
        )

    def _results(self, subscription: str, kind: str, until_ms: int) -> int:
        return self._one("SELECT results FROM period WHERE subscription = ? AND kind = ? AND until_ms = ?", subscription, kind, until_ms) or 0

    def _hold(self, one: Found, kind: str, until_ms: int, name: str, time_ms: int, at: tuple[str, int, int]) -> None:
        """Keep a result for later; of those with the same name the best stays, and of equally good ones the newest."""
        score = one.data.get("score")
        self._database.execute(
            "INSERT INTO held VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET score = excluded.score, time_ms = excluded.time_ms, "
            "topic = excluded.topic, partition = excluded.partition, offset = excluded.offset, result = excluded.result "
            "WHERE (excluded.score, excluded.time_ms) >= (held.score, held.time_ms)",
            (one.subscription, kind, until_ms, name, float(score) if score is not None else 0.0, time_ms, *at, json.dumps(one.data)),
        )

    def _one(self, query: str, *values: Any) -> Any:
        row = self._database.execute(query, values).fetchone()
        return None if row is None else row[0]
