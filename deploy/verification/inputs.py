"""The records of a topology's external topics, as plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from dskype.spouts.topics import Topics

__all__ = [
    "INPUT_TOPICS",
    "Inputs",
    "Record",
    "first_offsets",
    "header",
    "in_order",
    "number_of_record",
    "raw_header",
    "record_id",
    "run_of_record",
    "source_of_record",
    "where",
]

_NEXT_TOPIC = 1 << 32
INPUT_TOPICS = ("results", "matches", "topk", "answers", "dead_letters", "registrations", "sequence", "searches", "subscriptions", "messages")
"""The topics, in the order of reading: while a topology works, effects are read before their causes."""
_SELDOM = ("matches", "searches", "answers")


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


def _moved(record: Any, topic: int) -> Any:
    """Return a record of a topic of messages with the partition number that it has among the records of all of them."""
    if not topic:
        return record
    partition, *others = record[-6:]  # of an InRecord, or of a plain tuple
    return Record(topic * _NEXT_TOPIC + partition, *others)


_PLACE = attrgetter("partition", "offset")


@dataclass
class Inputs:
    """The topics of one topology, each a sequence of :class:`Record`, of plain tuples with the same six values, or of ``InRecord``, in any order.

    If the first offset of a partition is above 0, older records are gone. Compacted topics may have holes anywhere.

    :param topology: its name; dead letters use it to name their topics.
    :param source: the topology whose messages and subscriptions it reads; None: its own.
    :param message_topics: the topics of messages in the order of the message spout; None: that of ``source`` alone. Records of all but the first one have partition numbers
        that say from which they are, see :meth:`place_of`.
    """

    messages: Sequence[Any] = ()
    subscriptions: Sequence[Any] = ()
    sequence: Sequence[Any] = ()
    registrations: Sequence[Any] = ()
    results: Sequence[Any] = ()
    matches: Sequence[Any] = ()
    topk: Sequence[Any] = ()
    dead_letters: Sequence[Any] = ()
    searches: Sequence[Any] = ()
    answers: Sequence[Any] = ()
    topology: str = "dskype"
    source: str | None = None
    message_topics: Sequence[str] | None = None
    topics: Topics = field(init=False)
    runs: int = field(init=False, default=1)
    """How many runs of the topology wrote to the topics; see :meth:`newest_run`."""
    begins: dict[str, dict[int, int]] = field(init=False, default_factory=dict)
    """Field name of a topic -> partition -> its first offset, over all runs; see :meth:`newest_run`."""

    def __post_init__(self) -> None:
        self.topics = Topics.for_topology(self.topology, self.source)
        self.message_topics = tuple(self.message_topics or (self.topics.messages,))
        for name in INPUT_TOPICS:
            setattr(self, name, _records(getattr(self, name)))

    @classmethod
    def read(cls, topology: str, read: Callable[[str], Iterable[Any]], source: str | None = None, message_topics: Sequence[str] | None = None) -> Inputs:
        """Return the inputs of a topology.

        :param topology: its name.
        :param read: returns the records of a topic by its name, [] if there is no such topic; for example ``cluster.log.records``, or
            ``lambda topic: read_to_end(settings, topic)``. Called in the order of :data:`INPUT_TOPICS`.
        :param source: the topology whose messages and subscriptions it reads; None: its own.
        :param message_topics: as in :class:`Inputs`.
        """
        topics = Topics.for_topology(topology, source)
        found: dict[str, Any] = {name: read(getattr(topics, name)) for name in INPUT_TOPICS[:-1]}
        found["messages"] = [_moved(record, i) for i, topic in enumerate(message_topics or (topics.messages,)) for record in read(topic)]
        return cls(topology=topology, source=source, message_topics=message_topics, **found)

    def partition_of(self, topic: str | None, partition: int) -> int | None:
        """Return the number that a partition of a topic of messages has here; None if it is not one of these topics, or not a number of a partition."""
        known = self.message_topics or ()
        if topic not in known or not 0 <= partition < _NEXT_TOPIC:
            return None
        return known.index(topic) * _NEXT_TOPIC + partition

    def place_of(self, partition: int) -> tuple[str, int]:
        """Return (topic, partition) of the number of a partition of messages; the opposite of :meth:`partition_of`."""
        topic, number = divmod(partition, _NEXT_TOPIC)
        return (self.message_topics or ())[topic], number

    def default_id(self, partition: int, offset: int) -> str:
        """Return what a message without an id is called."""
        topic, number = self.place_of(partition)
        return f"{number}-{offset}" if partition < _NEXT_TOPIC else f"{topic}-{number}-{offset}"

    def counts(self) -> dict[str, int]:
        """Return topic -> number of records; without the topics of grouped matches and of searches where there are none."""
        messages = Counter(self.place_of(record.partition)[0] for record in self.messages)
        others = {getattr(self.topics, name): len(getattr(self, name)) for name in reversed(INPUT_TOPICS[:-1]) if name not in _SELDOM or getattr(self, name)}
        return {topic: messages[topic] for topic in self.message_topics or ()} | others

    def newest_run(self) -> tuple[str, int]:
        """Keep only the records of the topology's newest run, and return (its name, how many records of other runs were dropped).

        A topology that is killed and submitted again uses the same topics, and numbers its messages from 0 again.
        """
        self.begins = {name: first_offsets(getattr(self, name)) for name in INPUT_TOPICS}
        written = ("sequence", "registrations", "results", "matches", "topk", "answers")
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
        """Tell whether older records of a topic are gone; call :meth:`newest_run` first."""
        return any(offset > 0 for offset in self.begins[name].values())


def raw_header(record: Record, name: str) -> bytes | None:
    """Return the value of a header; None if there is no such header."""
    return next((value for key, value in record.headers or () if key == name), None)


def header(record: Record, name: str) -> str | None:
    """Return a header as text; None if there is no such header."""
    value = raw_header(record, name)
    return None if value is None else value.decode(errors="replace")


def record_id(record: Record) -> bytes:
    """Return the header ``record-id``, ``<run>-<task>-<number>``; b"" without one."""
    headers = record.headers
    if headers and headers[0][0] == "record-id":  # its place in nearly all records
        return headers[0][1]
    return raw_header(record, "record-id") or b""


def source_of_record(record: Record) -> str:
    """Return run and task that wrote a record; "" without a ``record-id``."""
    return record_id(record).rpartition(b"-")[0].decode(errors="replace")


def run_of_record(record: Record) -> str:
    """Return the run of the topology that wrote a record; "" without a ``record-id``."""
    return source_of_record(record).rpartition("-")[0]


def number_of_record(record: Record) -> int:
    """Return the number that its writer gave a record, which rises with every new record; -1 without a ``record-id``."""
    digits = record_id(record).rpartition(b"-")[2]
    return int(digits) if digits.isdigit() else -1


def in_order(records: Iterable[Record]) -> list[Record]:
    """Return records in the order in which their writers first wrote them; a failed sink may have written some again, or late.

    Records of different writers may change places, but records that belong together have one writer.
    """
    return sorted(records, key=number_of_record)


def _runs_of(records: Sequence[Record]) -> Counter[str]:
    """Count records by run. Optimised for long sequences of the same run."""
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


def _age(run: str) -> tuple[int, ...]:
    counter, _, start = run.rpartition("-")
    return (int(start), int(counter) if counter.isdecimal() else 0) if start.isdecimal() else (-1, 0)


def first_offsets(records: Sequence[Record]) -> dict[int, int]:
    """Return partition -> its first offset; the records must be sorted by place."""
    found: dict[int, int] = {}
    for record in records:
        found.setdefault(record.partition, record.offset)
    return found


def where(topic: str, record: Record) -> str:
    """Return a record's place as text."""
    return f"{topic}/{record.partition} offset {record.offset}"
