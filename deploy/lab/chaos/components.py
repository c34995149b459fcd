"""The components of the chain of running sums: any lost or repeated number changes all later sums."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dskype.topology import BasicBolt, Fields, KafkaBolt, KafkaSpout, Spout

__all__ = ["FedNumbers", "PacedNumbers", "RunningSum", "SumWriter", "expected_sums", "paced_key"]

PACED_KEYS = 5


def paced_key(number: int) -> str:
    """Return the key of a number of :class:`PacedNumbers`."""
    return f"paced-{number % PACED_KEYS}"


class PacedNumbers(Spout):
    """Emits (i, key of i) for i = 0 .. total-1 at a fixed rate. Nothing can be read again: the numbers come from the spout itself.

    :param total: how many.
    :param rate: numbers per second.
    """

    def __init__(self, total: int, rate: float) -> None:
        self.total, self.rate = total, rate

    def open(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Begin at 0."""
        self.collector, self.next, self.began, self.first = collector, 0, None, 0

    def next_tuple(self) -> None:
        """Emit the next number if it is time."""
        if self.began is None:
            self.began, self.first = time.monotonic(), self.next
        if self.next < self.total and self.next - self.first < self.rate * (time.monotonic() - self.began):
            self.collector.emit((self.next, paced_key(self.next)))
            self.next += 1

    def snapshot(self) -> int:
        """Return the next number."""
        return self.next

    def restore(self, state: int) -> None:
        """Continue with a number."""
        self.next = state

    def declare_output_fields(self, declarer: Any) -> None:
        """Declare number and key."""
        declarer.declare(Fields("number", "key"))


class FedNumbers(KafkaSpout):
    """Reads numbers from a topic: key and value of its records, as text."""

    def translate(self, topic, partition, offset, key, value, timestamp_ms, headers):
        """Emit (number, key)."""
        return [("default", (int(value), key.decode()))]

    def declare_output_fields(self, declarer: Any) -> None:
        """Declare number and key."""
        declarer.declare(Fields("number", "key"))


class RunningSum(BasicBolt):
    """Adds up numbers by key and emits the sum so far."""

    def prepare(self, conf: Mapping[str, Any], context: Any) -> None:
        """Begin with nothing."""
        self.sums: dict[str, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        """Add and emit."""
        number, key = tup["number"], tup["key"]
        self.sums[key] = self.sums.get(key, 0) + number
        collector.emit((self.sums[key], key))

    def snapshot(self) -> dict[str, int]:
        """Return the sums."""
        return self.sums

    def restore(self, state: Mapping[str, int]) -> None:
        """Restore the sums."""
        self.sums = dict(state)

    def declare_output_fields(self, declarer: Any) -> None:
        """Declare number and key."""
        declarer.declare(Fields("number", "key"))


class SumWriter(KafkaBolt):
    """Writes (sum, key) to a topic: the key as the record's key, the sum as text."""

    def translate(self, tup: Any) -> Any:
        """Return the record."""
        return self.topic, tup["key"].encode(), str(tup["number"]).encode(), []


def expected_sums(numbers: Iterable[int]) -> Iterator[int]:
    """Yield the chain's output for the numbers of one key: running sums of running sums."""
    first = second = 0
    for number in numbers:
        first += number
        second += first
        yield second
