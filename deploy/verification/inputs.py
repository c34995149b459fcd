"""What is verified: the records of a topology's external topics, as plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from dskype.spouts.topics import Topics

__all__ = ["INPUT_TOPICS", "Inputs", "Record", "first_offsets", "header", "in_order", "number_of_record", "run_of_record", "source_of_record", "where"]

INPUT_TOPICS = ("results", "matches", "topk", "dead_letters", "registrations", "sequence", "subscriptions", "messages")
"""What is read, in this order: of a topology at work, effects are read before their causes."""


class Record(NamedTuple):
    """A record of a topic.

    :ivar partition: from 0.
    :ivar offset: in its partition.
    :ivar timestamp_ms: Kafka's timestamp of the record.
    :ivar key: bytes or None.
    :ivar value: bytes or None.
    :ivar headers: (name, bytes) pairs.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()


def _records(items: Iterable[Any]) -> list[Any]:
    """Return records sorted by place; plain tuples (partition, offset, timestamp_ms, key, value, headers) become records."""
    found = [item if hasattr(item, "offset") else Record(*item) for item in items]
    found.sort(key=_PLACE)
    return found


_PLACE = attrgetter("partition", "offset")


@dataclass
class Inputs:
    """The topics of one topology, each a sequence of :class:`Record`, of plain tuples with the same six values, or of ``InRecord``.

    Any order will do. What is not given is empty. An offset above 0 at the beginning of a partition says that older records are
    gone; compacted topics may have holes anywhere.

    :param topology: its name; dead letters name their topics by it.
    :param source: the topology whose messages and subscriptions it reads; None: its own.
    """

    messages: Sequence[Any] = ()
    subscriptions: Sequence[Any] = ()
    sequence: Sequence[Any] = ()
    registrations: Sequence[Any] = ()
    results: Sequence[Any] = ()
    matches: Sequence[Any] = ()
    topk: Sequence[Any] = ()
    dead_letters: Sequence[Any] = ()
    topology: str = "dskype"
    source: str | None = None
    topics: Topics = field(init=False)
    runs: int = field(init=False, default=1)
    """How many runs of the topology wrote to the topics; see :meth:`newest_run`."""
    begins: dict[str, dict[int, int]] = field(init=False, default_factory=dict)
    """Topic's name here -> partition -> the first offset that is there, of whatever run; see :meth:`newest_run`."""

    def __post_init__(self) -> None:
        self.topics = Topics.for_topology(self.topology, self.source)
        for name in INPUT_TOPICS:
            setattr(self, name, _records(getattr(self, name)))

    @classmethod
    def read(cls, topology: str, read: Callable[[str], Iterable[Any]], source: str | None = None) -> Inputs:
        """Return the inputs of a topology.

        :param topology: its name.
        :param read: returns the records of a topic by its name, [] if there is none: for example ``cluster.log.records``, or
            ``lambda topic: read_to_end(settings, topic)``. Called in the order of :data:`INPUT_TOPICS`.
        :param source: the topology whose messages and subscriptions it reads; None: its own.
        """
        topics = Topics.for_topology(topology, source)
        return cls(topology=topology, source=source, **{name: read(getattr(topics, name)) for name in INPUT_TOPICS})

    def counts(self) -> dict[str, int]:
        """Return topic -> number of records; without the topic of grouped matches where there are none."""
        return {getattr(self.topics, name): len(getattr(self, name)) for name in reversed(INPUT_TOPICS) if name != "matches" or self.matches}

    def newest_run(self) -> tuple[str, int]:
        """Keep what the newest run of the topology wrote, and return (its name, how many records of others were dropped).

        A topology that is killed and submitted again numbers its messages from 0 again, in the same topics.
        """
        self.begins = {name: first_offsets(getattr(self, name)) for name in INPUT_TOPICS}
        written = ("sequence", "registrations", "results", "matches", "topk")
        runs: Counter[str] = Counter()
        for name in written:
            runs += _runs_of(getattr(self, name))
        del runs[""]
        if len(runs) < 2:
            return next(iter(runs), ""), 0
        newest = max(runs, key=_age)
        self.runs = len(runs)
        for name in written:
            setattr(self, name, [r for r in getattr(self, name) if run_of_record(r) in (newest, "")])
        return newest, sum(runs.values()) - runs[newest]

    def cut(self, name: str) -> bool:
        """Tell whether the beginning of a partition of a topic is gone; after :meth:`newest_run`."""
        return any(offset > 0 for offset in self.begins[name].values())


def header(record: Record, name: str) -> str | None:
    """Return a header as text; None if there is none."""
    for key, value in record.headers or ():
        if key == name and value is not None:
            return value.decode(errors="replace")
    return None


def run_of_record(record: Record) -> str:
    """Return which run of the topology wrote a record: ``record-id`` is ``<run>-<task>-<number>``; "" without one."""
    return (header(record, "record-id") or "").rpartition("-")[0].rpartition("-")[0]


def number_of_record(record: Record) -> int:
    """Return the number that its writer gave a record, rising with every new one; -1 if it does not say."""
    headers = record.headers
    if not headers:
        return -1
    name, value = headers[0]
    if name != "record-id":
        value = next((v for k, v in headers if k == "record-id"), b"")
    digits = value.rpartition(b"-")[2]
    return int(digits) if digits.isdigit() else -1


def in_order(records: Iterable[Record]) -> list[Record]:
    """Return records as their writers wrote them first: by number, where a failed sink has written some again, or late.

    Records of different writers may change places; whatever belongs together has one writer.
    """
    return sorted(records, key=number_of_record)


def _runs_of(records: Sequence[Record]) -> Counter[str]:
    """Count records by run; consecutive ones are mostly of the same."""
    runs: Counter[str] = Counter()
    run, start, n = "", b"-", 0
    for record in records:
        headers = record.headers
        if headers and headers[0][0] == "record-id" and headers[0][1].startswith(start):
            n += 1
            continue
        runs[run] += n
        run, n = run_of_record(record), 1
        start = f"{run}-".encode()
    runs[run] += n
    return runs


def source_of_record(record: Record) -> str:
    """Return the run and the task that wrote a record; "" if it does not say."""
    return (header(record, "record-id") or "").rpartition("-")[0]


def _age(run: str) -> tuple[int, ...]:
    counter, _, start = run.rpartition("-")
    return (int(start), int(counter) if counter.isdecimal() else 0) if start.isdecimal() else (-1, 0)


def first_offsets(records: Sequence[Record]) -> dict[int, int]:
    """Return partition -> the first offset that is there; records are sorted by place."""
    found: dict[int, int] = {}
    for record in records:
        found.setdefault(record.partition, record.offset)
    return found


def where(topic: str, record: Record) -> str:
    """Name a record."""
    return f"{topic}/{record.partition} offset {record.offset}"
