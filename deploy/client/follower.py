"""Read topics as records come, and leave out repetitions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import partitions_to_follow

__all__ = ["Follower", "Once", "make_consumer"]

_REMEMBERED = 200_000
"""How many result ids are remembered: when a batch is written again, that happens soon after the first time."""


def make_consumer(kafka: KafkaSettings) -> KafkaConsumer:
    """Return a consumer that creates no topics and reads many records at once."""
    return kafka.consumer(allow_auto_create_topics=False, max_poll_records=5000)


class Follower:
    """Reads topics from a starting place on, as far as its caller polls.

    :param start: ``beginning``; ``now``: only new records; how many records before the end of each partition; or (topic, partition) -> offset, where
        a partition that is not named starts at its beginning.
    :param consumer: what reads; default: a new one. It is closed with the follower, and if the start cannot be found.
    :raises UnknownTopicOrPartitionError: the brokers do not show one of the topics to this account.
    :ivar lost: (topic, partition) -> how many records from the wanted start on Kafka has dropped already.
    """

    def __init__(
        self, kafka: KafkaSettings, topics: Iterable[str], start: str | int | Mapping[tuple[str, int], int] = "now", consumer: KafkaConsumer | None = None
    ) -> None:
        self._consumer = make_consumer(kafka) if consumer is None else consumer
        self.lost: dict[tuple[str, int], int] = {}
        try:
            self._begin(topics, start)
        except BaseException:
            self._consumer.close()
            raise

    def _begin(self, topics: Iterable[str], start: str | int | Mapping[tuple[str, int], int]) -> None:
        self._partitions = partitions_to_follow(self._consumer, topics)
        self._consumer.assign(self._partitions)
        first, self._ends = self._consumer.beginning_offsets(self._partitions), self._consumer.end_offsets(self._partitions)
        for partition in self._partitions:
            if isinstance(start, Mapping):
                wanted = start.get(tuple(partition), 0)
                # Behind the end: the topic was made anew, so everything in it is new.
                at = first[partition] if wanted > self._ends[partition] else max(first[partition], wanted)
                if first[partition] > wanted and tuple(partition) in start:
                    self.lost[partition.topic, partition.partition] = first[partition] - wanted
            else:
                back = 0 if start == "now" else self._ends[partition] if start == "beginning" else int(start)
                at = max(first[partition], self._ends[partition] - back)
            self._consumer.seek(partition, at)

    def poll(self, timeout_s: float = 0.5, max_records: int | None = None) -> list[Any]:
        """Return new records, in order within each partition; [] if none comes within ``timeout_s``.

        :param max_records: at most so many; default: what the consumer is set to.
        """
        found = self._consumer.poll(timeout_ms=int(timeout_s * 1000), **({} if max_records is None else {"max_records": max_records}))
        return [record for batch in found.values() for record in batch]

    def check(self, timeout_s: float) -> None:
        """Ask the brokers where the partitions end. A poll does not tell brokers that stand still from ones that have nothing new.

        :raises KafkaError: they do not answer.
        """
        self._consumer.end_offsets(self._partitions, timeout_ms=int(timeout_s * 1000))

    def ends(self) -> dict[tuple[str, int], int]:
        """Return (topic, partition) -> where it ended when the reading began."""
        return {(p.topic, p.partition): end for p, end in self._ends.items()}

    def positions(self) -> dict[tuple[str, int], int]:
        """Return (topic, partition) -> next offset."""
        return {(p.topic, p.partition): self._consumer.position(p) for p in self._partitions}

    def at_time(self, time_ms: int) -> dict[tuple[str, int], int]:
        """Return (topic, partition) -> offset of the first record at or after a time; the end if there is none."""
        found = self._consumer.offsets_for_times(dict.fromkeys(self._partitions, time_ms))
        return {(p.topic, p.partition): self._ends[p] if at is None else at.offset for p in self._partitions for at in (found.get(p),)}

    def at_end(self) -> bool:
        """Tell whether all records that existed when the reading began have been returned."""
        return all(self._consumer.position(p) >= self._ends[p] for p in self._partitions)

    def position(self, partition: TopicPartition) -> int:
        """Return the next offset of a partition; -1 if it is not read."""
        return self._consumer.position(partition) if partition in self._ends else -1

    def size(self) -> int:
        """Return how many records there were to read at the beginning, at most."""
        return sum(max(0, self._ends[p] - self._consumer.position(p)) for p in self._partitions)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()


class Once:
    """Recognises repetitions: remembers the newest ``size`` ids, in some 200 bytes each, however long they are."""

    def __init__(self, size: int = _REMEMBERED) -> None:
        self._size = size
        self._seen: OrderedDict[bytes, None] = OrderedDict()  # digests

    def first(self, id: str | bytes) -> bool:
        """Tell whether an id is new, and remember it; the caller's ids are all texts, or all bytes."""
        digest = blake2b(id if isinstance(id, bytes) else id.encode(errors="surrogatepass"), digest_size=16).digest()
        if digest in self._seen:
            return False
        self._seen[digest] = None
        if len(self._seen) > self._size:
            self._seen.popitem(last=False)
        return True
