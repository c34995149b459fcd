"""Deliver results to a receiver that does not want each of them at once.

What is held, what is to be sent, and the places in the topics are one SQLite database, which changes in transactions. So after a crash at any moment nothing is
lost, and a request that may have arrived is sent again as it was, with the same ``webhook-id``.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kafka import TopicPartition

from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.web.deliveries import Delivery, split
from dskype.deploy.web.pacer import SCHEMA, Digest, LeftOut, Pacer, Released
from dskype.deploy.web.places import Place
from dskype.deploy.web.webhook_settings import Webhook
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.runtime.kafka.clients import KafkaSettings

__all__ = ["PacedDelivery"]

_VERSION = 1
_GRACE_MS = 1000
"""A period is closed so much later: clocks of hosts differ, and a record comes after its time."""
_POLL_S = 0.5
_RECORDS = 500
_COMMIT_S = 5.0
_REMEMBERED = 4096
"""Results by which repetitions are known; the topology writes a result again soon or not at all."""
_TABLES = """
CREATE TABLE IF NOT EXISTS place (topic TEXT, partition INTEGER, offset INTEGER, PRIMARY KEY (topic, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS request (number INTEGER PRIMARY KEY AUTOINCREMENT, results INTEGER, body BLOB);
CREATE TABLE IF NOT EXISTS seen (number INTEGER PRIMARY KEY AUTOINCREMENT, identity TEXT UNIQUE);
"""
"""``place``: what has been read. ``request``: what is to be sent, in order. ``seen``: the newest results."""


class PacedDelivery(Delivery):
    """Delivers to one receiver as its pace asks, until told to stop.

    :param path: of the database; made if it is missing.
    :param clock_ms: the time; it decides when a period is over, and the records' times what is in it.
    :raises IllegalArgumentException: the database is of another version, or is none.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        client: PubSub,
        webhook: Webhook,
        stop: threading.Event,
        say: Callable[[str], None],
        path: Path,
        clock_ms: Callable[[], float] = lambda: time.time() * 1000,
    ) -> None:
        super().__init__(kafka, client, webhook, stop, say)
        self._path, self._clock_ms = path, clock_ms
        self._over: tuple[int, dict[TopicPartition, int]] | None = None  # a time, and where the topics ended then, while periods wait that are over
        _opened(path).close()  # says at once if it cannot be used

    def run(self) -> None:
        """Deliver until told to stop."""
        with contextlib.closing(_opened(self._path)) as self._database:
            self._pacer = Pacer(self._database, self._webhook.pace_of)
            super().run()

    def _open(self) -> Any:
        self._over = None
        return super()._open()

    def _kept(self, consumer: Any, partition: TopicPartition) -> Place | None:
        row = self._database.execute("SELECT offset FROM place WHERE topic = ? AND partition = ?", (partition.topic, partition.partition)).fetchone()
        # Kafka's place is never ahead of the database's, unless a process without the database went on.
        places = (None if row is None else Place(row[0]), super()._kept(consumer, partition))
        return max((place for place in places if place is not None), default=None)

    def _step(self, consumer: Any) -> None:
        """Take what one poll returns, close periods that are over, and send what is to be sent."""
        records = consumer.poll(timeout_ms=int(_POLL_S * 1000), max_records=_RECORDS)
        now_ms = int(self._clock_ms())
        with self._changing():
            at_once = []
            for partition, some in records.items():
                for record in some:
                    at_once += self._taken(partition, record, now_ms)
            self._add("results", at_once)
            if (over_ms := self._over_ms(consumer, now_ms)) is not None:
                self._close(over_ms, now_ms)
            for partition, place in self._places.items():
                self._database.execute("INSERT OR REPLACE INTO place VALUES (?, ?, ?)", (*partition, place.offset))
        self._send_requests()
        if time.monotonic() - self._committed_at > _COMMIT_S:
            self._commit(consumer)

    def _taken(self, partition: TopicPartition, record: Any, now_ms: int) -> list[dict[str, Any]]:
        """Take a record; return the results that are to be sent at once."""
        at_once = []
        for one, _ in self._places[partition].left_of(record.offset, self._found(record)):
            if self._is_new(one.identity) and self._pacer.take(one, record.timestamp, (*partition, record.offset), now_ms):
                at_once.append(one.data)
        self._places[partition] = Place(record.offset + 1)
        return at_once

    def _is_new(self, identity: str) -> bool:
        """Remember a result; tell whether it has not been met before, by an earlier process either."""
        added = self._database.execute("INSERT OR IGNORE INTO seen (identity) VALUES (?)", (identity,))
        if added.rowcount:
            self._database.execute("DELETE FROM seen WHERE number <= ?", ((added.lastrowid or 0) - _REMEMBERED,))
        return added.rowcount == 1

    def _over_ms(self, consumer: Any, now_ms: int) -> int | None:
        """Return a time that is over for periods, because everything has been read that was in the topics then; None: there is no such period.

        More comes all the time. So a period does not wait for the end of the topics, but for where they ended when it was found to be over.
        """
        if self._over is None:
            due_ms = self._pacer.due_ms()
            if due_ms is None or due_ms > now_ms - _GRACE_MS:
                return None
            self._over = now_ms - _GRACE_MS, consumer.end_offsets(list(self._places))
        over_ms, ends = self._over
        if any(place.offset < ends[partition] for partition, place in self._places.items()):
            return None
        self._over = None
        return over_ms

    def _close(self, over_ms: int, now_ms: int) -> None:
        results, digests, left_out = [], [], []
        for one in self._pacer.release(over_ms, now_ms):
            if isinstance(one, Released):
                results.append(one.result)
            elif isinstance(one, Digest):
                digests.append(one._asdict())
            elif isinstance(one, LeftOut):
                left_out.append(one._asdict())
        self._add("results", results)
        self._add("digests", digests)
        self._add("left_out", left_out)

    def _add(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Add requests to those that are to be sent."""
        for some in split(rows, self._webhook.batch):
            results = len(some) if name == "results" else sum(len(row["results"]) for row in some) if name == "digests" else 0
            self._database.execute("INSERT INTO request (results, body) VALUES (?, ?)", (results, self._request(name, some)))

    def _send_requests(self) -> None:
        while (row := self._database.execute("SELECT number, results, body FROM request ORDER BY number LIMIT 1").fetchone()) is not None:
            number, results, body = row
            if not self._send(body, results):
                return
            with self._changing():
                self._database.execute("DELETE FROM request WHERE number = ?", (number,))

    def _safe_places(self) -> dict[TopicPartition, Place]:
        """Return the places at which a process without the database would have to begin; for those who look at the lag, and in case that it is lost."""
        held = self._pacer.held_from()
        return {
            partition: Place(min(place.offset, held.get((partition.topic, partition.partition), place.offset))) for partition, place in self._places.items()
        }

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Change the database as a whole or not at all. Places and what was seen belong to it: after an error, all begins again at what the database has."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")


def _opened(path: Path) -> sqlite3.Connection:
    """Return a connection to a database; its tables are made if they are missing.

    :raises IllegalArgumentException: another version wrote it, or another program.
    """
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version not in (0, _VERSION):
            raise IllegalArgumentException("The state of a webhook is of another version.", given=f"{path}: {version}", legal=str(_VERSION))
        database.executescript(SCHEMA + _TABLES)
        database.execute(f"PRAGMA user_version = {_VERSION}")
    except sqlite3.DatabaseError as error:
        database.close()
        raise IllegalArgumentException(
            "The state of a webhook cannot be read.",
            given=f"{path}: {error}",
            legal="what an earlier 'dskype webhooks' wrote",
            hint="without the file, delivery begins again at the place that Kafka keeps",
        ) from None
    except BaseException:
        database.close()
        raise
    return database
